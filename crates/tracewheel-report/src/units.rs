//! Human units.
