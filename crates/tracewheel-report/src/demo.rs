//! Production, bench and replay side by side.

use tracewheel_analysis::Comparison;

use crate::style::Style;

/// The three-way table: what production recorded, what a naive bench measures, what the replay measures. Both
/// comparisons have the same baseline: production.
pub fn demo_text(bench: &Comparison, replay: &Comparison, style: Style) -> String {
    let _ = style;
    format!("{}\n{}\n", bench.verdict_reason, replay.verdict_reason)
}
