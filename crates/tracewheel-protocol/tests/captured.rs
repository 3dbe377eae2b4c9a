//! What real servers sent, byte for byte, asked for three tokens: llama.cpp's after a prompt that it had seen before, and
//! LiteLLM's proxy before the mock. `docs/proofs.md` tells of both.

use tracewheel_protocol::{Event, ResponseHead, StreamEnd, Usage, provider};
use tracewheel_timeline::vocab::EventKind::{self, Meta, Structure, Terminal, Text};

struct Decoded {
    kinds: Vec<EventKind>,
    end: StreamEnd,
    usage: Usage,
    finish_reason: Option<String>,
    unknown: u32,
}

fn decode(protocol: &str, content_type: &str, body: &[u8]) -> Decoded {
    let head = ResponseHead { status: 200, content_type: Some(content_type) };
    let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut decoder = provider(protocol).expect("it is in the table").decoder(&head);
        let mut events: Vec<Event> = Vec::new();
        pieces.for_each(|piece| decoder.feed(piece, &mut events));
        let end = decoder.finish(&mut events);
        (events, end, decoder)
    };
    let (events, end, decoder) = read(&mut [body].into_iter());
    for size in [1, 7, 100] {
        assert_eq!(read(&mut body.chunks(size)).0, events, "in pieces of {size}");
    }
    Decoded {
        kinds: events.iter().map(|event| event.kind).collect(),
        end,
        usage: *decoder.usage(),
        finish_reason: decoder.meta().finish_reason.clone(),
        unknown: decoder.warnings().unknown_names + decoder.warnings().unknown_messages,
    }
}

fn outputs(decoded: &Decoded) -> Vec<EventKind> {
    decoded.kinds.iter().copied().filter(|kind| kind.is_output()).collect()
}

fn counts(decoded: &Decoded) -> (Option<u32>, Option<u32>, Option<u32>) {
    (decoded.usage.input_tokens, decoded.usage.cached_tokens, decoded.usage.output_tokens)
}

const STREAM: &str = "text/event-stream";

#[test]
fn a_chat_of_llama_cpp_begins_with_a_null_content_and_ends_with_usage_beside_timings() {
    let decoded = decode("openai-chat", STREAM, include_bytes!("captured/llama-chat.sse"));
    assert_eq!(decoded.end, StreamEnd::Complete);
    assert_eq!(decoded.kinds[..5], [Structure, Text, Text, Text, Terminal]);
    assert_eq!(decoded.kinds.last(), Some(&Terminal));
    assert_eq!((counts(&decoded), decoded.unknown), ((Some(39), Some(38), Some(3)), 0));
    assert_eq!(decoded.finish_reason.as_deref(), Some("length"));
}

#[test]
fn progress_of_the_prompt_is_no_output() {
    let decoded = decode("openai-chat", STREAM, include_bytes!("captured/llama-progress.sse"));
    assert_eq!(decoded.end, StreamEnd::Complete);
    let first = decoded.kinds.iter().position(|kind| kind.is_output());
    assert_eq!((first, outputs(&decoded)), (Some(3), vec![Text; 3]));
    assert_eq!(counts(&decoded), (Some(39), Some(38), Some(3)));
}

#[test]
fn a_completion_of_llama_cpp_has_its_usage_on_the_chunk_that_finishes() {
    let decoded = decode("openai-completions", STREAM, include_bytes!("captured/llama-completions.sse"));
    assert_eq!((decoded.end.clone(), outputs(&decoded)), (StreamEnd::Complete, vec![Text; 3]));
    assert_eq!(counts(&decoded), (Some(9), Some(8), Some(3)));
    assert_eq!(decoded.finish_reason.as_deref(), Some("length"));
}

#[test]
fn messages_of_llama_cpp_count_cached_input_apart_and_say_nothing_of_writes() {
    let decoded = decode("anthropic-messages", STREAM, include_bytes!("captured/llama-messages.sse"));
    assert_eq!((decoded.end.clone(), outputs(&decoded)), (StreamEnd::Complete, vec![Text; 3]));
    assert_eq!((counts(&decoded), decoded.usage.cache_write_tokens), ((Some(39), Some(38), Some(3)), None));
    assert_eq!(decoded.finish_reason.as_deref(), Some("max_tokens"));
}

#[test]
fn responses_of_llama_cpp_have_no_event_numbers_and_are_completed_at_the_cap() {
    let decoded = decode("openai-responses", STREAM, include_bytes!("captured/llama-responses.sse"));
    assert_eq!((decoded.end.clone(), outputs(&decoded)), (StreamEnd::Complete, vec![Text; 3]));
    assert_eq!((counts(&decoded), decoded.unknown), ((Some(39), Some(38), Some(3)), 0));
    assert!(!decoded.kinds.contains(&Meta));
}

#[test]
fn a_plain_answer_of_llama_cpp_is_read_whole() {
    let decoded =
        decode("openai-chat", "application/json; charset=utf-8", include_bytes!("captured/llama-chat.json"));
    assert_eq!((decoded.end.clone(), outputs(&decoded)), (StreamEnd::NonStream, vec![Text]));
    assert_eq!(counts(&decoded), (Some(39), Some(38), Some(3)));
}

#[test]
fn a_usage_chunk_of_litellm_has_a_choice_with_nothing_in_it() {
    let decoded = decode("openai-chat", STREAM, include_bytes!("captured/litellm-chat.sse"));
    assert_eq!((decoded.end.clone(), outputs(&decoded)), (StreamEnd::Complete, vec![Text; 3]));
    assert_eq!(counts(&decoded), (Some(6), Some(0), Some(3)));
}
