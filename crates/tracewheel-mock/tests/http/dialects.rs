//! Every API that is not OpenAI's chat: what a client gets, streamed, whole, refused and broken.

use serde_json::{Value, json};

use crate::client::{Answer, Client};
use crate::{fast, some, start};
use tracewheel_mock::{FaultKind, FaultRule, Mock, MockConfig};

const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

/// `count` words.
fn words(count: usize) -> String {
    "word ".repeat(count)
}

/// Names and data of the events of a stream.
fn named(answer: &Answer) -> Vec<(String, Value)> {
    let body = answer.body();
    assert!(body.ends_with("\n\n"), "{body:?}");
    body.split_terminator("\n\n")
        .map(|event| {
            let (name, data) = event.split_once('\n').unwrap();
            (
                name.strip_prefix("event: ").unwrap().to_owned(),
                data.strip_prefix("data: ").unwrap().to_owned(),
            )
        })
        .map(|(name, data)| (name, serde_json::from_str::<Value>(&data).unwrap()))
        .inspect(|(name, data)| assert_eq!(data["type"], name.as_str()))
        .collect()
}

fn names(answer: &Answer) -> Vec<String> {
    named(answer).into_iter().map(|(name, _)| name).collect()
}

fn messages(mock: &Mock, body: &Value) -> Answer {
    Client::connect(mock.local_addr()).call("POST", "/v1/messages", &[VERSION], &body.to_string())
}

fn post(mock: &Mock, path: &str, body: &Value) -> Answer {
    Client::connect(mock.local_addr()).call("POST", path, &[], &body.to_string())
}

fn with_fault(rule: FaultRule) -> MockConfig {
    MockConfig { fault: vec![rule], ..fast() }
}

fn rule(kind: FaultKind) -> FaultRule {
    FaultRule::new("f", kind)
}

