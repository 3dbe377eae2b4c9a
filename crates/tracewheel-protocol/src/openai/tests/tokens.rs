use super::*;

fn with_ids(delta: &str, ids: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{delta},"token_ids":{ids}}}]}}"#)
}

fn with_total(delta: &str, total: u32) -> String {
    format!(
        r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}],"usage":{{"prompt_tokens":9,"completion_tokens":{total},"total_tokens":99}}}}"#
    )
}

#[test]
fn token_ids_of_vllm_are_the_tokens_of_their_chunk() {
    let decoded = decode_stream(&[
        r#"{"prompt_token_ids":[1,2,3],"choices":[{"index":0,"delta":{"role":"assistant","content":""},"token_ids":null}]}"#,
        &with_ids(r#"{"content":"Blue sky"}"#, "[5,6]"),
        &with_ids(r#"{"content":""}"#, "[7]"),
        &with_ids(r#"{"content":"\u00e9"}"#, "[8]"),
        &with_ids("{}", "[9]"),
        "[DONE]",
    ]);
    assert_eq!(decoded.tokens(), [Some(2), Some(2)], "a token without text counts with the next text");
    assert_eq!(decoded.source, Some(TokenSource::TokenIds));
}

#[test]
fn a_running_total_gives_the_tokens_of_each_chunk() {
    let decoded = decode_stream(&[
        &with_total(r#"{"role":"assistant","content":""}"#, 0),
        &with_total(r#"{"content":"a"}"#, 1),
        &with_total(r#"{"content":"bcd"}"#, 4),
        &with_total(r#"{"content":""}"#, 5),
        &with_total(r#"{"reasoning":"e"}"#, 6),
        &with_total("{}", 7),
        r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":7}}"#,
        "[DONE]",
    ]);
    assert_eq!(decoded.tokens(), [Some(1), Some(3), Some(2)]);
    assert_eq!(decoded.source, Some(TokenSource::ContinuousUsage));
    assert_eq!(decoded.usage.output_tokens, Some(7));
    let kinds: Vec<EventKind> = decoded.events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds[0], EventKind::Structure, "a role with a running total is still structure");
    assert_eq!(kinds[6], EventKind::Usage);
}

#[test]
fn token_ids_win_over_a_running_total() {
    let message = r#"{"choices":[{"index":0,"delta":{"content":"a"},"token_ids":[4,5]}],"usage":{"completion_tokens":3}}"#;
    let decoded = decode_stream(&[message, "[DONE]"]);
    assert_eq!((decoded.tokens(), decoded.source), (vec![Some(2)], Some(TokenSource::TokenIds)));
}

#[test]
fn a_total_that_starts_late_stands_still_or_falls_says_nothing() {
    let decoded = decode_stream(&[
        &chunk(r#"{"content":"a"}"#),
        &with_total(r#"{"content":"b"}"#, 5),
        &with_total(r#"{"content":"c"}"#, 6),
        &with_total(r#"{"content":"d"}"#, 6),
        &with_total(r#"{"content":"e"}"#, 2),
        "[DONE]",
    ]);
    assert_eq!(decoded.tokens(), [None, None, Some(1), None, None]);
    let decoded = decode_stream(&[
        &with_ids(r#"{"content":"a"}"#, "[]"),
        &with_total(r#"{"content":"b"}"#, 70_000),
        "[DONE]",
    ]);
    assert_eq!((decoded.tokens(), decoded.source), (vec![None, None], None));
}

#[test]
fn running_totals_of_several_choices_are_kept_apart() {
    let of = |index: u32, total: u32| {
        format!(r#"{{"choices":[{{"index":{index},"text":"x"}}],"usage":{{"completion_tokens":{total}}}}}"#)
    };
    let messages = [of(0, 1), of(1, 2), of(0, 4), of(1, 3)];
    let decoded = decode_stream(&[&messages[0], &messages[1], &messages[2], &messages[3], "[DONE]"]);
    assert_eq!(decoded.tokens(), [Some(1), Some(2), Some(3), Some(1)]);
    let both =
        r#"{"choices":[{"index":0,"text":"x"},{"index":1,"text":"y"}],"usage":{"completion_tokens":2}}"#;
    assert_eq!(decode_stream(&[both, "[DONE]"]).tokens(), [None, None]);
}

#[test]
fn when_a_chunk_has_two_kinds_the_last_has_the_tokens() {
    let decoded = decode_stream(&[&with_ids(r#"{"content":"a","reasoning":"b"}"#, "[1,2,3]"), "[DONE]"]);
    assert_eq!(decoded.tokens(), [Some(0), Some(3)]);
}
