//! Joins plan, wheel, protocol, transport and retry into one run, and emits one event stream.

mod config;
mod error;
mod event;
mod report;
mod retry;
mod run;
mod stop;

pub use config::{LookAhead, RecorderQueue, ReplayConfig, Secret};
pub use error::ReplayError;
pub use event::{ReplayEvent, Started, Tick};
pub use report::{Counts, Quantiles, RunReport};
pub use retry::{LongerDelay, RetryPolicy, StatusRange};
pub use run::run;
pub use stop::{StopLevel, StopSignal};
pub use tracewheel_protocol::{LimitField, TokenDetail};
pub use tracewheel_workload::CacheMode;
