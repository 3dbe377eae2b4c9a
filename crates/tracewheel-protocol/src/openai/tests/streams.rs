use EventKind::*;

use super::*;

#[test]
fn a_chat_stream_with_usage_decodes_to_the_known_answer() {
    let role = r#"{"id":"c1","object":"chat.completion.chunk","created":1790000000,"model":"m-1","service_tier":"default","system_fingerprint":"fp_9","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null}"#;
    let text = r#"{"id":"c1","object":"chat.completion.chunk","model":"m-1","choices":[{"index":0,"delta":{"content":"Blue"},"finish_reason":null}],"usage":null,"obfuscation":"kq3"}"#;
    let stop = r#"{"id":"c1","object":"chat.completion.chunk","model":"m-1","choices":[{"index":0,"delta":{},"finish_reason":"length"}],"usage":null}"#;
    let usage = r#"{"id":"c1","object":"chat.completion.chunk","model":"m-1","choices":[],"usage":{"prompt_tokens":1500,"completion_tokens":1,"total_tokens":1501,"prompt_tokens_details":{"cached_tokens":1280,"cache_write_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"accepted_prediction_tokens":0}}}"#;
    let decoded = decode_stream(&[role, text, stop, usage, "[DONE]"]);
    let length = |message: &str| message.len() as u32;
    assert_eq!(
        decoded.kinds(),
        [
            (Structure, length(role)),
            (Text, 4),
            (Terminal, length(stop)),
            (Usage, length(usage)),
            (Terminal, 6)
        ]
    );
    assert_eq!(decoded.end, StreamEnd::Complete);
    assert_eq!(
        decoded.usage,
        crate::Usage {
            input_tokens: Some(1500),
            cached_tokens: Some(1280),
            cache_write_tokens: Some(0),
            output_tokens: Some(1),
            reasoning_tokens: Some(0),
            input_was_exclusive: false,
        }
    );
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        decoded.meta,
        ResponseMeta {
            id: some("c1"),
            model: some("m-1"),
            system_fingerprint: some("fp_9"),
            service_tier: some("default"),
            finish_reason: some("length"),
            server_ms: None,
        }
    );
    let ends: Vec<u64> = decoded.events.iter().map(|event| event.end_offset).collect();
    let mut expected = 0;
    for (end, message) in ends.iter().zip([role, text, stop, usage, "[DONE]"]) {
        expected += message.len() as u64 + 8;
        assert_eq!(*end, expected);
    }
    assert_eq!((decoded.source, decoded.error), (None, None));
    assert_eq!(decoded.warnings, Warnings::default());
}

