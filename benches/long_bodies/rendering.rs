//! Rendering bodies.

use bytes::Bytes;
use tracewheel_clock::{Clock, RunClock};
use tracewheel_protocol::{Provider, RenderRequest, provider};
use tracewheel_replay::{LookAhead, Splicer};
use tracewheel_transport::Body;
use tracewheel_workload::{BlockSpec, PromptRenderer, PromptSpec, TailSpec};

/// Tokens of a prompt that follow its blocks.
const TAIL_TOKENS: u32 = 300;

fn prompt(tokens: u32, block_tokens: u32, key: u64, own_blocks: bool) -> PromptSpec {
    let blocks = tokens.saturating_sub(TAIL_TOKENS) / block_tokens;
    let own = if own_blocks { key << 32 } else { 0 };
    let left = tokens - blocks * block_tokens;
    PromptSpec {
        blocks: (0..blocks)
            .map(|block| BlockSpec { hash: own + u64::from(block), tokens: block_tokens })
            .collect(),
        tail: (left > 0).then_some(TailSpec { key, tokens: left }),
    }
}

/// What renders.
struct Bench {
    chat: &'static dyn Provider,
    prompts: PromptRenderer,
    text: String,
    out: Vec<u8>,
}

impl Bench {
    /// As the provider writes it.
    fn in_one_stretch(&mut self, prompt: &PromptSpec) -> Body {
        self.prompts.render(prompt, 5, &mut self.text);
        let request = RenderRequest { model: "m", prompt: &self.text, ..RenderRequest::default() };
        self.chat.render(&request, &mut self.out);
        Bytes::copy_from_slice(&self.out).into()
    }

    fn in_pieces(&self, splicer: &mut Splicer, prompt: &PromptSpec, shares: bool) -> Body {
        let request = RenderRequest { model: "m", ..RenderRequest::default() };
        splicer.put(self.chat, &request, &self.prompts, prompt, (5, shares)).expect("text without a mark")
    }
}

/// Median microseconds of one call, over prompts that are told apart by their number.
fn median_us(turns: u64, mut work: impl FnMut(u64) -> Body) -> f64 {
    let clock = RunClock::start();
    let mut taken: Vec<i64> = (1..=turns)
        .map(|number| {
            let begin = clock.now();
            let body = work(number);
            let end = clock.now();
            drop(body);
            end.since(begin)
        })
        .collect();
    taken.sort_unstable();
    taken[taken.len() / 2] as f64 / 1e3
}

pub(crate) fn measure(measured: bool) {
    let turns = if measured { 300 } else { 3 };
    let chat = provider("openai-chat").expect("it is in the table");
    let mut bench = Bench { chat, prompts: PromptRenderer::new(), text: String::new(), out: Vec::new() };
    println!("µs a body                            in one stretch   pieces: kept    made   unshared");
    for tokens in [200, 500, 1_000, 2_000, 4_000, 8_000, 32_000, 100_000] {
        for block_tokens in [16, 512] {
            let of = |number, own| prompt(tokens, block_tokens, number, own);
            let whole = median_us(turns, |number| bench.in_one_stretch(&of(number, false)));
            let mut splicer = Splicer::default();
            let _first = bench.in_pieces(&mut splicer, &of(0, false), true);
            let kept = median_us(turns, |number| bench.in_pieces(&mut splicer, &of(number, false), true));
            let made = median_us(turns, |number| bench.in_pieces(&mut splicer, &of(number, true), true));
            let alone = median_us(turns, |number| bench.in_pieces(&mut splicer, &of(number, false), false));
            println!(
                "{tokens:>7} tokens, blocks of {block_tokens:<12} {whole:>12.1} {kept:>15.1} {made:>8.1} {alone:>9.1}"
            );
        }
    }
    ahead(&bench, if measured { LookAhead::default().requests } else { 20 });
}

/// A look-ahead full of prompts of 100,000 tokens, of which the last fifth is nobody else's.
fn ahead(bench: &Bench, count: u32) {
    let clock = RunClock::start();
    let mut splicer = Splicer::default();
    let bound = LookAhead::default().bytes as usize;
    for own_part in [0, 5, 1] {
        let begin = clock.now();
        let (mut held, mut own, mut length) = (Vec::new(), 0, 0);
        for number in 1..=u64::from(count) {
            let mut spec = prompt(100_000, 512, number, own_part == 1);
            let blocks = spec.blocks.len();
            let from = if own_part == 5 { blocks - blocks / 5 } else { blocks };
            for block in &mut spec.blocks[from..] {
                block.hash += number << 32;
            }
            let body = bench.in_pieces(&mut splicer, &spec, true);
            if own + body.own_bytes() > bound {
                break;
            }
            (own, length) = (own + body.own_bytes(), length + body.len());
            held.push(body);
        }
        let what = ["all shared but the tail", "four fifths shared", "nothing shared"]
            [[0, 5, 1].iter().position(|part| *part == own_part).unwrap()];
        println!(
            "look-ahead, 100,000 tokens each, {what:<24} {:>5} bodies ({:.1} MB) in {:.1} ms, {:.1} MB of their own",
            held.len(),
            length as f64 / 1e6,
            clock.now().since(begin) as f64 / 1e6,
            own as f64 / 1e6,
        );
    }
}
