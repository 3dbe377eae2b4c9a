//! A request of one side as plain numbers.
