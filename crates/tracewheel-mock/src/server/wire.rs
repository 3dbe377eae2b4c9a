//! What a connection does to the bytes that it writes, beyond what HTTP asks.

use std::cell::Cell;

/// Orders for a connection's writes and its end; nothing by default.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    /// The connection is reset when it ends.
    reset: Cell<bool>,
    /// The next write begins with a chunk's size, which shall be no number.
    corrupt: Cell<bool>,
    pace: Cell<Pace>,
}

/// How writes are cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As they come.
    #[default]
    Whole,
    /// So many bytes each, with a pause after each.
    Pieces { bytes: usize, gap_ns: i64 },
    /// The head that comes next lasts so long.
    Head { total_ns: i64 },
    /// So many bytes of a head are left.
    RestOfHead { left: usize, bytes: usize, gap_ns: i64 },
}

/// Writes that a slow head comes in.
const HEAD_WRITES: usize = 20;

impl Wire {
    pub(crate) fn reset_at_end(&self) {
        self.reset.set(true);
    }

    pub(crate) fn resets(&self) -> bool {
        self.reset.get()
    }

    pub(crate) fn corrupt_next_chunk(&self) {
        self.corrupt.set(true);
    }

    pub(crate) fn set_pace(&self, pace: Pace) {
        self.pace.set(pace);
    }

    /// How many of `bytes` the next write takes, and the pause after it, nanoseconds.
    pub(crate) fn cut(&self, bytes: &[u8]) -> (usize, i64) {
        if let Pace::Head { total_ns } = self.pace.get() {
            let head = bytes.windows(4).position(|end| end == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
            let size = head.div_ceil(HEAD_WRITES).max(1);
            let gap_ns = total_ns / head.div_ceil(size).max(1) as i64;
            self.pace.set(Pace::RestOfHead { left: head, bytes: size, gap_ns });
        }
        match self.pace.get() {
            Pace::Pieces { bytes: most, gap_ns } => (bytes.len().min(most.max(1)), gap_ns),
            Pace::RestOfHead { left, bytes: most, gap_ns } => (bytes.len().min(most).min(left), gap_ns),
            Pace::Whole | Pace::Head { .. } => (bytes.len(), 0),
        }
    }

    /// What is to be written instead of `bytes`, if anything.
    pub(crate) fn corrupted(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        (self.corrupt.get() && !bytes.is_empty()).then(|| {
            let mut wrong = bytes.to_vec();
            wrong[0] = b'Z';
            wrong
        })
    }

    /// So many bytes are written.
    pub(crate) fn written(&self, bytes: usize) {
        self.corrupt.set(self.corrupt.get() && bytes == 0);
        if let Pace::RestOfHead { left, bytes: most, gap_ns } = self.pace.get() {
            let left = left.saturating_sub(bytes);
            let rest = Pace::RestOfHead { left, bytes: most, gap_ns };
            self.pace.set(if left == 0 { Pace::Whole } else { rest });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_head_is_cut_and_what_follows_is_not() {
        let wire = Wire::default();
        wire.set_pace(Pace::Head { total_ns: 2000 });
        // 40 bytes of head: two a write, 100 ns each.
        let answer = [b"HTTP/1.1 200 OK\r\nx: 4567890123456789\r\n\r\n".as_slice(), b"body"].concat();
        let mut rest = answer.as_slice();
        let mut gaps = 0;
        for _ in 0..20 {
            let (taken, gap_ns) = wire.cut(rest);
            assert_eq!((taken, gap_ns), (2, 100));
            gaps += gap_ns;
            wire.written(taken);
            rest = &rest[taken..];
        }
        assert_eq!((gaps, wire.cut(rest)), (2000, (4, 0)));
    }

    #[test]
    fn only_the_next_chunk_is_corrupted() {
        let wire = Wire::default();
        assert_eq!(wire.corrupted(b"1f\r\n"), None);
        wire.corrupt_next_chunk();
        assert_eq!(wire.corrupted(b"1f\r\n"), Some(b"Zf\r\n".to_vec()));
        wire.written(0);
        assert!(wire.corrupted(b"1f\r\n").is_some(), "nothing was written yet");
        wire.written(2);
        assert_eq!(wire.corrupted(b"\r\n"), None);
    }

    #[test]
    fn pieces_have_their_size() {
        let wire = Wire::default();
        wire.set_pace(Pace::Pieces { bytes: 3, gap_ns: 7 });
        assert_eq!((wire.cut(b"abcdef"), wire.cut(b"ab")), ((3, 7), (2, 7)));
    }
}
