//! The run directory, written and read, versioned and crash-safe; a run as a timeline.
