//! What every part and every journal segment says about itself.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use tracewheel_timeline::meta::{Version, keys};

use crate::RUN_VERSION;
use crate::columns::Table;
use crate::error::{RecordError, Result};

/// What [`keys::KIND`] says in a file of a run.
const KIND: &str = "run";
/// Name of the file's table.
const TABLE: &str = "tracewheel.table";
/// Id of the file's run.
pub(crate) const RUN_ID: &str = "tracewheel.run_id";

/// The schema of a table as it is written, metadata included.
pub(crate) fn schema<T: Table>(run_id: &str, tool_version: &str) -> SchemaRef {
    let pairs = [
        (keys::KIND, KIND),
        (keys::VERSION, RUN_VERSION),
        (keys::TOOL_VERSION, tool_version),
        (TABLE, T::NAME),
        (RUN_ID, run_id),
    ];
    let metadata: HashMap<_, _> =
        pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    Arc::new(Schema::new_with_metadata(T::fields(), metadata))
}

/// Refuses a file that is no table `T` of a run, or of another major version.
pub(crate) fn check<'a, T: Table>(path: &Path, find: impl Fn(&str) -> Option<&'a str>) -> Result<()> {
    if find(keys::KIND) != Some(KIND) || find(TABLE) != Some(T::NAME) {
        return Err(RecordError::NotATable { path: path.to_owned(), table: T::NAME });
    }
    check_version(path, find(keys::VERSION).unwrap_or_default())
}

/// Refuses another major version than ours; a newer minor version only adds columns and fields.
pub(crate) fn check_version(path: &Path, found: &str) -> Result<()> {
    let ours = Version::parse(RUN_VERSION).expect("the format's own version is one");
    match Version::parse(found) {
        Some(version) if version.major == ours.major => Ok(()),
        _ => Err(RecordError::Version {
            path: path.to_owned(),
            found: if found.is_empty() { "none".to_owned() } else { found.chars().take(40).collect() },
            supported: RUN_VERSION,
        }),
    }
}
