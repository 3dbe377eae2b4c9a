//! Puts rows in the order of their arrival, in bounded memory.
//!
//! Rows wait packed ([`RowPacker`]). What happens when they fill the memory that the caller allows depends on the mode:
//!
//! - *Streaming*: the earlier half goes on, the later half waits for rows that come late. Nothing is written anywhere,
//!   and a log whose rows lie less than half the memory out of place never needs more. A row that is earlier than one
//!   which went on already cannot be placed any more: [`Sorter::push`] says so, and the import starts over in the other
//!   mode.
//! - *Spilling*: all rows that wait are sorted and written as one run to a temporary file; the runs are merged at the
//!   end.
//!
//! The order is total (arrival, then input, then line), so neither the mode nor the memory shows in the result.

mod blocks;
mod spill;

use std::path::{Path, PathBuf};

use tracewheel_timeline::{RequestRow, RowPacker};

use crate::draft::Entry;
use crate::error::IngestError;
use blocks::{Blocks, Place};
use spill::Spill;

/// Bytes that a waiting row takes besides its packed form: its entry in the list, which may be twice as long as it needs
/// to be.
const OVERHEAD_BYTES: usize = 2 * size_of::<Waiting>();

/// In place of an attempt's number, which has 32 bits.
const NO_ATTEMPT: u64 = u64::MAX;

/// The order of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) arrival_ns: i64,
    pub(crate) file: u32,
    /// The row's place among those of its file.
    pub(crate) number: u64,
}

/// A packed row's place with what it is sorted by.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    key: Key,
    place: Place,
}

/// What to do when memory is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Streaming,
    Spilling,
}

/// Rows in the order of reading in, rows by arrival out.
#[derive(Debug)]
pub(crate) struct Sorter {
    packer: RowPacker,
    mode: Mode,
    memory_bytes: usize,
    folder: PathBuf,
    waiting: Vec<Waiting>,
    blocks: Blocks,
    waiting_bytes: usize,
    /// The last row that went on.
    gone: Option<Key>,
    spill: Option<Spill>,
    scratch: Vec<u8>,
}

/// A row cannot be placed: later ones went on already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLate;

/// Where the rows that are ready go.
pub(crate) type Take<'a, E> = &'a mut dyn FnMut(&mut Entry) -> Result<(), E>;

impl Sorter {
    /// Uses about `memory_bytes`, and `folder` for temporary files when spilling.
    pub(crate) fn new(mode: Mode, memory_bytes: usize, folder: &Path) -> Self {
        Self {
            packer: RowPacker::new(),
            mode,
            memory_bytes,
            folder: folder.to_owned(),
            waiting: Vec::new(),
            blocks: Blocks::new(memory_bytes),
            waiting_bytes: 0,
            gone: None,
            spill: None,
            scratch: Vec::new(),
        }
    }

