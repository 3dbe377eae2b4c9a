//! What every text says about a side, about the sending and about caution.

use tracewheel_analysis::comparison::{
    CacheBinReport, CacheBinSide, CacheClassReport, CacheReport, CachedShare, Cause, Fidelity,
    FidelityCriteria, FidelityVerdict, Judged, RetryWave, SideKind, SideReport, Warning,
};

use crate::style::Style;
use crate::table::{paragraph, table, title};
use crate::units::{
    NOTHING, count, duration, duration_or_nothing, number, percentiles, quantile, share, wall_span,
};

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
        text += &wave(name, &side.retries.wave, style);
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

/// How exactly made-up prompts have their lengths, where that is known.
pub(crate) fn prompts(sides: &[(&str, &SideReport)], style: Style) -> String {
    let mut text = String::new();
    for (name, side) in sides {
        let p = &side.prompts;
        let (Some(error), Some(size), Some(most)) = (p.error_p50, p.error_abs_p50, p.error_abs_p95) else {
            continue;
        };
        let line = format!(
            "{name}: made-up prompts of {} requests: {} tokens asked for, {} counted by the target; error {:+.2} % in the median, {:.2} % without the sign, {:.2} % at p95",
            count(p.requests),
            count(p.asked_tokens),
            count(p.counted_tokens),
            error * 100.0,
            size * 100.0,
            most * 100.0
        );
        text += &paragraph(&line, 2, style);
    }
    text
}

/// That retries came together, where they did.
fn wave(name: &str, wave: &RetryWave, style: Style) -> String {
    let figures = (wave.window_ns, wave.peak_factor, wave.period_ns);
    let (true, (Some(window_ns), Some(factor), Some(period_ns))) = (wave.synchronised, figures) else {
        return String::new();
    };
    let found = format!(
        "{name}: retries came in a wave: {} of {} within {}, {} times what the same waits give when they are spread evenly, {} after the attempt before",
        count(wave.densest),
        count(wave.retries),
        duration(window_ns),
        number(Some(factor)),
        duration(period_ns)
    );
    notice(&found, style)
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
                share(s.merged_share),
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

/// How exactly the plan was sent: the verdict, what it rests on, the figures around it. `of` names the side where there
/// are two.
pub(crate) fn fidelity(f: &Fidelity, of: Option<&str>, style: Style) -> String {
    let heading = of.map_or("Sending".to_owned(), |name| format!("Sending of the {name}"));
    let mut text = title(&heading, style);
    text += &fidelity_verdict(f, style);
    let sent = format!(
        "{} of {} requests sent in {} attempts, {} unsent",
        count(f.sent),
        count(f.planned),
        count(f.attempts_sent),
        count(f.unsent)
    );
    text += &paragraph(&sent, 2, style);
    text += &table(
        &["", "value", "faithful up to", "degraded up to", "verdict"],
        "lrrrl",
        criteria(&f.criteria),
        style,
    );
    text += &causes(&f.causes, style);
    text +=
        &paragraph(&format!("lateness (first byte written - due): {}", percentiles(&f.lateness)), 2, style);
    for (what, summary) in [
        ("lateness of retries", &f.retry_lateness),
        ("time to write a request", &f.write_time),
        ("gate drift (due - planned)", &f.gate_drift),
    ] {
        if summary.n > 0 {
            text += &paragraph(&format!("{what}: {}", percentiles(summary)), 2, style);
        }
    }
    if let Some(ns) = f.stamp_uncertainty_ns {
        let line = format!("kernel stamps on the run clock: within {} (stated uncertainty)", duration(ns));
        text += &paragraph(&line, 2, style);
    }
    text
}

/// The verdict on the sending and why.
fn fidelity_verdict(f: &Fidelity, style: Style) -> String {
    let Some(verdict) = f.verdict else {
        return paragraph(&format!("not judged: {}", f.reason), 2, style);
    };
    let plain = paragraph(&format!("{}: {}", verdict.as_str(), f.reason), 2, style);
    plain.replacen(verdict.as_str(), &style.fidelity(verdict), 1)
}

fn criteria(c: &FidelityCriteria) -> Vec<Vec<String>> {
    let word =
        |verdict: Option<FidelityVerdict>| verdict.map_or("not judged", FidelityVerdict::as_str).to_owned();
    let of_ns = |name: &str, j: &Judged<i64>| {
        let edges = [j.degraded_above, j.unfaithful_above].map(duration);
        let mut row = vec![name.to_owned(), duration_or_nothing(j.value)];
        row.extend(edges);
        row.push(word(j.verdict));
        row
    };
    let unsent = &c.unsent_share;
    let edges = [unsent.degraded_above, unsent.unfaithful_above].map(|edge| share(Some(edge)));
    let mut last = vec!["unsent".to_owned(), share(unsent.value)];
    last.extend(edges);
    last.push(word(unsent.verdict));
    vec![of_ns("lateness p99", &c.lateness_p99_ns), of_ns("distance of gaps", &c.gap_distance_ns), last]
}

/// What held requests up, with its evidence and its remedy.
fn causes(list: &[Cause], style: Style) -> String {
    let mut text = String::new();
    for cause in list {
        let name = cause.cause.as_str();
        let told = format!("{name} ({} requests): {}; {}", count(cause.requests), cause.text, cause.remedy);
        text += &paragraph(&format!("! {told}"), 2, style).replacen('!', &style.warning("!"), 1);
    }
    text
}

/// What must be read before anything else.
pub(crate) fn notice(text: &str, style: Style) -> String {
    let plain = paragraph(&format!("! {text}"), 2, style);
    plain.replacen('!', &style.warning("!"), 1)
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

/// How many requests were cold, partly warm and warm, by answer and by prediction, and the shares of tokens; empty where
/// neither is known.
pub(crate) fn cached(sides: &[(&str, &SideReport)], style: Style) -> String {
    let told = |side: &SideReport| side.cached.measured.requests > 0 || side.cached.predicted.requests > 0;
    let (mut rows, mut differences) = (Vec::new(), String::new());
    for (name, side) in sides.iter().filter(|(_, side)| told(side)) {
        let cached = &side.cached;
        let row = |what: &str, of: &CachedShare, n: fn(&CacheClassReport) -> u64| {
            let mut row = vec![(*name).to_owned(), what.to_owned()];
            row.extend(cached.classes.iter().map(|class| count(n(class))));
            row.push(share(of.share));
            row
        };
        rows.push(row("measured", &cached.measured, |class| class.measured));
        if cached.predicted.requests > 0 {
            rows.push(row("predicted", &cached.predicted, |class| class.predicted));
        }
        if let Some(difference) = cached.both.difference {
            let line = format!(
                "{name}: predicted - measured is {} points of the input tokens, over the {} requests that know both",
                points(difference),
                count(cached.both.requests)
            );
            differences += &paragraph(&line, 2, style);
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let header = ["", "", "cold", "partly warm", "warm", "not reported", "of the tokens"];
    let heading = title("From the prefix cache (warm: nine tenths or more)", style);
    heading + &table(&header, "llrrrrr", rows, style) + &differences
}

/// A difference of shares in percentage points, with its sign.
fn points(difference: f64) -> String {
    let points = format!("{:+.2}", 100.0 * difference);
    if points == "-0.00" { "+0.00".to_owned() } else { points }
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