#[test]
fn a_stream_without_output_has_no_first_output() {
    let decoded = decode_stream(&[&chunk(r#"{"role":"assistant"}"#), &chunk("{}"), "[DONE]"]);
    assert_eq!(decoded.end, StreamEnd::Complete);
    assert_eq!(decoded.first_output(), None);
}

#[test]
fn every_token_carrier_has_its_kind() {
    assert_eq!(kinds_of_delta(r#"{"content":"Bl\u00fce\n"}"#), [(Text, 6)]);
    assert_eq!(kinds_of_delta(r#"{"reasoning":"hm"}"#), [(Reasoning, 2)]);
    assert_eq!(kinds_of_delta(r#"{"reasoning_content":"hmm"}"#), [(Reasoning, 3)]);
    assert_eq!(kinds_of_delta(r#"{"refusal":"no"}"#), [(Refusal, 2)]);
    assert_eq!(
        kinds_of_delta(
            r#"{"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"f","arguments":""}}]}"#
        ),
        [(ToolArgs, 1)]
    );
    assert_eq!(
        kinds_of_delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\""}}]}"#),
        [(ToolArgs, 4)]
    );
    assert_eq!(kinds_of_delta(r#"{"function_call":{"name":"f","arguments":"{}"}}"#), [(ToolArgs, 3)]);
    assert_eq!(kinds_of_delta(r#"{"audio":{"id":"a","data":"AAAA"}}"#), [(Opaque, 5)]);
}

#[test]
fn reasoning_sent_under_both_names_counts_once() {
    assert_eq!(kinds_of_delta(r#"{"reasoning":"hm","reasoning_content":"hm"}"#), [(Reasoning, 2)]);
    assert_eq!(
        kinds_of_delta(r#"{"reasoning":null,"reasoning_content":"hm","content":null}"#),
        [(Reasoning, 2)]
    );
}

#[test]
fn one_chunk_may_carry_several_kinds_and_all_share_its_end() {
    let decoded = decode_stream(&[&chunk(r#"{"content":"Blue","reasoning":"hm"}"#), "[DONE]"]);
    assert_eq!(decoded.kinds()[..2], [(Reasoning, 2), (Text, 4)]);
    assert_eq!(decoded.events[0].end_offset, decoded.events[1].end_offset);
}

#[test]
fn content_in_parts_is_told_apart() {
    assert_eq!(
        kinds_of_delta(r#"{"content":[{"type":"text","text":"Blue"},{"type":"text","text":"!"}]}"#),
        [(Text, 5)]
    );
    assert_eq!(
        kinds_of_delta(r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}"#),
        [(Reasoning, 2)]
    );
}

#[test]
fn whatever_a_clone_leaves_out_or_empties_is_accepted() {
    for message in [
        r#"{"choices":[]}"#,
        r#"{"choices":null}"#,
        r#"{"choices":[{"index":0}]}"#,
        r#"{"choices":[{"index":0,"delta":null}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":null}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":""}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"","reasoning":"","tool_calls":[],"refusal":""}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":7,"tool_calls":{}}}],"usage":"none"}"#,
        r#"{"choices":[{"index":0,"delta":"x","finish_reason":""}],"usage":{}}"#,
        r#"{"choices":[null,7,[]],"usage":null,"error":null}"#,
        r#"{"choices":{"0":{}},"unknown":{"deep":[1,{"x":null}]}}"#,
        r#"{"id":7,"model":null,"object":[],"choices":[{"index":-1,"delta":{}}]}"#,
    ] {
        let decoded = decode_stream(&[message, "[DONE]"]);
        assert_eq!(decoded.kinds(), [(Structure, message.len() as u32), (Terminal, 6)], "{message}");
        assert_eq!(decoded.end, StreamEnd::Complete, "{message}");
        assert_eq!(decoded.warnings, Warnings::default(), "{message}");
        assert!(decoded.usage.is_unknown(), "{message}");
    }
}

#[test]
fn messages_without_choices_are_counted_and_not_fatal() {
    for message in [r#"{"type":"control","seq":1}"#, "{}", "7", "\"x\"", "[]", "null", "true"] {
        let decoded = decode_stream(&[message, "[DONE]"]);
        assert_eq!(decoded.kinds(), [(Meta, message.len() as u32), (Terminal, 6)], "{message}");
        assert_eq!((&decoded.end, decoded.warnings.unknown_messages), (&StreamEnd::Complete, 1), "{message}");
    }
}

#[test]
fn filter_annotations_of_azure_are_meta() {
    for message in [
        r#"{"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":{}}]}"#,
        r#"{"choices":[],"prompt_annotations":[{"prompt_index":0}]}"#,
        r#"{"choices":[{"index":0,"finish_reason":null,"content_filter_results":{"hate":{"filtered":false}},"content_filter_offsets":{"check_offset":44}}],"id":"","model":""}"#,
        r#"{"id":"c","choices":[],"moderation":{"flagged":false}}"#,
    ] {
        let decoded = decode_stream(&[message, &chunk(r#"{"content":"a"}"#), "[DONE]"]);
        assert_eq!(decoded.kinds(), [(Meta, message.len() as u32), (Text, 1), (Terminal, 6)]);
        assert_eq!(decoded.meta.model.as_deref(), Some("m"), "empty names are no names");
        assert_eq!(decoded.warnings, Warnings::default());
    }
}

#[test]
fn usage_may_come_with_choices_that_say_nothing_and_with_text() {
    let gateway = r#"{"choices":[{"index":0,"delta":{}}],"usage":{"prompt_tokens":5,"completion_tokens":2}}"#;
    let decoded = decode_stream(&[&chunk(r#"{"content":"a"}"#), gateway, "[DONE]"]);
    assert_eq!(decoded.kinds()[1], (Usage, gateway.len() as u32));
    assert_eq!(decoded.usage.output_tokens, Some(2));

    let last = r#"{"choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":9}}"#;
    let decoded = decode_stream(&[&chunk(r#"{"content":"a"}"#), last, "[DONE]"]);
    assert_eq!(decoded.kinds(), [(Text, 1), (Text, 1), (Terminal, 6)]);
    assert_eq!(decoded.usage.output_tokens, Some(9));
    assert_eq!(decoded.tokens(), [None, None], "the total of a whole answer is not the last chunk's");
    assert_eq!(decoded.meta.finish_reason.as_deref(), Some("stop"));
}

#[test]
fn cached_tokens_are_known_zero_or_unknown() {
    let cached = |usage: &str| {
        let message = format!(r#"{{"choices":[],"usage":{usage}}}"#);
        decode_stream(&[&message, "[DONE]"]).usage.cached_tokens
    };
    assert_eq!(cached(r#"{"prompt_tokens":9,"completion_tokens":1}"#), None);
    assert_eq!(cached(r#"{"prompt_tokens":9,"prompt_tokens_details":null}"#), None);
    assert_eq!(cached(r#"{"prompt_tokens":9,"prompt_tokens_details":{}}"#), None);
    assert_eq!(cached(r#"{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":0}}"#), Some(0));
    assert_eq!(cached(r#"{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":8}}"#), Some(8));
    assert_eq!(
        cached(r#"{"prompt_tokens":9,"prompt_cache_hit_tokens":4,"prompt_cache_miss_tokens":5}"#),
        Some(4)
    );
    let both = r#"{"cache_read_input_tokens":3,"prompt_tokens_details":{"cached_tokens":8},"cached_tokens":2,"prompt_tokens":9}"#;
    assert_eq!(cached(both), Some(8), "the details win");
}

#[test]
fn usage_that_leaves_cached_tokens_out_is_brought_to_the_inclusive_form() {
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":40,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4096}}}"#;
    let usage = decode_stream(&[usage, "[DONE]"]).usage;
    assert_eq!((usage.input_tokens, usage.input_was_exclusive), (Some(4136), true));
}

#[test]
fn sglang_reports_reasoning_tokens_beside_the_details() {
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":30,"reasoning_tokens":20},"sglext":{"cached_tokens_details":{"device":0}}}"#;
    assert_eq!(decode_stream(&[usage, "[DONE]"]).usage.reasoning_tokens, Some(20));
    let abort = r#"{"choices":[{"index":0,"delta":{"reasoning_content":null},"finish_reason":"abort","matched_stop":null}]}"#;
    assert_eq!(decode_stream(&[abort, "[DONE]"]).meta.finish_reason.as_deref(), Some("abort"));
}

#[test]
fn prompt_progress_of_llama_cpp_is_progress() {
    let message = r#"{"choices":[{"index":0,"delta":{}}],"prompt_progress":{"total":90,"cache":0,"processed":30,"time_ms":4}}"#;
    assert_eq!(decode_stream(&[message, "[DONE]"]).kinds()[0], (Progress, message.len() as u32));
}

#[test]
fn choices_are_told_apart_by_their_index() {
    let both = r#"{"choices":[{"index":1,"delta":{"content":"bb"}},{"index":0,"delta":{"content":"a"}}]}"#;
    let far = r#"{"choices":[{"index":700,"delta":{"content":"c"}}]}"#;
    let decoded = decode_stream(&[both, far, "[DONE]"]);
    let seen: Vec<(u8, u32)> = decoded.events.iter().map(|event| (event.choice, event.bytes)).collect();
    assert_eq!(seen, [(1, 2), (0, 1), (255, 1), (0, 6)]);
}

#[test]
fn completions_carry_text_in_the_choice() {
    let first = r#"{"id":"cmpl-1","object":"text_completion","model":"m","choices":[{"index":0,"text":" Blue","logprobs":null,"finish_reason":null,"stop_reason":null}],"usage":null}"#;
    let last = r#"{"id":"cmpl-1","object":"text_completion","choices":[{"index":0,"text":"","finish_reason":"length"}]}"#;
    let decoded = decode_stream(&[first, last, "[DONE]"]);
    assert_eq!(decoded.kinds(), [(Text, 5), (Terminal, last.len() as u32), (Terminal, 6)]);
}

#[test]
fn signs_of_life_are_heartbeats() {
    let body = ": OPENROUTER PROCESSING\n\n:\n\ndata:\n\ndata: : keep-alive\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n\
                : cost=0.1\n\ndata: [DONE]\n\n";
    let decoded = decode(&STREAM, body);
    assert_eq!(
        decoded.kinds(),
        [
            (Heartbeat, 22),
            (Heartbeat, 0),
            (Heartbeat, 0),
            (Heartbeat, 12),
            (Heartbeat, 15),
            (Heartbeat, 9),
            (Terminal, 6)
        ]
    );
    assert_eq!(decoded.warnings, Warnings { wrapped_comments: 1, ..Warnings::default() });
    assert_eq!(decoded.end, StreamEnd::Complete);
}

#[test]
fn the_end_marker_is_a_beginning() {
    for done in ["[DONE]", "[DONE] ", "[DONE]{}", " [DONE]"] {
        assert_eq!(decode_stream(&[done]).end, StreamEnd::Complete, "{done}");
    }
    assert_ne!(decode_stream(&["[done]"]).end, StreamEnd::Complete);
}

#[test]
fn what_follows_the_end_marker_is_counted_and_changes_nothing() {
    let decoded = decode(&STREAM, "data: [DONE]\n\n: bye\n\ndata: {\"x\n\ndata: tail");
    assert_eq!(decoded.kinds(), [(Terminal, 6), (Heartbeat, 4), (Meta, 3)]);
    assert_eq!(decoded.warnings.after_terminal, 1);
    assert_eq!(decoded.end, StreamEnd::Complete);
}

#[test]
fn a_stream_that_ends_without_its_end_marker_has_failed() {
    let text = chunk(r#"{"content":"a"}"#);
    let stop = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    assert_eq!(decode_stream(&[&text, stop]).end, StreamEnd::Truncated);
    assert_eq!(decode(&STREAM, "").end, StreamEnd::Truncated);
    assert_eq!(decode(&STREAM, "\n: ping\n\n").end, StreamEnd::Truncated);
    assert_eq!(decode(&STREAM, format!("data: {text}\n\ndata: [DONE]\n")).end, StreamEnd::UnterminatedTail);
    assert_eq!(decode(&STREAM, format!("data: {text}\n\ndata: {{\"cho")).end, StreamEnd::UnterminatedTail);
    assert!(!StreamEnd::Truncated.is_success() && !StreamEnd::UnterminatedTail.is_success());
}

#[test]
fn unknown_event_names_are_counted_and_their_messages_still_read() {
    let body = format!(
        "event: gateway.note\ndata: not json\n\nevent: completion.chunk\ndata: {}\n\ndata: [DONE]\n\n",
        chunk(r#"{"content":"a"}"#)
    );
    let decoded = decode(&STREAM, body);
    assert_eq!(decoded.kinds(), [(Meta, 8), (Text, 1), (Terminal, 6)]);
    assert_eq!((decoded.warnings.unknown_names, decoded.end), (2, StreamEnd::Complete));
}

#[test]
fn padding_around_a_message_is_nothing() {
    let padded = format!("  {}    \t", chunk(r#"{"content":"a"}"#));
    assert_eq!(decode_stream(&[&padded, "[DONE]"]).kinds(), [(Text, 1), (Terminal, 6)]);
}

#[test]
fn a_byte_order_mark_before_the_stream_is_skipped() {
    let decoded = decode(&STREAM, format!("\u{feff}{}", stream(&[&chunk(r#"{"content":"a"}"#), "[DONE]"])));
    assert_eq!((decoded.kinds().len(), decoded.end), (2, StreamEnd::Complete));
}

#[test]
fn halves_of_surrogate_pairs_cut_between_chunks_are_text() {
    let decoded =
        decode_stream(&[&chunk(r#"{"content":"\ud83d"}"#), &chunk(r#"{"content":"\ude00"}"#), "[DONE]"]);
    assert_eq!(
        (decoded.kinds(), decoded.end),
        (vec![(Text, 3), (Text, 3), (Terminal, 6)], StreamEnd::Complete)
    );
}

#[test]
fn a_stream_is_known_by_its_first_byte_whatever_its_content_type() {
    let body = stream(&[&chunk(r#"{"content":"a"}"#), "[DONE]"]);
    for content_type in [
        None,
        Some(""),
        Some("application/json"),
        Some("text/plain"),
        Some("text/event-stream; charset=utf-8"),
    ] {
        let decoded = decode(&ResponseHead { status: 200, content_type }, &body);
        assert_eq!(decoded.end, StreamEnd::Complete);
    }
}

#[test]
fn vllms_own_times_are_the_servers_from_the_queue_to_the_last_token() {
    let times = |metrics: &str| {
        let usage = format!(
            "{{\"choices\":[],\"usage\":{{\"prompt_tokens\":3,\"completion_tokens\":2}},\"metrics\":{metrics}}}"
        );
        decode_stream(&["{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"w\"}}]}", &usage, "[DONE]"])
            .meta
            .server_ms
    };
    let all = "{\"time_to_first_token_ms\":120.4,\"generation_time_ms\":1000.0,\"queue_time_ms\":30.3,\"mean_itl_ms\":10.1,\"tokens_per_second\":90.0}";
    assert_eq!(times(all), Some(1_151));
    assert_eq!(times("{\"time_to_first_token_ms\":120.4,\"generation_time_ms\":0.2}"), Some(121));
    for nothing in [
        "null",
        "{}",
        "{\"queue_time_ms\":4.0}",
        "[1]",
        "{\"time_to_first_token_ms\":null,\"generation_time_ms\":1}",
    ] {
        assert_eq!(times(nothing), None, "{nothing}");
    }
}
