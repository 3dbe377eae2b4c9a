//! Finds where a file's clock starts again: a log whose times go back by much and then run on from there.
//!
//! A row that comes late is no restart: the rows behind it are back at the present. So the rows after a step back are
//! held until they show which of the two it was, a bounded number of them.

use crate::draft::Draft;
use crate::options::RestartRule;
use crate::report::Restart;

/// A shorter step back is a row that was written late, unless it leads to the very start of a log's own count.
const LEAST_STEP_NS: i64 = 60_000_000_000;
/// Rows that a recording needs to be told from stray rows.
const LEAST_ROWS: usize = 3;
/// Rows that are no batch of late ones.
const MANY_ROWS: usize = 8;
/// Rows behind a step back that are looked at.
const MOST_HELD: usize = 64;
/// Restarts that are listed with their place. All are counted.
const LISTED: usize = 20;

/// A row, and when it arrived.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) arrival_ns: i64,
    pub(crate) draft: Box<Draft>,
}

/// Watches the arrivals of one file, in its order.
#[derive(Debug)]
pub(crate) struct RestartWatch {
    rule: RestartRule,
    part: Part,
    held: Held,
    /// What the times of the present part are moved by.
    shift_ns: i64,
    count: u64,
    listed: Vec<Restart>,
}

/// The rows since the last restart, in the times that are written.
#[derive(Debug, Default, Clone, Copy)]
struct Part {
    rows: u64,
    first_ns: i64,
    high_ns: i64,
    in_order: bool,
}

/// The rows since a step back that may be a restart.
#[derive(Debug, Default)]
struct Held {
    rows: Vec<Watched>,
    high_ns: i64,
    in_order: bool,
    /// Rows that went back again by much.
    stray: usize,
}

impl RestartWatch {
    pub(crate) fn new(rule: RestartRule) -> Self {
        Self { rule, part: Part::default(), held: Held::default(), shift_ns: 0, count: 0, listed: Vec::new() }
    }

    /// Takes the next row and puts those rows into `out` of which it is known where they belong.
    pub(crate) fn take(&mut self, entry: Watched, has_epoch: bool, out: &mut Vec<Watched>) {
        if self.held.rows.is_empty() {
            if self.part.may_restart_at(entry.arrival_ns, has_epoch) {
                self.held.push(entry);
            } else {
                self.part.take(entry.arrival_ns);
                out.push(self.moved(entry));
            }
            return;
        }
        let gap_ns = self.part.high_ns.saturating_sub(self.held.rows[0].arrival_ns);
        let step_ns = entry.arrival_ns.saturating_sub(self.held.high_ns);
        let near_ns = self.part.high_ns.saturating_sub(gap_ns / 10);
        if step_ns > gap_ns / 2 && entry.arrival_ns >= near_ns {
            // Back at the present with a jump: those rows were late. Far beyond it, or behind many rows in a row from
            // the start of a log's own count, it is a pause in a recording of its own.
            let beyond = entry.arrival_ns > self.part.high_ns.saturating_add(gap_ns / 2);
            let many = !has_epoch && self.held.rows.len() >= MANY_ROWS;
            if self.held.is_steady() && (beyond || many) {
                self.restart(has_epoch, out);
            } else {
                self.let_go(out);
            }
            return self.take(entry, has_epoch, out);
        }
        if !has_epoch && self.held.starts_again_at(entry.arrival_ns, gap_ns) {
            // A short one, and here is the next.
            self.restart(has_epoch, out);
            return self.take(entry, has_epoch, out);
        }
        self.held.stray += usize::from(step_ns < -(gap_ns / 10));
        let past = entry.arrival_ns > self.part.high_ns;
        self.held.push(entry);
        if self.held.is_shuffled() {
            self.let_go(out);
        } else if self.held.rows.len() >= MOST_HELD || (past && self.held.is_recording(gap_ns)) {
            self.restart(has_epoch, out);
        }
    }

    /// Puts the last rows into `out` and gives the restarts: how many, and the first of them.
    pub(crate) fn finish(&mut self, has_epoch: bool, out: &mut Vec<Watched>) -> (u64, Vec<Restart>) {
        if self.held.is_steady() {
            self.restart(has_epoch, out);
        } else {
            self.let_go(out);
        }
        (self.count, std::mem::take(&mut self.listed))
    }

    fn let_go(&mut self, out: &mut Vec<Watched>) {
        for entry in std::mem::take(&mut self.held).rows {
            self.part.take(entry.arrival_ns);
            out.push(self.moved(entry));
        }
    }

