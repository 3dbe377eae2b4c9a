//! What chance makes of a delay.

use std::fmt;
use std::str::FromStr;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// How chance spreads the delays of a formula, so that clients that failed together do not come back together. Written
/// `none`, `full`, `equal`, `decorrelated`, `shorten:0.25` or `add:1s`. Below, `d` is the formula's delay and `u` is drawn
/// uniformly from [0, 1). The first four are those of "Exponential Backoff and Jitter" (AWS architecture blog, 2015).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Jitter {
    /// `d`.
    None,
    /// `u · d`.
    Full,
    /// `d/2 + u · d/2`.
    Equal,
    /// From the base delay to three times the last wait, at most the largest delay; the formula's growth is not used.
    Decorrelated,
    /// `d · (1 − part · u)`: what the SDKs of OpenAI and Anthropic do, with a quarter.
    Shorten {
        /// From 0 to 1.
        part: f64,
    },
    /// `d + u · up_to`, at most the largest delay: what Google's SDK does.
    Add {
        /// In nanoseconds, not negative.
        up_to_ns: i64,
    },
}

/// The text is no jitter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no jitter: write none, full, equal, decorrelated, shorten:PART with a part from 0 to 1, or add:DURATION"
)]
pub struct ParseJitterError {
    text: String,
}

/// What a delay is made from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delay {
    /// The formula's.
    pub(super) formula_ns: i64,
    pub(super) base_ns: i64,
    pub(super) max_ns: i64,
    /// The request's last wait; `None` before its first retry.
    pub(super) last_ns: Option<i64>,
}

impl Jitter {
    /// The words without a value, and what each means.
    pub const WORDS: [(&'static str, &'static str); 4] = [
        ("none", "all that failed together come back together"),
        ("full", "from nothing to the whole delay"),
        ("equal", "from half the delay to the whole"),
        ("decorrelated", "from the base delay to three times the last wait"),
    ];

    /// The delay that `chance`, from [0, 1), makes of `delay`; never negative.
    pub(super) fn spread(self, delay: Delay, chance: f64) -> i64 {
        let whole = delay.formula_ns as f64;
        let spread = match self {
            Jitter::None => whole,
            Jitter::Full => whole * chance,
            Jitter::Equal => whole / 2.0 + whole / 2.0 * chance,
            Jitter::Decorrelated => {
                let base = delay.base_ns as f64;
                let most = (delay.last_ns.unwrap_or(delay.base_ns) as f64 * 3.0).max(base);
                (base + (most - base) * chance).min(delay.max_ns as f64)
            }
            Jitter::Shorten { part } => whole * (1.0 - part * chance),
            Jitter::Add { up_to_ns } => (whole + up_to_ns as f64 * chance).min(delay.max_ns as f64),
        };
        (spread.round() as i64).max(0)
    }
}

impl FromStr for Jitter {
    type Err = ParseJitterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let part = |part: &str| part.trim().parse().ok().filter(|part| (0.0..=1.0).contains(part));
        let longer = |text: &str| {
            let duration: jiff::SignedDuration = text.trim().parse().ok()?;
            i64::try_from(duration.as_nanos()).ok().filter(|ns| *ns >= 0)
        };
        match text {
            "none" => Some(Jitter::None),
            "full" => Some(Jitter::Full),
            "equal" => Some(Jitter::Equal),
            "decorrelated" => Some(Jitter::Decorrelated),
            _ => match text.split_once(':') {
                Some(("shorten", value)) => part(value).map(|part| Jitter::Shorten { part }),
                Some(("add", value)) => longer(value).map(|up_to_ns| Jitter::Add { up_to_ns }),
                _ => None,
            },
        }
        .ok_or_else(|| ParseJitterError { text: text.chars().take(80).collect() })
    }
}

impl fmt::Display for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Jitter::None => f.write_str("none"),
            Jitter::Full => f.write_str("full"),
            Jitter::Equal => f.write_str("equal"),
            Jitter::Decorrelated => f.write_str("decorrelated"),
            Jitter::Shorten { part } => write!(f, "shorten:{part}"),
            Jitter::Add { up_to_ns } if up_to_ns % 1_000_000 == 0 => {
                write!(f, "add:{}ms", up_to_ns / 1_000_000)
            }
            Jitter::Add { up_to_ns } => write!(f, "add:{up_to_ns}ns"),
        }
    }
}

impl TryFrom<String> for Jitter {
    type Error = ParseJitterError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Jitter> for String {
    fn from(jitter: Jitter) -> String {
        jitter.to_string()
    }
}

/// Draws the chance for one retry of one request: the same for the same seed, request and retry, on every machine.
pub(crate) fn chance(seed: u64, request_id: u64, retries: u32) -> f64 {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&request_id.to_le_bytes());
    key[16..20].copy_from_slice(&retries.to_le_bytes());
    let mut rng = ChaCha8Rng::from_seed(key);
    // Uniform over [0, 1) in steps of 2⁻⁵³.
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}
