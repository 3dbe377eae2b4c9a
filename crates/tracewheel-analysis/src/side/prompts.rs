//! How exactly made-up prompts have the length that they were made for.

use serde::{Deserialize, Serialize};

use super::observed::Roster;
use crate::quantile::{Percentile, nearest_rank_f64};

/// Made-up prompts as the target counted them, over the successful requests whose answer says it. An error is (counted −
/// asked) / asked.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct PromptReport {
    /// Requests.
    pub requests: u64,
    /// Input tokens that their prompts were made for.
    pub asked_tokens: u64,
    /// Input tokens that the target counted.
    pub counted_tokens: u64,
    /// Median error: above 0 where the target counts more.
    pub error_p50: Option<f64>,
    /// Median of the error without its sign.
    pub error_abs_p50: Option<f64>,
    /// 95th percentile of the error without its sign.
    pub error_abs_p95: Option<f64>,
}

impl PromptReport {
    pub(crate) fn of(roster: &Roster) -> Self {
        let known = roster.requests.iter().filter(|request| request.is_ok());
        let known = known.filter_map(|r| Some((r.asked_input_tokens?, r.input_tokens?)));
        let mut report = Self::default();
        let mut errors = Vec::new();
        for (asked, counted) in known {
            report.requests += 1;
            report.asked_tokens += u64::from(asked);
            report.counted_tokens += u64::from(counted);
            if asked > 0 {
                errors.push((f64::from(counted) - f64::from(asked)) / f64::from(asked));
            }
        }
        errors.sort_unstable_by(f64::total_cmp);
        report.error_p50 = nearest_rank_f64(&errors, Percentile::P50);
        errors.iter_mut().for_each(|error| *error = error.abs());
        errors.sort_unstable_by(f64::total_cmp);
        report.error_abs_p50 = nearest_rank_f64(&errors, Percentile::P50);
        report.error_abs_p95 = nearest_rank_f64(&errors, Percentile::P95);
        report
    }
}

#[cfg(test)]
mod tests {
    use tracewheel_timeline::vocab::RequestStatus;

    use super::super::observed::{Ended, Observed};
    use super::*;

    fn request(status: RequestStatus, asked: Option<u32>, counted: Option<u32>) -> Observed {
        Observed {
            status: Ended(status),
            asked_input_tokens: asked,
            input_tokens: counted,
            ..Observed::default()
        }
    }

    #[test]
    fn errors_are_relative_to_what_was_asked_for_with_and_without_their_sign() {
        let ok = |asked, counted| request(RequestStatus::Ok, Some(asked), Some(counted));
        // −20 %, 0, +10 %, +50 %; the rest says nothing.
        let requests = vec![
            ok(100, 110),
            ok(50, 40),
            ok(10, 15),
            ok(200, 200),
            request(RequestStatus::Failed, Some(10), Some(90)),
            request(RequestStatus::Ok, None, Some(90)),
            request(RequestStatus::Ok, Some(10), None),
        ];
        let report = PromptReport::of(&Roster::new(requests));
        assert_eq!((report.requests, report.asked_tokens, report.counted_tokens), (4, 360, 365));
        assert_eq!((report.error_p50, report.error_abs_p50), (Some(0.0), Some(0.1)));
        assert_eq!(report.error_abs_p95, Some(0.5));
        assert_eq!(PromptReport::of(&Roster::new(Vec::new())), PromptReport::default());
    }
}
