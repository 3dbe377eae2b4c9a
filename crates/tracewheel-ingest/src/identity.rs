//! Keyed hashes: the only form in which ids and block ids leave this crate.
//!
//! Ids of requests, sessions, tenants and users, which are texts of any length, are hashed with keyed BLAKE3. A prompt
//! has dozens of block ids, numbers that mean nothing outside their log. Their chain is SipHash-1-3, a keyed
//! pseudorandom function made for short inputs, under a key that BLAKE3 derives from the secret.

mod sip;

use sip::Sip13;

/// The secret behind an import's hashes, spread over one key a purpose, so that a session and a user of one name do
/// not meet.
pub(crate) struct IdKey {
    request: [u8; 32],
    session: [u8; 32],
    tenant: [u8; 32],
    user: [u8; 32],
    /// The chain before any block.
    block: Sip13,
    fingerprint: String,
}

/// What an id names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdKind {
    Request,
    Session,
    Tenant,
    User,
}

/// The chained hash of a prompt's blocks so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chain(Sip13);

impl IdKey {
    pub(crate) fn new(secret: &[u8]) -> Self {
        let derive = |purpose: &str| blake3::derive_key(&format!("tracewheel ingest v1 {purpose}"), secret);
        let fingerprint = derive("fingerprint");
        let mut block = [0; 16];
        block.copy_from_slice(&derive("block, SipHash-1-3")[..16]);
        Self {
            request: derive("request"),
            session: derive("session"),
            tenant: derive("tenant"),
            user: derive("user"),
            block: Sip13::new(block),
            fingerprint: fingerprint[..8].iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    /// Tells two keys apart without telling anything about either.
    pub(crate) fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    pub(crate) fn hash(&self, kind: IdKind, id: &[u8]) -> u64 {
        let key = match kind {
            IdKind::Request => &self.request,
            IdKind::Session => &self.session,
            IdKind::Tenant => &self.tenant,
            IdKind::User => &self.user,
        };
        keyed(key, id)
    }

    /// The chain of a prompt without any block.
    pub(crate) fn chain(&self) -> Chain {
        Chain(self.block)
    }
}

impl Chain {
    /// The hash of the next block: of its id and of all blocks before it, so that equal hashes mean equal prefixes even
    /// where the log gives one id to one text wherever it stands.
    #[inline]
    pub(crate) fn next(&mut self, id: u64) -> u64 {
        // What is hashed is the prefix's ids end to end, so the hashes of its blocks need not wait for each other.
        self.0.add(id);
        self.0.hash()
    }
}

fn keyed(key: &[u8; 32], bytes: &[u8]) -> u64 {
    let hash = blake3::keyed_hash(key, bytes);
    let mut first = [0; 8];
    first.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_le_bytes(first)
}

/// The hash under which a tenant of this name stands in a timeline that was imported with this key.
pub fn tenant_hash(key: &[u8], name: &str) -> u64 {
    IdKey::new(key).hash(IdKind::Tenant, name.as_bytes())
}

/// What an import with this key writes into its timeline to tell the key from others; it tells nothing else about it.
pub fn key_fingerprint(key: &[u8]) -> String {
    IdKey::new(key).fingerprint
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_hashes_apart_by_kind_and_by_key() {
        let (one, two) = (IdKey::new(b"one"), IdKey::new(b"two"));
        let session = one.hash(IdKind::Session, b"ada");
        assert_eq!(session, IdKey::new(b"one").hash(IdKind::Session, b"ada"));
        assert_ne!(session, one.hash(IdKind::User, b"ada"));
        assert_ne!(session, two.hash(IdKind::Session, b"ada"));
        assert_ne!(one.fingerprint(), two.fingerprint());
    }

    #[test]
    fn a_block_hash_stands_for_everything_before_it() {
        let key = IdKey::new(b"key");
        let hashes = |ids: &[u64]| {
            let mut chain = key.chain();
            ids.iter().map(|id| chain.next(*id)).collect::<Vec<_>>()
        };
        assert_eq!(hashes(&[1, 2, 3])[..2], hashes(&[1, 2, 4])[..2]);
        assert_ne!(hashes(&[3005, 3050])[1], hashes(&[3008, 3050])[1]);
    }
}
