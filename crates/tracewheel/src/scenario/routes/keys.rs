//! Tenants by name: hashed as the import hashed them.

use tracewheel_ingest::{key_fingerprint, tenant_hash};
use tracewheel_timeline::Timeline;

use super::HashWord;
use crate::cli::ReplayArgs;
use crate::secret;

/// Knows the key of the timeline's ids, once a route names a tenant.
pub(super) struct Tenants<'a> {
    args: &'a ReplayArgs,
    key: Option<Vec<u8>>,
}

impl<'a> Tenants<'a> {
    pub(super) fn new(args: &'a ReplayArgs) -> Self {
        Tenants { args, key: None }
    }

    /// The hashes of these tenants and these hashes, as texts; none where neither is given.
    pub(super) fn hashes(
        &mut self,
        names: Option<&[String]>,
        hashes: Option<&[HashWord]>,
    ) -> Result<Option<Vec<HashWord>>, String> {
        let mut all = Vec::new();
        for hash in hashes.unwrap_or_default() {
            all.push(HashWord::Text(hash.value()?.to_string()));
        }
        for name in names.unwrap_or_default() {
            let key = self.key()?;
            all.push(HashWord::Text(tenant_hash(key, name).to_string()));
        }
        Ok(Some(all).filter(|all| !all.is_empty()))
    }

    fn key(&mut self) -> Result<&[u8], String> {
        if self.key.is_none() {
            self.key = Some(self.checked_key()?);
        }
        Ok(self.key.as_deref().unwrap_or_default())
    }

    /// The key, which must be the one that the timeline was imported with: another one would find nobody.
    fn checked_key(&self) -> Result<Vec<u8>, String> {
        const REMEDY: &str = "name the key file of the import (`id_key_file` in the scenario), or give the keyed hashes themselves (tenant_hashes)";
        let key = secret::existing_hash_key(self.args.id_key_file.as_deref()).map_err(|failure| {
            format!("tenants are compared by their keyed hash: {:#}: {REMEDY}", failure.error)
        })?;
        let Some(path) = &self.args.timeline else { return Ok(key) };
        // What is wrong with the timeline is told by whoever plans it.
        let Ok(timeline) = Timeline::open(path) else { return Ok(key) };
        let (own, theirs) = (key_fingerprint(&key), timeline.meta().key_fingerprint.clone());
        match theirs {
            Some(theirs) if theirs != own => Err(format!(
                "the ids of {} were hashed with another key (fingerprint {theirs}, here {own}): {REMEDY}",
                path.display()
            )),
            _ => Ok(key),
        }
    }
}
