//! Known answers, worked out by hand, for tiny runs and timelines that were written through the real writers.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "tests")]

mod documentation;
mod fidelity;
mod fixture;
mod production;
mod runs;
