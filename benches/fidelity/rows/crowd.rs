//! Memory, and streams by the ten thousand.

use std::collections::BTreeMap;
use std::io;

use crate::client::{self, Lab, Replayed};
use crate::figures::Figures;
use crate::trace;
use crate::witness::{Script, Witness};

use super::{Line, get, unsupported};

type All = BTreeMap<&'static str, Figures>;

const MIB: f64 = 1024.0 * 1024.0;
/// Chunks of a stream.
const CHUNKS: usize = 16;
/// Streams of the row that holds as many as the descriptors allow.
const MANY: usize = 19_000;
/// Streams of the row that holds more.
const MORE: usize = 50_000;

fn run(lab: &Lab, rate: f64, count: usize, gap_ns: i64, http2: bool) -> io::Result<Replayed> {
    trace::write(&lab.trace(), trace::even(rate, count), CHUNKS)?;
    let script = Script { chunks: CHUNKS, first_ns: gap_ns, gap_ns, ca_file: None, http2 };
    let witness = Witness::start(&script, &lab.folder)?;
    let target = format!("http://127.0.0.1:{}", witness.port);
    let flags: &[&str] = if http2 { &["--http", "2"] } else { &[] };
    let replayed = client::replay(lab, &target, &[], flags)?;
    witness.end()?;
    Ok(replayed)
}

/// The most streams in flight and the most resident bytes that the run's own watch saw in a second.
fn most(replayed: &Replayed) -> io::Result<(f64, f64)> {
    let (mut in_flight, mut bytes) = (0, 0);
    for row in replayed.run.health().map_err(io::Error::other)? {
        let row = row.map_err(io::Error::other)?;
        in_flight = in_flight.max(row.in_flight.unwrap_or(0));
        bytes = bytes.max(row.rss_bytes.unwrap_or(0));
    }
    if bytes == 0 {
        return Err(io::Error::other("the run says nothing of its memory"));
    }
    Ok((f64::from(in_flight), bytes as f64))
}

/// 30,000 requests at 1,000/s; then 12,000 of them twice, with fewer and with more of them in flight at once.
pub(super) fn memory(lab: &Lab) -> io::Result<Figures> {
    let long = run(lab, 1_000.0, lab.count(30_000), 2_000_000, false)?;
    // What a run says is read before the next one, which takes its place.
    let of = |gap_ns| most(&run(lab, 1_000.0, 12_000, gap_ns, false)?);
    let ((few, few_bytes), (many, many_bytes)) = (of(125_000_000)?, of(375_000_000)?);
    let more = many - few;
    Ok(Figures::from([
        ("peak_mib", long.cost.peak_bytes as f64 / MIB),
        ("a_thousand_mib", (many_bytes - few_bytes) / MIB / (more / 1_000.0)),
        ("more", more),
    ]))
}

pub(super) fn judge_memory(figures: &Figures, _: &All) -> Vec<Line> {
    let (peak, more) = (get(figures, "peak_mib"), get(figures, "a_thousand_mib"));
    let line = |what: &str, goal: f64, measured: f64| Line {
        what: what.to_owned(),
        goal: format!("{goal} MiB"),
        beside: "–".to_owned(),
        measured: format!("{measured:.1} MiB"),
        reached: Some(measured <= goal),
    };
    vec![
        line("peak memory after 30,000 requests at 1,000/s", 80.0, peak),
        line("peak memory for each 1,000 more streams in flight", 10.0, more),
    ]
}

/// As many streams at once as a process may have descriptors, of slow tokens.
pub(super) fn h1(lab: &Lab) -> io::Result<Figures> {
    crowd(lab, 1_900.0, lab.count(MANY), 1_500_000_000, false)
}

/// `count` streams that are all in flight at once.
fn crowd(lab: &Lab, rate: f64, count: usize, gap_ns: i64, http2: bool) -> io::Result<Figures> {
    let replayed = run(lab, rate, count, gap_ns, http2)?;
    Ok(Figures::from([
        ("in_flight", most(&replayed)?.0),
        ("wanted", 0.95 * count as f64),
        ("peak_mib", replayed.cost.peak_bytes as f64 / MIB),
        ("cpu_s", replayed.cost.cpu_ns as f64 / 1e9),
        ("exit_code", replayed.cost.exit_code as f64),
    ]))
}

pub(super) fn judge_h1(figures: &Figures, _: &All) -> Vec<Line> {
    vec![judge(figures, "19,000 streams in flight at once over HTTP/1.1, 16 tokens 1.5 s apart")]
}

/// More streams than descriptors.
pub(super) fn h2(lab: &Lab) -> io::Result<Figures> {
    if !lab.help.contains("--http2-streams") {
        return Err(unsupported("this binary has no HTTP/2"));
    }
    crowd(lab, 2_000.0, lab.count(MORE), 3_000_000_000, true)
}

pub(super) fn judge_h2(figures: &Figures, _: &All) -> Vec<Line> {
    vec![judge(figures, "50,000 streams in flight at once over HTTP/2")]
}

fn judge(figures: &Figures, what: &str) -> Line {
    let (in_flight, peak) = (get(figures, "in_flight"), get(figures, "peak_mib"));
    let (cpu, exit_code) = (get(figures, "cpu_s"), get(figures, "exit_code"));
    Line {
        what: what.to_owned(),
        goal: "all answered, the verdict honest".to_owned(),
        beside: "–".to_owned(),
        measured: format!("{in_flight:.0} at once, {peak:.0} MiB, {cpu:.1} s of CPU, exit code {exit_code}"),
        reached: Some(in_flight >= get(figures, "wanted")),
    }
}
