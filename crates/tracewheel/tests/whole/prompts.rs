//! The lengths of made-up prompts: as many tokens as the trace says, in the target's own count.

use serde_json::{Value, json};
use tracewheel_tokens::WORDS;

use super::cache::{replay, timeline};
use super::harness::{Place, QUICK};

/// Base64 (RFC 4648) by hand: the test shares no encoder with the reader.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let groups = bytes.chunks(3).map(|group| {
        let bits = (0..3).fold(0_u32, |bits, n| bits << 8 | u32::from(*group.get(n).unwrap_or(&0)));
        let digit = |n: usize| match n <= group.len() {
            true => DIGITS[(bits >> (18 - 6 * n) & 63) as usize] as char,
            false => '=',
        };
        [digit(0), digit(1), digit(2), digit(3)]
    });
    groups.flatten().collect()
}

fn tiktoken(words: &[&str]) -> String {
    words
        .iter()
        .zip(0..)
        .map(|(word, rank)| format!("{} {rank}\n", base64(format!(" {word}").as_bytes())))
        .collect()
}

fn exactly(summary: &Value, requests: u64) {
    let prompts = &summary["run"]["prompts"];
    assert_eq!(prompts["requests"], requests, "{prompts}");
    assert_eq!(prompts["asked_tokens"], prompts["counted_tokens"], "{prompts}");
    assert_eq!((&prompts["error_p50"], &prompts["error_abs_p95"]), (&json!(0.0), &json!(0.0)));
}

#[test]
fn prompts_are_made_of_the_words_that_are_one_token_in_the_targets_vocabulary() {
    let place = Place::new();
    timeline(&place);
    place.write("small.tiktoken", &tiktoken(&WORDS[..300]));
    let mock = place.mock(QUICK);
    let (summary, manifest) = replay(&place, &mock.url, 0, &["--tokenizer", "small.tiktoken"]);
    exactly(&summary, 8);
    let tokenizer = &manifest["prompts"]["tokenizer"];
    assert_eq!((&tokenizer["file"], &tokenizer["words"]), (&json!("small.tiktoken"), &json!(256)));
    assert!(manifest["scenario"]["text"].as_str().unwrap().contains("small.tiktoken"));
}

#[test]
fn recorded_bodies_come_from_a_log_and_go_out_with_the_model_that_was_named() {
    let place = Place::new();
    // The mock counts words: the body's five, whatever the row says.
    let line = |second: u32| {
        json!({
            "ts": 1_795_536_000 + second, "in": 5, "out": 3,
            "req": {"model": "prod", "stream": true, "max_tokens": 3, "stream_options": {"include_usage": true},
                    "messages": [{"role": "user", "content": "how are you this morning"}]},
        })
        .to_string()
            + "\n"
    };
    place.write("log.jsonl", &(0..4).map(line).collect::<String>());
    let map = "arrival=ts:s,input_tokens=in,output_tokens=out,body=req";
    place.expect(0, &["ingest", "log.jsonl", "--map", map, "-o", "t.parquet"]);
    let mock = place.mock_with_log(QUICK, "witness.jsonl");
    let (summary, manifest) = replay(&place, &mock.url, 0, &["--speed", "20"]);
    mock.stop();
    assert_eq!(
        (&summary["run"]["counts"]["ok"], &manifest["prompts"]["origin"]),
        (&json!(4), &json!("recorded"))
    );
    let witness = std::fs::read_to_string(place.path("witness.jsonl")).unwrap();
    let seen: Vec<Value> = witness.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(seen.len(), 4);
    for attempt in seen {
        let told = (&attempt["model"], &attempt["prompt_tokens"], &attempt["completion_tokens"]);
        assert_eq!(told, (&json!("m"), &json!(5), &json!(3)), "{attempt}");
    }
}

#[test]
fn a_tokenizer_that_cannot_be_used_is_refused_with_the_remedy_before_anything_is_sent() {
    let place = Place::new();
    timeline(&place);
    place.write("tiny.tiktoken", &tiktoken(&WORDS[..9]));
    place.write("tokenizer.json", "{}");
    let refused = |file: &str| {
        place.fails(
            2,
            &[
                "replay",
                "t.parquet",
                "--target",
                "http://127.0.0.1:9",
                "--protocol",
                "openai-chat",
                "--model",
                "m",
                "--tokenizer",
                file,
            ],
        )
    };
    assert!(refused("tiny.tiktoken").contains("only 9 of the 2048 words"));
    assert!(refused("nowhere").contains("cannot read the tokenizer nowhere"));
    assert!(refused("tokenizer.json").contains("tiktoken file"));
    assert!(!place.path("runs").exists());
}

#[test]
fn two_prompts_sent_ahead_tell_how_the_target_counts_and_enter_no_statistics() {
    let place = Place::new();
    timeline(&place);
    let mock = place.mock(QUICK);
    let (summary, manifest) = replay(&place, &mock.url, 0, &["--calibrate"]);
    exactly(&summary, 8);
    let expected = json!({"overhead_tokens": 0, "tokens_per_word": 1.0, "probes": [[32, 32], [1056, 1056]]});
    assert_eq!(manifest["prompts"]["calibration"], expected);
    assert_eq!(
        (&summary["run"]["counts"]["planned"], &summary["run"]["counts"]["other_phases"]),
        (&json!(8), &json!(2))
    );
    assert_eq!(summary["process"]["primed"], 0);
}

#[test]
fn a_target_that_does_not_count_leaves_prompts_as_they_are_and_the_run_says_so() {
    let place = Place::new();
    timeline(&place);
    // The first two model requests of all: the probes.
    let mock = place
        .mock(&format!("{QUICK}\n[[fault]]\nname = \"busy\"\nkind = \"status\"\nstatus = 500\ntimes = 2\n"));
    let (summary, manifest) = replay(&place, &mock.url, 0, &["--calibrate"]);
    assert_eq!(manifest["prompts"]["calibration"], Value::Null);
    assert!(
        manifest["warnings"].to_string().contains("prompts are not calibrated"),
        "{}",
        manifest["warnings"]
    );
    exactly(&summary, 8);
}
