//! gzip (RFC 1952): any number of members, each with its sum checked. The deflate stream itself is `miniz_oxide`'s.

use std::ops::Range;

use crc32fast::Hasher;
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_HAS_MORE_INPUT;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

use crate::source::unpack::{Stride, Unpack};

/// Text that may be referred back to is 32 KiB; a power of two.
const WINDOW_BYTES: usize = 64 << 10;
/// A member's header: name and comment have no length of their own.
const LONGEST_HEADER: usize = 256 << 10;
const TRAILER_BYTES: usize = 8;

/// Decodes a gzip file.
pub(crate) struct Gzip {
    state: State,
    /// Bytes of a header or trailer that is not whole yet.
    held: Vec<u8>,
    inflate: Box<DecompressorOxide>,
    window: Box<[u8]>,
    /// Part of the window that is not given out yet. The next byte goes behind it.
    ready: Range<usize>,
    sum: Hasher,
    length: u32,
    members: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Header,
    Body,
    Trailer,
    /// Behind a member.
    Between,
    /// The body is broken behind what is ready.
    Broken,
}

impl Gzip {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Header,
            held: Vec::new(),
            inflate: Box::default(),
            window: vec![0; WINDOW_BYTES].into_boxed_slice(),
            ready: 0..0,
            sum: Hasher::new(),
            length: 0,
            members: 0,
        }
    }

    fn header(&mut self, input: &[u8]) -> Result<usize, String> {
        let before = self.held.len();
        self.held.extend_from_slice(&input[..input.len().min(LONGEST_HEADER + 1 - before)]);
        match header_length(&self.held)? {
            Some(length) => {
                self.held.clear();
                self.inflate.init();
                (self.ready, self.sum, self.length) = (0..0, Hasher::new(), 0);
                self.state = State::Body;
                Ok(length - before)
            }
            None if self.held.len() > LONGEST_HEADER => {
                Err(format!("a member's header is longer than {LONGEST_HEADER} bytes"))
            }
            None => Ok(self.held.len() - before),
        }
    }

    fn body(&mut self, input: &[u8]) -> Result<usize, String> {
        let at = self.ready.end % WINDOW_BYTES;
        let (status, used, made) =
            decompress(&mut self.inflate, input, &mut self.window, at, TINFL_FLAG_HAS_MORE_INPUT);
        self.ready = at..at + made;
        self.sum.update(&self.window[self.ready.clone()]);
        // The format counts modulo 2^32.
        self.length = self.length.wrapping_add(u32::try_from(made).unwrap_or_default());
        match status {
            TINFLStatus::Done => self.state = State::Trailer,
            TINFLStatus::NeedsMoreInput | TINFLStatus::HasMoreOutput => {}
            _ if made > 0 => self.state = State::Broken,
            _ => return Err(BROKEN.to_owned()),
        }
        Ok(used)
    }

    fn trailer(&mut self, input: &[u8]) -> Result<usize, String> {
        let used = input.len().min(TRAILER_BYTES - self.held.len());
        self.held.extend_from_slice(&input[..used]);
        if let [a, b, c, d, e, f, g, h] = *self.held.as_slice() {
            self.held.clear();
            if u32::from_le_bytes([a, b, c, d]) != self.sum.clone().finalize() {
                return Err(
                    "the sum of a member's text is wrong: some of the rows read from it may be".to_owned()
                );
            }
            if u32::from_le_bytes([e, f, g, h]) != self.length {
                return Err("the length of a member's text is wrong: some of it may be lost".to_owned());
            }
            self.members += 1;
            self.state = State::Between;
        }
        Ok(used)
    }
}

const BROKEN: &str = "its packed data is corrupt";

impl Unpack for Gzip {
    fn step(&mut self, input: &[u8], out: &mut [u8]) -> Result<Stride, String> {
        let used = match self.state {
            State::Header => self.header(input)?,
            State::Body => self.body(input)?,
            State::Trailer => self.trailer(input)?,
            State::Broken => return Err(BROKEN.to_owned()),
            State::Between => {
                // Tapes and disks pad with zeros.
                let zeros = input.iter().take_while(|byte| **byte == 0).count();
                match input.get(zeros) {
                    Some(0x1f) => self.state = State::Header,
                    Some(_) if zeros == 0 => {
                        return Err("what follows its last member is no other archive".to_owned());
                    }
                    _ => {}
                }
                zeros
            }
        };
        Ok(Stride { used, made: self.drain(out) })
    }

    fn drain(&mut self, out: &mut [u8]) -> usize {
        let made = out.len().min(self.ready.len());
        out[..made].copy_from_slice(&self.window[self.ready.start..self.ready.start + made]);
        self.ready.start += made;
        made
    }

    fn may_end(&self) -> bool {
        self.state == State::Between
    }

    fn members(&self) -> u64 {
        self.members
    }
}

/// The length of a member's header; `None` where it is not whole yet.
fn header_length(bytes: &[u8]) -> Result<Option<usize>, String> {
    let ([0x1f, 0x8b, 8, ..] | [0x1f, 0x8b] | [0x1f]) = bytes else {
        return Err("what follows is no other archive that can be read".to_owned());
    };
    let Some(flags) = bytes.get(3) else { return Ok(None) };
    if flags & 0b1110_0000 != 0 {
        return Err("a member's header has flags that no one knows".to_owned());
    }
    let mut at = 10;
    if flags & 0b0100 != 0 {
        let Some(&[low, high]) = bytes.get(at..at + 2) else { return Ok(None) };
        at += 2 + usize::from(u16::from_le_bytes([low, high]));
    }
    // Name and comment end with a zero.
    for flag in [0b1000, 0b1_0000] {
        if flags & flag != 0 {
            let end = bytes.get(at..).and_then(|text| memchr::memchr(0, text));
            let Some(end) = end else { return Ok(None) };
            at += end + 1;
        }
    }
    if flags & 0b0010 != 0 {
        at += 2;
    }
    Ok((bytes.len() >= at).then_some(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_header_is_passed_over() {
        let fixed = |flags: u8| [b"\x1f\x8b\x08".as_slice(), &[flags, 0, 0, 0, 0, 0, 3]].concat();
        let all = [fixed(0b1_1110).as_slice(), b"\x03\0abcname\0comment\0\x12\x34"].concat();
        for length in 1..all.len() {
            assert_eq!(header_length(&all[..length]), Ok(None), "{length}");
        }
        assert_eq!(header_length(&[all.as_slice(), b"body"].concat()), Ok(Some(all.len())));
        assert_eq!(header_length(&fixed(0)), Ok(Some(10)));
        assert!(header_length(&fixed(0b0010_0000)).is_err());
        assert!(header_length(b"\x1f\x8b\x07\0").is_err());
    }

    #[test]
    fn a_header_without_an_end_is_refused_in_bounded_memory() {
        let mut gzip = Gzip::new();
        let mut out = [0; 16];
        gzip.step(b"\x1f\x8b\x08\x08\0\0\0\0\0\x03", &mut out).unwrap();
        let name = vec![b'x'; 64 << 10];
        let problem = (0..10).find_map(|_| gzip.step(&name, &mut out).err());
        assert!(problem.unwrap().contains("longer than"));
        assert!(gzip.held.len() <= LONGEST_HEADER + 1);
    }
}
