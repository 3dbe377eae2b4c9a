use EventKind::*;

use super::*;
use crate::known_answers::{self, Decoded, JSON, STREAM, named_stream};
use crate::{ErrorDetail, StreamEnd, Warnings};

fn decode(messages: &[&str]) -> Decoded {
    known_answers::decode("openai-responses", &STREAM, named_stream(messages))
}

fn answer(body: &str) -> Decoded {
    known_answers::decode("openai-responses", &JSON, body)
}

const CREATED: &str = r#"{"type":"response.created","sequence_number":0,"response":{"id":"r1","object":"response","status":"in_progress","error":null,"model":"g-1","output":[],"usage":null}}"#;
const COMPLETED: &str = r#"{"type":"response.completed","sequence_number":9,"response":{"id":"r1","status":"completed","error":null,"incomplete_details":null,"model":"g-1","output":[{"type":"message","content":[{"type":"output_text","text":"Blue"}]}],"usage":{"input_tokens":1500,"input_tokens_details":{"cached_tokens":1280,"cache_write_tokens":0},"output_tokens":5,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":1505}}}"#;

/// The kind of one event between the first and the last.
fn kind_of(message: &str) -> (EventKind, u32) {
    let decoded = decode(&[CREATED, message, COMPLETED]);
    assert_eq!(decoded.end, StreamEnd::Complete, "{message}");
    assert_eq!(decoded.events.len(), 3, "{message}");
    assert_eq!(decoded.warnings, Warnings::default(), "{message}");
    (decoded.events[1].kind, decoded.events[1].bytes)
}

fn delta(name: &str) -> (EventKind, u32) {
    kind_of(&format!(
        r#"{{"type":"response.{name}","sequence_number":4,"item_id":"i","output_index":0,"delta":"Blue"}}"#
    ))
}

#[test]
fn a_stream_decodes_to_the_known_answer_and_repeats_count_once() {
    let text = r#"{"type":"response.output_text.delta","sequence_number":4,"item_id":"i1","output_index":0,"content_index":0,"delta":"Blue","logprobs":[],"obfuscation":"zz"}"#;
    let done = r#"{"type":"response.output_text.done","sequence_number":5,"item_id":"i1","text":"Blue"}"#;
    let decoded = decode(&[CREATED, text, done, COMPLETED]);
    let length = |message: &str| message.len() as u32;
    assert_eq!(
        decoded.kinds(),
        [(Structure, length(CREATED)), (Text, 4), (Structure, length(done)), (Terminal, length(COMPLETED))]
    );
    assert_eq!(decoded.end, StreamEnd::Complete);
    let usage = decoded.usage;
    assert_eq!(
        (usage.input_tokens, usage.cached_tokens, usage.cache_write_tokens),
        (Some(1500), Some(1280), Some(0))
    );
    assert_eq!((usage.output_tokens, usage.reasoning_tokens), (Some(5), Some(2)));
    let meta = decoded.meta;
    assert_eq!((meta.id.as_deref(), meta.model.as_deref()), (Some("r1"), Some("g-1")));
    assert_eq!(meta.finish_reason.as_deref(), Some("completed"));
}

