//! How late this thread wakes up, learned from its own wake-ups.

/// A robust estimate of the wake-up latency: from the moment that a timer expires to the moment that user code runs.
#[derive(Debug)]
pub struct WakeLatency {}
