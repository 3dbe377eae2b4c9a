use EventKind::*;

use super::*;
use crate::known_answers::{self, Decoded, JSON, STREAM, stream};
use crate::{StreamEnd, Warnings};

fn decode(messages: &[&str]) -> Decoded {
    known_answers::decode("gemini", &STREAM, stream(messages))
}

fn parts(parts: &str) -> String {
    format!(r#"{{"candidates":[{{"content":{{"role":"model","parts":[{parts}]}},"index":0}}]}}"#)
}

const LAST: &str = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":" sky"}]},"finishReason":"MAX_TOKENS","index":0}],"usageMetadata":{"promptTokenCount":1500,"cachedContentTokenCount":1280,"candidatesTokenCount":5,"thoughtsTokenCount":2,"totalTokenCount":1507},"modelVersion":"g-3","responseId":"r1"}"#;

#[test]
fn a_stream_ends_with_its_body_once_a_finish_reason_came() {
    let first = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"Blue"}]},"index":0}],"usageMetadata":{"promptTokenCount":1500,"totalTokenCount":1500},"modelVersion":"g-3","responseId":"r1"}"#;
    let decoded = decode(&[first, LAST]);
    assert_eq!(decoded.kinds(), [(Text, 4), (Text, 4)]);
    assert_eq!((&decoded.end, decoded.warnings), (&StreamEnd::Complete, Warnings::default()));
    let usage = decoded.usage;
    assert_eq!((usage.input_tokens, usage.cached_tokens), (Some(1500), Some(1280)));
    assert_eq!((usage.output_tokens, usage.reasoning_tokens), (Some(7), Some(2)));
    let meta = &decoded.meta;
    assert_eq!((meta.id.as_deref(), meta.model.as_deref()), (Some("r1"), Some("g-3")));
    assert_eq!(meta.finish_reason.as_deref(), Some("MAX_TOKENS"));
    assert_eq!(decode(&[first]).end, StreamEnd::Truncated);
    // Figures that follow the last output are taken.
    let late = r#"{"usageMetadata":{"candidatesTokenCount":6}}"#;
    let decoded = decode(&[first, LAST, late]);
    assert_eq!((decoded.end, decoded.usage.output_tokens), (StreamEnd::Complete, Some(6)));
}

#[test]
fn lines_may_end_in_carriage_returns() {
    let body = format!("data: {LAST}\r\n\r\n");
    assert_eq!(known_answers::decode("gemini", &STREAM, body).end, StreamEnd::Complete);
}

#[test]
fn every_part_has_its_kind() {
    let kind = |part: &str| {
        let decoded = decode(&[&parts(part), LAST]);
        (decoded.events[0].kind, decoded.events[0].bytes)
    };
    assert_eq!(kind(r#"{"text":"hm","thought":true}"#), (Reasoning, 2));
    assert_eq!(kind(r#"{"thought":true,"text":"hm"}"#), (Reasoning, 2));
    assert_eq!(kind(r#"{"functionCall":{"name":"get","args":{"city":"Rome"}}}"#), (ToolArgs, 7));
    assert_eq!(kind(r#"{"thoughtSignature":"abcd"}"#), (Opaque, 4));
    assert_eq!(kind(r#"{"inlineData":{"mimeType":"a/b","data":"AAAA"}}"#), (Opaque, 7));
    assert_eq!(kind(r#"{"text":""}"#).0, Structure);
    let two = decode(&[&parts(r#"{"text":"hm","thought":true},{"text":"Blue"}"#), LAST]);
    assert_eq!(two.kinds()[..2], [(Reasoning, 2), (Text, 4)]);
}

#[test]
fn errors_are_told_in_a_stream_and_within_an_array() {
    let error = r#"{"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}"#;
    assert!(matches!(decode(&[LAST, error]).end, StreamEnd::ErrorInStream(_)));
    let body = known_answers::decode("gemini", &JSON, format!("[{error}]"));
    assert!(matches!(body.end, StreamEnd::ErrorBody(detail) if detail.code.as_deref() == Some("503")));
}

#[test]
fn a_blocked_prompt_is_an_answer_without_output() {
    let decoded =
        decode(&[r#"{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":9}}"#]);
    assert_eq!((decoded.first_output(), &decoded.end), (None, &StreamEnd::Complete));
    assert_eq!(decoded.meta.finish_reason.as_deref(), Some("SAFETY"));
}

#[test]
fn a_plain_answer_decodes_too_and_another_json_does_not() {
    let decoded = known_answers::decode("gemini", &JSON, LAST);
    assert_eq!(decoded.kinds(), [(Text, 4), (Usage, LAST.len() as u32)]);
    assert_eq!(decoded.end, StreamEnd::NonStream);
    assert!(matches!(known_answers::decode("gemini", &JSON, r#"{"a":1}"#).end, StreamEnd::Malformed { .. }));
}

#[test]
fn a_request_has_exactly_these_bytes_and_its_model_in_the_path() {
    let request = RenderRequest {
        model: "g-3",
        prompt: "say \"hi\"",
        max_tokens: 70,
        params: Some(r#"{"top_k":40,"seed":5}"#),
        ..RenderRequest::default()
    };
    let mut out = b"left over".to_vec();
    Gemini.render(&request, &mut out);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        r#"{"contents":[{"role":"user","parts":[{"text":"say \"hi\""}]}],"generationConfig":{"maxOutputTokens":70,"temperature":0.0,"topK":40,"seed":5}}"#
    );
    assert_eq!(
        Gemini.path(&Place { model: "g-3", stream: true, ..Place::default() }),
        "/v1beta/models/g-3:streamGenerateContent?alt=sse"
    );
    assert_eq!(
        Gemini.path(&Place { model: "g-3", ..Place::default() }),
        "/v1beta/models/g-3:generateContent"
    );
}
