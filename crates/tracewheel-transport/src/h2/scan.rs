//! Where one HTTP/2 frame ends and the next begins, and what it belongs to.

/// Bytes of a frame before its payload: length, kind, flags, stream.
const HEADER_BYTES: usize = 9;
/// First bytes of a payload that are kept.
const PREFIX_BYTES: usize = 8;

/// Kinds of frames that matter here.
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const CONTINUATION: u8 = 9;
}

/// Flags of frames that matter here.
pub(crate) mod flag {
    pub(crate) const END_STREAM: u8 = 0x1;
    pub(crate) const ACK: u8 = 0x1;
    pub(crate) const END_HEADERS: u8 = 0x4;
    pub(crate) const PADDED: u8 = 0x8;
}

/// A frame that is there as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    /// 0 for frames of the connection.
    pub(crate) stream: u32,
    /// Bytes of the payload.
    pub(crate) length: u32,
    /// The payload's first bytes; zeros where it is shorter.
    pub(crate) prefix: [u8; PREFIX_BYTES],
}

impl Frame {
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Bytes of a DATA frame's payload that are data: without padding and its length.
    pub(crate) fn data_bytes(&self) -> u32 {
        let padding = if self.has(flag::PADDED) { 1 + u32::from(self.prefix[0]) } else { 0 };
        self.length.saturating_sub(padding)
    }

    /// A number in the payload, at byte 0 or 4.
    pub(crate) fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes([self.prefix[at], self.prefix[at + 1], self.prefix[at + 2], self.prefix[at + 3]])
    }
}

/// What a call took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Bytes, all of one frame; 0 only when there were none.
    pub(crate) used: usize,
    /// The stream that they belong to, once the frame's header is whole.
    pub(crate) stream: Option<u32>,
    /// The frame, if it ends with them.
    pub(crate) frame: Option<Frame>,
}

/// Follows the frames of one direction of a connection, in pieces cut anywhere. It checks nothing: whoever decodes the
/// frames does.
#[derive(Debug, Default)]
pub(crate) struct FrameScanner {
    /// Bytes that come before the first frame.
    preface: usize,
    header: [u8; HEADER_BYTES],
    /// Bytes of the header that are known.
    known: usize,
    /// Bytes of the payload that came.
    came: usize,
    prefix: [u8; PREFIX_BYTES],
}

impl FrameScanner {
    /// For a direction that begins with so many bytes that are no frame.
    pub(crate) fn after(preface: usize) -> Self {
        FrameScanner { preface, ..Self::default() }
    }

    /// Takes bytes up to the end of the frame at hand.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Taken {
        let skipped = self.preface.min(bytes.len());
        if skipped > 0 {
            self.preface -= skipped;
            return Taken { used: skipped, stream: None, frame: None };
        }
        let head = (HEADER_BYTES - self.known).min(bytes.len());
        self.header[self.known..self.known + head].copy_from_slice(&bytes[..head]);
        self.known += head;
        if self.known < HEADER_BYTES {
            return Taken { used: head, stream: None, frame: None };
        }
        let [_, a, b, c, d, e, f, g, h] = self.header;
        let length = u32::from_be_bytes([0, self.header[0], a, b]) as usize;
        let stream = u32::from_be_bytes([e & 0x7f, f, g, h]);
        let payload = (length - self.came).min(bytes.len() - head);
        let kept = (PREFIX_BYTES - self.came.min(PREFIX_BYTES)).min(payload);
        if kept > 0 {
            self.prefix[self.came..self.came + kept].copy_from_slice(&bytes[head..head + kept]);
        }
        self.came += payload;
        let whole = self.came == length;
        let frame =
            whole.then_some(Frame { kind: c, flags: d, stream, length: length as u32, prefix: self.prefix });
        if whole {
            (self.known, self.came, self.prefix) = (0, 0, [0; PREFIX_BYTES]);
        }
        Taken { used: head + payload, stream: Some(stream), frame }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame as RFC 9113, section 4.1, draws it.
    fn encode(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    fn all(scanner: &mut FrameScanner, bytes: &[u8]) -> Vec<Taken> {
        let (mut taken, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            taken.push(scanner.take(&bytes[at..]));
            at += taken.last().unwrap().used;
        }
        taken
    }

    #[test]
    fn the_fields_of_a_frame_are_read_where_the_standard_puts_them() {
        let mut scanner = FrameScanner::after(3);
        let mut bytes = b"PRI".to_vec();
        // GOAWAY, the reserved bit set; last stream 7, code 11.
        bytes.extend(encode(7, 0, 1 << 31, &[0, 0, 0, 7, 0, 0, 0, 11, b'x']));
        // DATA of stream 5 with END_STREAM, padded by 3.
        bytes.extend(encode(0, 0x9, 5, &[3, b'a', b'b', 0, 0, 0]));
        let taken = all(&mut scanner, &bytes);
        assert_eq!(taken[0], Taken { used: 3, stream: None, frame: None });
        let goaway = taken[1].frame.unwrap();
        assert_eq!((goaway.kind, goaway.stream, goaway.word(0), goaway.word(4)), (7, 0, 7, 11));
        let data = taken[2].frame.unwrap();
        assert_eq!((data.stream, data.data_bytes(), data.has(flag::END_STREAM)), (5, 2, true));
    }

    proptest! {
        #[test]
        fn frames_are_found_however_the_bytes_are_cut(
            frames in prop::collection::vec(
                (0_u8..12, any::<u8>(), 0_u32..1 << 31, prop::collection::vec(any::<u8>(), 0..40)), 1..10),
            cuts in prop::collection::vec(1_usize..15, 1..200),
        ) {
            let mut wire = vec![9; 24];
            let mut expected = Vec::new();
            for (kind, flags, stream, payload) in &frames {
                wire.extend(encode(*kind, *flags, *stream, payload));
                let mut prefix = [0; 8];
                prefix[..payload.len().min(8)].copy_from_slice(&payload[..payload.len().min(8)]);
                let length = payload.len() as u32;
                expected.push(Frame { kind: *kind, flags: *flags, stream: *stream, length, prefix });
            }
            let mut scanner = FrameScanner::after(24);
            let (mut found, mut at, mut cuts) = (Vec::new(), 0, cuts.iter().cycle());
            let mut bytes_of = std::collections::BTreeMap::<u32, usize>::new();
            while at < wire.len() {
                let piece = &wire[at..(at + cuts.next().unwrap()).min(wire.len())];
                at += piece.len();
                for taken in all(&mut scanner, piece) {
                    prop_assert!(taken.used > 0, "it always moves on");
                    if let Some(stream) = taken.stream {
                        *bytes_of.entry(stream).or_default() += taken.used;
                    }
                    found.extend(taken.frame);
                }
            }
            prop_assert_eq!(&found, &expected);
            // No byte of a payload is put down to another stream.
            for (stream, bytes) in bytes_of {
                let of_stream = expected.iter().filter(|frame| frame.stream == stream);
                let most: usize = of_stream.map(|frame| frame.length as usize + 9).sum();
                prop_assert!(bytes <= most);
            }
        }
    }
}
