//! The import report as text.

use std::fmt::Write;
use std::path::Path;

use jiff::Timestamp;
use tracewheel_ingest::{FileReport, IngestReport, RejectReason};

/// Rejected rows that are shown one by one.
const SHOWN_REJECTS: usize = 10;

/// What a person must see after an import.
pub(super) fn text(report: &IngestReport, timeline: &Path) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_all(&mut out, report, timeline);
    out
}

fn write_all(out: &mut String, report: &IngestReport, timeline: &Path) -> std::fmt::Result {
    writeln!(out, "{}: {} rows kept of {} read", timeline.display(), report.rows_kept, report.rows_read)?;
    for file in &report.files {
        write_file(out, file)?;
    }
    writeln!(out, "  {:<10} {:.3} s{}", "span", report.span_ns as f64 / 1e9, since(report))?;
    let precision = &report.precision;
    write!(out, "  {:<10} to {} in the text", "arrivals", step(precision.commonest_ns))?;
    if let Some(found_ns) = precision.found_ns.filter(|found_ns| *found_ns != precision.commonest_ns) {
        write!(out, ", {} in fact", step(found_ns))?;
    }
    writeln!(out, ", {} ties", precision.ties)?;
    let known = [
        ("input tokens", report.known.input_tokens),
        ("output tokens", report.known.output_tokens),
        ("cached tokens", report.known.cached_tokens),
        ("prefix blocks", report.known.prefix_hashes),
        ("sessions", report.known.session),
        ("TTFT", report.known.ttft),
        ("E2E", report.known.e2e),
        ("outcome", report.known.outcome),
    ];
    let known: Vec<String> =
        known.iter().filter(|(_, rows)| *rows > 0).map(|(what, rows)| format!("{what} {rows}")).collect();
    writeln!(
        out,
        "  {:<10} {}",
        "known",
        if known.is_empty() { "nothing".into() } else { known.join(", ") }
    )?;
    write_sorting(out, report)?;
    write_retries(out, report)?;
    write_rejects(out, report)?;
    for (what, count) in &report.dropped_values {
        writeln!(out, "  {:<10} {count} values of {what}: left out, their rows are kept", "dropped")?;
    }
    for warning in &report.warnings {
        writeln!(out, "  {:<10} {warning}", "warning")?;
    }
    Ok(())
}

/// Only where sorting cost something.
fn write_sorting(out: &mut String, report: &IngestReport) -> std::fmt::Result {
    let Some(sorting) = report.sorting.filter(|sorting| sorting.started_over || sorting.runs > 0) else {
        return Ok(());
    };
    let (runs, megabytes) = (sorting.runs, sorting.spilled_bytes / 1_000_000);
    let twice = if sorting.started_over { "; the logs were read from the start again for it" } else { "" };
    writeln!(out, "  {:<10} in {runs} runs, {megabytes} MB in a temporary file{twice}", "sorted")
}

fn write_file(out: &mut String, file: &FileReport) -> std::fmt::Result {
    let how = if file.format_found { "found from the content" } else { "as told" };
    let (kept, name, format) = (file.rows_kept, &file.file, file.format);
    write!(out, "  {:<10} {kept} rows from {name} ({format}, {how}", "file")?;
    if let Some(packed) = &file.packed {
        let (members, packing) = (packed.members, packed.packing);
        write!(out, "; {packing}, {members} {}", if members == 1 { "member" } else { "members" })?;
    }
    writeln!(out, ")")?;
    if file.out_of_order > 0 {
        let rows = file.out_of_order;
        writeln!(out, "  {:<10} {rows} rows stood behind later ones: sorted by arrival", "")?;
    }
    if file.time_forms.len() > 1 {
        let forms: Vec<String> =
            file.time_forms.iter().map(|(form, times)| format!("{form}: {times}")).collect();
        writeln!(out, "  {:<10} times by form: {}", "", forms.join("; "))?;
    }
    Ok(())
}

fn write_retries(out: &mut String, report: &IngestReport) -> std::fmt::Result {
    let retries = report.retries.marked + report.retries.after_failure;
    if retries == 0 {
        return Ok(());
    }
    let rule = if report.retries.folded {
        "joined to the request that they repeat; a replay does its own"
    } else {
        "kept as requests of their own: with --fold-retries they join the request that they repeat"
    };
    writeln!(out, "  {:<10} {retries} logged retries, {rule}", "retries")
}

fn write_rejects(out: &mut String, report: &IngestReport) -> std::fmt::Result {
    if report.rows_rejected == 0 {
        return Ok(());
    }
    let reasons: Vec<String> =
        report.rejected_by_reason.iter().map(|(reason, rows)| format!("{} {rows}", word(*reason))).collect();
    writeln!(out, "  {:<10} {} rows: {}", "rejected", report.rows_rejected, reasons.join(", "))?;
    for row in report.rejects.iter().take(SHOWN_REJECTS) {
        let column = row.column.as_ref().map(|column| format!(" in `{column}`")).unwrap_or_default();
        let (file, line, offset) = (&row.file, row.line, row.offset);
        writeln!(out, "  {:<10} {file}, line {line} (byte {offset}): {}{column}", "", word(row.reason))?;
    }
    if report.rows_rejected > SHOWN_REJECTS as u64 {
        let more = report.rows_rejected - SHOWN_REJECTS as u64;
        writeln!(out, "  {:<10} and {more} more: --rejects FILE lists them all", "")?;
    }
    Ok(())
}

fn since(report: &IngestReport) -> String {
    match (report.has_epoch, report.first_arrival_ns) {
        (true, Some(ns)) => match Timestamp::from_nanosecond(i128::from(ns)) {
            Ok(time) => format!(", from {time}"),
            Err(_) => String::new(),
        },
        (false, _) => ", counted from the log's own start".to_owned(),
        (true, None) => String::new(),
    }
}

fn step(ns: i64) -> String {
    match ns {
        ns if ns >= 1_000_000_000 => format!("{} s", ns as f64 / 1e9),
        ns if ns >= 1_000_000 => format!("{} ms", ns as f64 / 1e6),
        ns if ns >= 1_000 => format!("{} µs", ns as f64 / 1e3),
        ns => format!("{ns} ns"),
    }
}

fn word(reason: RejectReason) -> String {
    match serde_json::to_value(reason) {
        Ok(serde_json::Value::String(word)) => word,
        _ => format!("{reason:?}"),
    }
}
