use serde_json::Value;

use crate::client::{Client, chat_body, stream_body};
use crate::{fast, some, start};

#[test]
fn a_whole_answer_has_text_usage_and_finish_reason() {
    let mock = start(fast());
    let answer = Client::connect(mock.local_addr()).chat(&chat_body("hi", 20, 5, ""));
    assert_eq!((answer.status, answer.headers["content-type"].as_str()), (200, "application/json"));
    let body = answer.json();
    assert_eq!(body["object"], "chat.completion");
    assert_eq!(body["choices"][0]["finish_reason"], "length");
    let text = body["choices"][0]["message"]["content"].as_str().unwrap();
    assert_eq!(text.split(' ').count(), 5);
    assert_eq!(body["usage"]["prompt_tokens"], 20);
    assert_eq!(body["usage"]["completion_tokens"], 5);
    assert_eq!(body["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

#[test]
fn a_completion_is_served_whole_and_streamed_with_equal_text() {
    let mock = start(fast());
    let mut client = Client::connect(mock.local_addr());
    let body = |stream: bool| format!(r#"{{"model":"m","prompt":"a b c","max_tokens":4,"stream":{stream}}}"#);
    let whole = client.call("POST", "/v1/completions", &[], &body(false)).json();
    let streamed = client.call("POST", "/v1/completions", &[], &body(true));
    assert_eq!(whole["object"], "text_completion");
    assert_eq!(whole["choices"][0]["text"].as_str(), Some(streamed.text().as_str()));
    assert_eq!(streamed.json_events().len(), 5, "a chunk a token and one with the finish reason");
}

#[test]
fn a_repeated_prompt_is_cached_and_a_reset_forgets_it() {
    let mock = start(fast());
    let mut client = Client::connect(mock.local_addr());
    let mut cached = |body: &str| {
        client.chat(body).json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    let body = chat_body("again", 100, 1, "");
    assert_eq!(cached(&body), 0);
    // 100 tokens are six full blocks of 16 and 4 more.
    assert_eq!(cached(&body), 96);
    assert_eq!(cached(&chat_body("again", 96, 1, "")), 80, "the last token is always computed");
    let reset = Client::connect(mock.local_addr()).call("POST", "/reset_prefix_cache", &[], "");
    assert_eq!(reset.json()["success"], true);
    assert_eq!(cached(&body), 0);
}

#[test]
fn a_reset_under_load_says_that_it_did_nothing() {
    let mock = start(fast());
    let mut busy = Client::connect(mock.local_addr());
    busy.send("POST", "/v1/chat/completions", &[], &stream_body("x", 10, 10_000));
    busy.head();
    let reset = Client::connect(mock.local_addr()).call("POST", "/reset_prefix_cache", &[], "");
    assert_eq!((reset.status, &reset.json()["success"]), (200, &Value::from(false)));
}

/// What a repeated prompt finds in the cache of a mock, before and after these calls.
fn found_after(config: tracewheel_mock::MockConfig, calls: &[(&str, &str)]) -> (Vec<(u16, String)>, u64) {
    let mock = start(config);
    let mut client = Client::connect(mock.local_addr());
    let body = chat_body("again", 100, 1, "");
    client.chat(&body);
    let answers = calls.iter().map(|(method, path)| {
        let answer = Client::connect(mock.local_addr()).call(method, path, &[], "{}");
        (answer.status, answer.chunks.concat())
    });
    let answers = answers.collect();
    let found = client.chat(&body).json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
    (answers, found.unwrap())
}

#[test]
fn every_engines_way_to_empty_the_cache_empties_it() {
    let (answers, found) = found_after(fast(), &[("POST", "/flush_cache")]);
    assert_eq!((answers[0].0, found), (200, 0));
    let (answers, found) = found_after(fast(), &[("POST", "/clear"), ("POST", "/clear")]);
    assert!(answers[0].1.contains(r#""num_tokens":96"#), "what it found: {answers:?}");
    assert!(answers[1].1.contains(r#""num_tokens":0"#) && found == 0, "{answers:?}");
    let erase: Vec<String> = (0..4).map(|slot| format!("/slots/{slot}?action=erase")).collect();
    let erase: Vec<(&str, &str)> = erase.iter().map(|path| ("POST", path.as_str())).collect();
    let (answers, found) = found_after(fast(), &erase);
    assert!(
        answers.iter().all(|(status, body)| *status == 200 && body.contains(r#""n_erased":24"#)),
        "{answers:?}"
    );
    assert_eq!(found, 0);
    assert_eq!(found_after(fast(), &erase[..3]).1, 96, "the other slots keep theirs");
}

#[test]
fn a_mock_that_seems_busy_or_tells_nothing_empties_nothing_the_first_time() {
    let mut busy = fast();
    busy.flush.busy_answers = 1;
    let twice = |path| [("POST", path), ("POST", path)];
    let (answers, found) = found_after(busy.clone(), &twice("/reset_prefix_cache"));
    let bodies: Vec<&str> = answers.iter().map(|(_, body)| body.as_str()).collect();
    assert_eq!((bodies, found), (vec![r#"{"success":false}"#, r#"{"success":true}"#], 0));
    let (answers, found) = found_after(busy.clone(), &twice("/flush_cache"));
    assert_eq!((answers[0].0, answers[1].0, found), (400, 200, 0));
    let (answers, _) = found_after(busy.clone(), &[("GET", "/slots"), ("GET", "/slots")]);
    assert!(answers[0].1.contains("true") && !answers[1].1.contains("true"), "{answers:?}");
    busy.flush.tells = tracewheel_mock::FlushTells::Nothing;
    for path in ["/reset_prefix_cache", "/flush_cache"] {
        let (answers, found) = found_after(busy.clone(), &[("POST", path)]);
        assert_eq!((answers[0].0, found), (200, 96), "{path}: the lie");
    }
}

#[test]
fn a_spent_request_budget_answers_429_with_both_waits() {
    let mut config = fast();
    config.limits.requests_per_minute = some(30);
    config.limits.request_burst = some(1);
    let mock = start(config);
    let mut client = Client::connect(mock.local_addr());
    let first = client.chat(&chat_body("x", 5, 1, ""));
    assert_eq!(first.status, 200);
    assert_eq!(first.headers["x-ratelimit-limit-requests"], "30");
    assert_eq!(first.headers["x-ratelimit-remaining-requests"], "0");
    let second = client.chat(&chat_body("x", 5, 1, ""));
    assert_eq!(second.status, 429);
    // One each 2 s, less what has passed since.
    let ms: i64 = second.headers["retry-after-ms"].parse().unwrap();
    assert!((1_000..=2_000).contains(&ms), "{ms}");
    assert_eq!(second.headers["retry-after"].parse::<i64>().unwrap(), (ms + 999) / 1000);
    let error = &second.json()["error"];
    assert_eq!((&error["code"], &error["type"]), (&"rate_limit_exceeded".into(), &"requests".into()));
}

#[test]
fn a_token_budget_counts_prompt_and_cap() {
    let mut config = fast();
    config.limits.tokens_per_minute = some(6_000);
    config.limits.token_burst = some(100);
    let mock = start(config);
    let mut client = Client::connect(mock.local_addr());
    let too_large = client.chat(&chat_body("x", 90, 11, ""));
    assert_eq!((too_large.status, too_large.headers.contains_key("retry-after")), (429, false));
    assert_eq!(client.chat(&chat_body("x", 90, 10, "")).status, 200);
    let spent = client.chat(&chat_body("x", 90, 10, ""));
    assert_eq!((spent.status, spent.headers["retry-after"].as_str()), (429, "1"));
}

#[test]
fn a_full_queue_answers_503() {
    let mut config = fast();
    config.engine.max_running = 1;
    config.engine.queue_limit = 1;
    let mock = start(config);
    let mut clients: Vec<Client> = (0..2).map(|_| Client::connect(mock.local_addr())).collect();
    clients[0].send("POST", "/v1/chat/completions", &[], &stream_body("x", 5, 10_000));
    // Its first token means that it has left the queue.
    clients[0].head();
    clients[0].chunk();
    clients[1].send("POST", "/v1/chat/completions", &[], &stream_body("x", 5, 10_000));
    clients[1].head();
    let third = Client::connect(mock.local_addr()).chat(&stream_body("x", 5, 1));
    assert_eq!((third.status, &third.json()["error"]["code"]), (503, &"queue_full".into()));
}

#[test]
fn errors_have_openai_shape() {
    let mut config = fast();
    config.models = vec!["m".into()];
    config.http.max_body_bytes = 1000;
    let mock = start(config);
    let mut client = Client::connect(mock.local_addr());
    let mut status = |method: &str, path: &str, body: &str| {
        let answer = client.call(method, path, &[], body);
        assert!(answer.json()["error"]["message"].is_string());
        assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
        answer.status
    };
    assert_eq!(status("POST", "/v1/chat/completions", "not json"), 400);
    assert_eq!(status("POST", "/v1/chat/completions", r#"{"model":"other","messages":[{}]}"#), 404);
    assert_eq!(status("POST", "/v1/nothing", "{}"), 404);
    assert_eq!(status("GET", "/v1/chat/completions", ""), 405);
    let large = Client::connect(mock.local_addr()).chat(&chat_body("word", 300, 1, ""));
    assert_eq!(large.status, 413);
}

#[test]
fn a_key_can_be_demanded() {
    let mut config = fast();
    config.http.require_authorization = true;
    let mock = start(config);
    let mut client = Client::connect(mock.local_addr());
    let body = chat_body("x", 5, 1, "");
    assert_eq!(client.chat(&body).status, 401);
    let key = [("authorization", "Bearer k")];
    assert_eq!(client.call("POST", "/v1/chat/completions", &key, &body).status, 200);
}

#[test]
fn models_health_and_metrics_are_served() {
    let mut config = fast();
    config.models = vec!["a".into(), "b".into()];
    let mock = start(config);
    let mut client = Client::connect(mock.local_addr());
    let models = client.call("GET", "/v1/models", &[], "").json();
    assert_eq!((&models["data"][0]["id"], &models["data"][1]["id"]), (&"a".into(), &"b".into()));
    assert_eq!(client.call("GET", "/health", &[], "").status, 200);
    let body = chat_body("x", 40, 3, "").replace(r#""model":"m""#, r#""model":"a""#);
    client.chat(&body);
    client.chat(&body);
    let page = client.call("GET", "/metrics", &[], "").body();
    for line in [
        r#"vllm:prompt_tokens_total{model_name="a"} 80"#,
        r#"vllm:prefix_cache_hits_total{model_name="a"} 32"#,
        r#"vllm:generation_tokens_total{model_name="a"} 6"#,
        r#"vllm:num_requests_running{model_name="a"} 0"#,
    ] {
        assert!(page.contains(line), "{page}");
    }
}

#[test]
fn the_request_id_is_echoed_or_made() {
    let mock = start(fast());
    let mut client = Client::connect(mock.local_addr());
    let echoed = client.call("GET", "/health", &[("x-request-id", "abc-1")], "");
    assert_eq!(echoed.headers["x-request-id"], "abc-1");
    assert!(echoed.headers["server"].starts_with("tracewheel-mock/"));
    assert!(client.call("GET", "/health", &[], "").headers["x-request-id"].starts_with("mock-"));
}
