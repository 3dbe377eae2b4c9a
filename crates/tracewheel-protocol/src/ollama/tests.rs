use tracewheel_timeline::vocab::EventKind::{Error, Meta, Reasoning, Structure, Terminal, Text, ToolArgs};

use crate::known_answers::{Decoded, decode};
use crate::{RenderRequest, ResponseHead, StreamEnd, provider};

fn chat(lines: &[&str]) -> Decoded {
    let head = ResponseHead { status: 200, content_type: Some("application/x-ndjson") };
    decode("ollama-chat", &head, lines.concat())
}

const LAST: &str = "{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,\
    \"done_reason\":\"length\",\"total_duration\":1500000000,\"prompt_eval_count\":12,\"eval_count\":2}\n";

#[test]
fn a_line_is_an_event_and_the_last_one_has_the_counts() {
    let decoded = chat(&[
        "{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"hm\"},\"done\":false}\n",
        "{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"Blu\u{e9}\"},\"done\":false}\n",
        "{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":false}\n",
        "{\"message\":{\"tool_calls\":[{\"function\":{\"name\":\"add\",\"arguments\":{\"a\":\"xy\"}}}]},\"done\":false}\n",
        "{\"note\":1}\n",
        LAST,
    ]);
    let kinds: Vec<_> = decoded.events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [Reasoning, Text, Structure, ToolArgs, Meta, Terminal]);
    assert_eq!((decoded.events[1].bytes, decoded.events[3].bytes), (5, 5));
    assert_eq!(decoded.end, StreamEnd::Complete);
    assert_eq!((decoded.usage.input_tokens, decoded.usage.output_tokens), (Some(12), Some(2)));
    assert_eq!(decoded.usage.cached_tokens, None, "no report is not zero");
    assert_eq!((decoded.meta.finish_reason.as_deref(), decoded.meta.server_ms), (Some("length"), Some(1500)));
    assert_eq!(decoded.warnings.unknown_messages, 1);
}

#[test]
fn without_the_last_line_a_stream_is_truncated_and_half_a_line_is_told_apart() {
    let line = "{\"message\":{\"content\":\"a\"},\"done\":false}\n";
    assert_eq!(chat(&[line]).end, StreamEnd::Truncated);
    assert_eq!(chat(&[line, "{\"message\":{\"con"]).end, StreamEnd::UnterminatedTail);
    assert_eq!(chat(&[]).end, StreamEnd::Truncated);
    assert_eq!(chat(&[line, LAST.trim_end()]).end, StreamEnd::Complete, "the last line end may be missing");
    assert!(matches!(chat(&[line, "{oops}\n", LAST]).end, StreamEnd::Malformed { offset: 48, .. }));
}

#[test]
fn an_error_within_a_good_answer_is_an_error() {
    let decoded =
        chat(&["{\"message\":{\"content\":\"a\"},\"done\":false}\n", "{\"error\":\"out of memory\"}\n"]);
    assert_eq!(decoded.events[1].kind, Error);
    assert!(matches!(decoded.end, StreamEnd::ErrorInStream(error) if error.message == "out of memory"));
}

#[test]
fn a_plain_answer_is_one_line_that_is_done() {
    let head = ResponseHead { status: 200, content_type: Some("application/json; charset=utf-8") };
    let body =
        "{\"model\":\"m\",\"response\":\"Blue sky\",\"done\":true,\"prompt_eval_count\":3,\"eval_count\":2}";
    let decoded = decode("ollama-generate", &head, body);
    assert_eq!(decoded.kinds(), [(Text, 8), (Terminal, 84)]);
    assert_eq!((decoded.end, decoded.usage.output_tokens), (StreamEnd::Complete, Some(2)));
}

#[test]
fn requests_have_exactly_these_bytes() {
    let request = RenderRequest {
        model: "m",
        prompt: "p\n",
        max_tokens: 7,
        force_length: true,
        params: Some("{\"seed\":3}"),
        ..RenderRequest::default()
    };
    let body = |name: &str| {
        let mut out = Vec::new();
        provider(name).unwrap().render(&request, &mut out);
        String::from_utf8(out).unwrap()
    };
    let options = "\"options\":{\"num_predict\":7,\"temperature\":0.0,\"seed\":3},\"stream\":true}";
    let chat =
        format!("{{\"model\":\"m\",\"messages\":[{{\"role\":\"user\",\"content\":\"p\\n\"}}],{options}");
    assert_eq!(body("ollama-chat"), chat);
    assert_eq!(body("ollama-generate"), format!("{{\"model\":\"m\",\"prompt\":\"p\\n\",{options}"));
}
