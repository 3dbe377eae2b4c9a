//! The primitives that the threads of a run share state by. `tests/interleavings.rs` compiles the files that use them
//! against a model checker's instead, which is why they are named in one place.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering};
pub(crate) use std::sync::{Mutex, MutexGuard};

/// Runs a test; under the model checker, once for each interleaving of its threads.
#[cfg(test)]
pub(crate) fn each_interleaving(test: impl Fn() + Send + Sync + 'static) {
    test();
}
