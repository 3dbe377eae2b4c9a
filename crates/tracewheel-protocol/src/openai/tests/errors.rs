use super::*;

fn error_in_stream(messages: &[&str]) -> ErrorDetail {
    let decoded = decode_stream(messages);
    assert!(decoded.events.iter().any(|event| event.kind == EventKind::Error));
    match decoded.end {
        StreamEnd::ErrorInStream(error) => {
            assert_eq!(decoded.error.as_ref(), Some(&error));
            error
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_error_object_in_a_stream_fails_it_even_before_the_end_marker() {
    let vllm = r#"{"error":{"message":"engine died","type":"InternalServerError","param":null,"code":500}}"#;
    let error = error_in_stream(&[&chunk(r#"{"content":"a"}"#), vllm, "[DONE]"]);
    assert_eq!((error.message.as_str(), error.code.as_deref()), ("engine died", Some("500")));
    assert_eq!((error.kind.as_deref(), error.body.as_str()), (Some("InternalServerError"), vllm));
    let openrouter = r#"{"id":"g","choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}],"error":{"code":502,"message":"gone"}}"#;
    assert_eq!(error_in_stream(&[openrouter]).message, "gone");
    assert_eq!(
        error_in_stream(&[r#"{"object":"error","message":"old form","code":400}"#]).message,
        "old form"
    );
    assert_eq!(
        error_in_stream(&[r#"[{"error":{"code":429,"message":"in an array"}}]"#]).message,
        "in an array"
    );
    assert_eq!(error_in_stream(&[r#"{"error":"just words"}"#, "[DONE]"]).message, "just words");
}

#[test]
fn the_first_error_counts() {
    assert_eq!(
        error_in_stream(&[r#"{"error":"first"}"#, r#"{"error":"second"}"#, "[DONE]"]).message,
        "first"
    );
}

#[test]
fn an_event_named_error_is_one_whatever_it_says() {
    let decoded = decode(&STREAM, "event: error\ndata: overloaded\n\ndata: [DONE]\n\n");
    assert!(matches!(decoded.end, StreamEnd::ErrorInStream(error) if error.message == "overloaded"));
}

#[test]
fn an_empty_error_is_none() {
    for error in ["null", "\"\"", "{}", "false", "0", "[]"] {
        let message = format!(r#"{{"error":{error},"choices":[{{"index":0,"delta":{{"content":"a"}}}}]}}"#);
        let decoded = decode_stream(&[&message, "[DONE]"]);
        assert_eq!((decoded.end, decoded.error), (StreamEnd::Complete, None), "{error}");
    }
}

#[test]
fn a_message_that_is_no_json_fails_the_stream_but_not_the_events_after_it() {
    let broken = r#"{"choices":[{"index":0,"delta":{"content":"a"#;
    let decoded = decode_stream(&[broken, &chunk(r#"{"content":"b"}"#), "[DONE]"]);
    assert_eq!(
        decoded.kinds(),
        [(EventKind::Error, broken.len() as u32), (EventKind::Text, 1), (EventKind::Terminal, 6)]
    );
    match decoded.end {
        StreamEnd::Malformed { offset, what } => {
            assert_eq!(offset, broken.len() as u64 + 8);
            assert!(what.starts_with("invalid JSON: ") && !what.contains("content"), "{what}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn json_nested_without_end_is_malformed_and_does_not_overflow_the_stack() {
    let deep = format!(r#"{{"choices":[{{"delta":{{"content":{}"#, "[".repeat(100_000));
    let decoded = decode_reads(&STREAM, [stream(&[&deep, "[DONE]"]).as_bytes()]);
    assert!(matches!(decoded.end, StreamEnd::Malformed { .. }));
}

#[test]
fn an_event_beyond_the_bound_is_too_large_and_ends_the_reading() {
    let mut body = stream(&[&chunk(r#"{"content":"a"}"#)]).into_bytes();
    let start = body.len() as u64;
    body.extend_from_slice(b"data: ");
    body.resize(body.len() + (32 << 20), b'x');
    body.extend_from_slice(b"\n\ndata: [DONE]\n\n");
    let whole = decode_reads(&STREAM, [&body[..]]);
    assert_eq!(whole.end, StreamEnd::TooLarge { offset: start + (32 << 20) + 1 });
    let kinds: Vec<EventKind> = whole.events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::Text, EventKind::Error]);
    assert_eq!(decode_reads(&STREAM, body.chunks(50_000)), whole);
}

#[test]
fn an_error_status_is_an_error_body_however_it_is_framed() {
    let json = r#"{"error":{"message":"slow down","type":"rate_limit_error","code":"rate_limit_exceeded"}}"#;
    let framed = format!("data: {json}\n\n");
    let unterminated = format!("data: {json}");
    for (body, content_type) in [
        (json, "application/json"),
        (framed.as_str(), "text/event-stream"),
        (&unterminated, "text/event-stream"),
    ] {
        let decoded = decode(&ResponseHead { status: 429, content_type: Some(content_type) }, body);
        match decoded.end {
            StreamEnd::ErrorBody(error) => {
                assert_eq!(
                    (error.message.as_str(), error.kind.as_deref()),
                    ("slow down", Some("rate_limit_error"))
                );
                assert_eq!(error.body, json);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(decoded.events.len(), 1);
        assert_eq!(decoded.events[0].end_offset, body.len() as u64);
    }
}

#[test]
fn an_error_page_is_kept_to_two_kibibytes() {
    let page = format!("<html>{}</html>", "x".repeat(300_000));
    let head = ResponseHead { status: 502, content_type: Some("text/html") };
    let decoded = decode_reads(&head, page.as_bytes().chunks(1000));
    match decoded.end {
        StreamEnd::ErrorBody(error) => {
            assert_eq!(error.body.len(), 2048);
            assert!(error.message.starts_with("<html>xxx"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(decoded.events[0].end_offset, page.len() as u64);
}

#[test]
fn an_error_status_without_a_body_is_an_error_without_words() {
    let decoded = decode(&ResponseHead { status: 503, content_type: None }, "");
    assert_eq!((decoded.events.len(), decoded.end), (0, StreamEnd::ErrorBody(ErrorDetail::default())));
}

#[test]
fn a_page_in_the_place_of_an_answer_is_malformed() {
    let decoded = decode(
        &ResponseHead { status: 200, content_type: Some("Text/HTML; charset=utf-8") },
        "<html>login</html>",
    );
    match decoded.end {
        StreamEnd::Malformed { what, .. } => assert!(what.contains("Text/HTML"), "{what}"),
        other => panic!("{other:?}"),
    }
}
