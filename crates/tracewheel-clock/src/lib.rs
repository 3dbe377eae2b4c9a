//! The only place that reads time: monotonic run clock, its offset to wall time, a virtual clock, precise waiting.
