//! Every protocol against the endpoint that speaks its dialect: what is decoded is what the endpoint says of itself.

use std::collections::HashMap;

use serde_json::Value;
use tracewheel_record::{AttemptRecord, Run};

use crate::harness::{Place, QUICK};

/// Name, and the retry policy of its own client.
const PROTOCOLS: [(&str, &str); 6] = [
    ("openai-chat", "openai-sdk"),
    ("openai-completions", "openai-sdk"),
    ("openai-responses", "openai-sdk"),
    ("azure-openai", "openai-sdk"),
    ("anthropic-messages", "anthropic-sdk"),
    ("gemini", "openai-sdk"),
];

/// Tries all protocols, side by side: most of the time is waiting.
fn of_each(test: impl Fn(&'static str, &'static str) + Sync) {
    let test = &test;
    std::thread::scope(|scope| {
        let tried = PROTOCOLS.map(|(protocol, policy)| scope.spawn(move || test(protocol, policy)));
        for (one, (protocol, _)) in tried.into_iter().zip(PROTOCOLS) {
            assert!(one.join().is_ok(), "{protocol}: see above");
        }
    });
}

/// Requests of three blocks, of which the first two are the same in all of them.
fn shared_timeline(place: &Place, requests: usize) {
    let line = |n: usize| {
        let (at, output, own) = (n * 40, 16 + n, 100 + n);
        format!(r#"{{"timestamp":{at},"input_length":1500,"output_length":{output},"hash_ids":[1,2,{own}]}}"#)
            + "\n"
    };
    place.write("trace.jsonl", &(0..requests).map(line).collect::<String>());
    place.expect(0, &["ingest", "trace.jsonl", "-o", "t.parquet"]);
}

/// Replays and gives the report and all attempts.
fn replay(
    place: &Place,
    code: i32,
    target: &str,
    protocol: &str,
    more: &[&str],
) -> (Value, Vec<AttemptRecord>) {
    let base = ["replay", "t.parquet", "--target", target, "--protocol", protocol, "--model", "m", "--json"];
    let report = place.json(code, &[&base[..], more].concat());
    let run = Run::open(&place.path(report["run_dir"].as_str().unwrap())).unwrap();
    let attempts = run.attempts().unwrap().map(|attempt| attempt.unwrap()).collect();
    (report, attempts)
}

/// The witness log, by request id.
fn witness(place: &Place) -> HashMap<String, Value> {
    let log = std::fs::read_to_string(place.path("witness.jsonl")).unwrap();
    log.lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|line| (line["request_id"].as_str().unwrap().to_owned(), line))
        .collect()
}

fn outputs(attempt: &AttemptRecord) -> usize {
    attempt.events.iter().filter(|event| event.kind.is_output()).count()
}

#[test]
fn tokens_and_cached_tokens_of_every_protocol_are_those_that_the_endpoint_counted() {
    of_each(|protocol, _| {
        let place = Place::new();
        shared_timeline(&place, 6);
        let mock = place.mock(QUICK);
        let (report, attempts) = replay(&place, 0, &mock.url, protocol, &[]);
        mock.stop();
        assert_eq!(report["run"]["counts"]["ok"], 6, "{protocol}: {report}");
        let seen = witness(&place);
        let mut cached_somewhere = false;
        for attempt in &attempts {
            let log = &seen[attempt.request_id.as_deref().expect("the endpoint echoes the id")];
            let count = |field: &str| log[field].as_u64().unwrap_or_else(|| panic!("{field} of {log}"));
            let told = |count: Option<u32>| count.map(u64::from);
            assert_eq!(told(attempt.usage_input_tokens), Some(count("prompt_tokens")), "{protocol}");
            assert_eq!(told(attempt.usage_output_tokens), Some(count("completion_tokens")), "{protocol}");
            assert_eq!(outputs(attempt) as u64, count("completion_tokens"), "{protocol}: an event a token");
            let cached = count("cached_tokens");
            cached_somewhere |= cached > 0;
            // Gemini leaves out what is zero.
            let expected = (protocol != "gemini" || cached > 0).then_some(cached);
            assert_eq!(told(attempt.usage_cached_tokens), expected, "{protocol}");
            let written = (protocol == "anthropic-messages").then(|| 1500 / 16 * 16 - cached);
            assert_eq!(told(attempt.usage_cache_write_tokens), written, "{protocol}");
        }
        assert!(cached_somewhere, "{protocol}: two blocks are shared");
    });
}

