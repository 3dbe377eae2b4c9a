//! Joins plan, wheel, protocol, transport and retry into one run, and emits one event stream.

mod client_budget;
mod config;
mod decode;
mod error;
mod event;
mod halting;
mod histogram;
mod hook;
mod machine;
mod manifest;
mod message;
mod prefetch;
mod reader;
mod ready;
mod realtime;
mod recorder;
mod report;
mod retry;
mod route;
mod routing;
mod run;
mod shared;
mod stamp;
mod stop;
mod sync;
mod worker;

pub use client_budget::ClientBudget;
pub use config::{
    AfterFailure, ConnectionUse, HttpVersion, LookAhead, PromptOptions, RecordOptions, RecorderQueue,
    ReplayConfig, Secret, SessionMode, SessionRule,
};
pub use error::{ErrorClass, ReplayError};
pub use event::{LATE_BOUND_NS, ReplayEvent, Started, Tick};
pub use hook::{
    CallHeaders, CommandCall, Expect, Flush, FlushEngine, HOOK_TIMEOUT_NS, HOOK_WAIT_NS, Hook, HookAction,
    HookPoint, HttpCall,
};
pub use prefetch::Splicer;
pub use report::{Counts, FirstFailure, Quantiles, RunReport};
pub use retry::{
    Jitter, LongerDelay, ParseJitterError, RetryKind, RetryPolicy, RetryPolicyError, ServerDelay, StatusRange,
};
pub use route::{ApiKey, Criteria, Pattern, Route};
pub use run::run;
pub use stop::{StopLevel, StopSignal};
pub use tracewheel_protocol::{
    AnswerForm, Engine, LimitField, PROVIDERS, ProtocolOptions, TokenDetail, provider,
};
pub use tracewheel_workload::CacheMode;
