//! The manifest's file.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;

use super::Manifest;
use crate::disk::{self, Disk};
use crate::error::{RecordError, Result};
use crate::layout::MANIFEST;
use crate::{metadata, redact};

/// Writes a run's manifest, without secrets, whole or not at all and durably.
pub(crate) fn write(disk: &dyn Disk, run: &Path, manifest: &Manifest) -> Result<()> {
    let path = run.join(MANIFEST);
    let understood = |source| RecordError::Manifest { path: path.clone(), source };
    let mut value = serde_json::to_value(manifest).map_err(understood)?;
    redact::redact_json(&mut value);
    let mut text = serde_json::to_vec_pretty(&value).map_err(understood)?;
    text.push(b'\n');
    disk::write_atomically(disk, &path, &text)
}

/// Reads a run's manifest. The version is judged first: nothing else of another major is looked at.
pub(crate) fn read(run: &Path) -> Result<Manifest> {
    let path = run.join(MANIFEST);
    let text = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(RecordError::NotARun { path: run.to_owned() });
        }
        text => text.map_err(|source| RecordError::io("read", &path, source))?,
    };
    let understood = |source| RecordError::Manifest { path: path.clone(), source };
    let value: Value = serde_json::from_slice(&text).map_err(understood)?;
    metadata::check_version(&path, value["version"].as_str().unwrap_or_default())?;
    // From the text again, so that a fault is named with its line.
    serde_json::from_slice(&text).map_err(understood)
}
