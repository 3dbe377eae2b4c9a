//! Pure timeline-to-plan functions: window, speed, sessions, prompts that keep prefix sharing.
//!
//! A [`Plan`] says what a replay sends and when. It is a pure function of a timeline and [`PlanOptions`]: the same
//! two give the same plan, byte for byte, which [`Plan::digest`] makes checkable. Rows are not held in memory, only
//! counts are, and what logged retries know: [`Plan::requests`] streams the timeline again.
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
mod layout;
mod options;
mod plan;
mod prefix_cache;
mod priming;
mod prompt;
mod request;
mod select;
mod speed;

pub use cache_mode::{CacheMode, ParseCacheModeError};
pub use digest::PlanDigest;
pub use error::WorkloadError;
pub use header::{PlanHeader, PromptStats};
pub use options::{ParseUnknownTokensError, PlanOptions, UnknownTokens, Window};
pub use plan::{Plan, PlannedRequests};
pub use prefix_cache::PrefixCache;
pub use priming::{PRIMING_COPY, PrimingRequests};
pub use prompt::{BlockSpec, PromptRenderer, PromptSpec, TailSpec};
pub use request::{PlannedRequest, request_id};
pub use speed::{ParseSpeedError, Speed};
