//! Bodies of long prompts, put together from text that lies there already.

use bytes::Bytes;
use tracewheel_protocol::{Provider, RenderRequest, render_around};
use tracewheel_transport::Body;
use tracewheel_workload::{PromptRenderer, PromptSpec, PromptText, SharedText};

/// From so many tokens on a body is put together from pieces. Below, writing it in one stretch is as cheap.
const LONG_TOKENS: u32 = 4_096;
/// Text of blocks that is kept beside the look-ahead.
const KEPT_BYTES: usize = 32 << 20;

/// Makes the bodies of long prompts, out of text that they share.
pub struct Splicer {
    kept: SharedText,
    text: PromptText,
    around: Vec<u8>,
    places: Vec<usize>,
}

impl Default for Splicer {
    fn default() -> Self {
        Splicer {
            kept: SharedText::new(KEPT_BYTES),
            text: PromptText::default(),
            around: Vec::new(),
            places: Vec::new(),
        }
    }
}

impl Splicer {
    /// The body of `request` with this prompt under this nonce, if it is one that is put together: byte for byte what the
    /// provider writes. `shares` is whether other requests have the nonce as well.
    pub fn body(
        &mut self,
        provider: &dyn Provider,
        request: &RenderRequest<'_>,
        prompts: &PromptRenderer,
        prompt: &PromptSpec,
        (nonce, shares): (u64, bool),
    ) -> Option<Body> {
        if prompt.tokens() < LONG_TOKENS {
            return None;
        }
        self.put(provider, request, prompts, prompt, (nonce, shares))
    }

    /// As [`Self::body`], however short the prompt is.
    pub fn put(
        &mut self,
        provider: &dyn Provider,
        request: &RenderRequest<'_>,
        prompts: &PromptRenderer,
        prompt: &PromptSpec,
        (nonce, shares): (u64, bool),
    ) -> Option<Body> {
        if !render_around(provider, request, &mut self.around, &mut self.places) {
            return None;
        }
        prompts.render_pieces(prompt, nonce, shares.then_some(&mut self.kept), &mut self.text);
        Some(self.put_together())
    }

