//! How much of a side's prompts came from the prefix cache, and how much was predicted to.

use serde::{Deserialize, Serialize};

use super::observed::{Observed, Roster};

/// What part of a prompt came from the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheClass {
    /// Nothing.
    Cold,
    /// Some, and less than nine tenths.
    PartlyWarm,
    /// Nine tenths or more: a cache of whole blocks always leaves the last ones to compute.
    Warm,
    /// Unknown.
    NotReported,
}

impl CacheClass {
    /// The classes in order.
    pub const ALL: [Self; 4] = [Self::Cold, Self::PartlyWarm, Self::Warm, Self::NotReported];

    /// The class of a prompt of `input_tokens`, of which `cached_tokens` came from the cache.
    pub fn of(cached_tokens: Option<u32>, input_tokens: Option<u32>) -> Self {
        let (Some(cached), Some(input)) = (cached_tokens, input_tokens) else { return Self::NotReported };
        match (u64::from(cached) * 10, u64::from(input) * 9) {
            (0, _) => Self::Cold,
            (_, 0) => Self::NotReported,
            (cached, enough) if cached >= enough => Self::Warm,
            _ => Self::PartlyWarm,
        }
    }

    /// The word in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::PartlyWarm => "partly warm",
            Self::Warm => "warm",
            Self::NotReported => "not reported",
        }
    }
}

/// Cached tokens of a side's successful requests: as its answers reported them, as the plan predicted them, and how far
/// apart the two are.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CachedReport {
    /// One entry a class, in order.
    pub classes: Vec<CacheClassReport>,
    /// Over the requests whose cached and input tokens are known.
    pub measured: CachedShare,
    /// Over the requests for which the plan knew what an endless cache would have held.
    pub predicted: CachedShare,
    /// Over the requests of which both are known.
    pub both: CachedDifference,
}

/// How many requests fell into a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheClassReport {
    /// The class.
    pub class: CacheClass,
    /// Requests of this class by their own answer.
    pub measured: u64,
    /// Requests of this class by the prediction.
    pub predicted: u64,
    /// Requests of this class by both.
    pub both: u64,
}

/// A share of input tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct CachedShare {
    /// Requests that it is made of.
    pub requests: u64,
    /// Their cached tokens.
    pub cached_tokens: u64,
    /// Their input tokens.
    pub input_tokens: u64,
    /// `cached_tokens` / `input_tokens`; null where there are none.
    pub share: Option<f64>,
}

impl CachedShare {
    fn add(&mut self, cached: u32, input: u32) {
        self.requests += 1;
        self.cached_tokens += u64::from(cached);
        self.input_tokens += u64::from(input);
        self.share = (self.input_tokens > 0).then(|| self.cached_tokens as f64 / self.input_tokens as f64);
    }
}

/// What was predicted against what was measured.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct CachedDifference {
    /// Requests of which both are known.
    pub requests: u64,
    /// Predicted share of their input tokens.
    pub predicted_share: Option<f64>,
    /// Measured share of their input tokens.
    pub measured_share: Option<f64>,
    /// `predicted_share` − `measured_share`: positive where the target found less than an endless cache would.
    pub difference: Option<f64>,
}

/// Sums a side up.
pub(super) fn report(roster: &Roster) -> CachedReport {
    let empty = |class| CacheClassReport { class, measured: 0, predicted: 0, both: 0 };
    let mut report = CachedReport { classes: CacheClass::ALL.map(empty).to_vec(), ..CachedReport::default() };
    let (mut predicted_of_both, mut measured_of_both) = (CachedShare::default(), CachedShare::default());
    for request in roster.requests.iter().filter(|request| request.is_ok()) {
        let Observed { cached_tokens: cached, predicted_cached_tokens: predicted, .. } = *request;
        let input = request.input_tokens;
        let (measured_class, predicted_class) =
            (CacheClass::of(cached, input), CacheClass::of(predicted, input));
        for entry in &mut report.classes {
            let (measured, predicted) = (entry.class == measured_class, entry.class == predicted_class);
            entry.measured += u64::from(measured);
            entry.predicted += u64::from(predicted);
            entry.both += u64::from(measured && predicted);
        }
        let Some(input) = input else { continue };
        if let Some(cached) = cached {
            report.measured.add(cached, input);
        }
        if let Some(predicted) = predicted {
            report.predicted.add(predicted, input);
        }
        if let (Some(cached), Some(predicted)) = (cached, predicted) {
            measured_of_both.add(cached, input);
            predicted_of_both.add(predicted, input);
        }
    }
    let (predicted, measured) = (predicted_of_both.share, measured_of_both.share);
    report.both = CachedDifference {
        requests: measured_of_both.requests,
        predicted_share: predicted,
        measured_share: measured,
        difference: predicted.zip(measured).map(|(predicted, measured)| predicted - measured),
    };
    report
}

#[cfg(test)]
mod tests {
    use tracewheel_timeline::vocab::RequestStatus;

    use super::super::observed::Ended;
    use super::*;

    #[test]
    fn a_prompt_is_warm_from_nine_tenths_on_and_cold_only_without_a_token() {
        for (cached, input, class) in [
            (Some(0), Some(100), CacheClass::Cold),
            (Some(0), Some(0), CacheClass::Cold),
            (Some(1), Some(100), CacheClass::PartlyWarm),
            (Some(89), Some(100), CacheClass::PartlyWarm),
            (Some(90), Some(100), CacheClass::Warm),
            (Some(100), Some(100), CacheClass::Warm),
            (Some(u32::MAX), Some(u32::MAX), CacheClass::Warm),
            (None, Some(100), CacheClass::NotReported),
            (Some(5), None, CacheClass::NotReported),
            (Some(5), Some(0), CacheClass::NotReported),
        ] {
            assert_eq!(CacheClass::of(cached, input), class, "{cached:?} of {input:?}");
        }
    }

    fn request(row: u64, predicted: Option<u32>, cached: Option<u32>) -> Observed {
        Observed {
            key: (row, 0),
            status: Ended(RequestStatus::Ok),
            input_tokens: Some(100),
            cached_tokens: cached,
            predicted_cached_tokens: predicted,
            ..Observed::default()
        }
    }

    #[test]
    fn predicted_and_measured_shares_are_compared_over_the_requests_that_know_both() {
        let failed = Observed { status: Ended(RequestStatus::Failed), ..request(9, Some(100), Some(0)) };
        let report = report(&Roster::new(vec![
            request(0, Some(0), Some(0)),
            request(1, Some(96), Some(64)),
            request(2, Some(96), Some(96)),
            request(3, None, Some(32)),
            request(4, Some(50), None),
            failed,
        ]));
        let classes: Vec<_> = report.classes.iter().map(|c| (c.measured, c.predicted, c.both)).collect();
        // Cold, partly warm, warm, not reported.
        assert_eq!(classes, [(1, 1, 1), (2, 1, 0), (1, 2, 1), (1, 1, 0)]);
        assert_eq!((report.measured.requests, report.measured.share), (4, Some(192.0 / 400.0)));
        assert_eq!((report.predicted.cached_tokens, report.predicted.share), (242, Some(242.0 / 400.0)));
        assert_eq!(report.both.requests, 3);
        assert_eq!(report.both.difference, Some(192.0 / 300.0 - 160.0 / 300.0));
    }

    #[test]
    fn nothing_known_is_no_share() {
        let report = report(&Roster::new(vec![request(0, None, None)]));
        assert_eq!(
            (report.measured.share, report.predicted.share, report.both.difference),
            (None, None, None)
        );
        assert_eq!(report.classes[3].measured, 1);
    }
}