    fn restart(&mut self, has_epoch: bool, out: &mut Vec<Watched>) {
        let held = std::mem::take(&mut self.held).rows;
        let first = &held[0];
        let joined = match self.rule {
            RestartRule::Auto => !has_epoch && self.part.starts_again_at(first.arrival_ns),
            RestartRule::Join => true,
            RestartRule::Keep => false,
        };
        self.count += 1;
        if self.listed.len() < LISTED {
            self.listed.push(Restart {
                line: first.draft.place.line,
                offset: first.draft.place.offset,
                from_ns: self.part.high_ns,
                to_ns: first.arrival_ns,
                joined,
            });
        }
        if joined {
            let end_ns = self.part.high_ns.saturating_add(self.shift_ns);
            self.shift_ns = end_ns.saturating_sub(first.arrival_ns);
        }
        self.part = Part::default();
        for entry in held {
            self.part.take(entry.arrival_ns);
            out.push(self.moved(entry));
        }
    }

    fn moved(&self, mut entry: Watched) -> Watched {
        if self.shift_ns != 0 {
            entry.arrival_ns = entry.arrival_ns.saturating_add(self.shift_ns);
            entry.draft.row.arrival_unix_ns = Some(entry.arrival_ns);
        }
        entry
    }
}

impl Part {
    fn take(&mut self, arrival_ns: i64) {
        if self.rows == 0 {
            (self.first_ns, self.high_ns, self.in_order) = (arrival_ns, arrival_ns, true);
        }
        self.rows += 1;
        self.in_order &= arrival_ns >= self.high_ns;
        self.high_ns = self.high_ns.max(arrival_ns);
    }

    fn may_restart_at(&self, arrival_ns: i64, has_epoch: bool) -> bool {
        if arrival_ns >= self.high_ns || self.rows < LEAST_ROWS as u64 {
            return false;
        }
        self.high_ns.saturating_sub(arrival_ns) >= LEAST_STEP_NS
            || (!has_epoch && self.in_order && self.starts_again_at(arrival_ns))
    }

    /// Whether a time lies in the first tenth of the part.
    fn starts_again_at(&self, arrival_ns: i64) -> bool {
        let span_ns = self.high_ns.saturating_sub(self.first_ns);
        span_ns > 0 && arrival_ns <= self.first_ns.saturating_add(span_ns / 10)
    }
}

impl Held {
    fn push(&mut self, entry: Watched) {
        let first = self.rows.is_empty();
        self.in_order = first || (self.in_order && entry.arrival_ns >= self.high_ns);
        self.high_ns = if first { entry.arrival_ns } else { self.high_ns.max(entry.arrival_ns) };
        self.rows.push(entry);
    }

    /// Whether the rows ran forward over most of the gap that they may close.
    fn is_recording(&self, gap_ns: i64) -> bool {
        let span_ns = self.high_ns.saturating_sub(self.rows[0].arrival_ns);
        self.is_steady() && span_ns >= gap_ns / 2
    }

    fn is_steady(&self) -> bool {
        self.rows.len() >= LEAST_ROWS && self.stray == 0
    }

    /// Whether a time lies in the first tenth of rows that are a recording of their own.
    fn starts_again_at(&self, arrival_ns: i64, gap_ns: i64) -> bool {
        let first_ns = self.rows[0].arrival_ns;
        let far = self.high_ns.saturating_sub(arrival_ns) >= LEAST_STEP_NS;
        let whole = self.is_recording(gap_ns) || (far && self.in_order && self.rows.len() >= LEAST_ROWS);
        whole && arrival_ns <= first_ns.saturating_add(self.high_ns.saturating_sub(first_ns) / 10)
    }