    /// Takes a row. True where memory is full: then [`make_room`](Self::make_room) is due.
    pub(crate) fn push(
        &mut self,
        key: Key,
        line: u64,
        attempt: Option<u32>,
        row: &RequestRow,
    ) -> Result<bool, TooLate> {
        if self.gone.is_some_and(|gone| key < gone) {
            return Err(TooLate);
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(&line.to_le_bytes());
        self.scratch.extend_from_slice(&attempt.map_or(NO_ATTEMPT, u64::from).to_le_bytes());
        self.packer.pack(row, &mut self.scratch);
        self.waiting_bytes += self.scratch.len() + OVERHEAD_BYTES;
        self.waiting.push(Waiting { key, place: self.blocks.push(&self.scratch) });
        Ok(self.waiting_bytes >= self.memory_bytes)
    }

    /// Hands the earlier half of the rows on, or writes all of them to a temporary file.
    pub(crate) fn make_room<E: From<IngestError>>(&mut self, take: Take<'_, E>) -> Result<(), E> {
        self.sort();
        if self.mode == Mode::Spilling {
            return Ok(self.spill_all()?);
        }
        let half = self.waiting.len().div_ceil(2);
        self.gone = self.waiting.get(half - 1).map(|last| last.key);
        let mut entry = Entry::default();
        for Waiting { key, place } in self.waiting.drain(..half) {
            self.waiting_bytes -= place.len as usize + OVERHEAD_BYTES;
            unpack(&self.packer, key, self.blocks.get(place), &self.folder, &mut entry)?;
            self.blocks.free(place);
            take(&mut entry)?;
        }
        self.blocks.move_together(self.waiting.iter_mut().map(|waiting| &mut waiting.place));
        Ok(())
    }

    /// Hands all rows on.
    pub(crate) fn finish<E: From<IngestError>>(mut self, take: Take<'_, E>) -> Result<Sorted, E> {
        self.sort();
        let sorted = Sorted {
            went_on_early: self.gone.is_some(),
            runs: self.spill.as_ref().map_or(0, |spill| spill.runs() + u64::from(!self.waiting.is_empty())),
            spilled_bytes: 0,
        };
        let mut entry = Entry::default();
        if self.spill.is_none() {
            for Waiting { key, place } in std::mem::take(&mut self.waiting) {
                unpack(&self.packer, key, self.blocks.get(place), &self.folder, &mut entry)?;
                take(&mut entry)?;
            }
            return Ok(sorted);
        }
        self.spill_all()?;
        self.waiting = Vec::new();
        self.blocks = Blocks::new(0);
        let Some(spill) = self.spill.take() else { return Ok(sorted) };
        let mut merge = spill.merged()?;
        let spilled_bytes = merge.spilled_bytes();
        while let Some((key, bytes)) = merge.next()? {
            unpack(&self.packer, key, bytes, &self.folder, &mut entry)?;
            take(&mut entry)?;
        }
        Ok(Sorted { spilled_bytes, ..sorted })
    }

    fn sort(&mut self) {
        if !self.waiting.is_sorted_by_key(|waiting| waiting.key) {
            self.waiting.sort_unstable_by_key(|waiting| waiting.key);
        }
    }

    fn spill_all(&mut self) -> Result<(), IngestError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let spill = match &mut self.spill {
            Some(spill) => spill,
            none => none.insert(Spill::new(&self.folder, self.memory_bytes)?),
        };
        spill.write_run(self.waiting.iter().map(|waiting| (waiting.key, self.blocks.get(waiting.place))))?;
        self.waiting.drain(..).for_each(|waiting| self.blocks.free(waiting.place));
        self.waiting_bytes = 0;
        Ok(())
    }
}

/// How rows were sorted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sorted {
    /// Rows went on before all were read.
    pub(crate) went_on_early: bool,
    /// Sorted runs that were written to temporary files.
    pub(crate) runs: u64,
    /// Bytes written to temporary files.
    pub(crate) spilled_bytes: u64,
}

