//! Send errors, and the stamps of what came back.

use std::collections::BTreeMap;
use std::io;

use crate::client::{self, Lab};
use crate::cost::{self, Cost};
use crate::figures::{Figures, Spread, drift};
use crate::trace;
use crate::witness::{Script, Seen, Witness};

use super::{Line, get, unsupported};

type All = BTreeMap<&'static str, Figures>;

/// Chunks of a stream, and the time between two.
const CHUNKS: usize = 16;
const FIRST_NS: i64 = 10_000_000;
const GAP_NS: i64 = 2_000_000;

fn streams() -> Script {
    Script { chunks: CHUNKS, first_ns: FIRST_NS, gap_ns: GAP_NS, ca_file: None, http2: false }
}

fn short() -> Script {
    Script { chunks: 0, first_ns: 0, gap_ns: 0, ca_file: None, http2: false }
}

/// A bursty trace for the floor's process, which makes it again by itself.
pub(crate) fn rate_trace(rate: usize, count: usize) -> Vec<i64> {
    trace::bursty(rate as f64, count)
}

/// The floor's errors: what the witness saw of a bare loop.
fn floor(lab: &Lab, rate: usize, count: usize, before: &[&str]) -> io::Result<Spread> {
    let witness = Witness::start(&short(), &lab.folder)?;
    let myself = std::env::current_exe()?.display().to_string();
    let mut command: Vec<String> = before.iter().map(|word| (*word).to_owned()).collect();
    let (port, rate_word, count_word) = (witness.port.to_string(), rate.to_string(), count.to_string());
    for word in [&myself, "--role", "floor", "--port", &port, "--rate", &rate_word, "--count", &count_word] {
        command.push(word.to_owned());
    }
    let Cost { exit_code, .. } = cost::of(&command, &lab.folder)?;
    let seen = witness.end()?;
    if exit_code != 0 || seen.len() != count {
        return Err(io::Error::other(format!("the floor sent {} of {count} requests", seen.len())));
    }
    let offsets = rate_trace(rate, count);
    let mut arrivals = vec![0; count];
    for Seen { id, arrived_ns, .. } in &seen {
        arrivals[*id as usize] = arrived_ns - offsets[*id as usize];
    }
    Ok(Spread::around_median(&arrivals))
}

/// One round of a plain row: the floor, then the replay.
fn plain(lab: &Lab, rate: usize, count: usize) -> io::Result<Figures> {
    let count = lab.count(count);
    let bare = floor(lab, rate, count, &[])?;
    let mut figures = replay(lab, rate, count, &streams(), &[], &[])?;
    figures.insert("floor_p50", bare.us(0.5));
    figures.insert("floor_p99", bare.us(0.99));
    Ok(figures)
}

fn replay(
    lab: &Lab,
    rate: usize,
    count: usize,
    script: &Script,
    before: &[&str],
    flags: &[&str],
) -> io::Result<Figures> {
    let offsets = rate_trace(rate, count);
    trace::write(&lab.trace(), offsets.iter().copied(), script.chunks)?;
    let witness = Witness::start(script, &lab.folder)?;
    let port = witness.port;
    let (target, ca_file);
    let mut all_flags = flags.to_vec();
    if let Some(file) = &script.ca_file {
        target = format!("https://127.0.0.1:{port}");
        ca_file = file.display().to_string();
        all_flags.extend(["--ca-file", &ca_file]);
    } else {
        target = format!("http://127.0.0.1:{port}");
    }
    let replayed = client::replay(lab, &target, before, &all_flags)?;
    let seen = witness.end()?;
    let errors = client::send_errors(&replayed.run, &seen, &offsets)?;
    let spread = Spread::around_median(&errors);
    let mut figures = Figures::from([
        ("p50", spread.us(0.5)),
        ("p99", spread.us(0.99)),
        ("max", spread.us(1.0)),
        ("drift", drift(&errors, &offsets)),
        ("cpu_s", replayed.cost.cpu_ns as f64 / 1e9),
    ]);
    if script.chunks > 1 {
        let stamps = client::stamp_errors(&replayed.run, &seen)?;
        figures.extend([
            ("ttft_p50", stamps.ttft.us(0.5)),
            ("ttft_p99", stamps.ttft.us(0.99)),
            ("gap_p50", stamps.gaps.us(0.5)),
            ("gap_p99", stamps.gaps.us(0.99)),
            ("merged", stamps.merged),
            ("unsure", stamps.unsure),
        ]);
    }
    Ok(figures)
}

