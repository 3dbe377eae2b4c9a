//! Short requests beside long ones.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::mpsc::sync_channel;

use tracewheel_record::Run;
use tracewheel_replay::{HttpVersion, ReplayConfig, StopSignal};
use tracewheel_timeline::{RequestRow, Timeline, TimelineMeta, TimelineWriter};
use tracewheel_workload::{Plan, PlanOptions, request_id};

use crate::figures::Spread;
use crate::witness::{Script, Witness};

/// How the witness is spoken to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Plain,
    Tls,
    Http2,
}

/// What is done about the long requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Long {
    None,
    Sliced,
    Whole,
}

const SHORT_A_SECOND: i64 = 200;
/// Of so many short requests one has a long one right before it.
const ONE_IN: i64 = 40;
/// So much before.
const AHEAD_NS: i64 = 100_000;
const LONG_TOKENS: u32 = 100_000;
const BLOCK_TOKENS: u32 = 512;

/// What a run's short requests were like, over all rounds; nanoseconds.
#[derive(Default)]
struct Found {
    /// Distance of their arrival from the median, by the witness.
    errors: Vec<i64>,
    /// The same for those that had a long one right before them.
    behind: Vec<i64>,
    /// From when those were due to when their first byte was written, by the run's own record.
    late: Vec<i64>,
    /// From the first to the last byte of a long one.
    upload: Vec<i64>,
}

pub(crate) fn measure(name: &str, way: Way, rounds: usize, seconds: usize) -> io::Result<()> {
    let ways: &[(&str, Long)] = match way {
        // With HTTP/2 there is no such thing as writing in one go: frames are 16 KiB.
        Way::Http2 => &[("without long ones", Long::None), ("in slices", Long::Sliced)],
        _ => &[("without long ones", Long::None), ("in slices", Long::Sliced), ("in one go", Long::Whole)],
    };
    let mut found: Vec<Found> = ways.iter().map(|_| Found::default()).collect();
    for _ in 0..rounds {
        for ((_, long), found) in ways.iter().zip(&mut found) {
            one(way, *long, seconds as i64, found)?;
        }
    }
    println!("{name}, {SHORT_A_SECOND}/s short; p50 / p90 / p99 in µs");
    println!(
        "{:<20} {:^23} {:^23} {:^23} {:^23}",
        "", "error, all", "error, behind", "late, behind", "upload"
    );
    for ((name, _), found) in ways.iter().zip(found) {
        let told = |values| {
            let spread = Spread::of(values);
            format!("{:>6.0} {:>7.0} {:>8.0}", spread.us(0.5), spread.us(0.9), spread.us(0.99))
        };
        let Found { errors, behind, late, upload } = found;
        println!("{name:<20} {} {} {} {}", told(errors), told(behind), told(late), told(upload));
    }
    Ok(())
}

/// One run.
fn one(way: Way, long: Long, seconds: i64, found: &mut Found) -> io::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("trace.parquet");
    let offsets = write(&path, long != Long::None, seconds).map_err(io::Error::other)?;
    let plan = Plan::build(&Timeline::open(&path).unwrap(), PlanOptions::default()).unwrap();
    let ca_file = (way == Way::Tls).then(|| folder.path().join("ca.pem"));
    let http2 = way == Way::Http2;
    let script =
        Script { chunks: 16, first_ns: 10_000_000, gap_ns: 2_000_000, ca_file: ca_file.clone(), http2 };
    let witness = Witness::start(&script, folder.path())?;
    let scheme = if ca_file.is_some() { "https" } else { "http" };
    let config = ReplayConfig {
        target: format!("{scheme}://127.0.0.1:{}", witness.port),
        ca_file,
        http: if http2 { HttpVersion::Http2 } else { HttpVersion::Http1 },
        model: Some("m".to_owned()),
        test_whole_bodies: long == Long::Whole,
        ..ReplayConfig::default()
    };
    let (sender, _events) = sync_channel(100_000);
    let report =
        tracewheel_replay::run(&plan, &config, &folder.path().join("runs"), &StopSignal::new(), sender)
            .map_err(io::Error::other)?;
    let seen = witness.end()?;
    if report.counts.ok != offsets.len() as u64 {
        return Err(io::Error::other(format!("not every request ended well: {:?}", report.counts)));
    }
    let arrived: HashMap<u64, i64> = seen.iter().map(|seen| (seen.id, seen.arrived_ns)).collect();
    let digest = &plan.header().timeline_digest;
    let mut short = Vec::new();
    for (row, (offset_ns, kind)) in (0_u64..).zip(&offsets) {
        let at =
            arrived.get(&request_id(digest, row, 0)).ok_or_else(|| io::Error::other("one never came"))?;
        match kind {
            Kind::Long => {}
            Kind::Short { behind } => short.push((at - offset_ns, *behind)),
        }
    }
    let median = Spread::of(short.iter().map(|(at, _)| *at).collect()).at(0.5);
    for (at, behind) in short {
        found.errors.push((at - median).abs());
        if behind {
            found.behind.push((at - median).abs());
        }
    }
    let run = Run::open(&report.run_dir).map_err(io::Error::other)?;
    for attempt in run.attempts().map_err(io::Error::other)? {
        let attempt = attempt.map_err(io::Error::other)?;
        let Some((first, last)) = attempt.first_write_ns.zip(attempt.last_write_ns) else { continue };
        match offsets[attempt.row as usize].1 {
            Kind::Long => found.upload.push(last - first),
            Kind::Short { behind: true } => found.late.push(first - attempt.due_ns),
            Kind::Short { behind: false } => {}
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Kind {
    Long,
    /// Whether it is one before which a long one has its place.
    Short {
        behind: bool,
    },
}

/// Writes the trace; what its rows are, in their order.
fn write(
    path: &Path,
    with_long: bool,
    seconds: i64,
) -> Result<Vec<(i64, Kind)>, Box<dyn std::error::Error + Send + Sync>> {
    let meta = TimelineMeta { block_tokens: Some(BLOCK_TOKENS), ..TimelineMeta::default() };
    let mut writer = TimelineWriter::create(path, meta)?;
    let mut rows = Vec::new();
    for number in 0..seconds * SHORT_A_SECOND {
        let at = AHEAD_NS + number * 1_000_000_000 / SHORT_A_SECOND;
        let behind = number % ONE_IN == ONE_IN / 2;
        if behind && with_long {
            rows.push((at - AHEAD_NS, Kind::Long));
        }
        rows.push((at, Kind::Short { behind }));
    }
    for (number, (at, kind)) in (0_u64..).zip(&rows) {
        let row = RequestRow {
            arrival_unix_ns: Some(*at),
            model: Some("m".into()),
            stream: Some(true),
            output_tokens: Some(16),
            ..RequestRow::default()
        };
        writer.push(&match kind {
            Kind::Short { .. } => RequestRow { input_tokens: Some(200), ..row },
            // Conversations of which all but the last fifth is known.
            Kind::Long => RequestRow {
                input_tokens: Some(LONG_TOKENS),
                prefix_hashes: Some(
                    (0..195).map(|block| if block < 156 { block } else { number << 32 | block }).collect(),
                ),
                ..row
            },
        })?;
    }
    writer.finish()?;
    Ok(rows)
}
