//! SipHash-1-3 (Aumasson and Bernstein, 2012) over whole 64-bit words, with the hash of every prefix on the way.
//!
//! Hashers for messages of any bytes keep a half-filled word besides, and look at it with every word.

/// The state after so many words.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sip13 {
    state: [u64; 4],
    words: u64,
}

impl Sip13 {
    /// No words yet, under a key of 128 bits.
    pub(super) fn new(key: [u8; 16]) -> Self {
        let both = u128::from_le_bytes(key);
        let (k0, k1) = (both as u64, (both >> 64) as u64);
        let state = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        Self { state, words: 0 }
    }

    /// Appends a word (its bytes little endian, where the message is seen as bytes).
    #[inline]
    pub(super) fn add(&mut self, word: u64) {
        self.state[3] ^= word;
        round(&mut self.state);
        self.state[0] ^= word;
        self.words = self.words.wrapping_add(1);
    }

    /// The hash of the words so far.
    #[inline]
    pub(super) fn hash(&self) -> u64 {
        // The last word: the message's length in bytes, modulo 256, in the highest byte.
        let mut last = *self;
        last.add(self.words << 59);
        let mut state = last.state;
        state[2] ^= 0xff;
        (0..3).for_each(|_| round(&mut state));
        state[0] ^ state[1] ^ state[2] ^ state[3]
    }
}

#[inline]
fn round(state: &mut [u64; 4]) {
    let [mut a, mut b, mut c, mut d] = *state;
    a = a.wrapping_add(b);
    c = c.wrapping_add(d);
    b = b.rotate_left(13) ^ a;
    d = d.rotate_left(16) ^ c;
    a = a.rotate_left(32).wrapping_add(d);
    c = c.wrapping_add(b);
    d = d.rotate_left(21) ^ a;
    b = b.rotate_left(17) ^ c;
    c = c.rotate_left(32);
    *state = [a, b, c, d];
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher;

    use proptest::prelude::*;
    use siphasher::sip::SipHasher13;

    use super::*;

    proptest! {
        #[test]
        fn every_prefix_hashes_as_by_an_implementation_for_bytes(
            key in any::<[u8; 16]>(),
            words in proptest::collection::vec(any::<u64>(), 0..70),
        ) {
            let mut ours = Sip13::new(key);
            let mut theirs = SipHasher13::new_with_key(&key);
            prop_assert_eq!(ours.hash(), theirs.finish());
            for word in words {
                ours.add(word);
                theirs.write(&word.to_le_bytes());
                prop_assert_eq!(ours.hash(), theirs.finish());
            }
        }
    }
}
