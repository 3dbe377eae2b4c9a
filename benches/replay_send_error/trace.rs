//! A bursty trace and its plan.

use std::path::Path;

use tracewheel_timeline::{RequestRow, Timeline, TimelineMeta, TimelineWriter};
use tracewheel_workload::{Plan, PlanOptions};

/// Shape of the gaps: a gamma distribution with a coefficient of variation of 3 has the shape 1/9.
const SHAPE: f64 = 1.0 / 9.0;

/// Offsets in nanoseconds of `count` arrivals at `rate` a second on average; the same for every call.
pub(crate) fn bursty(rate: u32, count: usize) -> Vec<i64> {
    let mut chance = Chance(0x7261_6365);
    let scale_ns = 1e9 / f64::from(rate) / SHAPE;
    let mut at_ns = 0.0;
    (0..count)
        .map(|_| {
            at_ns += chance.gamma() * scale_ns;
            at_ns as i64
        })
        .collect()
}

/// Writes the trace and plans it.
pub(crate) fn plan(path: &Path, offsets: &[i64]) -> Plan {
    let mut writer = TimelineWriter::create(path, TimelineMeta::default()).expect("a writable folder");
    for offset in offsets {
        let row = RequestRow {
            arrival_unix_ns: Some(*offset),
            model: Some("m".into()),
            stream: Some(true),
            input_tokens: Some(200),
            output_tokens: Some(16),
            ..RequestRow::default()
        };
        writer.push(&row).expect("a good row");
    }
    writer.finish().expect("a whole file");
    let timeline = Timeline::open(path).expect("what was written is read");
    Plan::build(&timeline, PlanOptions::default()).expect("a plan")
}

struct Chance(u64);

impl Chance {
    /// Uniform over (0, 1) (SplitMix64).
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((z ^ (z >> 31)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Gamma of [`SHAPE`] and scale 1: by Marsaglia and Tsang's squeeze for the shape above it, then scaled down.
    fn gamma(&mut self) -> f64 {
        let d = SHAPE + 1.0 - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.uniform().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v * self.uniform().powf(1.0 / SHAPE);
            }
        }
    }
}
