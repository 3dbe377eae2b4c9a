//! A chat stream, framed and classified: bytes a second (as printed) and events a second (the same ids with `events`).
//!
//! `frame`: server-sent events alone. `classify`: to event kinds, with JSON, as the recorder does it. The reads are as
//! large as a socket gives them: `event` is one event a read (a slow stream), `16k` a full buffer (a burst), `7` seven
//! bytes (the worst that a network can do).
#![allow(missing_docs)]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tracewheel_protocol::sse::{Frame, Framer};
use tracewheel_protocol::{PROVIDERS, ResponseHead, StreamEnd};

const EVENTS: usize = 4_000;
const HEAD: ResponseHead<'static> = ResponseHead { status: 200, content_type: Some("text/event-stream") };

/// A stream in the form of a serving engine's: a role, texts of one or a few tokens, a stop, usage, the end marker.
fn stream() -> Vec<Vec<u8>> {
    let words = [" blue", " sky", " over", " the", " h\\u00e9", " wide", ",\\n", " green"];
    let chunk = |choices: String, usage: &str| {
        format!(
            "data: {{\"id\":\"chatcmpl-8f1c2d\",\"object\":\"chat.completion.chunk\",\"created\":1790000000,\
             \"model\":\"some/model-70b-instruct\",\"choices\":[{choices}],\"usage\":{usage}}}\n\n"
        )
        .into_bytes()
    };
    let choice = |delta: String, finish: &str| {
        format!("{{\"index\":0,\"delta\":{delta},\"logprobs\":null,\"finish_reason\":{finish}}}")
    };
    let mut events = vec![chunk(choice("{\"role\":\"assistant\",\"content\":\"\"}".into(), "null"), "null")];
    events.extend((4..EVENTS).map(|n| {
        let word = words[n * 7 % words.len()];
        chunk(choice(format!("{{\"content\":\"{word}\"}}"), "null"), "null")
    }));
    events.push(chunk(choice("{}".into(), "\"length\""), "null"));
    events.push(chunk(
        String::new(),
        "{\"prompt_tokens\":1500,\"completion_tokens\":3996,\"total_tokens\":5496,\
         \"prompt_tokens_details\":{\"cached_tokens\":1280}}",
    ));
    events.push(b"data: [DONE]\n\n".to_vec());
    events
}

fn frame(reads: &[&[u8]]) -> (usize, u64) {
    let mut framer = Framer::new();
    let (mut events, mut end) = (0, 0);
    for read in reads {
        framer.feed(read, |frame| {
            if let Frame::Event { end_offset, .. } = black_box(frame) {
                events += 1;
                end = end_offset;
            }
        });
    }
    (events, end)
}

fn classify(reads: &[&[u8]]) -> (usize, u64) {
    let mut decoder = PROVIDERS[0].decoder(&HEAD);
    let mut events = Vec::with_capacity(EVENTS);
    for read in reads {
        decoder.feed(read, &mut events);
    }
    assert_eq!(decoder.finish(&mut events), StreamEnd::Complete);
    (events.len(), events.last().map_or(0, |event| event.end_offset))
}

fn sse(criterion: &mut Criterion) {
    let events = stream();
    let body = events.concat();
    let reads: [(&str, Vec<&[u8]>); 3] = [
        ("event", events.iter().map(Vec::as_slice).collect()),
        ("16k", body.chunks(16 << 10).collect()),
        ("7", body.chunks(7).collect()),
    ];
    let units =
        [("bytes", Throughput::Bytes(body.len() as u64)), ("events", Throughput::Elements(EVENTS as u64))];
    for (unit, throughput) in units {
        let mut group = criterion.benchmark_group(format!("sse/{unit}"));
        group.throughput(throughput);
        for (size, reads) in &reads {
            assert_eq!(
                (frame(reads), classify(reads)),
                ((EVENTS, body.len() as u64), (EVENTS, body.len() as u64))
            );
            group.bench_with_input(BenchmarkId::new("frame", size), reads, |bench, reads| {
                bench.iter(|| frame(black_box(reads)));
            });
            group.bench_with_input(BenchmarkId::new("classify", size), reads, |bench, reads| {
                bench.iter(|| classify(black_box(reads)));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, sse);
criterion_main!(benches);
