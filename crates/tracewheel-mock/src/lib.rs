//! A deterministic, scriptable LLM endpoint.
//!
//! A [`Mock`] speaks the APIs of OpenAI, Azure, Anthropic, Google, Ollama and TGI over HTTP/1.1 and HTTP/2. What it answers and when is decided by an [`engine`]: a queue, a
//! continuous batch in steps, a prefix cache and budgets, as a pure state machine. The server lets it run at the pace
//! of a real clock; tests and planning drive it in virtual time with the same results.
//!
//! It shares no encoder with the client side: what it says is spelled here, so that the two check each other. Its own
//! stamps (the witness log) let a generator be judged from outside, and its access log (the gateway log) is what a
//! production gateway would have written of the same traffic.
//!
//! ```
//! use tracewheel_mock::MockConfig;
//! use tracewheel_mock::engine::{Engine, EngineRequest, Ticket};
//! use tracewheel_clock::RunNs;
//!
//! let mut engine = Engine::new(&MockConfig::default());
//! let request = EngineRequest {
//!     ticket: Ticket(1), key: 0, prompt_tokens: 1000, blocks: vec![], output_tokens: 2, output_cap: 2,
//! };
//! engine.submit(RunNs(0), request).expect("no limit is set");
//! let mut out = Vec::new();
//! while let Some(at) = engine.next_event() {
//!     engine.advance(at, &mut out);
//! }
//! // 12 ms + 1000 × 60 µs, then 12.1 ms.
//! let times: Vec<i64> = out.iter().skip(1).map(|emission| emission.at.0).collect();
//! assert_eq!(times, [72_000_000, 84_100_000]);
//! ```

mod api;
mod config;
mod describe;
mod dialect;
pub mod engine;
mod fault;
mod log;
mod prompt;
mod reply;
mod server;
mod simulation;

pub use config::{
    Attempts, CacheConfig, ConfigError, DecodeLevel, EngineConfig, FaultKind, FaultRule, FlushConfig,
    FlushTells, HeaderMatch, HttpConfig, LimitConfig, LoadPoint, MockConfig, OverLimit, RoleDelta,
    TenantConfig, TimeOfDay, Variation,
};
pub use describe::Description;
pub use log::{LogError, is_gateway_line, is_witness_line};
pub use prompt::{Prompt, PromptHasher};
pub use server::{Mock, MockError, MockSummary};
pub use simulation::{Outcome, SimulatedRequest, Simulation};
