//! A timeline as one side: what production recorded, logged retries folded into the request that the user made.
//!
//! A row that names an earlier one in `retry_of_row` is a later attempt of the same request. The user waited from the
//! first attempt's arrival to the end of the last one, so the last attempt's times count from the first arrival, and a last
//! attempt that failed is a request that was never answered.

use std::collections::HashMap;
use std::sync::Arc;

use tracewheel_timeline::vocab::{ArrivalSource, Operation, Reason, RequestStatus, TtftKind};
use tracewheel_timeline::{RequestRow, Timeline};

use super::observed::{Ended, Observed, Roster};
use super::report::{Counts, SideKind};
use super::streams::{OutputStream, StreamTally, TokenSource};
use super::wave::{Resend, RetryWave};
use super::{Logged, Side, Source, throttled_status};
use crate::error::Result;
use crate::metric::Metric;

/// The columns that a comparison reads; the wide ones (bodies, prefix hashes) stay on disk.
const COLUMNS: &[&str] = &[
    "arrival_unix_ns",
    "arrival_source",
    "retry_of_row",
    "operation",
    "endpoint",
    "model",
    "model_served",
    "provider",
    "stream",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "served_by_gateway_cache",
    "client_gone",
    "cancel_after_ns",
    "prod_status",
    "prod_error",
    "prod_attempts",
    "prod_ttft_ns",
    "prod_ttft_kind",
    "prod_e2e_ns",
    "prod_event_ns",
    "sample_rate",
];

/// Most different words that are kept of one column.
const MAX_FACTS: usize = 64;

/// Reads the rows of a timeline that `wanted` names (by the first attempt's row), retries folded.
pub(crate) fn load<'a>(
    timeline: &'a Timeline,
    wanted: &dyn Fn(u64) -> bool,
    stall_ns: i64,
) -> Result<Side<'a>> {
    let mut fold = Fold::default();
    for row in timeline.columns_in(0..timeline.num_rows(), COLUMNS) {
        let (position, row) = row?;
        fold.add(position, &row, wanted);
    }
    let Fold { requests, logged, mut counts, resends, .. } = fold;
    let roster = Roster::new(requests);
    for request in &roster.requests {
        counts.add(request.status.0);
        if request.status.0 == RequestStatus::Failed {
            let status = request.http_status.filter(|status| *status >= 400);
            let reason = status.map_or("error".to_owned(), |status| format!("http_{status}"));
            *counts.reasons.entry(reason).or_default() += 1;
        }
    }
    let mut side =
        Side::new(SideKind::Timeline, timeline.meta().digest.clone(), Source::Timeline(timeline), roster);
    side.report.counts = counts;
    side.report.retries.wave = RetryWave::of(resends);
    side.report.window.trace_from_unix_ns = side.roster.requests.first().map(|r| r.order_ns);
    side.report.window.trace_to_unix_ns = side.roster.requests.last().map(|r| r.order_ns);
    side.logged = logged;
    let mut tally = StreamTally::new(stall_ns);
    side.visit_streams(&mut |_, stream| tally.add(stream))?;
    side.set_streams(tally);
    Ok(side)
}

/// Visits the logged events of every successful request of the roster that has gaps.
pub(crate) fn visit_streams(
    timeline: &Timeline,
    roster: &Roster,
    visit: &mut dyn FnMut(usize, &OutputStream),
) -> Result<()> {
    let with_gaps = roster.requests.iter().enumerate().filter(|(_, r)| r.knows(Metric::Gap));
    let by_row: HashMap<u64, usize> = with_gaps.map(|(at, r)| (r.counted, at)).collect();
    if by_row.is_empty() {
        return Ok(());
    }
    let mut stream = OutputStream::default();
    for row in timeline.columns_in(0..timeline.num_rows(), &["prod_event_ns"]) {
        let (position, row) = row?;
        if let (Some(at), Some(events)) = (by_row.get(&position), row.prod_event_ns) {
            stream.load_logged(events.iter().copied());
            visit(*at, &stream);
        }
    }
    Ok(())
}

/// Rows on their way to requests.
#[derive(Default)]
struct Fold {
    requests: Vec<Observed>,
    /// Where the request of a row stands, for first attempts and retries alike.
    request_of: HashMap<u64, usize>,
    logged: Logged,
    counts: Counts,
    resends: Vec<Resend>,
}

impl Fold {
    fn add(&mut self, position: u64, row: &RequestRow, wanted: &dyn Fn(u64) -> bool) {
        let at = match row.retry_of_row {
            Some(first) => {
                let Some(at) = self.request_of.get(&first).copied() else { return };
                self.counts.retries_folded += 1;
                at
            }
            None => {
                if !wanted(position) {
                    return;
                }
                let start_ns = row.arrival_unix_ns.unwrap_or(0);
                let key = (position, 0);
                self.requests.push(Observed { key, order_ns: start_ns, start_ns, ..Observed::default() });
                self.requests.len() - 1
            }
        };
        self.request_of.insert(position, at);
        self.resends.extend(resend(&self.requests[at], row));
        take_attempt(&mut self.requests[at], position, row);
        self.logged.add(row);
        self.counts.status_unknown += u64::from(row.prod_status.is_none() && row.prod_error.is_none());
        self.counts.served_by_gateway_cache += u64::from(row.served_by_gateway_cache == Some(true));
    }
}

