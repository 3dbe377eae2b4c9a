//! What holds for every provider in the table, whatever a server sends.

use proptest::prelude::*;

use super::{Decoded, STREAM, decode_reads};
use tracewheel_timeline::vocab::Operation;

use crate::sse::MAX_EVENT_BYTES;
use crate::{PROVIDERS, Place, RenderRequest, ResponseHead, StreamEnd, Template, provider};

/// JSON made of the words that some protocol knows, in places where they may or may not belong.
fn json() -> impl Strategy<Value = String> {
    const WORDS: &[&str] = &[
        "type",
        "delta",
        "text",
        "content",
        "message",
        "usage",
        "choices",
        "candidates",
        "parts",
        "error",
        "response",
        "output",
        "status",
        "input_tokens",
        "prompt_tokens",
        "completion_tokens",
        "output_tokens",
        "message_stop",
        "message_start",
        "content_block_delta",
        "response.completed",
        "response.output_text.delta",
        "thinking",
        "partial_json",
        "finish_reason",
        "index",
        "token_ids",
        "failed",
        "reasoning",
        "name",
        "item",
    ];
    let word = prop::sample::select(WORDS).prop_map(|word| format!("\"{word}\""));
    let leaf = prop_oneof![
        4 => word.clone(),
        1 => Just("null".to_owned()),
        1 => Just("true".to_owned()),
        1 => any::<i32>().prop_map(|number| number.to_string()),
        1 => Just("1e400".to_owned()),
        1 => Just("\"\\ud83d\"".to_owned()),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..4).prop_map(|all| format!("[{}]", all.join(","))),
            3 => prop::collection::vec((word.clone(), inner), 0..5).prop_map(|all| {
                let pairs: Vec<String> = all.iter().map(|(key, value)| format!("{key}:{value}")).collect();
                format!("{{{}}}", pairs.join(","))
            }),
        ]
    })
}

fn bodies() -> impl Strategy<Value = Vec<u8>> {
    const NAMES: &[&str] = &[
        "",
        "event: message_stop\n",
        "event: response.completed\n",
        "event: error\n",
        "event: ping\n",
        ": c\n",
    ];
    let event =
        (prop::sample::select(NAMES), json(), prop::sample::select(&["\n\n", "\r\n\r\n", "\r\r", "\n"][..]))
            .prop_map(|(name, data, end)| format!("{name}data: {data}{end}"));
    prop_oneof![
        4 => prop::collection::vec(event, 0..8).prop_map(|events| events.concat().into_bytes()),
        1 => json().prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..200),
    ]
}

proptest! {
    #[test]
    fn events_are_equal_under_any_cut_and_output_is_never_empty(
        body in bodies(),
        piece in 1_usize..40,
        status in prop::sample::select(&[200_u16, 200, 200, 529][..]),
        content_type in prop::sample::select(&[None, Some("application/x-ndjson"), Some("audio/wav")][..]),
    ) {
        let head = ResponseHead { status, content_type };
        for provider in PROVIDERS {
            let whole: Decoded = decode_reads(provider.name(), &head, [&body[..]]);
            prop_assert_eq!(&decode_reads(provider.name(), &head, body.chunks(piece)), &whole);
            let mut last = 0;
            for event in &whole.events {
                prop_assert!(!event.kind.is_output() || event.bytes > 0);
                prop_assert!(event.end_offset >= last && event.end_offset <= body.len() as u64);
                last = event.end_offset;
            }
        }
    }

    #[test]
    fn bytes_of_chance_are_never_a_success(body in prop::collection::vec(any::<u8>(), 0..400)) {
        // Of a body that may be anything, nothing can be wrong.
        for provider in PROVIDERS.iter().filter(|provider| provider.operation() != Operation::Http) {
            prop_assert!(!decode_reads(provider.name(), &STREAM, [&body[..]]).end.is_success());
        }
    }

    #[test]
    fn every_request_is_one_json_object_with_its_prompt_and_model(
        prompt in ".{0,40}",
        stream in any::<bool>(),
        max_tokens in 1_u32..100_000,
    ) {
        let template = Template::parse(
            "{\"model\":\"{{model}}\",\"q\":\"{{prompt}}\",\"n\":{{max_tokens}},\"stream\":{{stream}}}",
        );
        let template = template.unwrap();
        for provider in PROVIDERS {
            let template = Some(&template);
            let request = RenderRequest { template, model: "m\"1", prompt: &prompt, max_tokens, stream, ..RenderRequest::default() };
            let mut out = Vec::new();
            provider.render(&request, &mut out);
            let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
            let place = |stream| Place { model: "m1", stream, ..Place::default() };
            let path = provider.path(&place(stream));
            prop_assert!(path.starts_with('/'));
            // The model and the manner stand in the body or in the path.
            prop_assert!(value["model"] == "m\"1" || path.contains("m1") || provider.name() == "tgi-generate");
            let other = provider.path(&place(!stream));
            prop_assert!(value["stream"] == stream || other != path || !provider.streams());
            let text = value.to_string();
            prop_assert!(text.contains(&serde_json::to_string(&prompt).unwrap()));
            prop_assert!(text.contains(&max_tokens.to_string()) || provider.operation() == Operation::Embeddings);
        }
    }
}

#[test]
fn names_in_the_table_are_told_apart() {
    let mut names: Vec<_> = PROVIDERS.iter().map(|provider| provider.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), PROVIDERS.len());
}

#[test]
fn a_body_without_end_is_given_up_and_its_buffers_never_exceed_their_bound() {
    const READ: usize = 1 << 20;
    let bound = 2 * MAX_EVENT_BYTES as usize;
    let line = vec![b'x'; READ];
    let data = b"data: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n".repeat(READ / 63);
    for (name, first, rest) in [
        ("openai-chat", "data: ", &line),
        ("openai-chat", "", &data),
        ("openai-chat", "{\"a\":\"", &line),
        ("ollama-chat", "{\"a\":\"", &line),
    ] {
        let mut decoder = provider(name).unwrap().decoder(&ResponseHead { status: 200, content_type: None });
        let mut events = Vec::new();
        decoder.feed(first.as_bytes(), &mut events);
        for _ in 0..34 {
            decoder.feed(rest, &mut events);
            assert!(decoder.held_bytes() <= bound, "{name}, {first:?}: {}", decoder.held_bytes());
        }
        assert!(decoder.held_bytes() < READ, "what is given up is not kept");
        assert!(matches!(decoder.finish(&mut events), StreamEnd::TooLarge { .. }), "{name}, {first:?}");
    }
    let mut decoder = provider("http").unwrap().decoder(&ResponseHead { status: 200, content_type: None });
    for _ in 0..34 {
        decoder.feed(&line, &mut Vec::new());
    }
    assert_eq!(decoder.held_bytes(), 0, "a body of any form is not kept at all");
}
