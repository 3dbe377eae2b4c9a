//! Levels and dictionary numbers as Parquet writes them: runs of one value, or values packed to bits.

/// A value and how often it stands in a row.
pub(super) type Run = (u32, u32);

/// Bits that a number up to `most` needs, one at least: not every reader knows of none.
pub(super) fn width_of(most: u32) -> u32 {
    (u32::BITS - most.leading_zeros()).max(1)
}

/// Appends a value to a list of runs.
#[inline]
pub(super) fn push(runs: &mut Vec<Run>, value: u32, count: u32) {
    match runs.last_mut() {
        Some((last, counted)) if *last == value => *counted += count,
        _ => runs.push((value, count)),
    }
}

/// Appends values of so many bits in the shorter of the two forms.
pub(super) fn put(runs: &[Run], width: u32, out: &mut Vec<u8>) {
    let value_bytes = width.div_ceil(8) as usize;
    let count: u64 = runs.iter().map(|(_, count)| u64::from(*count)).sum();
    let by_runs: usize =
        runs.iter().map(|(_, count)| varint_bytes(u64::from(*count) << 1) + value_bytes).sum();
    let packed = 5 + count.div_ceil(8) as usize * width as usize;
    if by_runs <= packed {
        for (value, count) in runs {
            put_varint(u64::from(*count) << 1, out);
            out.extend_from_slice(&value.to_le_bytes()[..value_bytes]);
        }
        return;
    }
    let groups = count.div_ceil(8);
    put_varint(groups << 1 | 1, out);
    let end = out.len() + groups as usize * width as usize;
    let (mut bits, mut held) = (0_u64, 0);
    for (value, count) in runs {
        for _ in 0..*count {
            bits |= u64::from(*value) << held;
            held += width;
            while held >= 8 {
                out.push(bits as u8);
                (bits, held) = (bits >> 8, held - 8);
            }
        }
    }
    out.push(bits as u8);
    // Zeros fill the last group of eight up, which ends with a whole byte.
    out.resize(end, 0);
}

/// Which elements of lists begin a row, one bit each: 0 where one does.
#[derive(Debug, Default)]
pub(super) struct RowStarts {
    words: Vec<u64>,
    len: usize,
}

impl RowStarts {
    /// A row with so many elements. One without any takes a place too.
    #[inline]
    pub(super) fn push(&mut self, elements: usize) {
        let (start, end) = (self.len + 1, self.len + elements.max(1));
        self.words.resize(end.div_ceil(64), 0);
        let (mut at, mut left) = (start, end - start);
        while left > 0 {
            let bit = at % 64;
            let here = left.min(64 - bit);
            self.words[at / 64] |= (u64::MAX >> (64 - here)) << bit;
            (at, left) = (at + here, left - here);
        }
        self.len = end;
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends them packed and is empty again.
    pub(super) fn take(&mut self, out: &mut Vec<u8>) {
        let groups = self.len.div_ceil(8);
        put_varint((groups as u64) << 1 | 1, out);
        let end = out.len() + groups;
        self.words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        out.truncate(end);
        self.words.clear();
        self.len = 0;
    }
}

/// Appends a number, seven bits a byte, the lowest first.
pub(super) fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn varint_bytes(number: u64) -> usize {
    (u64::BITS - number.leading_zeros()).div_ceil(7).max(1) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads what [`put`] wrote, by the text of the Parquet format.
    fn read(mut bytes: &[u8], width: u32, count: usize) -> Vec<u32> {
        let mut values = Vec::new();
        while values.len() < count {
            let mut header = 0_u64;
            for shift in (0..).step_by(7) {
                let byte = bytes[0];
                bytes = &bytes[1..];
                header |= u64::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    break;
                }
            }
            if header & 1 == 0 {
                let (value, rest) = bytes.split_at(width.div_ceil(8) as usize);
                bytes = rest;
                let value = value.iter().rev().fold(0, |all, byte| all << 8 | u32::from(*byte));
                values.extend(std::iter::repeat_n(value, (header >> 1) as usize));
            } else {
                let (packed, rest) = bytes.split_at((header >> 1) as usize * width as usize);
                bytes = rest;
                let bit = |at: usize| u32::from(packed[at / 8] >> (at % 8) & 1);
                let value =
                    |at: usize| (0..width as usize).map(|n| bit(at * width as usize + n) << n).sum::<u32>();
                values.extend((0..(header >> 1) as usize * 8).map(value));
            }
        }
        assert!(bytes.is_empty());
        values.truncate(count);
        values
    }

    #[test]
    fn one_value_takes_a_header_and_a_byte_however_often_it_stands() {
        let mut out = Vec::new();
        put(&[(1, 20_000)], 1, &mut out);
        // 40,000 in sevens of bits: 64 + 128, 56 + 128, 2.
        assert_eq!(out, [0xc0, 0xb8, 0x02, 1]);
    }

    proptest! {
        #[test]
        fn values_come_back_in_either_form(
            list in proptest::collection::vec((0_u32..300, 1_u32..40), 0..60),
            alternating in 0_u32..100,
        ) {
            let mut runs = Vec::new();
            for (value, count) in list.into_iter().chain((0..alternating).map(|at| (at % 2, 1))) {
                push(&mut runs, value, count);
            }
            let values: Vec<u32> = runs.iter().flat_map(|(value, count)| std::iter::repeat_n(*value, *count as usize)).collect();
            let width = width_of(values.iter().copied().max().unwrap_or_default());
            let mut out = Vec::new();
            put(&runs, width, &mut out);
            prop_assert_eq!(read(&out, width, values.len()), values);
        }

        #[test]
        fn starts_of_rows_come_back(lengths in proptest::collection::vec(0_usize..200, 0..40)) {
            let mut starts = RowStarts::default();
            let mut expected = Vec::new();
            for length in lengths {
                starts.push(length);
                expected.push(0);
                expected.extend(std::iter::repeat_n(1, length.saturating_sub(1)));
            }
            prop_assert_eq!(starts.len(), expected.len());
            let mut out = Vec::new();
            starts.take(&mut out);
            if !expected.is_empty() {
                prop_assert_eq!(read(&out, 1, expected.len()), expected);
            }
            prop_assert_eq!(starts.len(), 0);
        }
    }
}