/// A later attempt of a request, where the end of the one before is known.
fn resend(request: &Observed, row: &RequestRow) -> Option<Resend> {
    let arrival_ns = row.arrival_unix_ns.unwrap_or(0);
    let before_end_ns = request.end_ns.filter(|_| request.attempts > 0)?;
    let before_start_ns = request.service_start_ns?;
    Some(Resend {
        at_ns: arrival_ns,
        wait_ns: (arrival_ns - before_end_ns).max(0),
        period_ns: arrival_ns - before_start_ns,
    })
}

/// The request becomes what its latest logged attempt says; start and sums stay.
fn take_attempt(request: &mut Observed, position: u64, row: &RequestRow) {
    let arrival = row.arrival_unix_ns.unwrap_or(0);
    if let Some(before) = request.end_ns.filter(|_| request.attempts > 0) {
        request.backoff_ns += (arrival - before).max(0);
    }
    let events = row.prod_event_ns.as_deref().unwrap_or_default();
    // A negative duration is a fault of the log: unknown.
    let known = |ns: Option<i64>| ns.filter(|ns| *ns >= 0);
    let whole = known(row.prod_e2e_ns).or_else(|| events.iter().max().copied());
    let after = |offset: Option<i64>| offset.map(|ns| arrival.saturating_add(ns));
    let (tpot_ns, token_source) = per_token(row, events).unzip();
    *request = Observed {
        key: request.key,
        order_ns: request.order_ns,
        start_ns: request.start_ns,
        backoff_ns: request.backoff_ns,
        attempts: request.attempts.saturating_add(row.prod_attempts.unwrap_or(1).max(1)),
        throttled: request.throttled || throttled_status(row.prod_status),
        sent: true,
        status: Ended(status(row)),
        http_status: row.prod_status,
        service_start_ns: Some(arrival),
        first_output_ns: after(known(row.prod_ttft_ns)),
        first_kind: row.prod_ttft_kind,
        last_ns: after(whole),
        end_ns: after(whole),
        tpot_ns,
        token_source,
        gaps: events.len().saturating_sub(1) as u32,
        input_tokens: row.input_tokens,
        cached_tokens: row.cached_tokens,
        output_tokens: row.output_tokens,
        counted: position,
        ..Observed::default()
    };
}

/// How production's request ended. 499 is what proxies log when the client left. Without any status, it counts as ok.
fn status(row: &RequestRow) -> RequestStatus {
    let left = row.client_gone == Some(true) || row.cancel_after_ns.is_some() || row.prod_status == Some(499);
    let refused = row.prod_status.is_some_and(|status| match row.operation {
        Operation::Http => !(200..400).contains(&status),
        _ => Reason::from_http_status(status).is_some(),
    });
    if left {
        RequestStatus::Cancelled
    } else if refused || row.prod_error.is_some() {
        RequestStatus::Failed
    } else {
        RequestStatus::Ok
    }
}

/// TPOT from event times; else, where the TTFT is a token's or a chunk's, from the first output to the last byte.
fn per_token(row: &RequestRow, events: &[i64]) -> Option<(i64, TokenSource)> {
    if events.len() >= 2 {
        let mut stream = OutputStream::default();
        stream.load_logged(events.iter().copied());
        return stream.per_token(row.output_tokens);
    }
    let (Some(ttft), Some(whole), Some(tokens)) = (row.prod_ttft_ns, row.prod_e2e_ns, row.output_tokens)
    else {
        return None;
    };
    let of_output = matches!(row.prod_ttft_kind, Some(TtftKind::Token | TtftKind::FirstChunk));
    let streamed = row.stream != Some(false) && whole > ttft;
    (of_output && streamed && ttft >= 0 && tokens > 1)
        .then(|| ((whole - ttft) / i64::from(tokens - 1), TokenSource::ToLastByte))
}

impl Logged {
    fn add(&mut self, row: &RequestRow) {
        if let (Some(_), Some(kind)) = (row.prod_ttft_ns, row.prod_ttft_kind) {
            *self.ttft_kinds.entry(kind).or_default() += 1;
        }
        self.arrival_not_start += u64::from(row.arrival_source != ArrivalSource::Start);
        self.sampled |= row.sample_rate.is_some_and(|rate| rate < 1.0);
        let words = [
            ("target.models_asked", &row.model),
            ("target.models_served", &row.model_served),
            ("protocol.provider", &row.provider),
            ("target.url", &row.endpoint),
        ];
        for (key, word) in words {
            self.add_fact(key, word.as_ref());
        }
    }

    fn add_fact(&mut self, key: &'static str, word: Option<&Arc<str>>) {
        let Some(word) = word else { return };
        let words = self.facts.entry(key).or_default();
        if words.len() < MAX_FACTS && !words.contains(word.as_ref()) {
            words.insert(word.to_string());
        }
    }
}
