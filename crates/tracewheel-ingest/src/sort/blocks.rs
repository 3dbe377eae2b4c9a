//! The memory in which packed rows wait: blocks that rows are written into end to end, and that are used again.
//!
//! An allocation a row costs more than what is done with the row, and leaves memory in pieces. A block is free when all
//! its rows have gone on. Where some of the rows of many blocks have, the others move together
//! ([`Blocks::move_together`]), so that what is taken stays close to what is used.

/// A block's bytes: the more memory, the more. A longer row has a block of its own.
const LEAST_BLOCK_BYTES: usize = 4 << 10;
const MOST_BLOCK_BYTES: usize = 2 << 20;

/// Blocks of rows.
#[derive(Debug)]
pub(super) struct Blocks {
    block_bytes: usize,
    blocks: Vec<Block>,
    /// Blocks without rows: their memory is kept.
    free: Vec<u32>,
    /// Where the next row goes.
    current: Option<u32>,
    used_bytes: usize,
}

#[derive(Debug, Default)]
struct Block {
    bytes: Vec<u8>,
    rows: usize,
}

/// Where a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    block: u32,
    start: u32,
    pub(super) len: u32,
}

impl Blocks {
    /// For about `memory_bytes` of rows.
    pub(super) fn new(memory_bytes: usize) -> Self {
        Self {
            block_bytes: (memory_bytes / 16).clamp(LEAST_BLOCK_BYTES, MOST_BLOCK_BYTES),
            blocks: Vec::new(),
            free: Vec::new(),
            current: None,
            used_bytes: 0,
        }
    }

    /// Keeps a row.
    pub(super) fn push(&mut self, row: &[u8]) -> Place {
        let fits = |block: &Block| block.bytes.capacity() - block.bytes.len() >= row.len();
        let number = match self.current.filter(|number| fits(&self.blocks[*number as usize])) {
            Some(number) => number,
            None => self.begin(row.len()),
        };
        let block = &mut self.blocks[number as usize];
        let start = block.bytes.len() as u32;
        block.bytes.extend_from_slice(row);
        block.rows += 1;
        self.used_bytes += row.len();
        Place { block: number, start, len: row.len() as u32 }
    }

    /// A block with room for a row of so many bytes. A long row leaves the current one as it is.
    fn begin(&mut self, row_bytes: usize) -> u32 {
        let long = row_bytes > self.block_bytes;
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                self.blocks.push(Block::default());
                self.blocks.len() as u32 - 1
            }
        };
        let block = &mut self.blocks[number as usize];
        block.bytes.reserve_exact(row_bytes.max(self.block_bytes));
        if !long {
            let before = self.current.replace(number);
            self.free.extend(before.filter(|before| self.blocks[*before as usize].rows == 0));
        }
        number
    }

    pub(super) fn get(&self, place: Place) -> &[u8] {
        let start = place.start as usize;
        &self.blocks[place.block as usize].bytes[start..start + place.len as usize]
    }

    /// Gives a row up.
    pub(super) fn free(&mut self, place: Place) {
        self.used_bytes -= place.len as usize;
        let block = &mut self.blocks[place.block as usize];
        block.rows -= 1;
        if block.rows > 0 {
            return;
        }
        block.bytes.clear();
        if block.bytes.capacity() > self.block_bytes {
            block.bytes = Vec::new();
        }
        if self.current != Some(place.block) {
            self.free.push(place.block);
        }
    }

    /// Moves the rows of blocks that hold far less than they could into others; they are all rows that there are.
    pub(super) fn move_together<'a>(&mut self, rows: impl Iterator<Item = &'a mut Place>) {
        let taken: usize = self.blocks.iter().map(|block| block.bytes.len()).sum();
        if taken - self.used_bytes <= self.used_bytes / 4 + self.block_bytes {
            return;
        }
        let mut rows: Vec<&mut Place> = rows.collect();
        // Block by block, so that each is free before the next one is needed.
        rows.sort_unstable();
        let before = self.current.take();
        self.free.extend(before.filter(|before| self.blocks[*before as usize].rows == 0));
        let mut row_bytes = Vec::new();
        for place in rows {
            if self.blocks[place.block as usize].bytes.len() > self.block_bytes {
                continue;
            }
            row_bytes.clear();
            row_bytes.extend_from_slice(self.get(*place));
            let moved = self.push(&row_bytes);
            self.free(*place);
            *place = moved;
        }
    }

    /// Bytes of all blocks.
    #[cfg(test)]
    fn capacity(&self) -> usize {
        self.blocks.iter().map(|block| block.bytes.capacity()).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rows_stay_what_they_were_however_others_come_and_go(
            steps in proptest::collection::vec((0_usize..6_000, any::<prop::sample::Index>(), 0_u8..4), 1..200),
        ) {
            let mut blocks = Blocks::new(1);
            let mut rows: Vec<(Place, Vec<u8>)> = Vec::new();
            for (number, (length, which, what)) in steps.into_iter().enumerate() {
                match what {
                    0 if !rows.is_empty() => {
                        let (place, _) = rows.swap_remove(which.index(rows.len()));
                        blocks.free(place);
                    }
                    1 => blocks.move_together(rows.iter_mut().map(|(place, _)| place)),
                    _ => {
                        let row = vec![number as u8; length];
                        rows.push((blocks.push(&row), row));
                    }
                }
                for (place, row) in &rows {
                    prop_assert_eq!(blocks.get(*place), row.as_slice());
                }
            }
        }
    }

    #[test]
    fn memory_of_rows_that_went_on_is_used_again() {
        let mut blocks = Blocks::new(1 << 20);
        let mut rows = std::collections::VecDeque::new();
        for number in 0..100_000_u32 {
            rows.push_back((blocks.push(&number.to_le_bytes().repeat(25)), number));
            if rows.len() > 5_000 {
                let (place, number) = rows.pop_front().unwrap();
                assert_eq!(blocks.get(place), number.to_le_bytes().repeat(25));
                blocks.free(place);
            }
        }
        assert!(blocks.capacity() < 700_000, "{} bytes for half a million", blocks.capacity());
    }

    #[test]
    fn rows_that_are_left_of_many_blocks_move_together_and_free_them() {
        let mut blocks = Blocks::new(1 << 20);
        for round in 0..20 {
            let mut rows: Vec<Place> = (0..5_000_u32).map(|_| blocks.push(&[round; 100])).collect();
            for place in rows.iter().skip(1).step_by(2) {
                blocks.free(*place);
            }
            let mut rows: Vec<Place> = rows.drain(..).step_by(2).collect();
            blocks.move_together(rows.iter_mut());
            assert!(rows.iter().all(|place| blocks.get(*place) == [round; 100]));
            rows.iter().for_each(|place| blocks.free(*place));
        }
        assert!(blocks.capacity() < 800_000, "{} bytes for half a million", blocks.capacity());
    }
}
