//! Frames: what lets a reader tell what was written whole from what was cut, zeroed by a power cut, or damaged.
//!
//! ```text
//! 8 bytes   the mark
//! 4 bytes   length of the payload, little endian
//! 8 bytes   XXH3 of kind and payload, seeded with the length, little endian
//! 1 byte    kind
//! payload
//! ```
//! A decoder never sees bytes that the writer did not write. After damage the reader goes on at the next frame that is
//! whole.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use memchr::memmem;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Begins every frame; a byte that is not text comes first.
const MARK: [u8; 8] = *b"\xf1twframe";
const HEADER_BYTES: usize = 20;

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The encoded schema.
    Schema = 0,
    /// The encoded dictionaries and columns of a batch.
    Batch = 1,
}

/// Bytes looked through at once for the next frame.
const STRIDE: usize = 64 << 10;

/// Makes room for a header; the payload is appended behind it.
pub(super) fn begin(frame: &mut Vec<u8>, kind: Kind) {
    frame.clear();
    frame.resize(HEADER_BYTES, 0);
    frame.push(kind as u8);
}

/// Fills in the header of a frame whose payload is there.
///
/// # Errors
/// When the payload is 4 GiB or more.
pub(super) fn seal(frame: &mut [u8]) -> io::Result<()> {
    let (header, payload) = frame.split_at_mut(HEADER_BYTES);
    let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
    header[..8].copy_from_slice(&MARK);
    header[8..12].copy_from_slice(&length.to_le_bytes());
    header[12..].copy_from_slice(&checksum(payload).to_le_bytes());
    Ok(())
}

fn checksum(payload: &[u8]) -> u64 {
    xxh3_64_with_seed(payload, payload.len() as u64)
}

/// What a reader meets.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// The payload of a whole frame.
    Frame(Kind, Vec<u8>),
    /// Bytes, by their place in the file, that are no frame.
    Damage(Range<u64>),
}

/// Reads the frames that a file held when it was opened.
pub(super) struct FrameReader {
    file: File,
    at: u64,
    end: u64,
}

/// What stands at a place of the file.
enum Look {
    /// A whole frame, kind and payload.
    Frame(Vec<u8>),
    /// A frame, or the beginning of one, that goes on beyond the end.
    Cut,
    Nothing,
}

impl FrameReader {
    pub(super) fn new(file: File) -> io::Result<Self> {
        let end = file.metadata()?.len();
        Ok(Self { file, at: 0, end })
    }

    /// The next frame or damage; `None` at the end, also at a frame that was cut there.
    pub(super) fn next_piece(&mut self) -> io::Result<Option<Piece>> {
        if self.at >= self.end {
            return Ok(None);
        }
        let looked = self.look(self.at)?;
        if let Look::Frame(mut content) = looked {
            self.at += (HEADER_BYTES + content.len()) as u64;
            let kind = if content.remove(0) == Kind::Schema as u8 { Kind::Schema } else { Kind::Batch };
            return Ok(Some(Piece::Frame(kind, content)));
        }
        // A damaged length looks like a cut; only when no frame follows it is one.
        let from = self.at;
        self.at = self.find(from + 1)?;
        let cut = matches!(looked, Look::Cut) && self.at == self.end;
        Ok((!cut).then_some(Piece::Damage(from..self.at)))
    }

    fn look(&self, at: u64) -> io::Result<Look> {
        let left = self.end - at;
        let mut header = [0; HEADER_BYTES];
        let known = HEADER_BYTES.min(usize::try_from(left).unwrap_or(HEADER_BYTES));
        self.file.read_exact_at(&mut header[..known], at)?;
        let marked = known.min(MARK.len());
        if header[..marked] != MARK[..marked] {
            return Ok(Look::Nothing);
        }
        if known < HEADER_BYTES {
            return Ok(Look::Cut);
        }
        let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        if length == 0 {
            return Ok(Look::Nothing);
        }
        if u64::from(length) > left - HEADER_BYTES as u64 {
            return Ok(Look::Cut);
        }
        let mut payload = vec![0; length as usize];
        self.file.read_exact_at(&mut payload, at + HEADER_BYTES as u64)?;
        let whole = header[12..] == checksum(&payload).to_le_bytes();
        Ok(if whole { Look::Frame(payload) } else { Look::Nothing })
    }

    /// The place of the first whole frame from `from` on; the end where there is none.
    fn find(&self, from: u64) -> io::Result<u64> {
        let mut window = vec![0; STRIDE];
        let mut at = from;
        while at < self.end {
            let known = STRIDE.min(usize::try_from(self.end - at).unwrap_or(STRIDE));
            self.file.read_exact_at(&mut window[..known], at)?;
            for place in memmem::find_iter(&window[..known], &MARK) {
                if matches!(self.look(at + place as u64)?, Look::Frame(_)) {
                    return Ok(at + place as u64);
                }
            }
            if known < STRIDE {
                break;
            }
            // A mark may lie across two windows.
            at += (STRIDE - MARK.len() + 1) as u64;
        }
        Ok(self.end)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn framed(payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        begin(&mut frame, Kind::Batch);
        frame.extend_from_slice(payload);
        seal(&mut frame).unwrap();
        frame
    }

    fn pieces(bytes: &[u8]) -> Vec<Piece> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let mut reader = FrameReader::new(file).unwrap();
        std::iter::from_fn(|| reader.next_piece().unwrap()).collect()
    }

    fn frame(text: &str) -> Piece {
        Piece::Frame(Kind::Batch, text.as_bytes().to_vec())
    }

    #[test]
    fn a_file_cut_at_any_byte_gives_its_whole_frames_and_no_damage() {
        let bytes = [framed(b"one"), framed(b""), framed(b"three")].concat();
        let ends = [24, 45, 71];
        assert_eq!(bytes.len(), 71);
        for cut in 0..=bytes.len() {
            let whole = ends.iter().filter(|end| **end <= cut).count();
            assert_eq!(
                pieces(&bytes[..cut]),
                [frame("one"), frame(""), frame("three")][..whole],
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn damage_is_told_with_its_place_and_what_follows_is_read() {
        let (one, two, three) = (framed(b"one"), framed(b"two"), framed(b"three"));
        for broken in 0..two.len() {
            let mut bytes = [one.clone(), two.clone(), three.clone()].concat();
            bytes[one.len() + broken] ^= 0x40;
            let place = one.len() as u64..(one.len() + two.len()) as u64;
            assert_eq!(pieces(&bytes), [frame("one"), Piece::Damage(place), frame("three")], "byte {broken}");
        }
    }

    #[test]
    fn zeros_and_garbage_behind_the_last_frame_are_damage_up_to_the_end() {
        let one = framed(b"one");
        for tail in [vec![0; 4096], b"garbage".to_vec(), vec![0xff; STRIDE + 100], vec![0; 3]] {
            let bytes = [one.clone(), tail].concat();
            let place = one.len() as u64..bytes.len() as u64;
            assert_eq!(pieces(&bytes), [frame("one"), Piece::Damage(place)]);
        }
    }

    #[test]
    fn a_frame_is_found_wherever_it_lies_behind_damage() {
        for gap in [1, 7, STRIDE - 4, STRIDE, 2 * STRIDE - 3] {
            let bytes = [vec![7; gap], framed(b"late")].concat();
            assert_eq!(pieces(&bytes), [Piece::Damage(0..gap as u64), frame("late")]);
        }
    }
}
