//! Renders an analysis; computes nothing.
//!
//! Every function returns text that ends in a newline and prints nothing: where it goes is the binary's business, and so
//! is whether colours are wanted ([`Style`]). JSON is the analysis itself ([`json`]).

pub mod style;

mod compare;
mod demo;
mod inspect;
mod side;
mod summary;
mod table;
mod units;

pub use compare::comparison_text;
pub use demo::demo_text;
pub use inspect::{run_text, timeline_text};
pub use style::Style;
pub use summary::summary_text;
pub use units::count as grouped;

/// A value as indented JSON with a newline at its end.
///
/// # Errors
/// Only for values that have no JSON form (maps with keys that are not text).
pub fn json<T: serde::Serialize>(value: &T) -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    Ok(text)
}
