use super::*;

const CHAT: &str = r#"
{"id":"c1","object":"chat.completion","model":"m","system_fingerprint":null,
 "choices":[{"index":0,"message":{"role":"assistant","content":"Blue sky","reasoning_content":"hm","tool_calls":null},
             "finish_reason":"stop"}],
 "usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10,"prompt_tokens_details":{"cached_tokens":0}}}
"#;

#[test]
fn a_plain_answer_has_its_output_where_the_body_ends() {
    let decoded = decode(&JSON, CHAT);
    assert_eq!(
        decoded.kinds(),
        [
            (EventKind::Reasoning, 2),
            (EventKind::Text, 8),
            (EventKind::Usage, CHAT.trim_ascii_start().len() as u32)
        ]
    );
    assert!(decoded.events.iter().all(|event| event.end_offset == CHAT.len() as u64));
    assert_eq!(decoded.end, StreamEnd::NonStream);
    assert_eq!((decoded.usage.output_tokens, decoded.usage.cached_tokens), (Some(3), Some(0)));
    assert_eq!(decoded.meta.finish_reason.as_deref(), Some("stop"));
}

#[test]
fn a_plain_answer_is_known_by_its_first_byte() {
    for content_type in [None, Some("text/event-stream"), Some("text/plain")] {
        assert_eq!(decode(&ResponseHead { status: 200, content_type }, CHAT).end, StreamEnd::NonStream);
    }
}

#[test]
fn a_plain_completion_decodes_too() {
    let body = r#"{"object":"text_completion","choices":[{"index":0,"text":"a"},{"index":1,"text":"bb"}]}"#;
    let decoded = decode(&JSON, body);
    assert_eq!(decoded.kinds(), [(EventKind::Text, 1), (EventKind::Text, 2)]);
    assert_eq!(decoded.events[1].choice, 1);
}

#[test]
fn an_answer_without_output_is_whole_but_has_no_first_output() {
    let decoded = decode(&JSON, r#"{"choices":[{"index":0,"message":{"role":"assistant","content":null}}]}"#);
    assert_eq!((decoded.first_output(), &decoded.end), (None, &StreamEnd::NonStream));
    assert_eq!(decoded.events.len(), 1);
}

#[test]
fn an_error_answered_with_a_good_status_is_still_an_error() {
    let decoded = decode(&JSON, r#"{"error":{"message":"no such model","code":404}}"#);
    assert!(matches!(decoded.end, StreamEnd::ErrorBody(error) if error.code.as_deref() == Some("404")));
}

#[test]
fn a_cut_answer_is_truncated_and_another_json_is_malformed() {
    let body = r#"{"choices":[{"index":0,"message":{"content":"Blu"#;
    assert_eq!(decode(&JSON, body).end, StreamEnd::Truncated);
    for body in [r#"{"status":"ok"}"#, "{\"choices\":[]}{\"choices\":[]}", "{'choices':[]}", "[]"] {
        assert!(matches!(decode(&JSON, body).end, StreamEnd::Malformed { .. }), "{body}");
    }
}

#[test]
fn an_answer_beyond_the_bound_is_too_large_at_the_same_byte_for_every_cut() {
    let mut body = b"\n{\"x\":\"".to_vec();
    body.resize((32 << 20) + 10, b'a');
    let whole = decode_reads(&JSON, [&body[..]]);
    assert_eq!(whole.end, StreamEnd::TooLarge { offset: 1 + (32 << 20) + 1 });
    assert_eq!(decode_reads(&JSON, body.chunks(77_777)), whole);
}

#[test]
fn bytes_after_the_end_are_ignored() {
    let mut decoder = provider("openai-completions").unwrap().decoder(&STREAM);
    let mut events = Vec::new();
    decoder.feed(b"data: [DONE]\n\n", &mut events);
    assert_eq!(decoder.finish(&mut events), StreamEnd::Complete);
    decoder.feed(b"data: [DONE]\n\n", &mut events);
    assert_eq!(events.len(), 1);
}