#[test]
fn every_event_has_its_kind() {
    assert_eq!(delta("reasoning_text.delta"), (Reasoning, 4));
    assert_eq!(delta("reasoning_summary_text.delta"), (Reasoning, 4));
    assert_eq!(delta("function_call_arguments.delta"), (ToolArgs, 4));
    assert_eq!(delta("custom_tool_call_input.delta"), (ToolArgs, 4));
    assert_eq!(delta("refusal.delta"), (Refusal, 4));
    assert_eq!(delta("output_audio.delta"), (Opaque, 4));
    assert_eq!(delta("content_part.added").0, Structure);
    assert_eq!(delta("function_call_arguments.done").0, Structure);
    assert_eq!(delta("web_search_call.searching").0, Progress);
    assert_eq!(delta("queued").0, Progress);
    assert_eq!(delta("output_text.annotation.added").0, Meta);
    assert_eq!(kind_of(r#"{"type":"response.output_text.delta","delta":""}"#).0, Structure);
    let item = |item: &str| kind_of(&format!(r#"{{"type":"response.output_item.added","item":{item}}}"#));
    assert_eq!(item(r#"{"type":"function_call","name":"get","arguments":""}"#), (ToolArgs, 3));
    assert_eq!(item(r#"{"type":"message","role":"assistant","content":[]}"#).0, Structure);
}

#[test]
fn a_capped_answer_ends_as_incomplete_and_is_whole() {
    let ended = r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"usage":{"input_tokens":9,"output_tokens":16}}}"#;
    let decoded = decode(&[CREATED, ended]);
    assert_eq!((decoded.end, decoded.usage.output_tokens), (StreamEnd::Complete, Some(16)));
    assert_eq!(decoded.meta.finish_reason.as_deref(), Some("max_output_tokens"));
}

#[test]
fn failures_are_told_by_the_servers_own_words() {
    let failed = r#"{"type":"response.failed","response":{"id":"r1","status":"failed","error":{"code":"server_error","message":"broke"}}}"#;
    let error = r#"{"type":"error","code":"rate_limit_exceeded","message":"slow down","param":null}"#;
    for (message, said, code) in
        [(failed, "broke", "server_error"), (error, "slow down", "rate_limit_exceeded")]
    {
        let decoded = decode(&[CREATED, message]);
        let StreamEnd::ErrorInStream(ErrorDetail { message, code: found, .. }) = decoded.end else {
            panic!("an error")
        };
        assert_eq!((message.as_str(), found.as_deref()), (said, Some(code)));
    }
}

#[test]
fn a_stream_without_its_end_is_truncated_whatever_else_says_done() {
    let body = format!("{}data: [DONE]\n\n", named_stream(&[CREATED]));
    assert_eq!(known_answers::decode("openai-responses", &STREAM, body).end, StreamEnd::Truncated);
}

#[test]
fn unknown_events_are_counted_and_nothing_else() {
    let decoded = decode(&[CREATED, r#"{"type":"response.mood","delta":"x"}"#, COMPLETED]);
    assert_eq!((decoded.events[1].kind, decoded.warnings.unknown_names), (Meta, 1));
    assert_eq!(decoded.end, StreamEnd::Complete);
}

#[test]
fn a_plain_answer_has_each_items_output() {
    let body = r#"{"id":"r2","object":"response","status":"completed","error":null,"model":"g-1","output":[{"id":"x","summary":[{"type":"summary_text","text":"hm"}],"type":"reasoning"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Blue"},{"type":"refusal","refusal":"no"}]},{"type":"function_call","name":"f","arguments":"{}"}],"usage":{"input_tokens":7,"output_tokens":3}}"#;
    let decoded = answer(body);
    assert_eq!(
        decoded.kinds(),
        [(Reasoning, 2), (Text, 4), (ToolArgs, 3), (Refusal, 2), (Usage, body.len() as u32)]
    );
    assert_eq!((decoded.end, decoded.usage.input_tokens), (StreamEnd::NonStream, Some(7)));
}

#[test]
fn an_answer_that_failed_or_is_another_json_is_no_success() {
    let failed = answer(
        r#"{"object":"response","status":"failed","error":{"code":"server_error","message":"broke"},"output":[]}"#,
    );
    assert!(matches!(failed.end, StreamEnd::ErrorBody(detail) if detail.message == "broke"));
    assert!(matches!(answer(r#"{"status":"ok"}"#).end, StreamEnd::Malformed { .. }));
    assert_eq!(answer(r#"{"object":"response","output":[{"#).end, StreamEnd::Truncated);
}

#[test]
fn a_request_has_exactly_these_bytes() {
    let request = RenderRequest {
        model: "g-1",
        prompt: "say \"hi\"",
        max_tokens: 70,
        force_length: true,
        include_obfuscation: Some(false),
        params: Some(r#"{"top_p":0.9,"seed":5}"#),
        ..RenderRequest::default()
    };
    let mut out = b"left over".to_vec();
    OpenAiResponses.render(&request, &mut out);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        r#"{"model":"g-1","input":"say \"hi\"","max_output_tokens":70,"temperature":0.0,"top_p":0.9,"store":false,"stream":true,"stream_options":{"include_obfuscation":false}}"#
    );
}

#[test]
fn a_cap_below_the_least_that_openai_takes_is_raised_to_it() {
    for (asked, sent) in [(1, 16), (15, 16), (16, 16), (17, 17)] {
        let mut body = Vec::new();
        let request = RenderRequest { max_tokens: asked, ..RenderRequest::default() };
        OpenAiResponses.render(&request, &mut body);
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["max_output_tokens"], sent);
    }
}
