//! The hierarchical timer wheel as a pure data structure: no clock, no waker, no HTTP.
