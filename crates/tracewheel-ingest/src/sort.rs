//! Puts rows in the order of their arrival.

use crate::draft::Entry;
use crate::error::IngestError;

/// Takes rows in the order of reading and gives them back by arrival; rows of one arrival keep their order.
pub(crate) trait RowSorter {
    fn push(&mut self, entry: Box<Entry>) -> Result<(), IngestError>;

    fn sorted(self: Box<Self>) -> Result<SortedRows, IngestError>;
}

/// Rows by arrival.
pub(crate) type SortedRows = Box<dyn Iterator<Item = Result<Box<Entry>, IngestError>>>;

/// Sorts in memory. A row is large (see [`Entry`]) and stays where it is; only pointers are sorted.
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "rows of 800 bytes are not to be moved by a sort")]
pub(crate) struct MemorySorter(Vec<Box<Entry>>);

impl RowSorter for MemorySorter {
    fn push(&mut self, entry: Box<Entry>) -> Result<(), IngestError> {
        self.0.push(entry);
        Ok(())
    }

    fn sorted(self: Box<Self>) -> Result<SortedRows, IngestError> {
        let mut entries = self.0;
        entries.sort_by_key(|entry| entry.arrival_ns);
        Ok(Box::new(entries.into_iter().map(Ok)))
    }
}

#[cfg(test)]
mod tests {
    use tracewheel_timeline::RequestRow;

    use super::*;

    #[test]
    fn rows_of_one_arrival_keep_their_order() {
        let mut sorter = Box::new(MemorySorter::default());
        for (line, arrival_ns) in [(1, 5), (2, 3), (3, 5), (4, 3)] {
            let entry = Entry { row: RequestRow::default(), arrival_ns, line, file: 0, attempt: None };
            sorter.push(Box::new(entry)).unwrap();
        }
        let lines: Vec<u64> = sorter.sorted().unwrap().map(|entry| entry.unwrap().line).collect();
        assert_eq!(lines, [2, 4, 1, 3]);
    }
}