#[test]
fn refusals_of_every_protocol_are_retried_and_their_limits_and_words_recorded() {
    of_each(|protocol, policy| {
        let place = Place::new();
        shared_timeline(&place, 3);
        let mock = place.mock(&format!("{QUICK}[limits]\nrequests_per_minute = 600\nrequest_burst = 1\n"));
        let (report, attempts) = replay(&place, 0, &mock.url, protocol, &["--retry", policy]);
        mock.stop();
        assert_eq!(report["run"]["counts"]["ok"], 3, "{protocol}: {report}");
        let refused = attempts.iter().filter(|attempt| attempt.http_status == Some(429)).collect::<Vec<_>>();
        assert!(!refused.is_empty(), "{protocol}: {report}");
        for attempt in refused {
            assert_eq!(attempt.reason.map(|reason| reason.as_str()), Some("rate_limited"), "{protocol}");
            let body = attempt.error_body.as_deref().unwrap_or_default();
            let word = match protocol {
                "anthropic-messages" => "rate_limit_error",
                "azure-openai" => "\"code\":\"429\"",
                "gemini" => "RetryInfo",
                _ => "rate_limit_exceeded",
            };
            assert!(body.contains(word), "{protocol}: {body}");
        }
        let limit = attempts.iter().find_map(|attempt| attempt.rate_limit_requests_limit);
        assert_eq!(limit, (protocol != "gemini").then_some(600), "{protocol}");
    });
}

#[test]
fn an_error_in_a_stream_and_a_stream_without_its_end_are_failures_of_their_own() {
    of_each(|protocol, _| {
        let place = Place::new();
        shared_timeline(&place, 2);
        let fault = |kind: &str| format!("{QUICK}[[fault]]\nname = \"f\"\nkind = \"{kind}\"\n");
        let mock = place.mock(&(fault("stream-error") + "after_chunks = 3\nstatus = 503\n"));
        let (report, attempts) = replay(&place, 30, &mock.url, protocol, &[]);
        mock.stop();
        assert_eq!(report["run"]["counts"]["reasons"]["error_in_stream"], 2, "{protocol}: {report}");
        for attempt in &attempts {
            assert_eq!((outputs(attempt), attempt.http_status), (3, Some(200)), "{protocol}");
            let body = attempt.error_body.as_deref().unwrap_or_default();
            assert!(body.contains("the model failed while it answered"), "{protocol}: {body}");
        }
        let mock = place.mock(&fault("no-done"));
        let (report, _) = replay(&place, 30, &mock.url, protocol, &[]);
        mock.stop();
        assert_eq!(report["run"]["counts"]["reasons"]["truncated"], 2, "{protocol}: {report}");
    });
}

#[test]
fn plain_answers_of_every_protocol_are_counted_too() {
    of_each(|protocol, _| {
        let place = Place::new();
        let rows: String = (0..2)
            .map(|n| {
                format!("{{\"at\":\"2026-01-01T00:00:00.{n}Z\",\"in\":40,\"out\":17,\"stream\":false}}\n")
            })
            .collect();
        place.write("log.jsonl", &rows);
        let map = "arrival=at,input_tokens=in,output_tokens=out,stream=stream";
        place.expect(0, &["ingest", "log.jsonl", "-o", "t.parquet", "--map", map]);
        let mock = place.mock(QUICK);
        let (report, attempts) = replay(&place, 0, &mock.url, protocol, &[]);
        mock.stop();
        assert_eq!(report["run"]["counts"]["ok"], 2, "{protocol}: {report}");
        let seen = witness(&place);
        for attempt in &attempts {
            let log = &seen[attempt.request_id.as_deref().unwrap()];
            assert_eq!(log["stream"], false, "{protocol}");
            assert_eq!(
                attempt.usage_input_tokens.map(u64::from),
                log["prompt_tokens"].as_u64(),
                "{protocol}"
            );
            assert_eq!(
                attempt.usage_output_tokens.map(u64::from),
                log["completion_tokens"].as_u64(),
                "{protocol}"
            );
        }
    });
}

/// The engines' own dialects say nothing of cached tokens, and TGI nothing of the prompt.
#[test]
fn the_engines_own_dialects_are_replayed_and_counted_as_far_as_they_count() {
    for protocol in ["tgi-generate", "ollama-chat", "ollama-generate"] {
        let place = Place::new();
        shared_timeline(&place, 4);
        let mock = place.mock(QUICK);
        let (report, attempts) = replay(&place, 0, &mock.url, protocol, &[]);
        mock.stop();
        assert_eq!(report["run"]["counts"]["ok"], 4, "{protocol}: {report}");
        let seen = witness(&place);
        let told = |count: Option<u32>| count.map(u64::from);
        for attempt in &attempts {
            let log = &seen[attempt.request_id.as_deref().expect("the endpoint echoes the id")];
            let input = (protocol != "tgi-generate").then(|| log["prompt_tokens"].as_u64().unwrap());
            assert_eq!(told(attempt.usage_input_tokens), input, "{protocol}");
            let output = log["completion_tokens"].as_u64();
            assert_eq!(
                (told(attempt.usage_output_tokens), Some(outputs(attempt) as u64)),
                (output, output),
                "{protocol}"
            );
            assert_eq!(attempt.usage_cached_tokens, None, "{protocol}");
        }
    }
}
