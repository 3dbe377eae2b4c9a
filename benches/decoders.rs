//! What a chunk of a typical chat costs to decode, protocol by protocol: framing, classification and counts, as the
//! recorder does it. A read is one event, as a slow stream's socket gives it.
//!
//! Printed beside Criterion's lines, as a table for `docs/protocols.md`: the median over runs of the time for each chunk.
#![allow(missing_docs, clippy::print_stdout)] // A bench prints its figures.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use tracewheel_protocol::{ResponseHead, provider};

/// Chunks of a stream.
const CHUNKS: usize = 1_000;

const WORDS: [&str; 8] = [" blue", " sky", " over", " the", " h\\u00e9", " wide", ",\\n", " green"];

/// A protocol, the variant of its stream, its content type, and the chunk with number `n` and text `word`.
type Stream = (&'static str, &'static str, &'static str, fn(usize, &str) -> String);

const SSE: &str = "text/event-stream";

const STREAMS: &[Stream] = &[
    ("openai-chat", "text only", SSE, |_, word| chat(word, "null", "")),
    ("openai-chat", "usage with every chunk", SSE, |n, word| {
        chat(
            word,
            &format!("{{\"prompt_tokens\":1500,\"completion_tokens\":{n},\"total_tokens\":{}}}", 1500 + n),
            "",
        )
    }),
    ("openai-chat", "token ids", SSE, |n, word| {
        chat(word, "null", "").replace("\"logprobs\":null", &format!("\"logprobs\":null,\"token_ids\":[{n}]"))
    }),
    ("openai-chat", "timings of llama.cpp", SSE, |n, word| {
        let timings = format!(
            ",\"timings\":{{\"cache_n\":0,\"prompt_n\":1500,\"prompt_ms\":220.5,\"predicted_n\":{n},\"predicted_ms\":{}.25}}",
            n * 11
        );
        chat(word, "null", &timings)
    }),
    ("openai-chat", "padded (`obfuscation`)", SSE, |n, word| {
        chat(word, "null", &format!(",\"obfuscation\":\"{}\"", &"kq3xZ81bT0aa"[..n % 12 + 1]))
    }),
    ("openai-completions", "text only", SSE, |_, word| {
        format!(
            "data: {{\"id\":\"cmpl-8f1c2d\",\"object\":\"text_completion\",\"created\":1790000000,\"model\":\"some/model-70b\",\
             \"choices\":[{{\"index\":0,\"text\":\"{word}\",\"logprobs\":null,\"finish_reason\":null}}],\"usage\":null}}\n\n"
        )
    }),
    ("openai-responses", "text", SSE, |n, word| {
        format!(
            "event: response.output_text.delta\ndata: {{\"type\":\"response.output_text.delta\",\"sequence_number\":{n},\
             \"item_id\":\"msg_8f1c2d\",\"output_index\":0,\"content_index\":0,\"delta\":\"{word}\",\"logprobs\":[]}}\n\n"
        )
    }),
    ("anthropic-messages", "text", SSE, |_, word| {
        format!(
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\
             \"delta\":{{\"type\":\"text_delta\",\"text\":\"{word}\"}}}}\n\n"
        )
    }),
    ("gemini", "text", SSE, |n, word| {
        format!(
            "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"{word}\"}}],\"role\":\"model\"}},\"index\":0}}],\
             \"usageMetadata\":{{\"promptTokenCount\":1500,\"candidatesTokenCount\":{n},\"totalTokenCount\":{}}},\
             \"modelVersion\":\"g-3-flash\",\"responseId\":\"8f1c2d\"}}\r\n\r\n",
            1500 + n
        )
    }),
    ("tgi-generate", "text", SSE, |n, word| {
        format!(
            "data:{{\"index\":{n},\"token\":{{\"id\":{n},\"text\":\"{word}\",\"logprob\":-0.15625,\"special\":false}},\
             \"generated_text\":null,\"details\":null}}\n\n"
        )
    }),
    ("ollama-chat", "text", "application/x-ndjson", |_, word| {
        format!(
            "{{\"model\":\"some-model:70b\",\"created_at\":\"2026-11-30T04:00:00.123456789Z\",\
             \"message\":{{\"role\":\"assistant\",\"content\":\"{word}\"}},\"done\":false}}\n"
        )
    }),
    ("http", "events", SSE, |_, word| chat(word, "null", "")),
    ("http", "lines", "application/x-ndjson", |n, word| format!("{{\"n\":{n},\"text\":\"{word}\"}}\n")),
];

fn chat(word: &str, usage: &str, more: &str) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-8f1c2d\",\"object\":\"chat.completion.chunk\",\"created\":1790000000,\
         \"model\":\"some/model-70b-instruct\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{word}\"}},\
         \"logprobs\":null,\"finish_reason\":null}}],\"usage\":{usage}{more}}}\n\n"
    )
}

fn decode(name: &str, content_type: &str, reads: &[String]) -> usize {
    let head = ResponseHead { status: 200, content_type: Some(content_type) };
    let mut decoder = provider(name).expect("it is in the table").decoder(&head);
    let mut events = Vec::with_capacity(CHUNKS);
    for read in reads {
        decoder.feed(read.as_bytes(), &mut events);
    }
    assert!(decoder.held_bytes() < 64 << 10);
    events.iter().filter(|event| event.kind.is_output()).count()
}

/// The medians that Criterion wrote, as the table of the page.
fn table() {
    println!("| protocol | chunk | ns a chunk |\n|---|---|---|");
    for (name, variant, ..) in STREAMS {
        let folder = folder(name, variant);
        let file = format!(
            "{}/../target/criterion/decoders/{folder}/new/estimates.json",
            env!("CARGO_MANIFEST_DIR")
        );
        let median = std::fs::read_to_string(file).ok().and_then(|text| {
            let median = text.split("\"median\":").nth(1)?.split("\"point_estimate\":").nth(1)?;
            median.split([',', '}']).next()?.parse::<f64>().ok()
        });
        let shown = median.map_or("not measured".to_owned(), |ns| format!("{:.0}", ns / CHUNKS as f64));
        println!("| `{name}` | {variant} | {shown} |");
    }
}

fn folder(name: &str, variant: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    format!("{name}-{variant}").chars().map(plain).collect()
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("decoders");
    group.throughput(Throughput::Elements(CHUNKS as u64));
    for (name, variant, content_type, chunk) in STREAMS {
        let reads: Vec<String> = (0..CHUNKS).map(|n| chunk(n, WORDS[n * 7 % WORDS.len()])).collect();
        assert_eq!(decode(name, content_type, &reads), CHUNKS, "{name}, {variant}");
        group.bench_function(folder(name, variant), |bench| {
            bench.iter(|| decode(name, content_type, black_box(&reads)));
        });
    }
    group.finish();
    criterion.final_summary();
    if std::env::args().any(|arg| arg == "--bench") {
        table();
    }
}
