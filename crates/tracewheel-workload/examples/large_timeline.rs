//! Writes a timeline of many requests, the same every time: what the figures in `docs/design/replay-at-size.md` were
//! measured with.
//!
//! `cargo run --release -p tracewheel-workload --example large_timeline -- FILE ROWS BLOCKS [RETRIED_PER_CENT]`
//!
//! One request each 8.64 ms (ten million fill a day). BLOCKS is the mean number of prefix blocks of 16 tokens a request
//! has: 0 writes no hashes. As in a trace of conversations, a session's later turn begins with the blocks of the turn
//! before and adds about two thirds of its own, and every prompt begins with one of eight system prompts.
#![allow(clippy::print_stdout, reason = "an example talks")]

use std::collections::HashMap;

use tracewheel_timeline::{
    ArrivalSource, BlockBasis, RequestRow, Source, TimelineError, TimelineMeta, TimelineWriter,
};

const BLOCK_TOKENS: u32 = 16;
const GAP_NS: i64 = 8_640_000;
/// Sessions that are under way at once.
const SESSIONS: u64 = 5_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, rows, blocks, rest @ ..] = &arguments[..] else {
        return Err("usage: large_timeline FILE ROWS BLOCKS [RETRIED_PER_CENT]".into());
    };
    let retried = rest.first().map_or(Ok(0), |text| text.parse())?;
    let digest = write(path, rows.parse()?, blocks.parse()?, retried)?;
    println!("{rows} rows in {path}, digest {digest}");
    Ok(())
}

fn write(path: &str, rows: u64, blocks: u64, retried_per_cent: u64) -> Result<String, TimelineError> {
    let meta = TimelineMeta {
        has_epoch: true,
        block_tokens: Some(BLOCK_TOKENS),
        block_basis: Some(BlockBasis::Tokens),
        ..TimelineMeta::default()
    };
    let mut writer = TimelineWriter::create(path, meta)?;
    let mut sessions: HashMap<u64, (u32, Vec<u64>)> = HashMap::new();
    // The request that was refused and is tried again by the next row.
    let mut refused: Option<u64> = None;
    for number in 0..rows {
        let draw = scatter(number);
        let mut row = request(number, draw);
        if let Some(first) = refused.take() {
            row.retry_of_row = Some(first);
        } else if draw % 100 < retried_per_cent {
            row.output_tokens = None;
            refused = Some(number);
        }
        if blocks > 0 {
            let (turn, hashes) = sessions.entry(draw % SESSIONS).or_default();
            if *turn == 0 || hashes.len() as u64 > 2 * blocks {
                (*turn, *hashes) = (0, vec![scatter(draw >> 61)]);
            }
            *turn += 1;
            let fresh = (blocks * 2 / 3).max(1);
            hashes.extend((0..fresh).map(|block| scatter(number << 8 | block)));
            row.session_hash = Some(draw % SESSIONS);
            row.turn = Some(*turn - 1);
            row.input_tokens = Some(hashes.len() as u32 * BLOCK_TOKENS);
            row.prefix_hashes = Some(hashes.clone());
        }
        writer.push(&row)?;
    }
    Ok(writer.finish()?.digest)
}

fn request(number: u64, draw: u64) -> RequestRow {
    RequestRow {
        arrival_unix_ns: Some(1_790_000_000_000_000_000 + number as i64 * GAP_NS + (draw >> 42) as i64),
        arrival_precision_ns: 1_000,
        arrival_source: ArrivalSource::Start,
        model: Some(["small", "large"][(draw >> 63) as usize].into()),
        stream: Some(true),
        input_tokens: Some(16 + (draw >> 56) as u32),
        input_tokens_source: Some(Source::Reported),
        output_tokens: Some(1 + (draw >> 58) as u32),
        output_tokens_source: Some(Source::Reported),
        ..RequestRow::default()
    }
}

/// A number that looks random (SplitMix64).
fn scatter(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
