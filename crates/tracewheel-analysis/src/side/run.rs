//! See the parent.
