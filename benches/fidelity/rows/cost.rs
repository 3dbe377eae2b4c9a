//! What a chunk costs, beside a reader that records nothing.

use std::collections::BTreeMap;
use std::io;

use crate::client::{self, Lab};
use crate::cost::{self, Cost};
use crate::figures::Figures;
use crate::trace;
use crate::witness::{Script, Witness};

use super::{Line, get};

type All = BTreeMap<&'static str, Figures>;

/// Streams at once.
const AT_ONCE: usize = 32;
/// Chunks of a flooded stream.
const FLOOD_CHUNKS: usize = 2_000;

/// One round: the byte reader, then the replay, `streams` streams each.
fn beside_reader(lab: &Lab, streams: usize, script: &Script) -> io::Result<Figures> {
    let witness = Witness::start(script, &lab.folder)?;
    let reader = byte_reader(lab, witness.port, streams)?;
    witness.end()?;
    trace::write(&lab.trace(), trace::even(1_000.0, streams), script.chunks)?;
    let witness = Witness::start(script, &lab.folder)?;
    let target = format!("http://127.0.0.1:{}", witness.port);
    let at_once = AT_ONCE.to_string();
    let replayed = client::replay(lab, &target, &[], &["--closed-loop", &at_once])?;
    let served = witness.end()?.len();
    if served != streams {
        return Err(io::Error::other(format!("{served} of {streams} streams were served")));
    }
    let seconds = |ns: i64| ns as f64 / 1e9;
    let mut stretch = (i64::MAX, i64::MIN);
    for attempt in replayed.run.attempts_without_events().map_err(io::Error::other)? {
        let attempt = attempt.map_err(io::Error::other)?;
        let (Some(from), Some(to)) = (attempt.released_ns, attempt.end_ns) else { continue };
        stretch = (stretch.0.min(from), stretch.1.max(to));
    }
    Ok(Figures::from([
        ("reader_cpu", seconds(reader.cpu_ns)),
        ("reader_wall", seconds(reader.wall_ns)),
        ("cpu", seconds(replayed.cost.cpu_ns)),
        ("wall", seconds(stretch.1 - stretch.0)),
        ("streams", streams as f64),
        ("chunks", (streams * script.chunks) as f64),
        ("peak", replayed.cost.peak_bytes as f64),
    ]))
}

fn byte_reader(lab: &Lab, port: u16, streams: usize) -> io::Result<Cost> {
    let myself = std::env::current_exe()?.display().to_string();
    let (port, at_once, streams) = (port.to_string(), AT_ONCE.to_string(), streams.to_string());
    let words = [&myself, "--role", "reader", "--port", &port, "--at-once", &at_once, "--count", &streams];
    let command: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let cost = cost::of(&command, &lab.folder)?;
    if cost.exit_code == 0 { Ok(cost) } else { Err(io::Error::other("the byte reader failed")) }
}

pub(super) fn of_16(lab: &Lab) -> io::Result<Figures> {
    let script = Script { chunks: 16, first_ns: 2_000_000, gap_ns: 2_000_000, ca_file: None, http2: false };
    let mut figures = beside_reader(lab, 1_000, &script)?;
    // What a start, a plan and a summary cost is the same for any number: what 3,000 streams more cost says the rest.
    let more = beside_reader(lab, 4_000, &script)?;
    let a_thousand_more = |name| (get(&more, name) - get(&figures, name)) / 3.0;
    let further = [("more_cpu", a_thousand_more("cpu")), ("more_reader_cpu", a_thousand_more("reader_cpu"))];
    figures.extend(further);
    Ok(figures)
}

pub(super) fn of_256(lab: &Lab) -> io::Result<Figures> {
    let script = Script { chunks: 256, first_ns: 2_000_000, gap_ns: 2_000_000, ca_file: None, http2: false };
    beside_reader(lab, lab.count(1_000), &script)
}

pub(super) fn flood(lab: &Lab) -> io::Result<Figures> {
    let script = Script { chunks: FLOOD_CHUNKS, first_ns: 0, gap_ns: 0, ca_file: None, http2: false };
    beside_reader(lab, lab.count(400), &script)
}

pub(super) fn judge_16(figures: &Figures, _: &All) -> Vec<Line> {
    vec![judge(figures, 16)]
}

pub(super) fn judge_256(figures: &Figures, _: &All) -> Vec<Line> {
    vec![judge(figures, 256)]
}

fn judge(figures: &Figures, chunks: u32) -> Line {
    let a_thousand = 1_000.0 / get(figures, "streams");
    let (ours, reader) = (a_thousand * get(figures, "cpu"), a_thousand * get(figures, "reader_cpu"));
    let further = match (figures.get("more_cpu"), figures.get("more_reader_cpu")) {
        (Some(ours), Some(reader)) => format!("; a further 1,000: {ours:.2} s ({:.2} ×)", ours / reader),
        _ => String::new(),
    };
    Line {
        what: format!("client CPU for 1,000 streams of {chunks} chunks, 2 ms apart, all recorded"),
        goal: "1.5 × the byte reader's".to_owned(),
        beside: format!("byte reader {reader:.2} s"),
        measured: format!("{ours:.2} s ({:.2} ×){further}", ours / reader),
        reached: Some(ours <= 1.5 * reader),
    }
}

pub(super) fn judge_flood(figures: &Figures, _: &All) -> Vec<Line> {
    let chunks = get(figures, "chunks");
    let (taken, by_reader) = (chunks / get(figures, "wall"), chunks / get(figures, "reader_wall"));
    let a_core = chunks / get(figures, "cpu");
    vec![Line {
        what: "chunks taken in and stamped per second, the server floods".to_owned(),
        goal: "the server's limit, or 100,000/s on one core".to_owned(),
        beside: format!("byte reader {by_reader:.0}/s"),
        measured: format!("{taken:.0}/s; {a_core:.0} for each second of CPU"),
        reached: Some(taken >= 0.95 * by_reader || a_core >= 100_000.0),
    }]
}
