//! Joins plan, wheel, protocol, transport and retry into one run, and emits one event stream.

mod config;
mod error;
mod event;
mod halting;
mod histogram;
mod machine;
mod manifest;
mod message;
mod prefetch;
mod ready;
mod realtime;
mod recorder;
mod report;
mod retry;
mod run;
mod shared;
mod stamp;
mod stop;
mod sync;
mod worker;

pub use config::{ConnectionUse, HttpVersion, LookAhead, RecordOptions, RecorderQueue, ReplayConfig, Secret};
pub use error::{ErrorClass, ReplayError};
pub use event::{LATE_BOUND_NS, ReplayEvent, Started, Tick};
pub use report::{Counts, FirstFailure, Quantiles, RunReport};
pub use retry::{LongerDelay, RetryPolicy, StatusRange};
pub use run::run;
pub use stop::{StopLevel, StopSignal};
pub use tracewheel_protocol::{LimitField, PROVIDERS, TokenDetail};
pub use tracewheel_workload::CacheMode;
