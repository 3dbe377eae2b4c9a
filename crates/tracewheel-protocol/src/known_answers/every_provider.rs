//! What holds for every provider in the table, whatever a server sends.

use proptest::prelude::*;

use super::{Decoded, STREAM, decode_reads};
use crate::{PROVIDERS, RenderRequest, ResponseHead};

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
    ) {
        let head = ResponseHead { status, content_type: None };
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
        for provider in PROVIDERS {
            prop_assert!(!decode_reads(provider.name(), &STREAM, [&body[..]]).end.is_success());
        }
    }

    #[test]
    fn every_request_is_one_json_object_with_its_prompt_and_model(
        prompt in ".{0,40}",
        stream in any::<bool>(),
        max_tokens in 1_u32..100_000,
    ) {
        for provider in PROVIDERS {
            let request = RenderRequest { model: "m\"1", prompt: &prompt, max_tokens, stream, ..RenderRequest::default() };
            let mut out = Vec::new();
            provider.render(&request, &mut out);
            let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
            let path = provider.path("m1", stream);
            prop_assert!(path.starts_with('/'));
            // The model and the manner stand in the body or in the path.
            prop_assert!(value["model"] == "m\"1" || path.contains("m1"));
            prop_assert!(value["stream"] == stream || provider.path("m1", !stream) != path);
            let text = value.to_string();
            prop_assert!(text.contains(&serde_json::to_string(&prompt).unwrap()));
            prop_assert!(text.contains(&max_tokens.to_string()));
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
