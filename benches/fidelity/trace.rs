//! The traces: arrival offsets, and timelines of them.

use std::path::Path;

use tracewheel_timeline::{RequestRow, TimelineMeta, TimelineWriter};

/// Shape of the gaps: a gamma distribution with a coefficient of variation of 3 has the shape 1/9.
const SHAPE: f64 = 1.0 / 9.0;

/// Offsets in nanoseconds of `count` arrivals at `rate` a second on average, in bursts; the same for every call.
pub(crate) fn bursty(rate: f64, count: usize) -> Vec<i64> {
    Bursts::at(rate).take(count).collect()
}

/// Offsets of arrivals in equal steps.
pub(crate) fn even(rate: f64, count: usize) -> Vec<i64> {
    (0..count).map(|number| (number as f64 * 1e9 / rate) as i64).collect()
}

/// Writes a timeline of streamed chat requests.
pub(crate) fn write(
    path: &Path,
    offsets: impl IntoIterator<Item = i64>,
    output_tokens: usize,
) -> std::io::Result<()> {
    let mut writer = TimelineWriter::create(path, TimelineMeta::default()).map_err(std::io::Error::other)?;
    for offset in offsets {
        let row = RequestRow {
            arrival_unix_ns: Some(offset),
            model: Some("m".into()),
            stream: Some(true),
            input_tokens: Some(200),
            output_tokens: Some(output_tokens.max(1) as u32),
            ..RequestRow::default()
        };
        writer.push(&row).map_err(std::io::Error::other)?;
    }
    writer.finish().map(drop).map_err(std::io::Error::other)
}

/// Arrivals in bursts without end.
pub(crate) struct Bursts {
    chance: Chance,
    scale_ns: f64,
    at_ns: f64,
}

impl Bursts {
    pub(crate) fn at(rate: f64) -> Self {
        Bursts { chance: Chance(0x7261_6365), scale_ns: 1e9 / rate / SHAPE, at_ns: 0.0 }
    }
}

impl Iterator for Bursts {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        self.at_ns += self.chance.gamma() * self.scale_ns;
        Some(self.at_ns as i64)
    }
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
