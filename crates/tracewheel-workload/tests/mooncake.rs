//! The sharing of a real trace, held token by token: every request of an hour of Mooncake's conversations.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "the helpers of a test are a part of it")]

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tracewheel_timeline::{BlockBasis, RequestRow, Timeline, TimelineMeta, TimelineWriter};
use tracewheel_workload::{CacheMode, History, Plan, PlanOptions, PromptRenderer, Window};
use xxhash_rust::xxh3::Xxh3;

const BLOCK_TOKENS: u32 = 512;
const TAG_WORDS: u32 = tracewheel_tokens::TAG_WORDS;

#[derive(serde::Deserialize)]
struct Line {
    timestamp: i64,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
}

/// The trace as a timeline, or `None` (and a word about it) where it is not at hand.
fn mooncake() -> Option<(TempDir, Timeline)> {
    let path: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces/mooncake_conversation.jsonl");
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("skipped: {} is not there", path.display());
        return None;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mooncake.parquet");
    let meta = TimelineMeta {
        has_epoch: false,
        block_tokens: Some(BLOCK_TOKENS),
        block_basis: Some(BlockBasis::Tokens),
        ..TimelineMeta::default()
    };
    let mut writer = TimelineWriter::create(&file, meta).unwrap();
    for line in text.lines() {
        let line: Line = serde_json::from_str(line).unwrap();
        writer
            .push(&RequestRow {
                arrival_unix_ns: Some(line.timestamp * 1_000_000),
                input_tokens: Some(line.input_length),
                output_tokens: Some(line.output_length),
                prefix_hashes: Some(line.hash_ids),
                ..RequestRow::default()
            })
            .unwrap();
    }
    writer.finish().unwrap();
    let timeline = Timeline::open(&file).unwrap();
    Some((folder, timeline))
}

/// The prefixes of all prompts seen, as hashes of their text: at each block's end, and after each of the first words
/// of a block.
#[derive(Default)]
struct Prefixes(HashSet<u64>);

impl Prefixes {
    /// How many tokens of `text` are the beginning of a text seen before, as far as the places looked at tell: whole
    /// blocks, then words into the next. Puts the text in.
    fn visit(&mut self, text: &str, tokens: u32) -> (u32, u32) {
        let (mut blocks, mut words) = (0, 0);
        let mut known = true;
        let mut prefix = Xxh3::new();
        let mut at = 0;
        let mut left = tokens;
        while left > 0 {
            let in_block = left.min(BLOCK_TOKENS);
            let mut word = 0;
            while word < in_block {
                // The words of the tag one by one, then on to the block's end.
                let step = if word < TAG_WORDS { 1 } else { in_block - word };
                word += step;
                let end = after_words(text.as_bytes(), at, step);
                prefix.update(&text.as_bytes()[at..end]);
                at = end;
                known &= !self.0.insert(prefix.digest());
                if known {
                    (blocks, words) = if word == in_block { (blocks + 1, 0) } else { (blocks, word) };
                }
            }
            left -= in_block;
        }
        assert_eq!(at, text.len(), "exactly {tokens} tokens");
        (blocks, words)
    }
}

/// The offset after the next `words` words of `text`, each of which begins with a space.
fn after_words(text: &[u8], at: usize, words: u32) -> usize {
    let mut spaces = memchr::memchr_iter(b' ', &text[at + 1..]);
    for _ in 1..words {
        spaces.next();
    }
    spaces.next().map_or(text.len(), |space| at + 1 + space)
}

#[test]
fn every_request_shares_with_its_best_predecessor_exactly_the_blocks_that_the_trace_says() {
    let Some((_folder, timeline)) = mooncake() else { return };
    let plan = Plan::build(&timeline, PlanOptions::default()).unwrap();
    assert_eq!(plan.header().requests, 12_031);
    let renderer = PromptRenderer::new();
    let mut text = String::new();
    let mut seen_blocks: HashSet<u64> = HashSet::new();
    let mut seen_texts = Prefixes::default();
    let (mut cached, mut total) = (0_u64, 0_u64);
    for request in plan.requests() {
        let request = request.unwrap();
        let hashes: Vec<u64> = request.prompt.blocks.iter().map(|block| block.hash).collect();
        let shared = hashes.iter().take_while(|hash| seen_blocks.contains(hash)).count();
        seen_blocks.extend(&hashes);
        renderer.render(&request.prompt, 42, &mut text);
        let (blocks, words) = seen_texts.visit(&text, request.input_tokens);
        assert_eq!(blocks as usize, shared, "row {}", request.row);
        assert!(words < TAG_WORDS, "row {}: {words} words of the next block", request.row);
        let tokens: u32 = request.prompt.blocks[..shared].iter().map(|block| block.tokens).sum();
        assert_eq!(request.predicted_cached_tokens, Some(tokens), "row {}", request.row);
        cached += u64::from(tokens);
        total += u64::from(request.input_tokens);
    }
    // Measured on the trace itself: an endless cache hits 37.36 % of the tokens.
    assert_eq!(cached * 10_000 / total, 3_736);
}

