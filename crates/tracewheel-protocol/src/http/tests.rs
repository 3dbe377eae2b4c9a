use tracewheel_timeline::vocab::EventKind::{Error, Heartbeat, Terminal, Text};

use super::*;
use crate::StreamEnd;
use crate::known_answers::{Decoded, decode};

fn answer(content_type: &str, body: impl AsRef<[u8]>) -> Decoded {
    decode("http", &ResponseHead { status: 200, content_type: Some(content_type) }, body)
}

#[test]
fn each_event_of_a_stream_is_output_and_the_end_of_the_body_is_the_end() {
    let decoded =
        answer("text/event-stream; charset=utf-8", ": hello\n\ndata: a b\n\nevent: x\ndata: {\"n\":1}\n\n");
    assert_eq!(decoded.kinds(), [(Heartbeat, 6), (Text, 3), (Text, 7)]);
    assert_eq!(decoded.end, StreamEnd::Complete);
    assert_eq!(decoded.first_output().unwrap().end_offset, 20);
    assert_eq!(decoded.tokens(), [None, None]);
    let cut = answer("text/event-stream", "data: a\n\ndata: b");
    assert_eq!((cut.kinds(), cut.end), (vec![(Text, 1)], StreamEnd::UnterminatedTail));
    let done = answer("text/event-stream", "data: a\n\ndata: [DONE]\n\n");
    assert_eq!((done.kinds(), done.end), (vec![(Text, 1), (Terminal, 6)], StreamEnd::Complete));
}

#[test]
fn an_event_named_error_fails_the_answer() {
    let decoded = answer("text/event-stream", "data: a\n\nevent: error\ndata: {\"message\":\"no\"}\n\n");
    assert_eq!(decoded.kinds(), [(Text, 1), (Error, 16)]);
    assert!(matches!(decoded.end, StreamEnd::ErrorInStream(error) if error.message == "no"));
}

#[test]
fn each_line_of_json_is_output_also_the_last_without_its_end() {
    let decoded = answer("application/x-ndjson", "{\"a\":1}\n\n{\"b\":2}\r\n{\"c\":3}");
    assert_eq!(decoded.kinds(), [(Text, 7), (Heartbeat, 0), (Text, 7), (Text, 7)]);
    assert_eq!((decoded.end, decoded.events[3].end_offset), (StreamEnd::Complete, 25));
    let cut = answer("application/jsonl", "{\"a\":1}\n{\"b\"");
    assert_eq!((cut.kinds(), cut.end), (vec![(Text, 7)], StreamEnd::UnterminatedTail));
}

#[test]
fn the_first_byte_is_the_first_output_of_a_body_of_bytes() {
    let decoded = answer("audio/mpeg", b"\xff\xfbabc");
    assert_eq!((decoded.kinds(), decoded.end), (vec![(Text, 1), (Text, 4)], StreamEnd::Complete));
    assert_eq!((decoded.events[0].end_offset, decoded.events[1].end_offset), (1, 5));
    assert_eq!(answer("application/octet-stream", b"").kinds(), []);
}

#[test]
fn the_last_byte_is_the_first_output_of_a_plain_body() {
    for content_type in ["application/json", "text/html", "text/plain; charset=utf-8", ""] {
        let decoded = answer(content_type, "{\"half\":");
        assert_eq!((decoded.kinds(), decoded.end), (vec![(Text, 8)], StreamEnd::NonStream), "{content_type}");
        assert_eq!(decoded.events[0].end_offset, 8);
    }
    assert_eq!(answer("application/json", "").end, StreamEnd::NonStream);
}

#[test]
fn the_form_of_an_answer_may_be_chosen_against_its_content_type() {
    let head = ResponseHead { status: 200, content_type: Some("application/json") };
    for (form, kinds) in [
        (AnswerForm::Sse, vec![(Text, 1)]),
        (AnswerForm::Ndjson, vec![(Text, 7), (Heartbeat, 0)]),
        (AnswerForm::Bytes, vec![(Text, 1), (Text, 8)]),
        (AnswerForm::Plain, vec![(Text, 9)]),
    ] {
        let mut decoder = Http.decoder_of(&head, form);
        let mut events = Vec::new();
        decoder.feed(b"data: 1\n\n", &mut events);
        decoder.finish(&mut events);
        let found: Vec<_> = events.iter().map(|event| (event.kind, event.bytes)).collect();
        assert_eq!(found, kinds, "{form:?}");
    }
}

#[test]
fn an_error_status_is_an_error_whatever_its_form() {
    let head = ResponseHead { status: 503, content_type: Some("text/event-stream") };
    let decoded = decode("http", &head, "data: {\"error\":\"busy\"}\n\n");
    assert!(matches!(decoded.end, StreamEnd::ErrorBody(error) if error.message == "busy"));
}

#[test]
fn a_recorded_path_is_sent_as_it_is_where_it_can_be_and_escaped_where_not() {
    let path = |recorded| Http.path(&Place { recorded: Some(recorded), ..Place::default() }).into_owned();
    assert_eq!(path("/v1/audio/speech?voice=a%20b"), "/v1/audio/speech?voice=a%20b");
    assert_eq!(path("/a b#c"), "/a%20b%23c");
    assert_eq!(path("a"), "/a");
    assert_eq!(Http.path(&Place::default()), "/");
}
