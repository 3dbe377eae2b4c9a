//! Other tenants, as a fluid: how many places they hold, what they compute, what they put into the cache.
//!
//! They are not simulated request by request: at any moment they *want* a number of places (the curve, and chance around
//! it), *hold* some of it, and the rest of them *waits* in the queue. A sequence of theirs leaves after as many steps as
//! its answer has tokens; on the whole one leaves each `output / held` steps. So a moment's state needs no history but
//! what is held now, an idle engine needs no steps, and a day costs what its own requests cost.

use tracewheel_clock::RunNs;

use crate::config::{MockConfig, Variation};
use crate::engine::cache::PrefixCache;
use crate::engine::chance::{Chance, Draw};

const MINUTE_NS: i64 = 60_000_000_000;
const DAY_NS: i64 = 24 * 60 * MINUTE_NS;
/// Above this mean a Poisson number is drawn as a normal one.
const NORMAL_FROM: f64 = 200.0;

/// The load over a day, as wanted places.
#[derive(Debug, Clone)]
pub(crate) struct Curve {
    /// Nanoseconds after midnight and places, in order; empty: nobody.
    points: Vec<(i64, f64)>,
    start_ns: i64,
    scale: i64,
}

impl Curve {
    /// The curve of a valid configuration; an impossible one is empty.
    pub(crate) fn new(config: &MockConfig) -> Self {
        let places = f64::from(config.engine.max_running);
        let points = config.tenants.points().unwrap_or_default();
        Self {
            points: points
                .into_iter()
                .map(|(min, load)| (i64::from(min) * MINUTE_NS, load * places))
                .collect(),
            start_ns: i64::from(config.tenants.start_at.minute()) * MINUTE_NS,
            scale: i64::from(config.tenants.time_scale),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Places wanted so long after the start, on average.
    pub(crate) fn after(&self, elapsed_ns: i64) -> f64 {
        let passed = i128::from(elapsed_ns.max(0)) * i128::from(self.scale) + i128::from(self.start_ns);
        self.at(passed.rem_euclid(i128::from(DAY_NS)) as i64)
    }

    /// Places wanted at a time of day, on average; a straight line between points, across midnight too.
    pub(crate) fn at(&self, day_ns: i64) -> f64 {
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else { return 0.0 };
        let next = self.points.iter().position(|(at, _)| *at > day_ns);
        let (from, to) = match next {
            Some(0) => ((last.0 - DAY_NS, last.1), *first),
            Some(n) => (self.points[n - 1], self.points[n]),
            None => (*last, (first.0 + DAY_NS, first.1)),
        };
        from.1 + (to.1 - from.1) * (day_ns - from.0) as f64 / (to.0 - from.0) as f64
    }
}

/// The other tenants.
#[derive(Debug)]
pub(crate) struct Tenants {
    curve: Curve,
    chance: Chance,
    origin: RunNs,
    poisson: bool,
    variation_ns: i64,
    prompt_tokens: u32,
    output_tokens: u32,
    prompt_blocks: u64,
    /// Places that they can hold at most: all of them, and fewer with a token room. None: not one of their requests
    /// fits, they are all refused, and nobody has to wait behind them.
    most: u32,
    wanted: u32,
    running: u32,
    /// Steps of single sequences since one left.
    turnover: u64,
    /// Prompt tokens of theirs that are admitted and not computed.
    prefill_left: u64,
    /// Requests of theirs that left the queue since the start.
    entered: u64,
    /// Until when the cache has what they put into it, and the part of a block that is over.
    pressed_until: RunNs,
    pressed_part: f64,
}

impl Tenants {
    /// The curve's day begins at `origin`.
    pub(crate) fn new(config: &MockConfig, origin: RunNs) -> Self {
        let tenants = &config.tenants;
        let size = u64::from(tenants.prompt_tokens) + u64::from(tenants.output_tokens);
        let by_room = config.engine.kv_tokens.map_or(u64::MAX, |tokens| u64::from(tokens) / size.max(1));
        Self {
            curve: Curve::new(config),
            chance: Chance::new(config.seed),
            origin,
            poisson: tenants.variation == Variation::Poisson,
            variation_ns: i64::from(tenants.variation_ms.max(1)) * 1_000_000,
            prompt_tokens: tenants.prompt_tokens,
            output_tokens: tenants.output_tokens.max(1),
            prompt_blocks: u64::from(tenants.prompt_tokens / config.cache.block_tokens.max(1)),
            most: config.engine.max_running.min(u32::try_from(by_room).unwrap_or(u32::MAX)),
            wanted: 0,
            running: 0,
            turnover: 0,
            prefill_left: 0,
            entered: 0,
            pressed_until: origin,
            pressed_part: 0.0,
        }
    }

    /// Places that they hold.
    pub(crate) fn running(&self) -> u32 {
        self.running
    }

    /// Tokens that their running sequences hold.
    pub(crate) fn kv_tokens(&self) -> u64 {
        u64::from(self.running) * self.kv_of_one()
    }

    /// Tokens that one of their sequences holds.
    pub(crate) fn kv_of_one(&self) -> u64 {
        u64::from(self.prompt_tokens) + u64::from(self.output_tokens)
    }

    /// Requests of theirs that wait, were it `at`.
    pub(crate) fn waiting_at(&self, at: RunNs) -> u32 {
        self.want(at).saturating_sub(self.running)
    }

    /// Requests of theirs that wait at `at` on an engine that holds nothing else.
    pub(crate) fn surplus_at(&self, at: RunNs) -> u32 {
        self.want(at).saturating_sub(self.most)
    }

    /// Requests of theirs that wait.
    pub(crate) fn waiting(&self) -> u32 {
        self.wanted.saturating_sub(self.running)
    }

    /// The number that `entered` must reach before a request that comes at `at` is first in the queue.
    pub(crate) fn mark(&self, at: RunNs) -> u64 {
        self.entered + u64::from(self.waiting_at(at))
    }

    /// Whether all of theirs that were there before a request with this mark are out of the queue.
    pub(crate) fn is_first(&self, mark: u64) -> bool {
        self.entered >= mark || self.waiting() == 0
    }

    /// The engine held nothing else until `at`: they hold what they want, and the cache has what they put into it since.
    /// `step_ns` gives the time of a step of so many.
    pub(crate) fn settle(&mut self, at: RunNs, cache: &mut PrefixCache, step_ns: impl Fn(u32) -> i64) {
        if self.curve.is_empty() {
            return;
        }
        self.wanted = self.want(at);
        self.running = self.wanted.min(self.most);
        self.prefill_left = 0;
        let idle_ns = at.since(self.pressed_until).max(0) as f64;
        self.pressed_until = self.pressed_until.max(at);
        let requests = idle_ns * f64::from(self.running)
            / (f64::from(self.output_tokens) * step_ns(self.running).max(1) as f64);
        let blocks = requests * self.prompt_blocks as f64 + self.pressed_part;
        self.pressed_part = blocks.fract();
        cache.press(blocks as u64);
    }

    /// When the step ends that they compute on an engine that holds nothing else. Their steps lie end to end from the
    /// origin on.
    pub(crate) fn step_end(&self, at: RunNs, step_ns: i64) -> RunNs {
        let since = at.since(self.origin).max(0);
        let left = (step_ns - since % step_ns.max(1)) % step_ns.max(1);
        at.plus(left)
    }

    /// A step begins: those beyond what is wanted now are gone.
    pub(crate) fn begin_step(&mut self, at: RunNs) {
        if self.curve.is_empty() {
            return;
        }
        self.wanted = self.want(at);
        self.running = self.running.min(self.wanted);
        self.pressed_until = at;
    }

    /// Whether another one may enter the batch, for its part; not while more prompt lies there than a step computes.
    pub(crate) fn may_enter(&self, step_tokens: u32) -> bool {
        self.waiting() > 0 && self.running < self.most && self.prefill_left < u64::from(step_tokens)
    }

    /// One of theirs enters the batch.
    pub(crate) fn enter(&mut self, cache: &mut PrefixCache) {
        self.running += 1;
        self.entered += 1;
        self.prefill_left += u64::from(self.prompt_tokens);
        cache.press(self.prompt_blocks);
    }

    /// Takes their share of a step's tokens for prompts and returns it.
    pub(crate) fn plan_prefill(&mut self, budget: u32) -> u32 {
        let tokens = u32::try_from(self.prefill_left).unwrap_or(u32::MAX).min(budget);
        self.prefill_left -= u64::from(tokens);
        tokens
    }

    /// A step is over: on the whole one leaves each time that all of them together had an answer's tokens.
    pub(crate) fn end_step(&mut self) {
        self.turnover += u64::from(self.running);
        while self.turnover >= u64::from(self.output_tokens) {
            self.turnover -= u64::from(self.output_tokens);
            self.running = self.running.saturating_sub(1);
        }
    }

    /// Places wanted at `at`.
    fn want(&self, at: RunNs) -> u32 {
        if self.curve.is_empty() || self.most == 0 {
            return 0;
        }
        let elapsed_ns = at.since(self.origin).max(0);
        let mean = self.curve.after(elapsed_ns);
        if !self.poisson {
            return mean.round() as u32;
        }
        let bits = self.chance.bits(Draw::Tenants, (elapsed_ns / self.variation_ns) as u64);
        poisson(mean, ((bits >> 11) as f64 + 0.5) / (1_u64 << 53) as f64)
    }
}

/// The Poisson number that lies at `share` of its distribution; grows with both.
fn poisson(mean: f64, share: f64) -> u32 {
    if mean > NORMAL_FROM {
        return (mean + mean.sqrt() * normal(share)).round().max(0.0) as u32;
    }
    let mut term = (-mean).exp();
    let mut below = term;
    let mut n = 0;
    while below < share && n < 1000 {
        n += 1;
        term *= mean / f64::from(n);
        below += term;
    }
    n
}

/// The standard normal number at `share` of its distribution: Tukey's lambda distribution with 0.135 lies within
/// 0.01 of it up to two and a half standard deviations.
fn normal(share: f64) -> f64 {
    (share.powf(0.135) - (1.0 - share).powf(0.135)) / 0.1975
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> MockConfig {
        MockConfig::from_toml(text).unwrap()
    }

    #[test]
    fn a_curve_is_a_straight_line_between_points_and_across_midnight() {
        let text = "[tenants]\nload = [{ at = \"06:00\", load = 0.25 }, { at = \"18:00\", load = 0.75 }]";
        let curve = Curve::new(&config(text));
        let at = |hour: i64| curve.at(hour * 60 * MINUTE_NS);
        assert_eq!((at(6), at(12), at(18)), (16.0, 32.0, 48.0));
        assert_eq!((at(0), at(23), at(3)), (32.0, 48.0 - 32.0 * 5.0 / 12.0, 24.0));
    }

    #[test]
    fn the_day_begins_where_told_and_runs_as_fast_as_told() {
        let hours: String = (0..24).map(|hour| format!("{hour}, ")).collect();
        let text = format!(
            "[engine]\nmax_running = 10\n[tenants]\nload = [{hours}]\nstart_at = \"05:00\"\ntime_scale = 3600"
        );
        let curve = Curve::new(&config(&text));
        let after_s = |s: i64| curve.after(s * 1_000_000_000);
        // An hour a second, from five o'clock on.
        assert_eq!((after_s(0), after_s(1), after_s(18)), (50.0, 60.0, 230.0));
        assert_eq!((after_s(19), after_s(24)), (0.0, 50.0));
        assert_eq!(curve.after(18_500_000_000), 115.0, "half way from 23:00 to midnight");
    }

    #[test]
    fn a_poisson_number_has_its_mean_and_its_spread() {
        for mean in [0.5, 3.0, 40.0, 400.0] {
            let draws: Vec<f64> =
                (0..20_000).map(|n| f64::from(poisson(mean, (f64::from(n) + 0.5) / 20_000.0))).collect();
            let average = draws.iter().sum::<f64>() / 20_000.0;
            let spread = draws.iter().map(|d| (d - average).powi(2)).sum::<f64>() / 20_000.0;
            assert!((average / mean - 1.0).abs() < 0.01, "{mean}: {average}");
            assert!((spread / mean - 1.0).abs() < 0.05, "{mean}: {spread}");
            assert!(draws.is_sorted());
        }
        assert_eq!(poisson(0.0, 0.999), 0);
    }

    #[test]
    fn the_seed_decides_how_many_there_are() {
        let wants = |seed: u64| -> Vec<u32> {
            let tenants = Tenants::new(&config(&format!("seed = {seed}\n[tenants]\nload = [0.5]")), RunNs(0));
            (0..50).map(|s| tenants.want(RunNs(s * 1_000_000_000))).collect()
        };
        assert_eq!(wants(1), wants(1));
        assert_ne!(wants(1), wants(2));
        let mean = f64::from(wants(1).iter().sum::<u32>()) / 50.0;
        assert!((28.0..36.0).contains(&mean), "{mean}");
    }
}
