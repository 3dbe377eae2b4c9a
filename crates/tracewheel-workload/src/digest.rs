//! The digest of a plan.

use std::fmt;

use tracewheel_timeline::vocab::BodyState;

use crate::{BlockSpec, PlannedRequest, PromptSpec, TailSpec};

/// BLAKE3 over every request of a plan: equal digests mean equal plans, byte for byte.
///
/// Over a domain text and then, request by request, every field in the order of [`PlannedRequest`]: numbers little
/// endian at their width, texts and lists with their length (u64) before them, optional fields with a byte 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanDigest([u8; 32]);

impl PlanDigest {
    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for PlanDigest {
    /// 64 hex digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

const DOMAIN: &[u8] = b"tracewheel plan requests v3\n";

/// Digests requests as they pass.
pub(crate) struct Digester {
    hasher: blake3::Hasher,
    request: Canonical,
}

impl Digester {
    pub(crate) fn new() -> Digester {
        let mut hasher = blake3::Hasher::new();
        hasher.update(DOMAIN);
        Digester { hasher, request: Canonical(Vec::new()) }
    }

    pub(crate) fn push(&mut self, request: &PlannedRequest) {
        self.request.0.clear();
        self.request.request(request);
        self.hasher.update(&self.request.0);
    }

    pub(crate) fn finish(&self) -> PlanDigest {
        PlanDigest(*self.hasher.finalize().as_bytes())
    }
}

/// Canonical bytes, gathered.
struct Canonical(Vec<u8>);

impl Canonical {
    fn request(&mut self, request: &PlannedRequest) {
        // Taken apart without a rest: a field that is added must be digested to compile.
        let PlannedRequest {
            row,
            copy,
            request_id,
            planned_ns,
            phase,
            trace_unix_ns,
            operation,
            method,
            path,
            model,
            route,
            endpoint,
            provider,
            input_tokens,
            output_tokens,
            tokens_filled,
            stream,
            cancel_after_ns,
            session_hash,
            turn,
            think_ns,
            tenant_hash,
            user_hash,
            tags,
            params,
            headers,
            body,
            body_state,
            prompt,
            predicted_cached_tokens,
            // Where a replay sends it is no part of the plan.
            lane: _,
        } = request;
        self.bytes(row.to_le_bytes());
        self.bytes(copy.to_le_bytes());
        self.bytes(request_id.to_le_bytes());
        self.bytes(planned_ns.to_le_bytes());
        self.text(phase.as_str().as_bytes());
        self.option(trace_unix_ns.map(i64::to_le_bytes));
        self.text(operation.as_str().as_bytes());
        for text in [method, path, model, route, endpoint, provider] {
            self.optional_text(text.as_deref().map(str::as_bytes));
        }
        self.bytes(input_tokens.to_le_bytes());
        self.bytes(output_tokens.to_le_bytes());
        self.bytes([u8::from(*tokens_filled), u8::from(*stream)]);
        self.option(cancel_after_ns.map(i64::to_le_bytes));
        self.option(session_hash.map(u64::to_le_bytes));
        self.option(turn.map(u32::to_le_bytes));
        self.option(think_ns.map(i64::to_le_bytes));
        self.option(tenant_hash.map(u64::to_le_bytes));
        self.option(user_hash.map(u64::to_le_bytes));
        self.bytes([u8::from(tags.is_some())]);
        self.length(tags.as_ref().map_or(0, |tags| tags.len()));
        for (key, value) in tags.iter().flatten() {
            self.text(key.as_bytes());
            self.text(value.as_bytes());
        }
        self.optional_text(params.as_deref().map(str::as_bytes));
        // Where there are none nothing is said, so that plans of earlier versions keep their digest.
        if let Some(headers) = headers {
            self.text(b"headers");
            self.length(headers.len());
            for (name, value) in headers {
                self.text(name.as_bytes());
                self.text(value.as_bytes());
            }
        }
        self.optional_text(body.as_deref());
        self.text(BodyState::as_str(*body_state).as_bytes());
        self.prompt(prompt);
        self.option(predicted_cached_tokens.map(u32::to_le_bytes));
    }

    fn prompt(&mut self, prompt: &PromptSpec) {
        let PromptSpec { blocks, tail } = prompt;
        self.length(blocks.len());
        for BlockSpec { hash, tokens } in blocks {
            self.bytes(hash.to_le_bytes());
            self.bytes(tokens.to_le_bytes());
        }
        self.bytes([u8::from(tail.is_some())]);
        if let Some(TailSpec { key, tokens }) = tail {
            self.bytes(key.to_le_bytes());
            self.bytes(tokens.to_le_bytes());
        }
    }

    fn bytes<const N: usize>(&mut self, bytes: [u8; N]) {
        self.0.extend_from_slice(&bytes);
    }

    fn option<const N: usize>(&mut self, bytes: Option<[u8; N]>) {
        self.0.push(u8::from(bytes.is_some()));
        self.0.extend(bytes.into_iter().flatten());
    }

    fn length(&mut self, length: usize) {
        self.bytes((length as u64).to_le_bytes());
    }

    fn text(&mut self, text: &[u8]) {
        self.length(text.len());
        self.0.extend_from_slice(text);
    }

    fn optional_text(&mut self, text: Option<&[u8]>) {
        self.0.push(u8::from(text.is_some()));
        self.text(text.unwrap_or_default());
    }
}
