//! Where one TLS record ends and the next begins.

use rustls::{Connection, Error, IoState};

/// Bytes of a record before its payload: type, version, length.
const HEADER_BYTES: usize = 5;

/// Follows the records of one direction of a stream, in pieces cut anywhere.
#[derive(Debug, Default)]
pub(super) struct Records {
    header: [u8; HEADER_BYTES],
    /// Bytes of the header that are known.
    known: usize,
    /// Bytes of the payload that are missing.
    missing: usize,
}

impl Records {
    /// How many of `bytes` belong to the record at hand, and whether it ends with them.
    pub(super) fn take(&mut self, bytes: &[u8]) -> (usize, bool) {
        let head = (HEADER_BYTES - self.known).min(bytes.len());
        self.header[self.known..self.known + head].copy_from_slice(&bytes[..head]);
        self.known += head;
        if self.known < HEADER_BYTES {
            return (head, false);
        }
        if head > 0 {
            self.missing = usize::from(u16::from_be_bytes([self.header[3], self.header[4]]));
        }
        let body = self.missing.min(bytes.len() - head);
        self.missing -= body;
        let whole = self.missing == 0;
        if whole {
            self.known = 0;
        }
        (head + body, whole)
    }
}

/// Gives `bytes` to the library.
pub(super) fn feed(tls: &mut Connection, mut bytes: &[u8]) -> Result<IoState, Error> {
    while !bytes.is_empty() {
        match tls.read_tls(&mut bytes) {
            Ok(0) => break,
            Ok(_) => {}
            // Reading from memory does not fail; the library itself refuses what can't be a record.
            Err(error) => return Err(Error::General(error.to_string())),
        }
    }
    tls.process_new_packets()
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn records_are_found_however_the_bytes_are_cut(
            lengths in proptest::collection::vec(0_u16..600, 1..8),
            cut in 1_usize..50,
        ) {
            let mut wire = Vec::new();
            let mut ends = Vec::new();
            for length in &lengths {
                wire.extend([23, 3, 3]);
                wire.extend(length.to_be_bytes());
                wire.resize(wire.len() + usize::from(*length), 7);
                ends.push(wire.len());
            }
            let (mut records, mut found, mut at) = (Records::default(), Vec::new(), 0);
            for piece in wire.chunks(cut) {
                let mut rest = piece;
                while !rest.is_empty() {
                    let (used, whole) = records.take(rest);
                    assert!(used > 0, "it always moves on");
                    at += used;
                    rest = &rest[used..];
                    if whole {
                        found.push(at);
                    }
                }
            }
            assert_eq!(found, ends);
        }
    }
}
