//! Which state of the target's prefix cache a replay chooses.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::PlannedRequest;

/// The chosen state of the prefix cache. Enters a replay only through the nonce of each prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum CacheMode {
    /// The trace's own sharing, under one nonce for the run: nothing of an earlier run is hit.
    #[default]
    Natural,
    /// A nonce for each request: nothing is hit.
    Cold,
    /// As natural, and every prompt is sent once ahead of the run: all is hit.
    Warm,
    /// Warm for this share of the requests, in parts per million; cold for the others. Which ones depends on their
    /// ids alone.
    Mix {
        /// Warm requests per million.
        warm_ppm: u32,
    },
}

/// A million: the whole, for [`CacheMode::Mix`].
const WHOLE_PPM: u32 = 1_000_000;

impl CacheMode {
    /// The nonce under which the prompt of `request_id` is rendered in a run whose nonce is `run_nonce`.
    pub fn nonce(self, run_nonce: u64, request_id: u64) -> u64 {
        if self.is_cold(request_id) {
            xxh3_64_with_seed(&request_id.to_le_bytes(), run_nonce)
        } else {
            run_nonce
        }
    }

    /// Whether the prompt of `request_id` is sent ahead of the run.
    pub fn is_primed(self, request_id: u64) -> bool {
        match self {
            CacheMode::Natural | CacheMode::Cold => false,
            CacheMode::Warm => true,
            CacheMode::Mix { .. } => !self.is_cold(request_id),
        }
    }

    /// Input tokens of `planned` that a prefix cache of endless size would hold in this mode: none when the request is
    /// cold, all when it was sent ahead, else what the plan says. `None` is unknown. Only for prompts that are made up:
    /// a recorded body is sent as it is, in any mode.
    pub fn predicted_cached_tokens(self, planned: &PlannedRequest) -> Option<u32> {
        if self.is_cold(planned.request_id) {
            Some(0)
        } else if self.is_primed(planned.request_id) {
            Some(planned.input_tokens)
        } else {
            planned.predicted_cached_tokens
        }
    }

    /// Whether `request_id` gets a nonce of its own.
    pub fn is_cold(self, request_id: u64) -> bool {
        match self {
            CacheMode::Natural | CacheMode::Warm => false,
            CacheMode::Cold => true,
            CacheMode::Mix { warm_ppm } => {
                let place = xxh3_64_with_seed(&request_id.to_le_bytes(), MIX_SEED) % u64::from(WHOLE_PPM);
                place >= u64::from(warm_ppm)
            }
        }
    }
}

/// Keeps the choice of warm requests apart from every other use of their ids.
const MIX_SEED: u64 = 0x6d69_785f_7761_726d;

impl fmt::Display for CacheMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CacheMode::Natural => f.write_str("natural"),
            CacheMode::Cold => f.write_str("cold"),
            CacheMode::Warm => f.write_str("warm"),
            CacheMode::Mix { warm_ppm } => {
                let digits = format!("{}.{:06}", warm_ppm / WHOLE_PPM, warm_ppm % WHOLE_PPM);
                write!(f, "mix:{}", digits.trim_end_matches('0').trim_end_matches('.'))
            }
        }
    }
}

/// The text names no cache mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no cache mode: write natural, cold, warm, or mix:SHARE with a share from 0 to 1, as in mix:0.37"
)]
pub struct ParseCacheModeError {
    text: String,
}

impl FromStr for CacheMode {
    type Err = ParseCacheModeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "natural" => Ok(CacheMode::Natural),
            "cold" => Ok(CacheMode::Cold),
            "warm" => Ok(CacheMode::Warm),
            _ => text
                .strip_prefix("mix:")
                .and_then(share_ppm)
                .map(|warm_ppm| CacheMode::Mix { warm_ppm })
                .ok_or_else(|| ParseCacheModeError { text: text.chars().take(80).collect() }),
        }
    }
}

/// A decimal from 0 to 1 with at most six places, exactly, in millionths.
fn share_ppm(text: &str) -> Option<u32> {
    let (whole, places) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(places) || places.len() > 6 {
        return None;
    }
    let millionths: u32 = format!("{places:0<6}").parse().ok()?;
    let ppm = whole.parse::<u32>().ok()?.checked_mul(WHOLE_PPM)?.checked_add(millionths)?;
    (ppm <= WHOLE_PPM).then_some(ppm)
}

impl TryFrom<String> for CacheMode {
    type Error = ParseCacheModeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<CacheMode> for String {
    fn from(mode: CacheMode) -> String {
        mode.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_and_written_the_same() {
        for text in ["natural", "cold", "warm", "mix:0.37", "mix:0", "mix:1", "mix:0.000001"] {
            assert_eq!(text.parse::<CacheMode>().unwrap().to_string(), text);
        }
        for text in
            ["", "Mix:0.1", "mix:", "mix:1.1", "mix:-0.1", "mix:.5", "mix:0.1234567", "mix:1e-3", "hot"]
        {
            assert!(text.parse::<CacheMode>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_run_keeps_one_nonce_unless_it_is_cold() {
        assert_eq!(CacheMode::Natural.nonce(5, 1), CacheMode::Natural.nonce(5, 2));
        assert_eq!(CacheMode::Warm.nonce(5, 1), 5);
        assert_ne!(CacheMode::Cold.nonce(5, 1), CacheMode::Cold.nonce(5, 2));
        assert_ne!(CacheMode::Cold.nonce(5, 1), CacheMode::Cold.nonce(6, 1));
        assert!(
            CacheMode::Warm.is_primed(1) && !CacheMode::Natural.is_primed(1) && !CacheMode::Cold.is_primed(1)
        );
    }

    #[test]
    fn a_mix_warms_the_share_that_it_names() {
        let mode: CacheMode = "mix:0.37".parse().unwrap();
        let warm =
            (0..100_000_u64).filter(|id| mode.is_primed(id.wrapping_mul(0x9e37_79b9_7f4a_7c15))).count();
        assert!((36_500..37_500).contains(&warm), "{warm}");
        assert_eq!((0..1000).filter(|id| CacheMode::Mix { warm_ppm: 0 }.is_primed(*id)).count(), 0);
        assert_eq!(
            (0..1000).filter(|id| CacheMode::Mix { warm_ppm: WHOLE_PPM }.is_primed(*id)).count(),
            1000
        );
    }
}
