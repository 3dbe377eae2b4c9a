//! Production logs of each format, streamed in bounded memory, redacted and counted into a timeline.
//!
//! [`ingest`] reads any number of inputs (files or standard input), finds the format of each from its content, and
//! writes one timeline sorted by arrival. A row that cannot be read is rejected with its file, line, byte offset and
//! reason, and never stops the import; the [`IngestReport`] counts what was kept, what was rejected and why, and which
//! rules were applied, and goes into the timeline's own metadata.
//!
//! A format is one file under `format/` and one line in its table. Sessions, tenants, users and request ids leave
//! this crate only as keyed hashes; prompt text does not leave it at all.

mod aliases;
mod assemble;
mod binding;
mod cells;
mod column_map;
mod decimal;
mod draft;
mod error;
mod fields;
mod format;
mod gauge;
mod identity;
mod import;
mod lines;
mod options;
mod placing;
mod reading;
mod recent;
mod recorded_body;
mod records;
mod rejects;
mod report;
mod restart;
mod sort;
mod source;
mod stamps;
mod stop;
mod survey;
mod time_forms;
mod zone;

use std::path::Path;

pub use column_map::{ColumnMap, MapError};
pub use error::IngestError;
pub use fields::mappable_fields;
pub use format::formats;
pub use gauge::ImportGauge;
pub use identity::{key_fingerprint, tenant_hash};
pub use options::{IngestOptions, Input, RestartRule, TokenRule};
pub use report::{
    CountRule, FileReport, IngestReport, Known, PackedReport, PeakRate, Precision, RejectReason, RejectedRow,
    Restart, Retries, Sorting, SortingWay,
};
pub use stop::ImportStop;
pub use zone::Zone;

/// Reads `inputs` and writes the timeline at `out`.
///
/// The timeline is a pure function of the inputs' bytes, the options and the version; the order of the inputs decides
/// between rows that arrive at the same time.
///
/// # Errors
/// When an input cannot be read or recognised, when the options do not fit the inputs, or when the timeline cannot be
/// written; no timeline is left then. Bad rows are no error: see [`IngestReport::over_reject_limit`].
///
/// ```
/// use tracewheel_ingest::{IngestOptions, Input, ingest};
///
/// let log = "arrival_unix_ms,input_tokens,output_tokens\n1795536000123,812,64\n1795536000120,77,oops\n";
/// let out = std::env::temp_dir().join(format!("doc-{}.parquet", std::process::id()));
/// let report = ingest(vec![Input::reader("log", log.as_bytes())], IngestOptions::new("secret"), &out)?;
/// assert_eq!((report.rows_kept, report.rows_rejected), (1, 1));
/// assert_eq!((report.rejects[0].line, report.rejects[0].column.as_deref()), (3, Some("output_tokens")));
/// # std::fs::remove_file(out).unwrap();
/// # Ok::<(), tracewheel_ingest::IngestError>(())
/// ```
pub fn ingest(inputs: Vec<Input>, options: IngestOptions, out: &Path) -> Result<IngestReport, IngestError> {
    import::run(inputs, &options, out)
}
