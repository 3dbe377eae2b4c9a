//! What every text says about a side, about the sending and about caution.

use tracewheel_analysis::comparison::{
    CacheBinReport, CacheBinSide, CacheReport, Fidelity, SideKind, SideReport, Warning,
};

use crate::style::Style;
use crate::table::{paragraph, table, title};
use crate::units::{NOTHING, count, duration, number, percentiles, quantile, share, wall_span};

/// What a side is called.
pub(crate) fn label(side: &SideReport) -> &'static str {
    match side.kind {
        SideKind::Timeline => "production",
        SideKind::Run => "baseline",
    }
}

/// Window and load of sides, each under its name.
pub(crate) fn windows(sides: &[(&str, &SideReport)], style: Style) -> String {
    let rows = sides.iter().map(|(name, side)| {
        let window = &side.window;
        let trace = window.trace_from_unix_ns.zip(window.trace_to_unix_ns);
        let c = &side.concurrency;
        vec![
            (*name).to_owned(),
            trace.map_or(NOTHING.to_owned(), |(from, to)| wall_span(from, to)),
            duration(window.span_ns),
            number(window.requests_per_second),
            if c.known == 0 { NOTHING.to_owned() } else { format!("{} / {} / {}", c.p50, c.p95, c.max) },
        ]
    });
    let header = ["", "recorded arrivals", "span", "req/s", "in flight p50 / p95 / max"];
    table(&header, "llrrl", rows.collect(), style)
}

/// Under which load latencies were measured: one line for beneath their title.
pub(crate) fn load_line(sides: &[(&str, &SideReport)], style: Style) -> String {
    let each = sides.iter().map(|(name, side)| {
        let (c, rate) = (&side.concurrency, number(side.window.requests_per_second));
        let in_flight = if c.known == 0 { String::new() } else { format!(", {} in flight at p95", c.p95) };
        format!("{name} over {} at {rate} req/s{in_flight}", duration(side.window.span_ns))
    });
    paragraph(&each.collect::<Vec<_>>().join("; "), 2, style)
}

/// How the requests of sides ended.
pub(crate) fn endings(sides: &[(&str, &SideReport)], style: Style) -> String {
    let rows = sides.iter().map(|(name, side)| {
        let c = &side.counts;
        let r = &side.retries;
        let mut row = vec![(*name).to_owned()];
        row.extend([c.planned, c.ok, c.failed, c.cancelled, c.interrupted, c.unsent].map(count));
        row.push(format!("{} ({})", count(r.retried), share(r.retried_share)));
        row.push(format!("{} ({})", count(r.throttled), share(r.throttled_share)));
        row
    });
    let header = ["", "requests", "ok", "failed", "cancelled", "cut", "unsent", "retried", "throttled"];
    table(&header, "lrrrrrrrr", rows.collect(), style)
}

/// Back-off and budget waits, where there were any.
pub(crate) fn waits(sides: &[(&str, &SideReport)], style: Style) -> String {
    let mut text = String::new();
    for (name, side) in sides {
        for (what, wait) in [("back-off", &side.retries.backoff), ("budget waits", &side.retries.budget_wait)]
        {
            if wait.n > 0 {
                let line = format!("{name}: {what} of {} requests: {}", count(wait.n), percentiles(wait));
                text += &paragraph(&line, 2, style);
            }
        }
    }
    text
}

/// Evenness of the streams of sides.
pub(crate) fn streams(sides: &[(&str, &SideReport)], style: Style) -> String {
    let with_streams = sides.iter().filter(|(_, side)| side.streams.streams > 0);
    let rows: Vec<Vec<String>> = with_streams
        .map(|(name, side)| {
            let s = &side.streams;
            let of_events = |n: u64| share((s.output_events > 0).then(|| n as f64 / s.output_events as f64));
            let jitter = format!("{} / {}", number(s.jitter.p50), number(s.jitter.p95));
            vec![
                (*name).to_owned(),
                count(s.streams),
                count(s.output_events),
                if s.jitter.streams == 0 { NOTHING.to_owned() } else { jitter },
                format!("{} in {}", count(s.stalls.stalls), count(s.stalls.streams)),
                of_events(s.coalesced_events),
                if side.stamps.logged > 0 { NOTHING.to_owned() } else { of_events(side.stamps.kernel) },
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let header = ["", "streams", "events", "jitter p50 / p95", "stalls", "same read", "kernel stamps"];
    title("Streams", style) + &table(&header, "lrrrrrr", rows, style)
}

/// How exactly the plan was sent.
pub(crate) fn fidelity(f: &Fidelity, style: Style) -> String {
    let judged = match f.faithful {
        Some(true) => "; the schedule was kept",
        Some(false) => "; the schedule was NOT kept",
        None => "",
    };
    let sent = format!(
        "{} of {} requests sent in {} attempts{judged}",
        count(f.sent),
        count(f.planned),
        count(f.attempts_sent)
    );
    let mut text = title("Sending", style) + &paragraph(&sent, 2, style);
    text +=
        &paragraph(&format!("lateness (first byte written - due): {}", percentiles(&f.lateness)), 2, style);
    if f.gate_drift.n > 0 {
        text += &paragraph(&format!("gate drift (due - planned): {}", percentiles(&f.gate_drift)), 2, style);
    }
    text
}

/// Warnings under a heading, one a paragraph; nothing when there are none.
pub(crate) fn warnings(heading: &str, list: &[Warning], style: Style) -> String {
    if list.is_empty() {
        return String::new();
    }
    let mut text = title(heading, style);
    for warning in list {
        let plain = paragraph(&format!("! {}: {}", warning.code, warning.text), 2, style);
        let head = format!("! {}:", warning.code);
        text += &plain.replacen(&head, &style.warning(&head), 1);
    }
    text
}

/// TTFT by cached share; empty when nobody reports any.
pub(crate) fn cache(report: &CacheReport, baseline: Option<&str>, style: Style) -> String {
    let known = |bin: &CacheBinReport| {
        bin.bin.as_str() != "not reported" && (bin.replay.n > 0 || bin.baseline.is_some_and(|b| b.n > 0))
    };
    if !report.bins.iter().any(known) {
        return title("Cached share", style) + "no side reports cached tokens\n";
    }
    let cells = |side: &CacheBinSide| {
        [count(side.n), share(side.share), quantile(side.ttft_p50.as_ref()), quantile(side.ttft_p95.as_ref())]
    };
    // A bin that nobody fell into says nothing.
    let used = |bin: &&CacheBinReport| bin.replay.n > 0 || bin.baseline.is_some_and(|b| b.n > 0);
    let rows = report.bins.iter().filter(used).map(|bin| {
        let mut row = vec![bin.bin.as_str().to_owned()];
        row.extend(cells(&bin.replay));
        row.extend(bin.baseline.filter(|_| baseline.is_some()).iter().flat_map(cells));
        row
    });
    let mut header = vec!["cached, %", "replay n", "share", "ttft p50", "p95"];
    let of_baseline = baseline.map(|name| format!("{name} n"));
    if let Some(name) = &of_baseline {
        header.extend([name.as_str(), "share", "ttft p50", "p95"]);
    }
    let note = format!("Cached share (ttft of successful requests, from {} a bin)", report.min_n);
    title(&note, style) + &table(&header, "lrrrrrrrr", rows.collect(), style)
}
