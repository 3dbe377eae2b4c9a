//! A running replay's event stream as a progress line.
