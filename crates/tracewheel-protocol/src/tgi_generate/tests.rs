use tracewheel_timeline::vocab::EventKind::{Error, Structure, Terminal, Text, Usage as UsageEvent};

use super::*;
use crate::StreamEnd;
use crate::known_answers::{JSON, STREAM, decode, stream};

const LAST: &str = r#"{"index":4,"token":{"id":9,"text":" sky","logprob":-0.5,"special":false},"generated_text":"Blue é sky","details":{"finish_reason":"length","generated_tokens":4,"input_length":11,"seed":null}}"#;

#[test]
fn an_event_is_a_token_and_the_last_one_is_the_end() {
    let body = stream(&[
        r#"{"index":1,"token":{"id":5,"text":"Blue","logprob":-0.1,"special":false},"generated_text":null,"details":null}"#,
        r#"{"index":2,"token":{"id":6,"text":"","logprob":-0.1,"special":false},"generated_text":null,"details":null}"#,
        r#"{"index":3,"token":{"id":7,"text":" é","logprob":-0.1,"special":false},"generated_text":null,"details":null}"#,
        LAST,
    ])
    .replace("data: ", "data:");
    let decoded = decode("tgi-generate", &STREAM, body);
    let kinds: Vec<_> = decoded.events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [Text, Structure, Text, Text, Terminal]);
    assert_eq!(decoded.tokens(), [Some(1), Some(2), Some(1)], "half a character counts with its other half");
    assert_eq!((decoded.end, decoded.source), (StreamEnd::Complete, Some(TokenSource::TokenIds)));
    assert_eq!((decoded.usage.input_tokens, decoded.usage.output_tokens), (Some(11), Some(4)));
    assert_eq!(decoded.meta.finish_reason.as_deref(), Some("length"));
}

#[test]
fn a_special_token_is_no_output_and_a_stream_without_its_last_event_is_truncated() {
    let special = r#"{"token":{"id":2,"text":"</s>","special":true},"generated_text":null,"details":null}"#;
    let decoded = decode("tgi-generate", &STREAM, stream(&[special]));
    assert_eq!((decoded.events[0].kind, decoded.end), (Structure, StreamEnd::Truncated));
}

#[test]
fn an_error_in_a_stream_and_a_plain_answer_in_an_array_are_read() {
    let decoded = decode(
        "tgi-generate",
        &STREAM,
        stream(&[r#"{"error":"Model is overloaded","error_type":"overloaded"}"#]),
    );
    assert_eq!(decoded.events[0].kind, Error);
    assert!(matches!(decoded.end, StreamEnd::ErrorInStream(error) if error.message == "Model is overloaded"));
    let body = r#"[{"generated_text":"Blue","details":{"finish_reason":"length","generated_tokens":1}}]"#;
    let decoded = decode("tgi-generate", &JSON, body);
    assert_eq!(decoded.kinds(), [(Text, 4), (UsageEvent, body.len() as u32)]);
    assert_eq!(decoded.end, StreamEnd::NonStream);
}

#[test]
fn what_the_server_would_refuse_is_left_out_of_a_request() {
    let body = |params: Option<&str>| {
        let request = RenderRequest { prompt: "p", max_tokens: 7, params, ..RenderRequest::default() };
        let mut out = Vec::new();
        TgiGenerate.render(&request, &mut out);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(body(None), r#"{"inputs":"p","parameters":{"max_new_tokens":7,"details":true}}"#);
    assert_eq!(
        body(Some(r#"{"temperature":0.5,"top_p":1,"seed":3}"#)),
        r#"{"inputs":"p","parameters":{"max_new_tokens":7,"temperature":0.5,"do_sample":true,"seed":3,"details":true}}"#
    );
    let path = |stream| TgiGenerate.path(&Place { stream, ..Place::default() }).into_owned();
    assert_eq!((path(true), path(false)), ("/generate_stream".to_owned(), "/generate".to_owned()));
}