    fn put_together(&self) -> Body {
        let (text, places) = (&self.text, &self.places);
        let mut own = Vec::with_capacity(self.around.len() + text.rest.len() * places.len());
        // Where a stretch of the body's own ends and the shared pieces stand.
        let mut ends = Vec::with_capacity(places.len());
        let mut from = 0;
        for place in places {
            own.extend_from_slice(&self.around[from..*place]);
            ends.push(own.len());
            own.extend_from_slice(text.rest.as_bytes());
            from = *place;
        }
        own.extend_from_slice(&self.around[from..]);
        if text.shared.is_empty() {
            return own.into();
        }
        let own_bytes = own.len() + text.made_bytes;
        let own = Bytes::from(own);
        let mut pieces = Vec::with_capacity(places.len() * (text.shared.len() + 1) + 1);
        let mut from = 0;
        for end in ends {
            pieces.push(own.slice(from..end));
            pieces.extend_from_slice(&text.shared);
            from = end;
        }
        pieces.push(own.slice(from..));
        Body::of(pieces, own_bytes)
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use proptest::prelude::*;
    use tracewheel_protocol::{PROVIDERS, Template};
    use tracewheel_tokens::{TextMaker, Vocabulary, WORDS};
    use tracewheel_workload::{BlockSpec, Calibration, TailSpec};

    use super::*;

    fn prompt(blocks: &[(u64, u32)], tail: Option<(u64, u32)>) -> PromptSpec {
        PromptSpec {
            blocks: blocks.iter().map(|&(hash, tokens)| BlockSpec { hash, tokens }).collect(),
            tail: tail.map(|(key, tokens)| TailSpec { key, tokens }),
        }
    }

    /// The body as it is written in one stretch.
    fn whole(provider: &dyn Provider, prompts: &PromptRenderer, prompt: &PromptSpec, nonce: u64) -> Vec<u8> {
        let (mut text, mut out) = (String::new(), Vec::new());
        prompts.render(prompt, nonce, &mut text);
        let template = Template::parse("{\"a\":\"{{prompt}}\",\"b\":\"{{prompt}}\"}").unwrap();
        provider.render(&request(&text, &template), &mut out);
        out
    }

    fn request<'a>(prompt: &'a str, template: &'a Template) -> RenderRequest<'a> {
        RenderRequest { model: "m\u{e9}\"", prompt, template: Some(template), ..RenderRequest::default() }
    }

    #[test]
    fn bodies_with_the_same_prefix_hold_it_once_and_count_what_they_hold() {
        let mut splicer = Splicer::default();
        let template = Template::parse("").unwrap();
        let (chat, prompts) = (PROVIDERS[0], PromptRenderer::new());
        let blocks: Vec<(u64, u32)> = (0..196).map(|hash| (hash, 512)).collect();
        let mut body = |tail, shares| {
            let prompt = prompt(&blocks, Some((tail, 100)));
            splicer.body(chat, &request("", &template), &prompts, &prompt, (5, shares)).unwrap()
        };
        let (first, second, cold) = (body(1, true), body(2, true), body(3, false));
        assert!(first.len() > 500_000 && first.own_bytes() > first.len());
        assert!(second.own_bytes() < 10_000, "{} bytes of its own", second.own_bytes());
        assert_eq!(first.pieces()[1].as_ptr(), second.pieces()[1].as_ptr());
        assert_eq!((cold.pieces().len(), cold.own_bytes()), (1, cold.len()));
    }

    #[test]
    fn a_short_prompt_is_left_to_the_provider() {
        let template = Template::parse("").unwrap();
        let of = |tokens| {
            let prompt = prompt(&[], Some((1, tokens)));
            let prompts = PromptRenderer::new();
            Splicer::default().body(PROVIDERS[0], &request("", &template), &prompts, &prompt, (5, true))
        };
        assert!(of(LONG_TOKENS - 1).is_none());
        assert_eq!(of(LONG_TOKENS).unwrap().pieces().len(), 1);
    }

    /// The texts of a vocabulary in which every other word of ours is one token.
    fn vocabulary() -> TextMaker {
        let line = |(rank, word): (usize, &&str)| {
            let piece = base64::engine::general_purpose::STANDARD.encode(format!(" {word}"));
            format!("{piece} {rank}\n")
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        let lines: String = WORDS.iter().enumerate().step_by(2).map(line).collect();
        std::fs::write(file.path(), lines).unwrap();
        Vocabulary::open(file.path()).unwrap().maker().clone()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn the_pieces_are_byte_for_byte_what_every_provider_writes(
            prompts in prop::collection::vec(
                (
                    prop::collection::vec((1..9_u64, prop_oneof![Just(16_u32), Just(512), 1..3_000_u32]), 0..12),
                    prop::option::of((any::<u64>(), prop_oneof![1..700_u32, 4_000..9_000_u32])),
                    0..2_u64,
                    any::<bool>(),
                ),
                1..5,
            ),
            calibration in prop_oneof![
                Just(Calibration::default()),
                (0..200_u32, 0.125..8.0_f64).prop_map(|(overhead_tokens, tokens_per_word)| Calibration {
                    overhead_tokens,
                    tokens_per_word,
                }),
            ],
        ) {
            let renderers =
                [vocabulary(), TextMaker::new()].map(|maker| PromptRenderer::over(maker, calibration));
            let mut splicer = Splicer::default();
            let template = Template::parse("{\"a\":\"{{prompt}}\",\"b\":\"{{prompt}}\"}").unwrap();
            for (blocks, tail, nonce, other) in prompts {
                let renderer = &renderers[usize::from(other)];
                let prompt = prompt(&blocks, tail);
                for provider in PROVIDERS {
                    let request = request("", &template);
                    let spliced = splicer.body(*provider, &request, renderer, &prompt, (nonce, nonce == 0));
                    prop_assert_eq!(spliced.is_some(), prompt.tokens() >= LONG_TOKENS);
                    if let Some(body) = spliced {
                        let whole = whole(*provider, renderer, &prompt, nonce);
                        prop_assert!(body.to_bytes() == whole, "{}", provider.name());
                    }
                }
            }
        }
    }
}
