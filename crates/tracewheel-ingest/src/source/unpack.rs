//! Text out of a packed input, as a stream: what packs it is told from its first bytes, and damage keeps what comes
//! before it.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

use crate::source::gzip::Gzip;
use crate::source::zst::Zst;

const READ_BYTES: usize = 64 << 10;
/// Bytes by which a packing is told.
pub(crate) const MAGIC_BYTES: usize = 4;

/// A packing that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    Gzip,
    Zstd,
}

/// A decoder that is given bytes piece by piece.
pub(crate) trait Unpack: Send {
    /// Takes from `input`, which is empty only at the end, and writes to `out`.
    ///
    /// # Errors
    /// What is wrong with the next byte of `input`, and what to do about it. All that comes before was written.
    fn step(&mut self, input: &[u8], out: &mut [u8]) -> Result<Stride, String>;

    /// Writes what was kept back for want of room.
    fn drain(&mut self, _out: &mut [u8]) -> usize {
        0
    }

    /// Whether the input may end here.
    fn may_end(&self) -> bool;

    /// Members (frames) that were read to their ends.
    fn members(&self) -> u64;
}

/// Bytes that a step took and gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stride {
    pub(crate) used: usize,
    pub(crate) made: usize,
}

/// How far an archive was read, for the one who does not hold its reader.
#[derive(Debug, Clone)]
pub(crate) struct Unpacking {
    pub(crate) packing: Packing,
    progress: Arc<Mutex<Progress>>,
}

/// How far an archive was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Progress {
    /// Bytes of the archive.
    pub(crate) packed_bytes: u64,
    /// Bytes of its text.
    pub(crate) text_bytes: u64,
    pub(crate) members: u64,
    /// What ended the reading before the end of the archive.
    pub(crate) damage: Option<String>,
}

/// Reads an archive's text.
pub(crate) struct Unpacker<R> {
    from: R,
    decoder: Box<dyn Unpack>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    ended: bool,
    unpacking: Unpacking,
}

