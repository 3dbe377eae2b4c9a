use EventKind::*;

use super::*;
use crate::known_answers::{self, Decoded, JSON, STREAM, named_stream};
use crate::{ErrorDetail, StreamEnd, Warnings};

fn decode(messages: &[&str]) -> Decoded {
    known_answers::decode("anthropic-messages", &STREAM, named_stream(messages))
}

fn answer(body: &str) -> Decoded {
    known_answers::decode("anthropic-messages", &JSON, body)
}

const START: &str = r#"{"type":"message_start","message":{"id":"m1","type":"message","role":"assistant","model":"c-1","content":[],"stop_reason":null,"usage":{"input_tokens":40,"cache_read_input_tokens":4096,"cache_creation_input_tokens":0,"output_tokens":1}}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;

fn kind_of(message: &str) -> (EventKind, u32) {
    let decoded = decode(&[START, message, STOP]);
    assert_eq!(decoded.end, StreamEnd::Complete, "{message}");
    assert_eq!(decoded.events.len(), 3, "{message}");
    (decoded.events[1].kind, decoded.events[1].bytes)
}

#[test]
fn a_stream_decodes_to_the_known_answer_with_inclusive_counts() {
    let begin = r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#;
    let ping = r#"{"type": "ping"}"#;
    let text =
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Blue sky and"}   }"#;
    let end = r#"{"type":"content_block_stop","index":0}"#;
    let last = r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},"usage":{"output_tokens":64}}"#;
    let decoded = decode(&[START, begin, ping, text, end, last, STOP]);
    let length = |message: &str| message.len() as u32;
    assert_eq!(
        decoded.kinds(),
        [
            (Structure, length(START)),
            (Structure, length(begin)),
            (Heartbeat, length(ping)),
            (Text, 12),
            (Structure, length(end)),
            (Usage, length(last)),
            (Terminal, length(STOP)),
        ]
    );
    assert_eq!(decoded.end, StreamEnd::Complete);
    let usage = crate::Usage {
        input_tokens: Some(4136),
        cached_tokens: Some(4096),
        cache_write_tokens: Some(0),
        output_tokens: Some(64),
        reasoning_tokens: None,
        input_was_exclusive: true,
    };
    assert_eq!((decoded.usage, decoded.usage.uncached_tokens()), (usage, Some(40)));
    let meta = &decoded.meta;
    assert_eq!((meta.id.as_deref(), meta.model.as_deref()), (Some("m1"), Some("c-1")));
    assert_eq!(meta.finish_reason.as_deref(), Some("max_tokens"));
    assert_eq!((decoded.warnings, decoded.source), (Warnings::default(), None));
}

