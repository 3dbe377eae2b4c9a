//! The request's body, where somebody asked for it: kept byte for byte, to be sent again.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use tracewheel_timeline::vocab::BodyState;

use crate::binding::LONGEST_TEXT;
use crate::cells::Cell;
use crate::draft::Draft;
use crate::reading::Reading;
use crate::report::RejectReason;

/// What a body says that a row wants to know too.
#[derive(Deserialize)]
struct Told<'a> {
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
    #[serde(default)]
    stream: Option<bool>,
}

/// Takes a body: a JSON object or list as it stands in the log, or its text. Text that begins as JSON and does not end so
/// was cut off by whoever logged it: it is not kept, since it cannot be sent. Model and stream are taken from the body where
/// the row has none.
pub(crate) fn take(
    cell: &Cell<'_>,
    draft: &mut Draft,
    reading: &mut Reading<'_>,
) -> Result<(), RejectReason> {
    let text = match cell {
        Cell::Json(raw) => raw,
        other => other.as_text()?,
    };
    let row = &mut draft.row;
    if text.trim_start().starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(text).is_err() {
        reading.tally.drop_value("body", "cut off");
        row.body_state = BodyState::Truncated;
        return Ok(());
    }
    if let Ok(told) = serde_json::from_str::<Told<'_>>(text) {
        if let (None, Some(model)) = (&row.model, told.model.filter(|model| model.len() <= LONGEST_TEXT)) {
            row.model = Some(reading.tally.words.share(&model));
        }
        row.stream = row.stream.or(told.stream);
    }
    row.body = Some(text.as_bytes().to_vec().into());
    row.body_state = BodyState::Full;
    Ok(())
}
