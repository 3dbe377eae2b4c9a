//! The Arrow schema of a timeline, version 1.1.

use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};

use crate::columns;

/// The column that timelines are sorted by. Nullable in a baseline, and only there.
pub const ARRIVAL: &str = "arrival_unix_ns";

/// The schema of a timeline, or of a baseline: the same with a nullable arrival.
///
/// Closed vocabularies and repeating texts are `Dictionary(Int32, Utf8)`; lists are named `element`, maps
/// `key_value{key, value}`, as the Parquet format has them.
pub fn arrow_schema(baseline: bool) -> SchemaRef {
    let mut fields = columns::fields();
    if !baseline {
        for field in fields.iter_mut().filter(|field| field.name() == ARRIVAL) {
            field.set_nullable(false);
        }
    }
    Arc::new(Schema::new(fields))
}

/// Every column's name, in the order of the schema.
pub fn column_names() -> &'static [&'static str] {
    columns::NAMES
}

/// Whether a column holds times: an instant, a duration or a list of offsets, in nanoseconds. Such columns are
/// written with `DELTA_BINARY_PACKED`.
pub fn is_time(column: &str) -> bool {
    column.ends_with("_ns")
}
