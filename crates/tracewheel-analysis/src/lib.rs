//! Pure functions from timelines and runs to metrics, intervals and comparisons.
