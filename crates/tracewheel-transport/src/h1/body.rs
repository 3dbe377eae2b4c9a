//! Where a body's bytes lie among what came, and where it ends.

use std::ops::Range;

use memchr::memchr;

/// Bytes of a chunk's size line, extensions included.
const MAX_LINE_BYTES: u32 = 16 << 10;
/// Bytes of all trailers.
const MAX_TRAILER_BYTES: u32 = 16 << 10;

/// How a body is framed, and how far it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// So many bytes are still to come.
    Length(u64),
    /// Chunks.
    Chunked(Chunk),
    /// Everything until the connection ends.
    UntilClose,
}

/// Where in a row of chunks the reader stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// In a size; `digits` of it were seen.
    Size { size: u64, digits: u8 },
    /// In what may follow a size in its line, so many bytes of it.
    Extension { size: u64, seen: u32 },
    /// The line feed of a size line is next.
    SizeEnd { size: u64 },
    /// In a chunk: so many bytes are still to come.
    Data { left: u64 },
    /// The line end of a chunk is next; `true`: its carriage return was seen.
    DataEnd { returned: bool },
    /// In the trailers: bytes seen, and bytes of the present line without its end.
    Trailers { seen: u32, line: u32 },
    /// All is read.
    Over,
}

/// A body breaks its own framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadFraming {
    /// A chunk's size is no number in hexadecimal digits.
    #[error("invalid chunk size")]
    Size,
    /// A chunk's size does not fit.
    #[error("chunk size too large")]
    SizeTooLarge,
    /// A line of the framing has no end, or a wrong one.
    #[error("invalid end of a chunk's line")]
    LineEnd,
    /// More than 16 KiB of extensions or trailers.
    #[error("chunk extensions or trailers too long")]
    TooLong,
}

impl Framing {
    /// Chunks, at their beginning.
    pub(crate) fn chunked() -> Self {
        Framing::Chunked(Chunk::Size { size: 0, digits: 0 })
    }

    /// Whether the body is whole. One that ends with the connection never is before.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Framing::Length(0) | Framing::Chunked(Chunk::Over))
    }

    /// The next stretch of body bytes in `read` from `at` on, which moves past it. `None` when `read` holds no more of them:
    /// then `at` is where the body ends, or the end of `read`.
    ///
    /// # Errors
    /// [`BadFraming`].
    pub(crate) fn next(&mut self, read: &[u8], at: &mut usize) -> Result<Option<Range<usize>>, BadFraming> {
        match self {
            Framing::UntilClose => Ok(stretch(u64::MAX, read, at).0),
            Framing::Length(left) => {
                let (range, taken) = stretch(*left, read, at);
                *left -= taken;
                Ok(range)
            }
            Framing::Chunked(chunk) => chunk.next(read, at),
        }
    }
}

/// Up to `left` bytes of `read` from `at` on.
fn stretch(left: u64, read: &[u8], at: &mut usize) -> (Option<Range<usize>>, u64) {
    let taken = usize::try_from(left).unwrap_or(usize::MAX).min(read.len() - *at);
    let range = *at..*at + taken;
    *at = range.end;
    ((taken > 0).then_some(range), taken as u64)
}

impl Chunk {
    fn next(&mut self, read: &[u8], at: &mut usize) -> Result<Option<Range<usize>>, BadFraming> {
        while *at < read.len() {
            if let Chunk::Data { left } = self {
                let (range, taken) = stretch(*left, read, at);
                *left -= taken;
                if *left == 0 {
                    *self = Chunk::DataEnd { returned: false };
                }
                return Ok(range);
            }
            if *self == Chunk::Over {
                return Ok(None);
            }
            if let Chunk::Extension { size, seen } = self {
                let rest = &read[*at..];
                let length = memchr(b'\r', rest);
                *seen = seen.saturating_add(u32::try_from(length.unwrap_or(rest.len())).unwrap_or(u32::MAX));
                if *seen > MAX_LINE_BYTES {
                    return Err(BadFraming::TooLong);
                }
                *at += length.map_or(rest.len(), |length| length + 1);
                if length.is_some() {
                    *self = Chunk::SizeEnd { size: *size };
                }
                continue;
            }
            *self = self.after(read[*at])?;
            *at += 1;
        }
        Ok(None)
    }

