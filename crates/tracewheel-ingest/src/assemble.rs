//! Gives each row, in the order of arrival, what only its place among the others tells: totals that contain their
//! parts, duplicates, retries, turns and think times.
//!
//! What is remembered of requests and sessions is bounded ([`Recent`]): the last 458,752 of each are always known.

use std::hash::{DefaultHasher, Hash, Hasher};

use tracewheel_timeline::{RequestRow, Source};

use crate::draft::Entry;
use crate::reading::sum_of_parts;
use crate::recent::Recent;
use crate::report::{IngestReport, Retries};

/// A retry starts at most this long after its failed attempt ended.
const RETRY_WINDOW_NS: i64 = 60_000_000_000;

/// Whether a file's totals exclude their parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FileRules {
    pub(crate) input_exclusive: bool,
    pub(crate) output_exclusive: bool,
}

/// The rows so far.
#[derive(Debug)]
pub(crate) struct Assembler {
    fold_retries: bool,
    sessions: Recent<Session>,
    new_sessions: u64,
    requests: Recent<Earlier>,
    retries: Retries,
    overlapping_turns: u64,
    computed_turns: bool,
    parts_over_total: u64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Session {
    turns: u32,
    last_end_ns: Option<i64>,
}

/// The last attempt with a request id.
#[derive(Debug, Clone, Copy)]
struct Earlier {
    first_row: u64,
    turn: Option<u32>,
    failed: bool,
    /// Its end, or its start where the end is unknown.
    done_ns: i64,
    /// Of what two copies of one record have in common.
    likeness: u64,
}

/// How a row relates to an earlier one with its request id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    None,
    Retry { of_row: u64, turn: Option<u32> },
    Duplicate,
}

impl Assembler {
    pub(crate) fn new(fold_retries: bool) -> Self {
        Self {
            fold_retries,
            sessions: Recent::new(),
            new_sessions: 0,
            requests: Recent::new(),
            retries: Retries { folded: fold_retries, ..Retries::default() },
            overlapping_turns: 0,
            computed_turns: false,
            parts_over_total: 0,
        }
    }

    /// Writes what was counted into the report.
    pub(crate) fn finish(self, report: &mut IngestReport) {
        report.sessions = self.new_sessions;
        report.sessions_forgotten = self.sessions.forgotten();
        report.sessions_computed = self.computed_turns;
        report.overlapping_turns = self.overlapping_turns;
        report.retries = Retries { forgotten: self.requests.forgotten(), ..self.retries };
        if self.parts_over_total > 0 {
            report.dropped_values.insert("parts: more than their total".to_owned(), self.parts_over_total);
        }
    }

    /// Completes the row that would stand at `position`; false where it repeats an earlier record.
    pub(crate) fn place(&mut self, entry: &mut Entry, rules: FileRules, position: u64) -> bool {
        self.parts_over_total += u64::from(include_parts(&mut entry.row, rules));
        let earlier = entry.row.source_id_hash.and_then(|id| self.requests.get(id).map(|earlier| *earlier));
        let marked = entry.attempt.is_some_and(|attempt| attempt > 0);
        self.retries.unmatched += u64::from(marked && earlier.is_none());
        let retry = match earlier.map_or(Relation::None, |earlier| self.relate(entry, &earlier)) {
            Relation::Duplicate => return false,
            Relation::None => None,
            Relation::Retry { of_row, turn } => self.fold_retries.then_some((of_row, turn)),
        };
        match retry {
            Some((of_row, turn)) => {
                entry.row.retry_of_row = Some(of_row);
                self.continue_turn(entry, turn);
            }
            None => self.next_turn(entry),
        }
        self.remember(entry, position, retry);
        true
    }

    fn relate(&mut self, entry: &Entry, earlier: &Earlier) -> Relation {
        if earlier.likeness == likeness(entry) {
            return Relation::Duplicate;
        }
        let since_ns = entry.arrival_ns.saturating_sub(earlier.done_ns);
        let is_retry = match entry.attempt {
            Some(attempt) => {
                self.retries.marked += u64::from(attempt > 0);
                attempt > 0
            }
            None => {
                let after_failure = earlier.failed && since_ns <= RETRY_WINDOW_NS;
                self.retries.after_failure += u64::from(after_failure);
                after_failure
            }
        };
        if is_retry {
            Relation::Retry { of_row: earlier.first_row, turn: earlier.turn }
        } else {
            Relation::None
        }
    }

    /// An attempt belongs to the turn of the first one.
    fn continue_turn(&mut self, entry: &mut Entry, turn: Option<u32>) {
        if entry.row.turn.is_none() {
            entry.row.turn = turn;
        }
        if let Some(session) = entry.row.session_hash.and_then(|session| self.sessions.get(session)) {
            session.last_end_ns = session.last_end_ns.max(entry.end_ns());
        }
    }

