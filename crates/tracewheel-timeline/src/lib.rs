//! The vocabulary (ids, units, event kinds, states) and the request timeline: versioned Arrow schema, Parquet, validation, statistics.