pub(super) fn at_10(lab: &Lab) -> io::Result<Figures> {
    plain(lab, 10, 200)
}

pub(super) fn at_50(lab: &Lab) -> io::Result<Figures> {
    plain(lab, 50, 500)
}

pub(super) fn at_200(lab: &Lab) -> io::Result<Figures> {
    plain(lab, 200, 2_000)
}

pub(super) fn at_1000(lab: &Lab) -> io::Result<Figures> {
    plain(lab, 1_000, 10_000)
}

pub(super) fn judge_10(figures: &Figures, _: &All) -> Vec<Line> {
    vec![judge(figures, 10, 50.0, 2.0)]
}

pub(super) fn judge_50(figures: &Figures, _: &All) -> Vec<Line> {
    vec![judge(figures, 50, 50.0, 2.0)]
}

pub(super) fn judge_200(figures: &Figures, _: &All) -> Vec<Line> {
    vec![judge(figures, 200, 50.0, 2.0)]
}

pub(super) fn judge_1000(figures: &Figures, _: &All) -> Vec<Line> {
    let drift = get(figures, "drift");
    let line = Line {
        what: "drift of the send time at 1,000/s".to_owned(),
        goal: "under 1 µs/s".to_owned(),
        beside: "–".to_owned(),
        measured: format!("{drift:+.2} µs/s"),
        reached: Some(drift.abs() < 1.0),
    };
    vec![judge(figures, 1_000, 60.0, 3.0), line]
}

fn judge(figures: &Figures, rate: u32, most_p50: f64, most_ratio: f64) -> Line {
    let (p50, p99) = (get(figures, "p50"), get(figures, "p99"));
    let (floor_p50, floor_p99) = (get(figures, "floor_p50"), get(figures, "floor_p99"));
    Line {
        what: format!("send error p50 / p99, bursts at {rate}/s"),
        goal: format!("{most_p50} µs / {most_ratio} × floor's p99"),
        beside: format!("floor {floor_p50:.0} / {floor_p99:.0} µs"),
        measured: format!("{p50:.0} / {p99:.0} µs ({:.2} ×)", p99 / floor_p99),
        reached: Some(p50 <= most_p50 && p99 <= most_ratio * floor_p99),
    }
}

/// 5,000 requests a second with short answers, in the real-time class.
pub(super) fn realtime(lab: &Lab) -> io::Result<Figures> {
    let count = lab.count(25_000);
    let by_flag = lab.help.contains("--realtime");
    let chrt: &[&str] = &["chrt", "-f", "10"];
    let bare = floor(lab, 5_000, count, chrt)?;
    let (before, flags): (&[&str], &[&str]) = if by_flag { (&[], &["--realtime"]) } else { (chrt, &[]) };
    let mut figures = replay(lab, 5_000, count, &short(), before, flags)?;
    figures.insert("floor_p50", bare.us(0.5));
    figures.insert("floor_p99", bare.us(0.99));
    figures.insert("by_flag", f64::from(u8::from(by_flag)));
    Ok(figures)
}