/// Makes `entry`, whatever it was, the row of these bytes.
fn unpack(
    packer: &RowPacker,
    key: Key,
    bytes: &[u8],
    folder: &Path,
    entry: &mut Entry,
) -> Result<(), IngestError> {
    let cut = || spill::damaged(folder, "a row is cut short");
    let (line, rest) = bytes.split_first_chunk().ok_or_else(cut)?;
    let (attempt, row) = rest.split_first_chunk().ok_or_else(cut)?;
    packer.unpack_into(row, &mut entry.row).map_err(|problem| spill::damaged(folder, problem))?;
    entry.arrival_ns = key.arrival_ns;
    entry.line = u64::from_le_bytes(*line);
    entry.file = key.file;
    entry.attempt = u32::try_from(u64::from_le_bytes(*attempt)).ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(arrival_ns: i64, file: u32, line: u64) -> Entry {
        let row = RequestRow {
            arrival_unix_ns: Some(arrival_ns),
            source_offset: line,
            prefix_hashes: Some(vec![line; (line % 7) as usize]),
            ..RequestRow::default()
        };
        Entry { row, arrival_ns, line, file, attempt: line.is_multiple_of(3).then_some(line as u32) }
    }

    /// The rows in the order in which they come out, and how that went; `None` where a row came too late.
    fn sort(mode: Mode, memory_bytes: usize, entries: &[Entry]) -> Option<(Vec<Entry>, Sorted)> {
        let folder = tempfile::tempdir().unwrap();
        let mut sorter = Sorter::new(mode, memory_bytes, folder.path());
        let mut out = Vec::new();
        let mut take = |entry: &mut Entry| -> Result<(), IngestError> {
            out.push(entry.clone());
            Ok(())
        };
        for Entry { row, arrival_ns, line, file, attempt } in entries {
            let key = Key { arrival_ns: *arrival_ns, file: *file, number: *line };
            if sorter.push(key, *line, *attempt, row).ok()? {
                sorter.make_room(&mut take).unwrap();
            }
        }
        assert_eq!(folder.path().read_dir().unwrap().count(), 0, "temporary files have no name");
        let sorted = sorter.finish(&mut take).unwrap();
        Some((out, sorted))
    }

    fn in_memory(entries: &[Entry]) -> Vec<Entry> {
        let mut sorted = entries.to_vec();
        sorted.sort_by_key(|entry| (entry.arrival_ns, entry.file, entry.line));
        sorted
    }

    fn shuffled(count: u64) -> Vec<Entry> {
        let scattered = |line: u64| (line.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as i64;
        (0..count).map(|line| entry(scattered(line) / 64, (line % 2) as u32, line)).collect()
    }

    #[test]
    fn rows_of_one_arrival_keep_the_order_of_inputs_and_lines() {
        let entries = [entry(5, 0, 1), entry(3, 1, 1), entry(5, 1, 1), entry(3, 0, 2), entry(5, 0, 2)];
        let (sorted, how) = sort(Mode::Spilling, 1 << 20, &entries).unwrap();
        let places: Vec<_> = sorted.iter().map(|entry| (entry.file, entry.line)).collect();
        assert_eq!(places, [(0, 2), (1, 1), (0, 1), (0, 2), (1, 1)]);
        assert_eq!(how, Sorted::default());
    }

    #[test]
    fn what_fits_is_never_written_and_what_does_not_is_merged_from_many_runs() {
        let entries = shuffled(20_000);
        let (sorted, how) = sort(Mode::Spilling, 64 << 20, &entries).unwrap();
        assert_eq!((sorted, how.runs), (in_memory(&entries), 0));
        // More runs than are merged at once.
        let (sorted, how) = sort(Mode::Spilling, 16 << 10, &entries).unwrap();
        assert_eq!(sorted, in_memory(&entries));
        assert!(how.runs > 100, "{} runs", how.runs);
        assert!(how.spilled_bytes > 20_000 * 40, "{} bytes", how.spilled_bytes);
    }

    #[test]
    fn a_nearly_sorted_log_streams_and_a_row_beyond_reach_is_told() {
        let mut entries: Vec<Entry> = (0..5_000).map(|line| entry(line as i64, 0, line)).collect();
        // Neighbourhoods of 50 rows, backwards.
        entries.chunks_mut(50).for_each(<[Entry]>::reverse);
        let (sorted, how) = sort(Mode::Streaming, 64 << 10, &entries).unwrap();
        assert_eq!(sorted, in_memory(&entries));
        assert_eq!((how.went_on_early, how.runs), (true, 0));
        entries.push(entry(7, 0, 5_001));
        assert!(sort(Mode::Streaming, 64 << 10, &entries).is_none());
        assert!(sort(Mode::Streaming, 64 << 20, &entries).is_some(), "nothing went on");
        assert_eq!(sort(Mode::Spilling, 64 << 10, &entries).unwrap().0, in_memory(&entries));
    }

    proptest! {
        #[test]
        fn any_order_in_any_memory_gives_the_same(
            arrivals in proptest::collection::vec((0_i64..50, 0_u32..3), 0..400),
            memory_bytes in 1_usize..20_000,
        ) {
            let lines = (0_u64..).zip(arrivals);
            let entries: Vec<Entry> = lines.map(|(line, (at, file))| entry(at, file, line)).collect();
            prop_assert_eq!(sort(Mode::Spilling, memory_bytes, &entries).unwrap().0, in_memory(&entries));
            if let Some((streamed, _)) = sort(Mode::Streaming, memory_bytes, &entries) {
                prop_assert_eq!(streamed, in_memory(&entries));
            }
        }
    }
}
