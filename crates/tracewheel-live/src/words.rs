//! The words of a progress line.

use tracewheel_replay::{LATE_BOUND_NS, Started, Tick};

use crate::part::Part;

/// Cells of the bar.
const CELLS: u64 = 16;

/// One tick of a replay in words, most of them there only when they say something: what was sent of the plan, what is in
/// flight, how late the generator was, what failed, the TTFT that users feel, and the time.
pub fn replay_parts(started: Option<&Started>, tick: &Tick) -> Vec<Part> {
    if tick.phase == "prime" {
        return vec![Part::new(0, "getting ready"), Part::new(1, format!("{} in flight", tick.in_flight))];
    }
    let mut parts = vec![
        Part::new(9, bar(tick.sent, tick.planned)),
        Part::new(0, format!("{}/{} sent", amount(tick.sent), amount(tick.planned))),
        Part::new(2, format!("{} in flight", amount(tick.in_flight))),
    ];
    if tick.phase == "warmup" {
        parts.push(Part::new(4, "warming up"));
    }
    if let Some(worst) = tick.late_max_ns {
        let late = format!("{} late >{} (worst {})", amount(tick.late), short(LATE_BOUND_NS), short(worst));
        parts.push(Part::new(if tick.late > 0 { 4 } else { 7 }, late));
    }
    if tick.failed > 0 {
        parts.push(Part::new(1, format!("{} failed", amount(tick.failed))));
    }
    if tick.retries > 0 {
        parts.push(Part::new(5, format!("{} retries", amount(tick.retries))));
    }
    if let Some(ttft) = tick.ttft_p95_ns {
        parts.push(Part::new(6, format!("TTFT p95 {}", short(ttft))));
    }
    if tick.elapsed_ns > 0 {
        parts.push(Part::new(8, clock(tick.elapsed_ns)));
    }
    parts.push(match left_ns(started, tick) {
        Some(left) => Part::new(3, format!("{} left", clock(left))),
        None if tick.phase == "drain" => Part::new(3, "draining"),
        None => Part::new(3, ""),
    });
    parts
}

/// How much is done, as a bar of a fixed width.
pub fn bar(done: u64, all: u64) -> String {
    let full =
        (u128::from(done.min(all)) * u128::from(CELLS)).checked_div(u128::from(all)).unwrap_or(0) as usize;
    format!("[{}{}]", "#".repeat(full), ".".repeat(CELLS as usize - full))
}

/// Time until the last release: in an open loop what is left of the plan, in a closed one from the share already sent.
fn left_ns(started: Option<&Started>, tick: &Tick) -> Option<i64> {
    if !matches!(tick.phase, "warmup" | "measure") || tick.elapsed_ns <= 0 || tick.sent >= tick.planned {
        return None;
    }
    match started {
        Some(started) if !started.closed_loop => Some((started.span_ns - tick.elapsed_ns).max(0)),
        _ => {
            let whole =
                (i128::from(tick.elapsed_ns) * i128::from(tick.planned)).checked_div(i128::from(tick.sent));
            i64::try_from(whole? - i128::from(tick.elapsed_ns)).ok()
        }
    }
}

/// A duration with three digits or so: `85 µs`, `12 ms`, `1.24 s`.
pub fn short(ns: i64) -> String {
    match ns {
        ns if ns >= 10_000_000_000 => format!("{:.1} s", ns as f64 / 1e9),
        ns if ns >= 1_000_000_000 => format!("{:.2} s", ns as f64 / 1e9),
        ns if ns >= 10_000_000 => format!("{:.0} ms", ns as f64 / 1e6),
        ns if ns % 1_000_000 == 0 => format!("{} ms", ns / 1_000_000),
        ns if ns >= 1_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        ns => format!("{:.0} µs", ns as f64 / 1e3),
    }
}

/// A longer duration as a clock shows it: `12 s`, `1:30`, `2:05:00`.
pub fn clock(ns: i64) -> String {
    let seconds = ns / 1_000_000_000;
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes}:{seconds:02}"),
        (hours, minutes, seconds) => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

/// A count with its thousands apart: `1,204,000`.
pub fn amount(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::part::fitted;

    fn started(closed_loop: bool) -> Started {
        Started {
            run_id: "r".to_owned(),
            run_dir: PathBuf::from("runs/r"),
            planned: 4_000,
            span_ns: 100_000_000_000,
            target: "http://127.0.0.1:8000".to_owned(),
            closed_loop,
        }
    }

    fn tick() -> Tick {
        Tick {
            phase: "measure",
            elapsed_ns: 30_000_000_000,
            planned: 4_000,
            sent: 1_000,
            in_flight: 7,
            late: 2,
            late_max_ns: Some(12_300_000),
            ttft_p95_ns: Some(1_240_000_000),
            ..Tick::default()
        }
    }

    #[test]
    fn a_tick_names_what_matters_and_leaves_out_what_is_not_known() {
        let parts = replay_parts(Some(&started(false)), &tick());
        assert_eq!(
            fitted(&parts, 200),
            "[####............]  1,000/4,000 sent  7 in flight  2 late >1 ms (worst 12 ms)  TTFT p95 1.24 s  30 s  1:10 left"
        );
        let busy = Tick { failed: 3, retries: 21, ..tick() };
        assert!(fitted(&replay_parts(None, &busy), 200).contains("3 failed  21 retries  TTFT"));
    }

    #[test]
    fn on_a_narrow_terminal_failures_and_the_time_left_outlive_the_rest() {
        let parts = replay_parts(Some(&started(false)), &Tick { failed: 3, ..tick() });
        assert_eq!(fitted(&parts, 60), "1,000/4,000 sent  7 in flight  3 failed  1:10 left");
        assert_eq!(fitted(&parts, 40), "1,000/4,000 sent  7 in flight  3 failed");
        assert_eq!(fitted(&parts, 20), "1,000/4,000 sent");
    }

    #[test]
    fn a_closed_loop_is_done_when_its_share_says_so() {
        let parts = replay_parts(Some(&started(true)), &tick());
        assert!(fitted(&parts, 200).ends_with("1:30 left"), "{parts:?}");
    }

    #[test]
    fn nothing_is_promised_before_the_first_request_or_after_the_last() {
        let begin = Tick { phase: "measure", planned: 10, ..Tick::default() };
        assert_eq!(
            fitted(&replay_parts(Some(&started(false)), &begin), 200),
            "[................]  0/10 sent  0 in flight"
        );
        let done = Tick { phase: "drain", sent: 10, in_flight: 2, elapsed_ns: 5_000_000_000, ..begin };
        assert!(fitted(&replay_parts(None, &done), 200).ends_with("10/10 sent  2 in flight  5 s  draining"));
        let prime = Tick { phase: "prime", in_flight: 4, ..Tick::default() };
        assert_eq!(fitted(&replay_parts(None, &prime), 200), "getting ready  4 in flight");
    }

    #[test]
    fn durations_and_counts_are_short() {
        assert_eq!(clock(3_725_000_000_000), "1:02:05");
        assert_eq!(short(15_300_000_000), "15.3 s");
        assert_eq!(short(2_500_000), "2.5 ms");
        for (count, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_204_000, "1,204,000")] {
            assert_eq!(amount(count), text);
        }
    }
}