    fn next_turn(&mut self, entry: &mut Entry) {
        let end_ns = entry.end_ns();
        let row = &mut entry.row;
        let Some(session_hash) = row.session_hash else { return };
        let session = match self.sessions.get(session_hash) {
            Some(session) => session,
            None => {
                self.new_sessions += 1;
                self.sessions.insert(session_hash, Session::default())
            }
        };
        if row.turn.is_none() {
            row.turn = Some(session.turns);
            self.computed_turns = true;
        }
        if let Some(last_end_ns) = session.last_end_ns {
            let think_ns = entry.arrival_ns.saturating_sub(last_end_ns);
            self.overlapping_turns += u64::from(think_ns < 0);
            row.think_ns.get_or_insert(think_ns);
        }
        session.turns = session.turns.saturating_add(1);
        session.last_end_ns = end_ns;
    }

    /// Keeps what a later attempt needs: a retry continues the first one's row and turn.
    fn remember(&mut self, entry: &Entry, position: u64, retry: Option<(u64, Option<u32>)>) {
        let Some(id) = entry.row.source_id_hash else { return };
        let (first_row, turn) = retry.unwrap_or((position, entry.row.turn));
        let earlier = Earlier {
            first_row,
            turn,
            failed: entry.failed(),
            done_ns: entry.end_ns().unwrap_or(entry.arrival_ns),
            likeness: likeness(entry),
        };
        self.requests.insert(id, earlier);
    }
}

/// A hash of what two copies of one record have in common. Equal ids, which are compared besides, make a chance
/// meeting of two hashes as good as impossible.
fn likeness(entry: &Entry) -> u64 {
    let row = &entry.row;
    let mut hasher = DefaultHasher::new();
    (entry.arrival_ns, entry.attempt, row.prod_status, row.prod_e2e_ns).hash(&mut hasher);
    (row.input_tokens, row.output_tokens).hash(&mut hasher);
    hasher.finish()
}

/// Makes totals contain their parts. True where parts exceed a total that is said to contain them: they are left out.
fn include_parts(row: &mut RequestRow, rules: FileRules) -> bool {
    let input_parts = sum_of_parts(&[row.cached_tokens, row.cache_write_tokens]);
    let output_parts = sum_of_parts(&[row.reasoning_tokens]);
    let bad_input =
        include(&mut row.input_tokens, &mut row.input_tokens_source, input_parts, rules.input_exclusive);
    let bad_output =
        include(&mut row.output_tokens, &mut row.output_tokens_source, output_parts, rules.output_exclusive);
    if bad_input {
        (row.cached_tokens, row.cached_tokens_source) = (None, None);
        (row.cache_write_tokens, row.cache_write_tokens_source) = (None, None);
    }
    if bad_output {
        (row.reasoning_tokens, row.reasoning_tokens_source) = (None, None);
    }
    bad_input || bad_output
}

