//! A request's body in pieces, some of which other bodies share.

use std::io::IoSlice;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};

/// Of two neighbouring pieces one is at least so long, else they are joined: a slice of a body must not fall into more
/// buffers than one write call takes.
const SHORT_BYTES: usize = 4 * 1024;

/// The body of a request: one piece or several, one after the other on the wire. Cloning it copies nothing.
///
/// Long prompts are made of text that many requests have in common. Such a body refers to the text where it lies, so that
/// a thousand of them that wait for their time hold it once.
#[derive(Clone, Debug, Default)]
pub struct Body {
    pieces: Pieces,
    bytes: usize,
    own_bytes: usize,
}

#[derive(Clone, Debug)]
enum Pieces {
    One(Bytes),
    Several(Arc<[Bytes]>),
}

impl Default for Pieces {
    fn default() -> Self {
        Pieces::One(Bytes::new())
    }
}

impl Body {
    /// A body of these pieces in their order. `own_bytes` is what it holds in memory for itself alone; whoever else holds
    /// the rest counts it. Pieces under 4 KiB beside each other are copied into one.
    pub fn of(pieces: Vec<Bytes>, own_bytes: usize) -> Body {
        let bytes = pieces.iter().map(Bytes::len).sum();
        let mut pieces = joined(pieces);
        let pieces = match pieces.len() {
            0 | 1 => Pieces::One(pieces.pop().unwrap_or_default()),
            _ => Pieces::Several(pieces.into()),
        };
        let mut body = Body { pieces, bytes, own_bytes };
        body.own_bytes += size_of_val(body.pieces());
        body
    }

    /// Its length on the wire, in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it has not a byte.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Bytes of memory that it holds for itself alone, what keeps its pieces together included.
    pub fn own_bytes(&self) -> usize {
        self.own_bytes
    }

    /// Its pieces, in their order.
    pub fn pieces(&self) -> &[Bytes] {
        match &self.pieces {
            Pieces::One(piece) => std::slice::from_ref(piece),
            Pieces::Several(pieces) => pieces,
        }
    }

    /// All its bytes in one stretch: a copy, where it has several pieces.
    pub fn to_bytes(&self) -> Bytes {
        match &self.pieces {
            Pieces::One(piece) => piece.clone(),
            Pieces::Several(pieces) => pieces.concat().into(),
        }
    }

    /// What is left to be sent of it: all.
    pub(crate) fn unsent(&self) -> Unsent {
        Unsent { body: self.clone(), piece: 0, at: 0, left: self.bytes }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Body { bytes: bytes.len(), own_bytes: bytes.len(), pieces: Pieces::One(bytes) }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

/// Joins short pieces to their short neighbours and leaves empty ones out.
fn joined(pieces: Vec<Bytes>) -> Vec<Bytes> {
    let mut out: Vec<Bytes> = Vec::with_capacity(pieces.len());
    let mut short = BytesMut::new();
    for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
        if piece.len() >= SHORT_BYTES {
            if !short.is_empty() {
                out.push(short.split().freeze());
            }
            out.push(piece);
        } else if short.len() >= SHORT_BYTES {
            out.push(short.split().freeze());
            short.extend_from_slice(&piece);
        } else {
            short.extend_from_slice(&piece);
        }
    }
    if !short.is_empty() {
        out.push(short.freeze());
    }
    out
}

/// What is left to be sent of a body.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    body: Body,
    /// The piece that is being sent, and how much of it was.
    piece: usize,
    at: usize,
    left: usize,
}

impl Unsent {
    fn pieces(&self) -> &[Bytes] {
        self.body.pieces().get(self.piece..).unwrap_or_default()
    }
}

impl Buf for Unsent {
    fn remaining(&self) -> usize {
        self.left
    }

    fn chunk(&self) -> &[u8] {
        self.pieces().first().map_or(&[], |piece| &piece[self.at..])
    }

    fn chunks_vectored<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let mut at = self.at;
        let mut filled = 0;
        for (slice, piece) in into.iter_mut().zip(self.pieces()) {
            *slice = IoSlice::new(&piece[std::mem::take(&mut at)..]);
            filled += 1;
        }
        if self.left == 0 { 0 } else { filled }
    }

    fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.left, "no more than is left can be sent");
        self.left -= bytes;
        self.at += bytes;
        while let Some(piece) = self.body.pieces().get(self.piece).filter(|piece| piece.len() <= self.at) {
            self.at -= piece.len();
            self.piece += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pieces(sizes: &[usize]) -> Vec<Bytes> {
        let bytes = |(n, &size): (usize, &usize)| (0..size).map(|at| (at + 7 * n) as u8).collect::<Bytes>();
        sizes.iter().enumerate().map(bytes).collect()
    }

    #[test]
    fn a_body_of_one_piece_is_that_piece_and_counts_all_of_it() {
        let body = Body::from(Bytes::from_static(b"hello"));
        assert_eq!((body.len(), body.own_bytes(), body.pieces().len()), (5, 5, 1));
        let shared = body.to_bytes();
        assert_eq!(shared.as_ptr(), body.pieces()[0].as_ptr(), "nothing was copied");
        assert!(Body::default().is_empty() && Body::of(Vec::new(), 0).is_empty());
    }

    #[test]
    fn long_pieces_are_shared_and_short_neighbours_are_one() {
        let long = Bytes::from(vec![1; SHORT_BYTES]);
        let short = |text: &'static str| Bytes::from_static(text.as_bytes());
        let body =
            Body::of(vec![short("a"), short("bc"), long.clone(), short(""), long.clone(), short("d")], 4);
        let sizes: Vec<usize> = body.pieces().iter().map(Bytes::len).collect();
        assert_eq!(sizes, [3, SHORT_BYTES, SHORT_BYTES, 1]);
        assert!(body.pieces()[1..3].iter().all(|piece| piece.as_ptr() == long.as_ptr()));
        assert_eq!(body.own_bytes(), 4 + 4 * size_of::<Bytes>());
    }

    proptest! {
        #[test]
        fn the_pieces_are_the_bytes_however_they_are_cut_and_sent(
            sizes in prop::collection::vec(prop_oneof![0..9_usize, 0..9_000_usize], 0..40),
            steps in prop::collection::vec(1..20_000_usize, 1..40),
            room in 1..20_usize,
        ) {
            let given = pieces(&sizes);
            let whole = given.concat();
            let body = Body::of(given, 0);
            prop_assert_eq!(body.len(), whole.len());
            prop_assert_eq!(&body.to_bytes()[..], &whole[..]);
            // Of 32 neighbours half are long.
            let short = |piece: &Bytes| piece.len() < SHORT_BYTES;
            prop_assert!(!body.pieces().windows(2).any(|two| two.iter().all(short)));
            let mut unsent = body.unsent();
            let mut sent = Vec::new();
            for step in steps.into_iter().cycle() {
                if sent.len() == whole.len() {
                    break;
                }
                let mut slices = [IoSlice::new(&[]); 20];
                let filled = unsent.chunks_vectored(&mut slices[..room]);
                let shown: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect();
                prop_assert!(whole[sent.len()..].starts_with(&shown) && !shown.is_empty());
                prop_assert!(shown.starts_with(unsent.chunk()));
                let step = step.min(shown.len());
                sent.extend_from_slice(&shown[..step]);
                unsent.advance(step);
            }
            prop_assert_eq!(unsent.remaining(), 0);
            prop_assert_eq!(unsent.chunks_vectored(&mut [IoSlice::new(&[]); 4]), 0);
            prop_assert!(unsent.chunk().is_empty());
            prop_assert_eq!(sent, whole);
        }
    }
}
