//! Renders an analysis; computes nothing.
