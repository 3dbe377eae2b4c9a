//! The bounds within which a run counts as sent by its plan.

use serde::{Deserialize, Serialize};

/// Bounds of the fidelity verdict: what the run is judged by, unless whoever judges says otherwise. Formulas stand in
/// `docs/reference/metrics.md`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FidelityBounds {
    /// Share of the median gap between due times that the p99 of lateness may take; 0.05 by default.
    pub lateness_share: f64,
    /// Less lateness than this is never asked for; 1 ms by default.
    pub lateness_floor_ns: i64,
    /// More lateness than this is never allowed; 10 ms by default.
    pub lateness_ceiling_ns: i64,
    /// Share of the median gap by which gaps may differ from planned ones on average; 0.05 by default.
    pub gap_distance_share: f64,
    /// A smaller difference than this is never asked for; 0.1 ms by default.
    pub gap_distance_floor_ns: i64,
    /// A larger difference than this is never allowed; 10 ms by default.
    pub gap_distance_ceiling_ns: i64,
    /// How many times the bound of a faithful run makes an unfaithful one; 3 by default, at least 1.
    pub unfaithful_factor: f64,
    /// Share of the planned requests that may stay unsent before the run is unfaithful; 0.01 by default.
    pub unsent_share: f64,
}

impl Default for FidelityBounds {
    fn default() -> Self {
        Self {
            lateness_share: 0.05,
            lateness_floor_ns: 1_000_000,
            lateness_ceiling_ns: 10_000_000,
            gap_distance_share: 0.05,
            gap_distance_floor_ns: 100_000,
            gap_distance_ceiling_ns: 10_000_000,
            unfaithful_factor: 3.0,
            unsent_share: 0.01,
        }
    }
}

impl FidelityBounds {
    /// Whether the bounds can be judged by.
    ///
    /// # Errors
    /// Which one cannot, and what it may be.
    pub fn check(&self) -> Result<(), String> {
        let shares = [
            ("lateness_share", self.lateness_share, 10.0),
            ("gap_distance_share", self.gap_distance_share, 10.0),
            ("unsent_share", self.unsent_share, 1.0),
        ];
        for (name, share, most) in shares {
            if !(0.0..=most).contains(&share) {
                return Err(format!("{name} is {share}: it is a share from 0 to {most}"));
            }
        }
        let ranges = [
            ("lateness", self.lateness_floor_ns, self.lateness_ceiling_ns),
            ("gap_distance", self.gap_distance_floor_ns, self.gap_distance_ceiling_ns),
        ];
        for (name, floor_ns, ceiling_ns) in ranges {
            if floor_ns < 0 || ceiling_ns < floor_ns {
                return Err(format!(
                    "{name}_floor is {floor_ns} ns and {name}_ceiling {ceiling_ns} ns: the floor is at least 0, the ceiling \
                     no lower than the floor"
                ));
            }
        }
        if !(1.0..=1e9).contains(&self.unfaithful_factor) {
            let factor = self.unfaithful_factor;
            return Err(format!("unfaithful_factor is {factor}: it is a factor from 1 to 1000000000"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_that_cannot_be_judged_by_are_refused_by_name() {
        let usual = FidelityBounds::default();
        assert_eq!(usual.check(), Ok(()));
        for (bounds, name) in [
            (FidelityBounds { lateness_share: f64::NAN, ..usual }, "lateness_share"),
            (FidelityBounds { unsent_share: 1.1, ..usual }, "unsent_share"),
            (FidelityBounds { lateness_floor_ns: 11_000_000, ..usual }, "lateness_floor"),
            (FidelityBounds { gap_distance_floor_ns: -1, ..usual }, "gap_distance_floor"),
            (FidelityBounds { unfaithful_factor: 0.5, ..usual }, "unfaithful_factor"),
        ] {
            assert!(bounds.check().unwrap_err().contains(name), "{name}");
        }
    }

    #[test]
    fn bounds_that_an_older_version_did_not_write_are_the_usual_ones() {
        let bounds: FidelityBounds = serde_json::from_str(r#"{"lateness_ceiling_ns": 5}"#).unwrap();
        assert_eq!(bounds, FidelityBounds { lateness_ceiling_ns: 5, ..FidelityBounds::default() });
    }
}