    /// A recording runs forward, but for rows that were written when they ended.
    fn is_shuffled(&self) -> bool {
        self.stray > MOST_HELD / 8
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::draft::Place;

    const SECOND_NS: i64 = 1_000_000_000;

    fn entry(line: usize, arrival_ns: i64) -> Watched {
        let mut draft = Box::new(Draft::at(Place { line: line as u64, offset: line as u64 * 10 }));
        draft.row.arrival_unix_ns = Some(arrival_ns);
        Watched { arrival_ns, draft }
    }

    fn watch(rule: RestartRule, epoch: bool, times_ns: &[i64]) -> (Vec<i64>, u64, Vec<Restart>) {
        let mut watch = RestartWatch::new(rule);
        let mut out = Vec::new();
        for (at, time_ns) in times_ns.iter().enumerate() {
            watch.take(entry(at + 1, *time_ns), epoch, &mut out);
        }
        let (count, listed) = watch.finish(epoch, &mut out);
        assert!(
            out.iter().map(|entry| entry.draft.place.line).eq(1..=times_ns.len() as u64),
            "the order is the file's"
        );
        assert!(out.iter().all(|entry| entry.draft.row.arrival_unix_ns == Some(entry.arrival_ns)));
        (out.iter().map(|entry| entry.arrival_ns).collect(), count, listed)
    }

    fn seconds(times: impl IntoIterator<Item = i64>) -> Vec<i64> {
        times.into_iter().map(|time| time * SECOND_NS).collect()
    }

    #[test]
    fn a_count_that_starts_again_is_laid_behind_what_came_before() {
        let times = seconds([0, 10, 20, 0, 10, 20]);
        let (placed, count, listed) = watch(RestartRule::Auto, false, &times);
        assert_eq!((placed, count), (seconds([0, 10, 20, 20, 30, 40]), 1));
        let restart = Restart { line: 4, offset: 40, from_ns: 20 * SECOND_NS, to_ns: 0, joined: true };
        assert_eq!(listed, [restart]);
        let (placed, count, listed) = watch(RestartRule::Keep, false, &times);
        assert_eq!((placed, count, listed[0].joined), (times, 1, false));
        // The last two are too few to be a fourth recording.
        let (placed, count, _) =
            watch(RestartRule::Auto, false, &seconds([0, 10, 20, 0, 10, 20, 0, 10, 20, 2, 9]));
        assert_eq!((placed, count), (seconds([0, 10, 20, 20, 30, 40, 40, 50, 60, 42, 49]), 2));
    }

    #[test]
    fn three_recordings_in_one_file_follow_each_other() {
        let one: Vec<i64> = (0..500).collect();
        let times = seconds([one.clone(), one.clone(), one].concat());
        let (placed, count, listed) = watch(RestartRule::Auto, false, &times);
        assert_eq!((count, listed[0].line, listed[1].line), (2, 501, 1001));
        assert!(placed.is_sorted());
        assert_eq!(placed.last(), Some(&(1497 * SECOND_NS)), "two joints without a pause");
    }

    #[test]
    fn a_wall_clock_that_was_set_back_is_told_and_its_times_stay() {
        let base = 1_795_536_000;
        let times = seconds((0..200).chain(100..300).map(|second| base + second));
        let (placed, count, listed) = watch(RestartRule::Auto, true, &times);
        assert_eq!((placed, count), (times.clone(), 1));
        assert_eq!((listed[0].line, listed[0].joined), (201, false));
        assert_eq!(listed[0].from_ns - listed[0].to_ns, 99 * SECOND_NS);
        assert!(watch(RestartRule::Join, true, &times).0.is_sorted());
    }

    #[test]
    fn rows_that_were_written_late_are_no_restart() {
        let late = seconds((0..300).flat_map(|t| if t % 7 == 6 { vec![t, t - 200] } else { vec![t] }));
        for epoch in [false, true] {
            assert_eq!(watch(RestartRule::Auto, epoch, &late).1, 0);
        }
        for times in [[100, 200, 300, 0, 301, 302, 1], [30, 40, 20, 50, 1, 25, 60]] {
            let (placed, count, _) = watch(RestartRule::Auto, false, &seconds(times));
            assert_eq!((placed, count), (seconds(times), 0));
        }
    }

    #[test]
    fn a_shuffled_log_has_no_restarts() {
        let mut times = seconds((0..3_600).map(|n| 1_795_536_000 + n));
        times.sort_by_key(|time| time.wrapping_mul(0x5851_f42d_4c95_7f2d).rotate_left(17));
        assert_eq!(watch(RestartRule::Auto, true, &times).1, 0);
    }

    #[test]
    fn logs_written_at_the_end_of_each_request_show_their_restart_too() {
        let part = (0..400).map(|n| n * 10 - (n * 37) % 50);
        let times = seconds(part.clone().chain(part));
        let (_, count, listed) = watch(RestartRule::Auto, false, &times);
        assert_eq!((count, listed[0].line), (1, 401));
    }

    proptest! {
        #[test]
        fn no_row_is_lost_whatever_the_times(times in proptest::collection::vec(any::<i64>(), 0..200), epoch: bool) {
            for rule in [RestartRule::Auto, RestartRule::Keep, RestartRule::Join] {
                let (placed, count, listed) = watch(rule, epoch, &times);
                prop_assert_eq!(placed.len(), times.len());
                prop_assert_eq!(listed.len() as u64, count.min(LISTED as u64));
                if rule == RestartRule::Keep {
                    prop_assert_eq!(&placed, &times);
                }
            }
        }

        #[test]
        fn rows_in_order_are_never_touched(mut times in proptest::collection::vec(0_i64..1 << 60, 0..200), epoch: bool) {
            times.sort_unstable();
            prop_assert_eq!(watch(RestartRule::Join, epoch, &times), (times.clone(), 0, vec![]));
        }
    }
}