impl Packing {
    /// What packs an input that begins with these bytes.
    pub(crate) fn of(first: &[u8]) -> Option<Self> {
        match first {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            // A frame, or one of those that readers skip: parallel writers put one first.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

impl Unpacking {
    pub(crate) fn progress(&self) -> Progress {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.progress.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl<R: Read> Unpacker<R> {
    pub(crate) fn new(from: R, packing: Packing) -> io::Result<Self> {
        let decoder: Box<dyn Unpack> = match packing {
            Packing::Gzip => Box::new(Gzip::new()),
            Packing::Zstd => Box::new(Zst::new()?),
        };
        Ok(Self {
            from,
            decoder,
            buffer: vec![0; READ_BYTES],
            start: 0,
            end: 0,
            ended: false,
            unpacking: Unpacking { packing, progress: Arc::default() },
        })
    }

    pub(crate) fn unpacking(&self) -> Unpacking {
        self.unpacking.clone()
    }

    fn fill(&mut self) -> io::Result<()> {
        self.start = 0;
        self.end = 0;
        self.end = self.from.read(&mut self.buffer)?;
        self.ended = self.end == 0;
        Ok(())
    }

    /// Remembers the first thing that went wrong. It is told again by every later read.
    fn broken(&self, problem: &str) -> io::Error {
        self.unpacking.note(|progress| {
            progress.damage.get_or_insert_with(|| problem.to_owned());
        });
        io::Error::new(io::ErrorKind::InvalidData, "the archive is damaged")
    }
}

impl<R: Read> Read for Unpacker<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            if self.unpacking.progress().damage.is_some() {
                return Err(self.broken(""));
            }
            let kept_back = self.decoder.drain(out);
            if kept_back > 0 {
                self.unpacking.note(|progress| progress.text_bytes += kept_back as u64);
                return Ok(kept_back);
            }
            if self.start == self.end && !self.ended {
                self.fill()?;
            }
            if self.ended {
                if self.decoder.may_end() {
                    return Ok(0);
                }
                // A decoder may hold some bits still.
                let left = self.decoder.step(&[], out).map_or(0, |stride| stride.made);
                if left > 0 {
                    self.unpacking.note(|progress| progress.text_bytes += left as u64);
                    return Ok(left);
                }
                return Err(self.broken("it ends in the middle: it was cut, or is still being written"));
            }
            match self.decoder.step(&self.buffer[self.start..self.end], out) {
                Ok(Stride { used, made }) => {
                    self.start += used;
                    let members = self.decoder.members();
                    self.unpacking.note(|progress| {
                        progress.packed_bytes += used as u64;
                        progress.text_bytes += made as u64;
                        progress.members = members;
                    });
                    if made > 0 {
                        return Ok(made);
                    }
                }
                Err(problem) => return Err(self.broken(&problem)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Ten thousand lines that do not pack too well.
    fn text() -> Vec<u8> {
        let line = |n: u64| format!("{n},{}\n", n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20);
        (0..10_000).map(line).collect::<String>().into_bytes()
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut packed = b"\x1f\x8b\x08\x08\0\0\0\0\0\x03a name\0".to_vec();
        packed.extend(miniz_oxide::deflate::compress_to_vec(text, 6));
        packed.extend(crc32fast::hash(text).to_le_bytes());
        packed.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
        packed
    }

    fn zst(text: &[u8]) -> Vec<u8> {
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 3).unwrap();
        encoder.include_checksum(true).unwrap();
        io::Write::write_all(&mut encoder, text).unwrap();
        encoder.finish().unwrap()
    }

    fn both(text: &[u8]) -> [(Packing, Vec<u8>); 2] {
        [(Packing::Gzip, gzip(text)), (Packing::Zstd, zst(text))]
    }

    /// Gives few bytes a read.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let length = self.1.min(self.0.len()).min(out.len());
            out[..length].copy_from_slice(&self.0[..length]);
            self.0 = &self.0[length..];
            Ok(length)
        }
    }

    fn unpack(packing: Packing, packed: &[u8], step: usize, room: usize) -> (Vec<u8>, Progress) {
        assert_eq!(Packing::of(packed), Some(packing));
        let mut unpacker = Unpacker::new(Slow(packed, step), packing).unwrap();
        let (mut text, mut out) = (Vec::new(), vec![0; room]);
        while let Ok(made) = unpacker.read(&mut out) {
            if made == 0 {
                break;
            }
            text.extend_from_slice(&out[..made]);
        }
        let progress = unpacker.unpacking().progress();
        assert_eq!(progress.text_bytes, text.len() as u64);
        (text, progress)
    }

    #[test]
    fn an_archive_gives_its_text_however_its_bytes_come() {
        let text = text();
        for (packing, packed) in both(&text) {
            for (step, room) in [(usize::MAX, 1 << 16), (1, 7), (1000, 1), (7, 1 << 20)] {
                let (read, progress) = unpack(packing, &packed, step, room);
                assert!(read == text, "{packing:?} {step} {room}");
                assert_eq!((progress.damage, progress.members), (None, 1));
                assert_eq!(progress.packed_bytes, packed.len() as u64);
            }
        }
    }

    #[test]
    fn all_members_are_read_and_padding_with_zeros_is_no_damage() {
        for (packing, packed) in both(b"one\n") {
            let mut both = packed.clone();
            both.extend(if packing == Packing::Gzip { gzip(b"") } else { zst(b"") });
            both.extend(&packed);
            let (read, progress) = unpack(packing, &both, 3, 100);
            assert_eq!((read.as_slice(), progress.members), (&b"one\none\n"[..], 3));
            both.extend([0; 512]);
            let (read, progress) = unpack(packing, &both, usize::MAX, 100);
            assert_eq!(read, b"one\none\n");
            assert_eq!(progress.damage.is_none(), packing == Packing::Gzip);
        }
    }

    #[test]
    fn what_follows_an_archive_and_is_none_is_told() {
        for (packing, mut packed) in both(b"one\n") {
            let end = packed.len() as u64;
            packed.extend(b"plain text\n");
            let (read, progress) = unpack(packing, &packed, usize::MAX, 100);
            assert_eq!((read.as_slice(), progress.packed_bytes), (&b"one\n"[..], end));
            assert!(progress.damage.unwrap().contains("no other archive"));
        }
    }

    #[test]
    fn a_cut_archive_gives_what_stands_before_the_cut() {
        let text = text();
        for (packing, packed) in both(&text) {
            let mut longest = 0;
            for length in (MAGIC_BYTES..packed.len()).step_by(97).chain([packed.len() - 1]) {
                let (read, progress) = unpack(packing, &packed[..length], usize::MAX, 1 << 16);
                assert!(text.starts_with(&read), "{packing:?} {length}");
                assert!(progress.damage.unwrap().contains("ends in the middle"));
                assert_eq!(progress.packed_bytes, length as u64);
                assert!(read.len() >= longest);
                longest = read.len();
            }
            assert!(longest > text.len() / 2, "{packing:?} {longest} of {}", text.len());
        }
    }

    #[test]
    fn a_wrong_sum_or_length_is_damage_and_the_text_before_it_is_given() {
        let mut packed = gzip(b"one\n");
        let sum = packed.len() - 8;
        packed[sum] ^= 1;
        let (read, progress) = unpack(Packing::Gzip, &packed, usize::MAX, 100);
        assert_eq!(read, b"one\n");
        assert!(progress.damage.unwrap().contains("sum"));
        packed[sum] ^= 1;
        packed[sum + 4] ^= 1;
        assert!(unpack(Packing::Gzip, &packed, 1, 100).1.damage.unwrap().contains("length"));
        let mut packed = zst(b"one\n");
        *packed.last_mut().unwrap() ^= 1;
        let (read, progress) = unpack(Packing::Zstd, &packed, usize::MAX, 100);
        assert_eq!(read, b"one\n");
        assert!(progress.damage.is_some());
    }

    #[test]
    fn a_window_that_would_take_too_much_memory_is_refused_with_the_remedy() {
        // A frame header that asks for a window of 2 GiB.
        let (_, progress) = unpack(Packing::Zstd, b"\x28\xb5\x2f\xfd\x00\xa8\x01\0\0", usize::MAX, 100);
        assert!(progress.damage.as_ref().unwrap().contains("--long=31"), "{progress:?}");
    }

    proptest! {
        #[test]
        fn damage_anywhere_never_panics_and_never_invents_a_longer_text_than_bounded(
            at in 0_usize..2000, bits in 1_u8.., step in 1_usize..3000,
        ) {
            let text = &text()[..6000];
            for (packing, mut packed) in both(text) {
                let at = MAGIC_BYTES + at % (packed.len() - MAGIC_BYTES);
                packed[at] ^= bits;
                let (read, progress) = unpack(packing, &packed, step, 4096);
                if progress.damage.is_none() {
                    prop_assert!(read == text || packing == Packing::Gzip && at < 17, "{:?} {}", packing, at);
                }
                prop_assert!(progress.packed_bytes <= packed.len() as u64);
            }
        }
    }
}
