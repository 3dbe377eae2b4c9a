//! Pure timeline-to-plan functions: window, speed, sessions, prompts that keep prefix sharing.
//!
//! A [`Plan`] says what a replay sends and when. It is a pure function of a timeline and [`PlanOptions`]: the same
//! two give the same plan, byte for byte, which [`Plan::digest`] makes checkable. Rows are not held in memory, only
//! counts are, and what logged retries know: [`Plan::requests`] streams the timeline again, and remembers a bounded
//! number of prefix blocks to say what a cache would have found ([`PrefixCache`]).
//!
//! Prompts are planned as a [`PromptSpec`], a list of blocks and a tail; [`PromptRenderer`] makes the text. The
//! nonce that keeps one run's prompts out of another run's caches enters only there ([`CacheMode`]), so it is no
//! part of the plan.

mod attempts;
mod block_set;
mod cache_mode;
mod digest;
mod error;
mod header;
mod histogram;
mod history;
mod human;
mod layout;
mod options;
mod plan;
mod prefix_cache;
mod priming;
mod probes;
mod prompt;
mod request;
mod select;
mod share;
mod shared_text;
mod speed;
mod survey;
mod thin;

pub use cache_mode::{CacheMode, ParseCacheModeError};
pub use digest::PlanDigest;
pub use error::{RowPlace, WorkloadError};
pub use header::{PlanHeader, PromptStats};
pub use histogram::Histogram;
pub use history::{History, HistorySurvey, MAX_HISTORY_BLOCKS};
pub use options::{ParseUnknownTokensError, PlanOptions, UnknownTokens, Warmup, Window};
pub use plan::{Plan, PlannedRequests, Prediction};
pub use prefix_cache::{MAX_BLOCKS, PrefixCache};
pub use priming::{PRIMING_COPY, PrimingRequests};
pub use probes::PROBE_WORDS;
pub use prompt::{BlockSpec, Calibration, PromptRenderer, PromptSpec, TailSpec};
pub use request::{Assign, Lane, PlannedRequest, request_id};
pub use share::{ParseShareError, Share};
pub use shared_text::{PromptText, SharedText};
pub use speed::{ParseSpeedError, Speed};
pub use survey::{OperationCount, Places, PlanSurvey, Sizes};
pub use thin::Thinned;
