//! The pass that counts a plan before its first request is read.

use tracewheel_timeline::vocab::Phase;
use tracewheel_timeline::{RequestRow, Timeline};

use crate::human::duration;
use crate::select::{self, Planned, Selection, Selector};
use crate::survey::Surveyor;
use crate::thin::ThinCount;
use crate::{PlanHeader, PlanOptions, PlanSurvey, PromptStats, RowPlace, UnknownTokens, WorkloadError};

/// How many refused rows an error names.
const NAMED_ROWS: usize = 5;

/// What the pass yields.
pub(super) struct Counted {
    pub(super) header: PlanHeader,
    pub(super) survey: PlanSurvey,
}

/// Goes over the rows up to the end of the window or the limit.
pub(super) fn count(
    timeline: &Timeline,
    selector: &Selector,
    options: &PlanOptions,
) -> Result<Counted, WorkloadError> {
    let mut count = Count::new(timeline, selector, options);
    let mut columns = select::COLUMNS.to_vec();
    columns.extend(["body_state", "cancel_after_ns"]);
    if options.model.is_none() {
        columns.push("model");
    }
    if options.free_form {
        columns.extend(["method", "path"]);
    }
    for row in timeline.columns_in(0..timeline.num_rows(), &columns) {
        let (position, row) = row?;
        let selection = selector.select(position, &row)?;
        if !count.take(position, &row, selection) {
            break;
        }
    }
    count.finish(timeline, selector)
}

struct Count {
    header: PlanHeader,
    survey: Surveyor,
    thinned: Option<ThinCount>,
    limit: u64,
    refuses: bool,
    refused_rows: Vec<u64>,
}

impl Count {
    fn new(timeline: &Timeline, selector: &Selector, options: &PlanOptions) -> Count {
        let header = PlanHeader {
            requests: 0,
            requests_warmup: 0,
            span_ns: 0,
            warmup_ns: selector.warmup_ns(),
            timeline_digest: timeline.meta().digest.clone(),
            block_tokens: timeline.meta().block_tokens,
            options: options.clone(),
            origin_unix_ns: selector.origin_unix_ns(),
            has_epoch: timeline.meta().has_epoch,
            rows: timeline.num_rows(),
            rows_before_window: 0,
            rows_after_window: 0,
            rows_retries: 0,
            rows_unknown_tokens: 0,
            rows_beyond_limit: 0,
            rows_left_out: 0,
            thinned: None,
            requests_filled: 0,
            history: None,
            prompts: PromptStats::default(),
        };
        Count {
            header,
            survey: Surveyor::new(options.model.is_some(), options.free_form),
            thinned: options.thin.map(ThinCount::new),
            limit: options.limit.unwrap_or(u64::MAX),
            refuses: options.unknown_tokens == UnknownTokens::Refuse,
            refused_rows: Vec::new(),
        }
    }

    /// Counts one row; false if no later row can matter.
    fn take(&mut self, position: u64, row: &RequestRow, selection: Selection) -> bool {
        let header = &mut self.header;
        // A refused row would have been planned, had it counts: it has a place within the limit.
        let refused = if self.refuses { header.rows_unknown_tokens } else { 0 };
        if header.requests + refused >= self.limit {
            header.rows_beyond_limit = header.rows - position;
            return false;
        }
        match selection {
            Selection::BeforeWindow => header.rows_before_window += 1,
            // Rows are sorted by arrival.
            Selection::AfterWindow => {
                header.rows_after_window = header.rows - position;
                return false;
            }
            Selection::Retry => header.rows_retries += 1,
            Selection::LeftOut => header.rows_left_out += 1,
            Selection::Thinned { input_tokens, output_tokens } => {
                if let Some(thinned) = &mut self.thinned {
                    thinned.take(false, row, input_tokens, output_tokens);
                }
            }
            Selection::UnknownTokens => {
                header.rows_unknown_tokens += 1;
                if self.refused_rows.len() < NAMED_ROWS {
                    self.refused_rows.push(position);
                }
            }
            Selection::Planned(planned) => self.plan(position, row, &planned),
        }
        true
    }

    fn plan(&mut self, position: u64, row: &RequestRow, planned: &Planned) {
        let header = &mut self.header;
        header.requests += 1;
        header.requests_warmup += u64::from(planned.phase == Phase::Warmup);
        header.span_ns = planned.planned_ns;
        header.requests_filled += u64::from(planned.filled);
        header.prompts.take(planned.input_tokens, planned.output_tokens);
        self.survey.take(position, row, planned);
        if let Some(thinned) = &mut self.thinned {
            thinned.take(true, row, planned.input_tokens, planned.output_tokens);
        }
    }

    fn finish(mut self, timeline: &Timeline, selector: &Selector) -> Result<Counted, WorkloadError> {
        self.header.thinned = self.thinned.take().map(ThinCount::finish);
        let header = &self.header;
        if self.refuses && header.rows_unknown_tokens > 0 {
            return Err(WorkloadError::UnknownTokens {
                count: header.rows_unknown_tokens,
                rows: header.rows_unknown_tokens + header.requests,
                first_rows: places(timeline, &self.refused_rows)?,
            });
        }
        if header.requests == 0 {
            return Err(nothing(timeline, header)?);
        }
        if header.requests_warmup == header.requests {
            return Err(WorkloadError::OnlyWarmup {
                warmup_ns: selector.warmup_ns(),
                requests: header.requests,
                span_ns: header.span_ns,
            });
        }
        Ok(Counted { header: self.header, survey: self.survey.finish() })
    }
}

/// Where rows came from.
fn places(timeline: &Timeline, rows: &[u64]) -> Result<Vec<RowPlace>, WorkloadError> {
    let place = |position: u64| {
        let mut rows = timeline.columns_in(position..position + 1, &["source_file", "source_offset"]);
        let source = match rows.next().transpose()? {
            Some((_, row)) if !row.source_file.is_empty() => {
                Some((row.source_file.to_string(), row.source_offset))
            }
            _ => None,
        };
        Ok(RowPlace { row: position, source })
    };
    rows.iter().map(|row| place(*row)).collect()
}

/// Why no row is left.
fn nothing(timeline: &Timeline, header: &PlanHeader) -> Result<WorkloadError, WorkloadError> {
    let rows = header.rows;
    let Some(last) = timeline.columns_in(rows.saturating_sub(1)..rows, &["arrival_unix_ns"]).next() else {
        return Ok(WorkloadError::NothingToPlan { what: "the timeline has no rows".to_owned() });
    };
    let first = timeline.arrivals().next().transpose()?.unwrap_or(0);
    let span_ns = last?.1.arrival_unix_ns.unwrap_or(first).saturating_sub(first);
    if let Some(window) = header.options.window.filter(|window| window.from_ns > span_ns) {
        return Ok(WorkloadError::BeyondTimeline { from_ns: window.from_ns, span_ns });
    }
    let mut parts = vec![format!("the timeline has {rows} rows over {}", duration(span_ns))];
    let thinned = header.thinned.as_ref().map_or(0, |thinned| thinned.requests_dropped);
    for (count, what) in [
        (header.rows_before_window + header.rows_after_window, "lie outside the window"),
        (header.rows_retries, "are logged retries"),
        (header.rows_left_out, "are of an operation that is left out"),
        (thinned, "were dropped by thinning"),
        (header.rows_unknown_tokens, "have no token counts"),
        (header.rows_beyond_limit, "lie beyond the limit"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    Ok(WorkloadError::NothingToPlan { what: parts.join("; ") })
}