/// The predicted share of minutes 5 to 10 of the trace, in per cent, and the plan behind it.
fn minutes_5_to_10(timeline: &Timeline, window: bool, history: Option<History>) -> (f64, Plan) {
    let minute = 60_000_000_000;
    let window = window.then_some(Window { from_ns: 5 * minute, to_ns: Some(10 * minute) });
    let plan = Plan::build(timeline, PlanOptions { window, history, ..PlanOptions::default() }).unwrap();
    let (mut cached, mut total) = (0_u64, 0_u64);
    for request in plan.requests() {
        let request = request.unwrap();
        if (5 * minute..10 * minute).contains(&request.trace_unix_ns.unwrap()) {
            cached += u64::from(request.predicted_cached_tokens.unwrap());
            total += u64::from(request.input_tokens);
        }
    }
    (cached as f64 * 100.0 / total as f64, plan)
}

#[test]
fn a_window_loses_the_sharing_with_what_came_before_it_and_its_history_brings_it_back() {
    let Some((_folder, timeline)) = mooncake() else { return };
    let (whole, _) = minutes_5_to_10(&timeline, false, None);
    let (alone, _) = minutes_5_to_10(&timeline, true, None);
    assert_eq!((alone.round(), whole.round()), (21.0, 37.0));
    let (primed, plan) = minutes_5_to_10(&timeline, true, Some(History::default()));
    assert_eq!(primed, whole, "all that lived before the window is there again, to the token");
    let everything = plan.header().history.unwrap();
    assert_eq!(everything.look_back_ns, 300_000_000_000);
    assert!(everything.requests <= everything.rows && everything.distinct_tokens <= everything.input_tokens);
    let of = |history| minutes_5_to_10(&timeline, true, Some(history));
    let (reused, plan) = of(History { reused_only: true, ..History::default() });
    assert_eq!(reused, whole, "what no request of the window finds is not missed");
    let some = plan.header().history.unwrap();
    assert!(some.input_tokens < everything.input_tokens / 2, "{some:?} {everything:?}");
    println!("all: {everything:?}\nreused: {some:?}");
    let (minute, plan) = of(History { look_back_ns: Some(60_000_000_000), ..History::default() });
    let (small, _) = of(History { cache_tokens: Some(1_000_000), ..History::default() });
    assert!(alone < minute && minute < whole, "{minute}");
    assert!(alone < small && small < whole, "{small}");
    assert!(plan.header().history.unwrap().input_tokens < everything.input_tokens);
}

#[test]
fn a_cold_run_shares_nothing() {
    let Some((_folder, timeline)) = mooncake() else { return };
    let plan = Plan::build(&timeline, PlanOptions { limit: Some(300), ..PlanOptions::default() }).unwrap();
    let renderer = PromptRenderer::new();
    let mut text = String::new();
    let mut seen = Prefixes::default();
    for request in plan.requests() {
        let request = request.unwrap();
        renderer.render(&request.prompt, CacheMode::Cold.nonce(42, request.request_id), &mut text);
        let (blocks, words) = seen.visit(&text, request.input_tokens);
        assert!(blocks == 0 && words < TAG_WORDS, "row {}: {blocks} blocks, {words} words", request.row);
    }
}

#[test]
fn the_whole_trace_gives_the_same_plan_twice() {
    let (Some((_a, first)), Some((_b, second))) = (mooncake(), mooncake()) else { return };
    let digest = |timeline| Plan::build(timeline, PlanOptions::default()).unwrap().digest().unwrap();
    assert_eq!(digest(&first), digest(&second));
}
