//! Cached tokens as the engine tells them, against a cache that keeps whole prefixes as text and hashes nothing.

use proptest::prelude::*;
use tracewheel_clock::RunNs;
use tracewheel_mock::engine::{Emission, EmissionKind, Engine, EngineRequest, Ticket};
use tracewheel_mock::{MockConfig, PromptHasher};

/// Prefixes that end at a block's end, the latest used first.
struct TextCache {
    capacity: usize,
    block_tokens: usize,
    prefixes: Vec<Vec<String>>,
}

impl TextCache {
    fn admit(&mut self, words: &[String]) -> usize {
        let ends = (1..=words.len() / self.block_tokens).map(|n| n * self.block_tokens);
        let full: Vec<Vec<String>> = ends.map(|end| words[..end].to_vec()).collect();
        let found = full
            .iter()
            .take_while(|prefix| self.prefixes.contains(prefix) && prefix.len() < words.len())
            .last()
            .map_or(0, Vec::len);
        let mut prefixes: Vec<Vec<String>> = full.into_iter().take(self.capacity).collect();
        prefixes.extend(self.prefixes.drain(..).filter(|prefix| !words.starts_with(prefix)));
        prefixes.truncate(self.capacity);
        self.prefixes = prefixes;
        found
    }
}

/// A conversation's prompt: a few words that others begin with too, and some of its own.
fn prompt() -> impl Strategy<Value = Vec<String>> {
    (0_usize..3, 0_usize..30, prop::collection::vec("[ab]", 0..12)).prop_map(|(family, shared, own)| {
        let beginning = (0..shared).map(|n| format!("f{family}w{n}"));
        beginning.chain(own).collect()
    })
}

proptest! {
    #[test]
    fn cached_tokens_equal_those_of_a_cache_of_texts(
        prompts in prop::collection::vec(prompt(), 1..40),
        block_tokens in 1_u32..7,
        capacity in 0_u32..20,
    ) {
        let mut config = MockConfig::default();
        config.cache.block_tokens = block_tokens;
        config.cache.capacity_blocks = capacity;
        let mut engine = Engine::new(&config);
        let mut texts = TextCache {
            capacity: capacity as usize,
            block_tokens: block_tokens as usize,
            prefixes: Vec::new(),
        };
        for (words, n) in prompts.iter().zip(0_u64..) {
            let mut hasher = PromptHasher::new(block_tokens, &["model"]);
            hasher.text(&words.join(" "));
            let prompt = hasher.finish();
            let now = RunNs(n as i64 * 1_000_000_000);
            let request = EngineRequest {
                ticket: Ticket(n),
                key: 0,
                prompt_tokens: prompt.tokens,
                blocks: prompt.blocks,
                output_tokens: 1,
                output_cap: 1,
            };
            engine.submit(now, request).expect("nothing is limited");
            let mut out: Vec<Emission> = Vec::new();
            while let Some(at) = engine.next_event() {
                engine.advance(at, &mut out);
            }
            let cached = texts.admit(words) as u32;
            prop_assert_eq!(out[0].kind, EmissionKind::Admitted { cached_tokens: cached });
        }
    }
}
