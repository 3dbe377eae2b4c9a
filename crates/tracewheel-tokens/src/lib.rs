//! Counting tokens and making text of a given count.