#[test]
fn every_delta_and_block_has_its_kind() {
    let delta =
        |delta: &str| kind_of(&format!(r#"{{"type":"content_block_delta","index":1,"delta":{delta}}}"#));
    assert_eq!(delta(r#"{"type":"thinking_delta","thinking":"hm"}"#), (Reasoning, 2));
    assert_eq!(delta(r#"{"type":"input_json_delta","partial_json":"{\"a\""}"#), (ToolArgs, 4));
    assert_eq!(delta(r#"{"type":"input_json_delta","partial_json":""}"#).0, Structure);
    assert_eq!(delta(r#"{"type":"signature_delta","signature":"c2ln"}"#), (Opaque, 4));
    assert_eq!(delta(r#"{"type":"citations_delta","citation":{"title":"T","n":1}}"#), (Opaque, 1));
    assert_eq!(delta(r#"{"type":"text_delta","text":""}"#).0, Structure);
    assert_eq!(delta(r#"{"type":"text_delta","text":"half \ud83d"}"#), (Text, 8));
    let block = |block: &str| {
        kind_of(&format!(r#"{{"type":"content_block_start","index":1,"content_block":{block}}}"#))
    };
    assert_eq!(block(r#"{"type":"tool_use","id":"t","name":"get","input":{}}"#), (ToolArgs, 3));
    assert_eq!(block(r#"{"type":"redacted_thinking","data":"abcd"}"#), (Opaque, 4));
    assert_eq!(block(r#"{"type":"thinking","thinking":"","signature":""}"#).0, Structure);
}

#[test]
fn either_of_name_and_type_is_enough() {
    let unnamed = format!("data: {START}\n\ndata: {STOP}\n\n");
    assert_eq!(known_answers::decode("anthropic-messages", &STREAM, unnamed).end, StreamEnd::Complete);
    let untyped =
        "event: content_block_delta\ndata: {\"delta\":{\"text\":\"x\"}}\n\nevent: message_stop\ndata: {}\n\n";
    let decoded = known_answers::decode("anthropic-messages", &STREAM, untyped);
    assert_eq!((decoded.kinds()[0], decoded.end), ((Text, 1), StreamEnd::Complete));
}

#[test]
fn unknown_events_are_counted_and_nothing_else() {
    let decoded = decode(&[START, r#"{"type":"message_mood","mood":"good"}"#, STOP]);
    assert_eq!((decoded.events[1].kind, decoded.warnings.unknown_names), (Meta, 1));
    assert_eq!(decoded.end, StreamEnd::Complete);
}

#[test]
fn an_error_after_tokens_is_an_error_in_the_stream() {
    let text = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Blue"}}"#;
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let decoded = decode(&[START, text, error]);
    let StreamEnd::ErrorInStream(ErrorDetail { message, kind, .. }) = decoded.end else { panic!("an error") };
    assert_eq!((message.as_str(), kind.as_deref()), ("Overloaded", Some("overloaded_error")));
}

#[test]
fn a_stream_without_its_stop_is_truncated_even_after_its_last_counts() {
    let last = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}"#;
    let decoded = decode(&[START, last]);
    assert_eq!((decoded.end, decoded.usage.output_tokens), (StreamEnd::Truncated, Some(9)));
}

#[test]
fn a_plain_answer_has_its_blocks_and_counts() {
    let body = r#"{"id":"m2","type":"message","role":"assistant","model":"c-1","content":[{"type":"thinking","thinking":"hmm","signature":"abc"},{"type":"text","text":"Blue"},{"type":"tool_use","id":"t","name":"f","input":{"city":"Rome"}}],"stop_reason":"tool_use","usage":{"input_tokens":7,"output_tokens":3,"output_tokens_details":{"thinking_tokens":1}}}"#;
    let decoded = answer(body);
    assert_eq!(
        decoded.kinds(),
        [(Reasoning, 3), (Text, 4), (ToolArgs, 5), (Opaque, 3), (Usage, body.len() as u32)]
    );
    assert_eq!(decoded.end, StreamEnd::NonStream);
    let usage = decoded.usage;
    assert_eq!((usage.input_tokens, usage.cached_tokens, usage.reasoning_tokens), (Some(7), None, Some(1)));
    assert!(!usage.input_was_exclusive);
    assert_eq!(decoded.meta.finish_reason.as_deref(), Some("tool_use"));
}

#[test]
fn an_answer_that_is_an_error_or_another_json_is_no_success() {
    let error = answer(r#"{"type":"error","error":{"type":"invalid_request_error","message":"bad"}}"#);
    assert!(matches!(error.end, StreamEnd::ErrorBody(detail) if detail.message == "bad"));
    assert!(matches!(answer(r#"{"status":"ok"}"#).end, StreamEnd::Malformed { .. }));
    assert_eq!(answer(r#"{"type":"message","content":[{"type":"te"#).end, StreamEnd::Truncated);
}

#[test]
fn a_request_has_exactly_these_bytes() {
    let request = RenderRequest {
        model: "c-1",
        prompt: "say \"hi\"",
        max_tokens: 7,
        force_length: true,
        params: Some(r#"{"temperature":0.30,"top_p":0.9,"top_k":40,"seed":5,"presence_penalty":1}"#),
        ..RenderRequest::default()
    };
    let mut out = b"left over".to_vec();
    AnthropicMessages.render(&request, &mut out);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        r#"{"model":"c-1","max_tokens":7,"messages":[{"role":"user","content":"say \"hi\""}],"temperature":0.30,"top_p":0.9,"top_k":40,"stream":true}"#
    );
    assert_eq!(AnthropicMessages.key_header("k"), ("x-api-key", "k".to_owned()));
    assert!(AnthropicMessages.headers(true).contains(&("anthropic-version", "2023-06-01")));
}
