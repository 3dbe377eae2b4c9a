//! zstd (RFC 8878): any number of frames, each in a window of bounded memory.

use std::io;

use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use crate::source::unpack::{Stride, Unpack};

/// Binary logarithm of the largest window: 128 MiB, what `zstd --ultra` and `zstd --long` write.
const LARGEST_WINDOW_LOG: u32 = 27;
/// Bytes that tell a frame's header.
const HEADER_BYTES: usize = 5;

/// Decodes a zstd file.
pub(crate) struct Zst {
    decoder: Decoder<'static>,
    /// Bytes that the next step takes at most: those of one block, so that a broken block spoils no other.
    wanted: usize,
    may_end: bool,
    /// The present block's text did not fit.
    kept_back: bool,
    frames: u64,
}

impl Zst {
    pub(crate) fn new() -> io::Result<Self> {
        let mut decoder = Decoder::new()?;
        decoder.set_parameter(DParameter::WindowLogMax(LARGEST_WINDOW_LOG))?;
        Ok(Self { decoder, wanted: HEADER_BYTES, may_end: false, kept_back: false, frames: 0 })
    }

    fn run(&mut self, input: &[u8], out: &mut [u8]) -> io::Result<Stride> {
        let room = out.len();
        let mut input = InBuffer::around(input);
        let mut out = OutBuffer::around(out);
        let wanted = self.decoder.run(&mut input, &mut out)?;
        let stride = Stride { used: input.pos(), made: out.pos() };
        if wanted == 0 && (stride.used > 0 || stride.made > 0) {
            self.frames += 1;
        }
        self.may_end = wanted == 0;
        self.wanted = wanted.max(HEADER_BYTES);
        self.kept_back = stride.made == room && wanted > 0;
        Ok(stride)
    }
}

impl Unpack for Zst {
    fn step(&mut self, input: &[u8], out: &mut [u8]) -> Result<Stride, String> {
        let between = self.may_end;
        let input = &input[..input.len().min(self.wanted)];
        self.run(input, out).map_err(|error| problem(&error, between))
    }

    fn drain(&mut self, out: &mut [u8]) -> usize {
        if !self.kept_back {
            return 0;
        }
        // An error comes again with the next byte.
        self.run(&[], out).map_or(0, |stride| stride.made)
    }

    fn may_end(&self) -> bool {
        self.may_end
    }

    fn members(&self) -> u64 {
        self.frames
    }
}

/// What to say for the library's words.
fn problem(error: &io::Error, between: bool) -> String {
    let words = error.to_string();
    if words.contains("too much memory") {
        return "it needs a window above 128 MiB: unpack it on the way with zstd -dc --long=31 FILE | tracewheel ingest -"
            .to_owned();
    }
    if between && words.contains("frame descriptor") {
        return "what follows its last frame is no other archive".to_owned();
    }
    format!("its packed data is corrupt ({words})")
}
