//! What a step takes.

use crate::config::{DecodeLevel, EngineConfig};

/// The service rates, in one shape however they are written.
#[derive(Debug, Clone)]
pub(crate) struct StepTime {
    base_ns: i64,
    decode_ns: i64,
    /// Sequences and the time of a step with so many, smallest first; empty: the line above holds.
    levels: Vec<(u32, i64)>,
    prefill_tokens_per_s: Option<i64>,
    prefill_ns: i64,
}

impl StepTime {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        let level_ns = |level: &DecodeLevel| {
            let ns = u64::from(level.sequences.get()) * 1_000_000_000 / u64::from(level.tokens_per_s.get());
            (level.sequences.get(), ns as i64)
        };
        Self {
            base_ns: super::micros(config.step_base_us),
            decode_ns: super::micros(config.decode_us_per_sequence),
            levels: config.decode_levels.iter().map(level_ns).collect(),
            prefill_tokens_per_s: config.prefill_tokens_per_s.map(|rate| i64::from(rate.get())),
            prefill_ns: super::micros(config.prefill_us_per_token),
        }
    }

    /// A step in which so many sequences decode and so many prompt tokens are computed, nanoseconds.
    pub(crate) fn step_ns(&self, decoding: u32, prefill_tokens: u32) -> i64 {
        self.batch_ns(decoding) + self.prefill_of(prefill_tokens)
    }

    /// The prompt tokens' share of a step, nanoseconds.
    pub(crate) fn prefill_of(&self, tokens: u32) -> i64 {
        match self.prefill_tokens_per_s {
            Some(rate) => i64::from(tokens) * 1_000_000_000 / rate,
            None => self.prefill_ns * i64::from(tokens),
        }
    }

    fn batch_ns(&self, decoding: u32) -> i64 {
        match self.levels.as_slice() {
            [] => self.base_ns + self.decode_ns * i64::from(decoding),
            [(_, ns)] => *ns,
            levels if decoding <= levels[0].0 => levels[0].1,
            levels => {
                let upper = levels.iter().position(|(at, _)| decoding <= *at).unwrap_or(levels.len() - 1);
                let ((from, from_ns), (to, to_ns)) = (levels[upper - 1], levels[upper]);
                let slope_of = i64::from(decoding) - i64::from(from);
                from_ns + (to_ns - from_ns) * slope_of / (i64::from(to) - i64::from(from))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MockConfig;

    fn times(text: &str) -> StepTime {
        StepTime::new(&MockConfig::from_toml(&format!("[engine]\n{text}")).unwrap().engine)
    }

    #[test]
    fn a_step_is_base_and_what_each_adds() {
        let times = times("step_base_us = 10\ndecode_us_per_sequence = 2\nprefill_us_per_token = 3");
        assert_eq!(times.step_ns(0, 0), 10_000);
        assert_eq!(times.step_ns(5, 7), 10_000 + 10_000 + 21_000);
    }

    #[test]
    fn rates_take_the_place_of_costs() {
        // Alone 100 tokens a second: 10 ms a step. Eight at once give 400: 20 ms.
        let times = times(
            "prefill_tokens_per_s = 10_000\n\
             decode_levels = [{ sequences = 1, tokens_per_s = 100 }, { sequences = 8, tokens_per_s = 400 }, \
             { sequences = 16, tokens_per_s = 500 }]",
        );
        let ms = |decoding: u32| times.step_ns(decoding, 0) as f64 / 1e6;
        assert_eq!((ms(0), ms(1), ms(8), ms(16)), (10.0, 10.0, 20.0, 32.0));
        // 10 + 10 × 3/7, cut to whole nanoseconds.
        assert_eq!(times.step_ns(4, 0), 14_285_714);
        assert_eq!(ms(24), 44.0, "above the last level the line goes on");
        assert_eq!(times.step_ns(8, 1000), 20_000_000 + 100_000_000);
    }

    #[test]
    fn one_level_holds_for_every_batch() {
        let times = times("decode_levels = [{ sequences = 4, tokens_per_s = 100 }]");
        assert_eq!((times.step_ns(1, 0), times.step_ns(50, 0)), (40_000_000, 40_000_000));
    }
}