pub(super) fn judge_realtime(figures: &Figures, _: &All) -> Vec<Line> {
    let by_flag = get(figures, "by_flag") > 0.0;
    let how = if by_flag { "`--realtime`" } else { "`chrt -f 10`, all threads" };
    let (p50, p99) = (get(figures, "p50"), get(figures, "p99"));
    vec![Line {
        what: format!("send error p50 / p99, bursts at 5,000/s, short answers, {how}"),
        goal: "20 µs / 150 µs".to_owned(),
        beside: format!("floor {:.0} / {:.0} µs", get(figures, "floor_p50"), get(figures, "floor_p99")),
        measured: format!("{p50:.0} / {p99:.0} µs"),
        reached: Some(p50 <= 20.0 && p99 <= 150.0),
    }]
}

pub(super) fn https(lab: &Lab) -> io::Result<Figures> {
    let script = Script { ca_file: Some(lab.folder.join("ca.pem")), ..streams() };
    replay(lab, 1_000, lab.count(10_000), &script, &[], &[])
}

pub(super) fn judge_https(figures: &Figures, all: &All) -> Vec<Line> {
    vec![beside_plain(figures, all, "HTTPS")]
}

pub(super) fn h2(lab: &Lab) -> io::Result<Figures> {
    if !lab.help.contains("--http2-streams") {
        return Err(unsupported("this binary has no HTTP/2"));
    }
    let script = Script { http2: true, ..streams() };
    replay(lab, 1_000, lab.count(10_000), &script, &[], &["--http", "2"])
}

pub(super) fn judge_h2(figures: &Figures, all: &All) -> Vec<Line> {
    vec![beside_plain(figures, all, "HTTP/2")]
}

fn beside_plain(figures: &Figures, all: &All, what: &str) -> Line {
    let plain_p99 = all.get("send-1000").map(|plain| get(plain, "p99"));
    let (p50, p99) = (get(figures, "p50"), get(figures, "p99"));
    Line {
        what: format!("send error p50 / p99, {what}, bursts at 1,000/s"),
        goal: "p99 within 2 × of plain HTTP/1.1's".to_owned(),
        beside: plain_p99.map_or("–".to_owned(), |plain| format!("plain p99 {plain:.0} µs")),
        measured: match plain_p99 {
            Some(plain) => format!("{p50:.0} / {p99:.0} µs ({:.2} ×)", p99 / plain),
            None => format!("{p50:.0} / {p99:.0} µs"),
        },
        reached: plain_p99.map(|plain| p99 <= 2.0 * plain),
    }
}

pub(super) fn stamps_200(lab: &Lab) -> io::Result<Figures> {
    replay(lab, 200, lab.count(2_000), &streams(), &[], &[])
}

pub(super) fn stamps_1000(lab: &Lab) -> io::Result<Figures> {
    replay(lab, 1_000, lab.count(5_000), &streams(), &[], &[])
}

pub(super) fn judge_stamps_200(figures: &Figures, _: &All) -> Vec<Line> {
    judge_stamps(figures, 200)
}

pub(super) fn judge_stamps_1000(figures: &Figures, _: &All) -> Vec<Line> {
    judge_stamps(figures, 1_000)
}

fn judge_stamps(figures: &Figures, rate: u32) -> Vec<Line> {
    let line = |what: &str, p50: f64, p99: f64, most: (f64, f64)| Line {
        what: format!("{what}, p50 / p99 of the distance, {rate}/s"),
        goal: format!("{} µs / {} µs", most.0, most.1),
        beside: "the server's own stamps".to_owned(),
        measured: format!("{p50:.1} / {p99:.0} µs"),
        reached: Some(p50 <= most.0 && p99 <= most.1),
    };
    let (merged, unsure) = (100.0 * get(figures, "merged"), 100.0 * get(figures, "unsure"));
    vec![
        line("recorded TTFT − server's", get(figures, "ttft_p50"), get(figures, "ttft_p99"), (60.0, 600.0)),
        line(
            &format!(
                "recorded gaps − server's ({merged:.2} % of the gaps within one read; {unsure:.2} % of the chunks left out)"
            ),
            get(figures, "gap_p50"),
            get(figures, "gap_p99"),
            (15.0, 300.0),
        ),
    ]
}
