//! The calls by which engines empty their prefix cache, with the ways in which their answers mislead.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use http::{Method, Response, StatusCode};
use serde_json::json;

use crate::api::ApiError;
use crate::config::{FlushConfig, FlushTells};
use crate::server::body::ReplyBody;
use crate::server::routes::Call;

/// What an older SGLang answers whether or not it flushed.
const HEDGED: &str = "Cache flushed. Look into the log for more. \
                      (While requests run or wait, the operation will not be performed.)\n";

/// What the calls so far have left behind.
#[derive(Debug, Default)]
pub(crate) struct FlushState {
    /// Calls that were to empty the cache.
    calls: Cell<u32>,
    /// Slots erased since the cache was last emptied.
    erased: RefCell<BTreeSet<u32>>,
}

impl FlushState {
    /// Counts a call; whether it is to be answered as by a busy engine.
    fn is_busy(&self, config: &FlushConfig) -> bool {
        let calls = self.calls.get();
        self.calls.set(calls.saturating_add(1));
        calls < config.busy_answers
    }
}

impl Call {
    /// The answer to a call that empties the cache; `None` for every other call.
    pub(crate) fn flush(&self) -> Option<Response<ReplyBody>> {
        let path = self.parts.uri.path();
        Some(match (&self.parts.method, path) {
            (&Method::POST, "/reset_prefix_cache") => self.reset_prefix_cache(),
            (&Method::POST | &Method::GET, "/flush_cache") => self.flush_cache(),
            (&Method::POST, "/clear") => self.clear(),
            (&Method::GET, "/slots") => self.slots(),
            (&Method::POST, path) => self.erase(path.strip_prefix("/slots/")?.parse().ok()?),
            _ => return None,
        })
    }

    /// Empties the cache unless requests hold it or the mock is to seem busy; whether it did.
    fn empties(&self) -> bool {
        let service = &self.service;
        !service.flush.is_busy(&service.config.flush) && service.hub.reset_prefix_cache()
    }

    fn tells(&self) -> bool {
        self.service.config.flush.tells == FlushTells::Result
    }

    /// vLLM: 200 in any case, and newer builds say in it whether they did.
    fn reset_prefix_cache(&self) -> Response<ReplyBody> {
        let done = self.empties();
        self.json(
            StatusCode::OK,
            if self.tells() { json!({ "success": done }).to_string() } else { String::new() },
        )
    }

    /// SGLang: 400 while it is busy; older builds answer the same whatever they did.
    fn flush_cache(&self) -> Response<ReplyBody> {
        match (self.empties(), self.tells()) {
            (_, false) => self.json(StatusCode::OK, HEDGED),
            (true, true) => self.json(StatusCode::OK, "Cache flushed.\n"),
            (false, true) => {
                self.json(StatusCode::BAD_REQUEST, "Requests run or wait: the cache was not flushed.\n")
            }
        }
    }

    /// LMCache's controller: tells what it found, and only begins to clear it.
    fn clear(&self) -> Response<ReplyBody> {
        let tokens = self.cached_tokens();
        self.empties();
        self.json(
            StatusCode::OK,
            json!({ "event_id": format!("clear-{}", self.ticket.0), "num_tokens": tokens }).to_string(),
        )
    }

    /// llama.cpp: what its slots are doing.
    fn slots(&self) -> Response<ReplyBody> {
        let (config, gauges) = (&self.service.config.flush, self.service.hub.gauges());
        let held = u32::try_from(gauges.running + gauges.waiting).unwrap_or(u32::MAX);
        let busy = if self.service.flush.is_busy(config) { 1 } else { held };
        let slots: Vec<_> =
            (0..config.slots).map(|id| json!({ "id": id, "is_processing": id < busy })).collect();
        self.json(StatusCode::OK, serde_json::Value::from(slots).to_string())
    }

    /// llama.cpp: one slot. The cache is empty when all of them were erased: it is one for all here.
    fn erase(&self, slot: u32) -> Response<ReplyBody> {
        let slots = self.service.config.flush.slots;
        if slot >= slots || self.parts.uri.query() != Some("action=erase") {
            return self.refuse(&ApiError::invalid(
                Some("id_slot"),
                format!("there are {slots} slots, and action=erase"),
            ));
        }
        let mut erased = self.service.flush.erased.borrow_mut();
        let tokens = if erased.insert(slot) { self.cached_tokens() / u64::from(slots) } else { 0 };
        if erased.len() as u64 == u64::from(slots) {
            erased.clear();
            self.service.hub.reset_prefix_cache();
        }
        self.json(StatusCode::OK, json!({ "id_slot": slot, "n_erased": tokens }).to_string())
    }

    fn cached_tokens(&self) -> u64 {
        self.service.hub.gauges().cache_blocks.0 as u64 * u64::from(self.service.config.cache.block_tokens)
    }
}