#[test]
fn a_message_streams_its_blocks_and_counts_cached_input_apart() {
    let mock = start(fast());
    let body = json!({ "model": "m", "max_tokens": 3, "stream": true, "system": words(8),
        "messages": [{ "role": "user", "content": [{ "type": "text", "text": words(92) }] }] });
    let first = messages(&mock, &body);
    assert_eq!(
        (first.status, first.headers["content-type"].as_str()),
        (200, "text/event-stream; charset=utf-8")
    );
    assert!(first.headers.contains_key("request-id") && !first.headers.contains_key("x-request-id"));
    let delta = "content_block_delta";
    let expected = [
        "message_start",
        "content_block_start",
        "ping",
        delta,
        delta,
        delta,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(names(&first), expected);
    // 100 words are six full blocks of 16, which are written, and 4 more.
    let usage = |answer: &Answer| named(answer)[0].1["message"]["usage"].clone();
    let counts = |usage: Value| {
        let of = |name: &str| usage[name].as_u64().unwrap();
        (of("input_tokens"), of("cache_creation_input_tokens"), of("cache_read_input_tokens"))
    };
    assert_eq!(counts(usage(&first)), (4, 96, 0));
    assert_eq!(counts(usage(&messages(&mock, &body))), (4, 0, 96));
    let end = &named(&first)[7].1;
    assert_eq!(
        (&end["delta"]["stop_reason"], &end["usage"]["output_tokens"]),
        (&json!("max_tokens"), &json!(3))
    );
}

#[test]
fn a_message_is_given_whole_with_the_text_of_its_stream() {
    let mock = start(fast());
    let body = |stream: bool| {
        json!({ "model": "m", "max_tokens": 4, "stream": stream,
            "messages": [{ "role": "user", "content": "a b c" }] })
    };
    let whole = messages(&mock, &body(false)).json();
    let streamed: String = named(&messages(&mock, &body(true)))
        .iter()
        .filter_map(|(_, data)| data["delta"]["text"].as_str().map(str::to_owned))
        .collect();
    assert_eq!((&whole["type"], &whole["stop_reason"]), (&json!("message"), &json!("max_tokens")));
    assert_eq!(whole["content"], json!([{ "type": "text", "text": streamed }]));
    assert_eq!(whole["usage"]["output_tokens"], 4);
}

#[test]
fn thinking_comes_first_in_a_block_of_its_own_and_ends_with_a_signature() {
    let mock = start(fast());
    let body = json!({ "model": "m", "max_tokens": 6, "stream": true,
        "thinking": { "type": "enabled", "budget_tokens": 2 }, "messages": [{ "role": "user", "content": "a" }] });
    let deltas: Vec<(u64, String)> = named(&messages(&mock, &body))
        .iter()
        .filter(|(name, _)| name == "content_block_delta")
        .map(|(_, data)| {
            (data["index"].as_u64().unwrap(), data["delta"]["type"].as_str().unwrap().to_owned())
        })
        .collect();
    let kinds = |index: u64| {
        deltas.iter().filter(|(of, _)| *of == index).map(|(_, kind)| kind.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(kinds(0), ["thinking_delta", "thinking_delta", "signature_delta"]);
    assert_eq!(kinds(1), ["text_delta"; 4]);
}

#[test]
fn anthropic_refuses_in_its_own_shape() {
    let mut config = fast();
    config.limits.requests_per_minute = some(30);
    config.limits.request_burst = some(1);
    let mock = start(config);
    let good = json!({ "model": "m", "max_tokens": 1, "messages": [{ "role": "user", "content": "a" }] });
    let error = |answer: &Answer| {
        let body = answer.json();
        assert_eq!(
            (&body["type"], &body["request_id"]),
            (&json!("error"), &json!(answer.headers["request-id"]))
        );
        body["error"]["type"].as_str().unwrap().to_owned()
    };
    let no_version = post(&mock, "/v1/messages", &good);
    assert_eq!((no_version.status, error(&no_version).as_str()), (400, "invalid_request_error"));
    let mut foreign = good.clone();
    foreign["ignore_eos"] = json!(true);
    let foreign = messages(&mock, &foreign);
    assert_eq!(foreign.status, 400);
    assert_eq!(foreign.json()["error"]["message"], "ignore_eos: extra inputs are not permitted");
    let mut unbounded = good.clone();
    unbounded.as_object_mut().unwrap().remove("max_tokens");
    assert_eq!(messages(&mock, &unbounded).json()["error"]["message"], "max_tokens: field required");
    let served = messages(&mock, &good);
    assert_eq!(served.status, 200);
    assert_eq!(served.headers["anthropic-ratelimit-requests-limit"], "30");
    assert_eq!(served.headers["anthropic-ratelimit-requests-remaining"], "0");
    assert!(served.headers["anthropic-ratelimit-requests-reset"].ends_with('Z'));
    let limited = messages(&mock, &good);
    assert_eq!((limited.status, error(&limited).as_str()), (429, "rate_limit_error"));
    assert!(limited.headers.contains_key("retry-after") && !limited.headers.contains_key("retry-after-ms"));
}

#[test]
fn anthropic_is_overloaded_with_529_and_may_fail_within_a_stream() {
    let body = json!({ "model": "m", "max_tokens": 5, "stream": true,
        "messages": [{ "role": "user", "content": "a" }] });
    let mock = start(with_fault(FaultRule { status: Some(529), ..rule(FaultKind::Status) }));
    let overloaded = messages(&mock, &body);
    assert_eq!((overloaded.status, &overloaded.json()["error"]["type"]), (529, &json!("overloaded_error")));
    let mock = start(with_fault(FaultRule {
        status: Some(529),
        after_chunks: Some(2),
        ..rule(FaultKind::StreamError)
    }));
    let events = named(&messages(&mock, &body));
    let (name, data) = events.last().unwrap();
    assert_eq!((name.as_str(), &data["error"]["type"]), ("error", &json!("overloaded_error")));
    let mock = start(with_fault(rule(FaultKind::NoDone)));
    assert_eq!(names(&messages(&mock, &body)).last().unwrap(), "message_delta");
    let mock = start(with_fault(rule(FaultKind::NoUsage)));
    assert_eq!(named(&messages(&mock, &body))[10 - 1].1.get("usage"), None);
}

#[test]
fn a_response_counts_its_events_and_repeats_itself_at_the_end() {
    let mock = start(fast());
    let body = |cap: u32| {
        json!({ "model": "m", "max_output_tokens": cap, "stream": true, "instructions": words(10),
            "input": [{ "role": "user", "content": [{ "type": "input_text", "text": words(90) }] }] })
    };
    let cut = post(&mock, "/v1/responses", &body(16));
    let events = named(&cut);
    for (number, (_, data)) in events.iter().enumerate() {
        assert_eq!(data["sequence_number"], number);
    }
    let text: String =
        events.iter().filter_map(|(_, data)| data["delta"].as_str().map(str::to_owned)).collect();
    let (name, last) = events.last().unwrap();
    let response = &last["response"];
    assert_eq!((name.as_str(), &response["status"]), ("response.incomplete", &json!("incomplete")));
    assert_eq!(response["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!(response["output"][0]["content"][0]["text"], text.as_str());
    let usage = &response["usage"];
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(100), &json!(16)));
    assert_eq!(usage["input_tokens_details"]["cached_tokens"], 0);
    let whole =
        post(&mock, "/v1/responses", &json!({ "model": "m", "instructions": words(10), "input": words(90) }));
    assert_eq!((&whole.json()["status"], &whole.json()["error"]), (&json!("completed"), &Value::Null));
    assert_eq!(whole.json()["usage"]["input_tokens_details"]["cached_tokens"], 96);
    let low = post(&mock, "/v1/responses", &body(15));
    assert_eq!((low.status, &low.json()["error"]["param"]), (400, &json!("max_output_tokens")));
}

#[test]
fn a_response_that_fails_says_so_in_its_last_event() {
    let body = json!({ "model": "m", "input": "a", "stream": true });
    let mock = start(with_fault(FaultRule { after_chunks: Some(1), ..rule(FaultKind::StreamError) }));
    let events = named(&post(&mock, "/v1/responses", &body));
    let (name, last) = events.last().unwrap();
    assert_eq!((name.as_str(), &last["response"]["status"]), ("response.failed", &json!("failed")));
    assert_eq!(last["response"]["error"]["code"], "server_error");
    assert_eq!(last["sequence_number"], events.len() - 1);
    let mock = start(with_fault(rule(FaultKind::NoDone)));
    assert_eq!(names(&post(&mock, "/v1/responses", &body)).last().unwrap(), "response.output_item.done");
}

fn gemini(cap: u32) -> Value {
    json!({ "systemInstruction": { "parts": [{ "text": words(10) }] },
        "contents": [{ "role": "user", "parts": [{ "text": words(90) }] }],
        "generationConfig": { "maxOutputTokens": cap } })
}

const SSE: &str = "/v1beta/models/g:streamGenerateContent?alt=sse";

fn gemini_events(answer: &Answer) -> Vec<Value> {
    let body = answer.body();
    assert!(body.ends_with("\r\n\r\n"), "{body:?}");
    body.split_terminator("\r\n\r\n")
        .map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap())
        .collect()
}

#[test]
fn gemini_streams_events_or_an_array_or_answers_whole() {
    let mock = start(fast());
    let events = gemini_events(&post(&mock, SSE, &gemini(3)));
    assert_eq!(events.len(), 4, "one a token and one with the finish reason");
    assert!(events[..3].iter().all(|event| event["candidates"][0].get("finishReason").is_none()));
    assert_eq!(
        (&events[3]["candidates"][0]["finishReason"], &events[3]["modelVersion"]),
        (&json!("MAX_TOKENS"), &json!("g"))
    );
    let usage = &events[3]["usageMetadata"];
    assert_eq!((&usage["promptTokenCount"], &usage["candidatesTokenCount"]), (&json!(100), &json!(3)));
    assert_eq!(
        (usage.get("cachedContentTokenCount"), &usage["totalTokenCount"]),
        (None, &json!(103)),
        "none is left out"
    );
    let whole = post(&mock, "/v1/models/g:generateContent", &gemini(3)).json();
    assert_eq!(whole["usageMetadata"]["cachedContentTokenCount"], 96);
    let text = |events: &[Value]| {
        events
            .iter()
            .map(|event| event["candidates"][0]["content"]["parts"][0]["text"].as_str().unwrap())
            .collect::<String>()
    };
    assert_eq!(text(std::slice::from_ref(&whole)), text(&events));
    let array = post(&mock, "/v1beta/models/g:streamGenerateContent", &gemini(3));
    assert_eq!(array.headers["content-type"], "application/json; charset=UTF-8");
    assert_eq!(text(array.json().as_array().unwrap()), text(&events));
}

#[test]
fn gemini_thoughts_are_counted_beside_and_shown_only_if_asked() {
    let mock = start(fast());
    let mut body = gemini(6);
    body["generationConfig"]["thinkingConfig"] = json!({ "thinkingBudget": 2 });
    let hidden = gemini_events(&post(&mock, SSE, &body));
    assert_eq!(hidden.len(), 5);
    let usage = &hidden[4]["usageMetadata"];
    assert_eq!((&usage["thoughtsTokenCount"], &usage["candidatesTokenCount"]), (&json!(2), &json!(4)));
    body["generationConfig"]["thinkingConfig"]["includeThoughts"] = json!(true);
    let shown = gemini_events(&post(&mock, SSE, &body));
    let thoughts =
        shown.iter().filter(|event| event["candidates"][0]["content"]["parts"][0]["thought"] == true);
    assert_eq!((shown.len(), thoughts.count()), (7, 2));
}

#[test]
fn gemini_refuses_as_google_does_and_hides_the_wait_in_the_body() {
    let mut config = fast();
    config.limits.requests_per_minute = some(30);
    config.limits.request_burst = some(1);
    let mock = start(config);
    assert_eq!(post(&mock, SSE, &gemini(1)).status, 200);
    let limited = post(&mock, SSE, &gemini(1));
    assert!(
        !limited.headers.keys().any(|name| name.starts_with("retry-after") || name.contains("ratelimit"))
    );
    let error = &limited.json()["error"];
    assert_eq!((&error["code"], &error["status"]), (&json!(429), &json!("RESOURCE_EXHAUSTED")));
    let wait = error["details"][0]["retryDelay"]
        .as_str()
        .unwrap()
        .strip_suffix('s')
        .unwrap()
        .parse::<f64>()
        .unwrap();
    assert!((0.5..=2.0).contains(&wait), "{error}");
    let mut foreign = gemini(1);
    foreign["ignore_eos"] = json!(true);
    assert_eq!(post(&mock, SSE, &foreign).json()["error"]["status"], "INVALID_ARGUMENT");
    let mock = start(with_fault(FaultRule { after_chunks: Some(1), ..rule(FaultKind::StreamError) }));
    let events = gemini_events(&post(&mock, SSE, &gemini(3)));
    assert_eq!(events[1]["error"]["status"], "INTERNAL");
    let mock = start(with_fault(rule(FaultKind::NoDone)));
    let events = gemini_events(&post(&mock, SSE, &gemini(3)));
    assert!(events.iter().all(|event| event["candidates"][0].get("finishReason").is_none()));
}

#[test]
fn azure_serves_a_deployment_and_begins_with_what_its_filters_found() {
    let mock = start(fast());
    let body = json!({ "messages": [{ "role": "user", "content": "a b" }], "max_tokens": 2, "stream": true,
        "stream_options": { "include_usage": true } });
    let path = "/openai/deployments/my%20gpt/chat/completions?api-version=2024-10-21";
    let answer = post(&mock, path, &body);
    assert!(answer.headers.contains_key("apim-request-id"));
    let events = answer.json_events();
    assert_eq!((&events[0]["choices"], &events[0]["model"]), (&json!([]), &json!("")));
    assert!(events[0]["prompt_filter_results"][0]["content_filter_results"]["hate"]["filtered"] == false);
    assert_eq!(events[1]["model"], "my gpt");
    assert_eq!(answer.text().split(' ').count(), 2);
    assert_eq!(events.last().unwrap()["usage"]["completion_tokens"], 2);
    let unversioned = post(&mock, "/openai/deployments/d/chat/completions", &body);
    assert_eq!((unversioned.status, &unversioned.json()["error"]["code"]), (404, &json!("404")));
    let newer = post(
        &mock,
        "/openai/v1/chat/completions",
        &json!({ "model": "d", "max_tokens": 1,
        "messages": [{ "role": "user", "content": "a" }] }),
    );
    assert_eq!((newer.status, &newer.json()["model"]), (200, &json!("d")));
    assert_eq!(post(&mock, "/openai/v1/responses", &json!({ "model": "d", "input": "a" })).status, 200);
}

#[test]
fn embeddings_are_numbers_or_base64_of_the_same_numbers() {
    let mock = start(fast());
    let body = |format: &str| json!({ "model": "e", "input": ["one two", "three"], "encoding_format": format, "dimensions": 3 });
    let floats = post(&mock, "/v1/embeddings", &body("float")).json();
    assert_eq!(floats["usage"], json!({ "prompt_tokens": 3, "total_tokens": 3 }));
    let vector = |n: usize| floats["data"][n]["embedding"].as_array().unwrap().len();
    assert_eq!((vector(0), vector(1)), (3, 3));
    assert_ne!(floats["data"][0]["embedding"], floats["data"][1]["embedding"]);
    // Three floats of four bytes are 16 digits.
    let coded = post(&mock, "/v1/embeddings", &body("base64")).json();
    assert_eq!(coded["data"][0]["embedding"].as_str().unwrap().len(), 16);
    assert_eq!(post(&mock, "/v1/embeddings", &json!({ "model": "e", "input": [] })).status, 400);
    let azure = "/openai/deployments/e/embeddings?api-version=2024-10-21";
    assert_eq!(
        post(&mock, azure, &json!({ "input": "a" })).json()["data"][0]["embedding"].as_array().unwrap().len(),
        256
    );
}

#[test]
fn gemini_embeds_one_content_or_a_batch_and_refuses_in_googles_words() {
    let mock = start(fast());
    let content =
        |text: &str| json!({ "content": { "parts": [{ "text": text }] }, "outputDimensionality": 3 });
    let one = post(&mock, "/v1beta/models/e:embedContent", &content("one two")).json();
    assert_eq!(one["embedding"]["values"].as_array().unwrap().len(), 3);
    let both = json!({ "requests": [content("one two"), content("three")] });
    let both = post(&mock, "/v1beta/models/e:batchEmbedContents", &both).json();
    assert_eq!(both["embeddings"][0], one["embedding"]);
    assert_ne!(both["embeddings"][1], one["embedding"]);
    let empty = post(&mock, "/v1beta/models/e:batchEmbedContents", &json!({ "requests": [] }));
    assert_eq!((empty.status, &empty.json()["error"]["status"]), (400, &json!("INVALID_ARGUMENT")));
}

#[test]
fn ollama_answers_in_lines_and_counts_in_the_last() {
    let mock = start(fast());
    let body = |stream: bool| {
        json!({ "model": "m", "messages": [{ "role": "user", "content": words(20) }], "stream": stream,
            "options": { "num_predict": 3 } })
    };
    let answer = post(&mock, "/api/chat", &body(true));
    assert_eq!(answer.headers["content-type"], "application/x-ndjson");
    let lines: Vec<Value> = answer.body().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let done: Vec<bool> = lines.iter().map(|line| line["done"].as_bool().unwrap()).collect();
    assert_eq!(done, [false, false, false, true]);
    assert_eq!((&lines[3]["prompt_eval_count"], &lines[3]["eval_count"]), (&json!(20), &json!(3)));
    assert_eq!(lines[3]["done_reason"], "length");
    let text: String = lines.iter().map(|line| line["message"]["content"].as_str().unwrap()).collect();
    assert_eq!(post(&mock, "/api/chat", &body(false)).json()["message"]["content"], text.as_str());
    let generated = post(&mock, "/api/generate", &json!({ "model": "m", "prompt": "a", "stream": false }));
    assert_eq!(
        generated.json()["response"].as_str().unwrap().split(' ').count() as u64,
        generated.json()["eval_count"]
    );
    let mock = start(with_fault(FaultRule { after_chunks: Some(1), ..rule(FaultKind::StreamError) }));
    let broken = post(&mock, "/api/chat", &body(true)).body();
    assert!(broken.lines().last().unwrap().starts_with(r#"{"error":"#), "{broken}");
    let mock = start(with_fault(rule(FaultKind::NoDone)));
    assert!(!post(&mock, "/api/chat", &body(true)).body().contains(r#""done":true"#));
}

#[test]
fn tgi_has_an_event_a_token_and_the_whole_text_in_the_last() {
    let mock = start(fast());
    let body = json!({ "inputs": words(20), "parameters": { "max_new_tokens": 3 } });
    let answer = post(&mock, "/generate_stream", &body).body();
    let events: Vec<Value> = answer
        .split_terminator("\n\n")
        .map(|event| serde_json::from_str(event.strip_prefix("data:").unwrap()).unwrap())
        .collect();
    assert_eq!(events.len(), 3);
    let text: String = events.iter().map(|event| event["token"]["text"].as_str().unwrap()).collect();
    assert_eq!((&events[1]["generated_text"], &events[2]["generated_text"]), (&Value::Null, &json!(text)));
    assert_eq!(
        events[2]["details"],
        json!({ "finish_reason": "length", "generated_tokens": 3, "seed": null })
    );
    assert_eq!(post(&mock, "/generate", &body).json()["generated_text"], text.as_str());
    let unreadable = post(&mock, "/generate", &json!({ "prompt": "a" }));
    assert_eq!((unreadable.status, &unreadable.json()["error_type"]), (422, &json!("validation")));
}

#[test]
fn each_api_takes_the_key_where_it_has_it() {
    let mut config = fast();
    config.http.require_authorization = true;
    let mock = start(config);
    let mut client = Client::connect(mock.local_addr());
    let chat = json!({ "model": "m", "max_tokens": 1, "messages": [{ "role": "user", "content": "a" }] })
        .to_string();
    let mut call =
        |path: &str, headers: &[(&str, &str)], body: &str| client.call("POST", path, headers, body).status;
    let azure = "/openai/deployments/d/chat/completions?api-version=1";
    for (path, key, body) in [
        ("/v1/messages", "x-api-key", &chat),
        ("/v1/messages", "authorization", &chat),
        (SSE, "x-goog-api-key", &gemini(1).to_string()),
        (azure, "api-key", &chat),
    ] {
        assert_eq!(call(path, &[VERSION], body), 401, "{path}");
        assert_eq!(call(path, &[VERSION, ("x-other-key", "k")], body), 401, "{path}");
        assert_eq!(call(path, &[VERSION, (key, "k")], body), 200, "{path}");
    }
    assert_eq!(call("/v1/chat/completions", &[("x-api-key", "k")], &chat), 401);
}