    /// The state after one byte of the framing.
    fn after(self, byte: u8) -> Result<Chunk, BadFraming> {
        Ok(match (self, byte) {
            (Chunk::Size { digits: 1.., size }, b'\r') => Chunk::SizeEnd { size },
            (Chunk::Size { digits: 1.., size }, b';' | b' ' | b'\t') => Chunk::Extension { size, seen: 0 },
            (Chunk::Size { size, digits }, digit) => {
                let value = (digit as char).to_digit(16).ok_or(BadFraming::Size)?;
                if size >> 60 != 0 {
                    return Err(BadFraming::SizeTooLarge);
                }
                Chunk::Size { size: size << 4 | u64::from(value), digits: digits.saturating_add(1) }
            }
            (Chunk::SizeEnd { size: 0 }, b'\n') => Chunk::Trailers { seen: 0, line: 0 },
            (Chunk::SizeEnd { size }, b'\n') => Chunk::Data { left: size },
            (Chunk::DataEnd { returned: false }, b'\r') => Chunk::DataEnd { returned: true },
            (Chunk::DataEnd { returned: true }, b'\n') => Chunk::Size { size: 0, digits: 0 },
            (Chunk::Trailers { line: 0, .. }, b'\n') => Chunk::Over,
            (Chunk::Trailers { seen: MAX_TRAILER_BYTES.., .. }, _) => return Err(BadFraming::TooLong),
            (Chunk::Trailers { seen, .. }, b'\n') => Chunk::Trailers { seen: seen + 1, line: 0 },
            (Chunk::Trailers { seen, line }, b'\r') => Chunk::Trailers { seen: seen + 1, line },
            (Chunk::Trailers { seen, line }, _) => Chunk::Trailers { seen: seen + 1, line: line + 1 },
            (Chunk::SizeEnd { .. } | Chunk::DataEnd { .. }, _) => return Err(BadFraming::LineEnd),
            (Chunk::Extension { .. } | Chunk::Data { .. } | Chunk::Over, _) => self,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `pieces` one after the other: the body, and how many bytes of the last piece lie behind its end.
    fn read(mut framing: Framing, pieces: &[&[u8]]) -> Result<(Vec<u8>, bool, usize), BadFraming> {
        let (mut body, mut surplus) = (Vec::new(), 0);
        for piece in pieces {
            let mut at = 0;
            while let Some(range) = framing.next(piece, &mut at)? {
                body.extend_from_slice(&piece[range]);
            }
            surplus += piece.len() - at;
        }
        Ok((body, framing.is_over(), surplus))
    }

    const CHUNKS: &[u8] =
        b"3\r\nabc\r\n0A;x=\"y\"\r\n0123456789\r\n1 \r\n!\r\n00\r\nt: v\r\nu: w\r\n\r\nNEXT";

    #[test]
    fn chunks_give_the_same_body_in_any_three_pieces() {
        for first in 0..=CHUNKS.len() {
            for second in first..=CHUNKS.len() {
                let pieces = [&CHUNKS[..first], &CHUNKS[first..second], &CHUNKS[second..]];
                let (body, over, surplus) = read(Framing::chunked(), &pieces).unwrap();
                assert_eq!(
                    (body.as_slice(), over, surplus),
                    (&b"abc0123456789!"[..], true, 4),
                    "{first} {second}"
                );
            }
        }
    }

    #[test]
    fn a_body_of_chunks_is_over_with_its_last_byte_and_not_before() {
        let whole = &CHUNKS[..CHUNKS.len() - 4];
        for end in 0..whole.len() {
            assert!(!read(Framing::chunked(), &[&whole[..end]]).unwrap().1, "{end}");
        }
        assert!(read(Framing::chunked(), &[whole]).unwrap().1);
    }

    #[test]
    fn broken_framing_is_told() {
        for (bytes, error) in [
            (&b"zz\r\n"[..], BadFraming::Size),
            (b"\r\n", BadFraming::Size),
            (b"3\n", BadFraming::Size),
            (b"3\r\r", BadFraming::LineEnd),
            (b"3\r\nabcd", BadFraming::LineEnd),
            (b"3\r\nabc\r\r", BadFraming::LineEnd),
            (b"fffffffffffffffff\r\n", BadFraming::SizeTooLarge),
        ] {
            assert_eq!(read(Framing::chunked(), &[bytes]), Err(error), "{}", bytes.escape_ascii());
        }
        let long = vec![b'x'; 17 << 10];
        assert_eq!(read(Framing::chunked(), &[b"3;", &long]), Err(BadFraming::TooLong));
        assert_eq!(read(Framing::chunked(), &[b"0\r\n", &long]), Err(BadFraming::TooLong));
    }

    #[test]
    fn lengths_and_ends_of_connections_frame_too() {
        assert_eq!(read(Framing::Length(4), &[b"ab", b"cdE"]), Ok((b"abcd".to_vec(), true, 1)));
        assert_eq!(read(Framing::Length(0), &[b"x"]), Ok((Vec::new(), true, 1)));
        assert_eq!(read(Framing::UntilClose, &[b"ab", b"c"]), Ok((b"abc".to_vec(), false, 0)));
    }
}