/// True where the parts cannot belong to the total.
fn include(
    total: &mut Option<u32>,
    source: &mut Option<Source>,
    parts: Option<u64>,
    exclusive: bool,
) -> bool {
    let (Some(whole), Some(parts)) = (*total, parts) else { return false };
    if !exclusive {
        return parts > whole.into();
    }
    match u32::try_from(u64::from(whole) + parts) {
        Ok(sum) => {
            if sum != whole {
                (*total, *source) = (Some(sum), Some(Source::Derived));
            }
            false
        }
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn entry(arrival_ns: i64, row: RequestRow) -> Entry {
        let row = RequestRow { arrival_unix_ns: Some(arrival_ns), ..row };
        Entry { row, arrival_ns, line: 0, file: 0, attempt: None }
    }

    fn turn(arrival_s: i64, e2e_s: Option<i64>) -> Entry {
        let row = RequestRow {
            session_hash: Some(7),
            prod_e2e_ns: e2e_s.map(|e2e_s| e2e_s * SECOND),
            ..RequestRow::default()
        };
        entry(arrival_s * SECOND, row)
    }

    fn attempt(arrival_s: i64, status: u16, attempt: Option<u32>) -> Entry {
        let row = RequestRow {
            source_id_hash: Some(9),
            session_hash: Some(7),
            prod_status: Some(status),
            prod_e2e_ns: Some(SECOND),
            ..RequestRow::default()
        };
        Entry { attempt, ..entry(arrival_s * SECOND, row) }
    }

    fn place_by(rules: FileRules, assembler: &mut Assembler, entries: Vec<Entry>) -> Vec<RequestRow> {
        let mut rows: Vec<RequestRow> = Vec::new();
        for mut entry in entries {
            if assembler.place(&mut entry, rules, rows.len() as u64) {
                rows.push(entry.row);
            }
        }
        rows
    }

    fn place(assembler: &mut Assembler, entries: Vec<Entry>) -> Vec<RequestRow> {
        place_by(FileRules::default(), assembler, entries)
    }

    #[test]
    fn turns_and_pauses_are_computed_where_ends_are_known() {
        let mut assembler = Assembler::new(false);
        let rows = place(
            &mut assembler,
            vec![turn(0, Some(2)), turn(5, None), turn(9, Some(4)), turn(11, Some(1)), turn(20, Some(1))],
        );
        let pauses: Vec<_> = rows.iter().map(|row| row.think_ns.map(|ns| ns / SECOND)).collect();
        assert_eq!(pauses, [None, Some(3), None, Some(-2), Some(8)]);
        assert_eq!(
            rows.iter().map(|row| row.turn).collect::<Vec<_>>(),
            [Some(0), Some(1), Some(2), Some(3), Some(4)]
        );
        assert_eq!((assembler.overlapping_turns, assembler.new_sessions), (1, 1));
    }

    #[test]
    fn a_marked_retry_is_tied_to_its_first_attempt_and_is_no_turn() {
        let mut assembler = Assembler::new(true);
        let rows = place(
            &mut assembler,
            vec![
                attempt(0, 429, Some(0)),
                attempt(2, 429, Some(1)),
                attempt(9, 200, Some(2)),
                turn(15, None),
            ],
        );
        assert_eq!(
            rows.iter().map(|row| row.retry_of_row).collect::<Vec<_>>(),
            [None, Some(0), Some(0), None]
        );
        assert_eq!(rows.iter().map(|row| row.turn).collect::<Vec<_>>(), [Some(0), Some(0), Some(0), Some(1)]);
        assert_eq!(rows[3].think_ns, Some(5 * SECOND));
        assert_eq!(assembler.retries, Retries { marked: 2, folded: true, ..Retries::default() });
        place(&mut assembler, vec![Entry { row: RequestRow::default(), ..attempt(20, 200, Some(3)) }]);
        assert_eq!((assembler.retries.marked, assembler.retries.unmatched), (2, 1));
    }

    #[test]
    fn without_a_mark_only_a_quick_second_try_after_a_failure_is_a_retry() {
        let late = 1 + 61;
        for (status, second_at, retries) in [(503, 3, 1), (200, 3, 0), (503, late, 0)] {
            let mut assembler = Assembler::new(true);
            let rows = place(&mut assembler, vec![attempt(0, status, None), attempt(second_at, 200, None)]);
            assert_eq!(assembler.retries.after_failure, retries);
            assert_eq!(rows[1].retry_of_row.is_some(), retries > 0);
        }
    }

    #[test]
    fn retries_are_counted_even_where_they_are_not_folded() {
        let mut assembler = Assembler::new(false);
        let rows = place(&mut assembler, vec![attempt(0, 503, None), attempt(3, 200, None)]);
        assert_eq!(assembler.retries, Retries { after_failure: 1, ..Retries::default() });
        assert_eq!(rows[1].retry_of_row, None);
    }

    #[test]
    fn a_repeated_record_is_left_out() {
        let mut assembler = Assembler::new(true);
        assert_eq!(place(&mut assembler, vec![attempt(0, 200, None), attempt(0, 200, None)]).len(), 1);
        let without_id = || turn(0, None);
        assert_eq!(place(&mut Assembler::new(true), vec![without_id(), without_id()]).len(), 2);
    }

    #[test]
    fn totals_that_exclude_their_parts_get_them_added() {
        let row = || RequestRow {
            input_tokens: Some(10),
            cached_tokens: Some(900),
            cache_write_tokens: Some(90),
            output_tokens: Some(5),
            reasoning_tokens: Some(2),
            ..RequestRow::default()
        };
        let rules = FileRules { input_exclusive: true, output_exclusive: false };
        let rows = place_by(rules, &mut Assembler::new(false), vec![entry(0, row())]);
        assert_eq!((rows[0].input_tokens, rows[0].input_tokens_source), (Some(1000), Some(Source::Derived)));
        assert_eq!(rows[0].output_tokens, Some(5));
        let mut assembler = Assembler::new(false);
        let rows = place(&mut assembler, vec![entry(0, row())]);
        assert_eq!((rows[0].input_tokens, rows[0].cached_tokens), (Some(10), None));
        assert_eq!(assembler.parts_over_total, 1);
    }
}
