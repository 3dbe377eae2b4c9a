//! What a timeline or a run holds, as text.

use tracewheel_analysis::RunInspection;

use crate::style::Style;

/// What a run directory holds.
pub fn run_text(inspection: &RunInspection, style: Style) -> String {
    let _ = style;
    format!("{}\n", inspection.id)
}
