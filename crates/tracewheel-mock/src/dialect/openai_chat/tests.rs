use http::header::HeaderMap;
use serde_json::Value;
use tracewheel_tokens::TextMaker;

use super::*;
use crate::api::Answer;
use crate::config::MockConfig;
use crate::reply::Reply;

fn read_at(path: &str, body: &str, config: &MockConfig) -> Result<(Ask, Box<dyn Voice>), ApiError> {
    let identity = Identity { number: 7, created_s: 1_800_000_000, fingerprint: "fp_1" };
    let (headers, body) = (&HeaderMap::new(), body.as_bytes());
    OpenAi.read(&Asked { path, query: None, headers, body, config, identity })
}

fn chat(body: &str) -> Result<Ask, ApiError> {
    read_at(CHAT, body, &MockConfig::default()).map(|(ask, _)| ask)
}

fn completion(body: &str) -> Result<Ask, ApiError> {
    read_at(COMPLETIONS, body, &MockConfig::default()).map(|(ask, _)| ask)
}

#[test]
fn a_chat_prompt_is_the_words_of_all_messages() {
    let ask = chat(
        r#"{"model":"m","messages":[{"role":"system","content":"be brief"},
        {"role":"user","content":[{"type":"text","text":"one two"},{"type":"image_url","image_url":{"url":"u"}}]},
        {"role":"assistant","content":null},{"role":"user"}],"stream":true,"temperature":0.5}"#,
    )
    .unwrap();
    assert_eq!((ask.prompt.tokens, ask.stream), (4, true));
}

#[test]
fn a_completion_prompt_may_be_text_or_token_numbers() {
    let tokens = |prompt: &str| {
        completion(&format!(r#"{{"model":"m","prompt":{prompt}}}"#)).map(|ask| ask.prompt.tokens)
    };
    assert_eq!(tokens(r#""a b c""#), Ok(3));
    assert_eq!(tokens(r#"["a b"]"#), Ok(2));
    assert_eq!(tokens("[5,6,7]"), Ok(3));
    assert_eq!(tokens("[[5,6]]"), Ok(2));
    assert_eq!(tokens(r#"["a","b"]"#).unwrap_err().status, 400);
}

#[test]
fn lengths_can_be_forced() {
    let answer = |rest: &str| {
        chat(&format!(r#"{{"model":"m","messages":[{{"content":"hello"}}]{rest}}}"#)).map(|ask| ask.answer)
    };
    let forced = Answer { tokens: 7, thoughts: 0, cap: 7, finish: Finish::Length };
    assert_eq!(answer(r#","max_tokens":7,"ignore_eos":true"#), Ok(forced));
    assert_eq!(answer(r#","max_completion_tokens":7,"max_tokens":9,"ignore_eos":true"#), Ok(forced));
    assert_eq!(answer(r#","max_tokens":7,"min_tokens":7"#).unwrap().tokens, 7);
    // Naturally 100 to 300 here, so 7 cuts it and 1,000 does not.
    assert_eq!(answer(r#","max_tokens":7"#), Ok(forced));
    let natural = answer(r#","max_tokens":1000"#).unwrap();
    assert!((100..=300).contains(&natural.tokens) && natural.finish == Finish::Stop);
    assert_eq!(answer("").unwrap().tokens, natural.tokens);
    assert_eq!(answer(r#","max_tokens":1000,"min_tokens":500"#).unwrap().tokens, 500);
}

#[test]
fn completions_end_after_sixteen_tokens_unless_told() {
    let ask = completion(r#"{"model":"m","prompt":"x"}"#).unwrap();
    assert_eq!(ask.answer, Answer { tokens: 16, thoughts: 0, cap: 16, finish: Finish::Length });
}

#[test]
fn impossible_requests_are_refused() {
    let refused = |body: &str| chat(body).unwrap_err();
    assert!(refused("{").message.contains("can't be read"));
    assert_eq!(refused(r#"{"messages":[]}"#).param, Some("model"));
    assert_eq!(refused(r#"{"model":"m","messages":[]}"#).param, Some("messages"));
    assert_eq!(refused(r#"{"model":"m","messages":[{}],"n":2}"#).param, Some("n"));
    assert_eq!(refused(r#"{"model":"m","messages":[{}],"max_tokens":0}"#).param, Some("max_tokens"));
    assert_eq!(
        refused(r#"{"model":"m","messages":[{}],"max_tokens":2,"min_tokens":3}"#).param,
        Some("min_tokens")
    );
    let too_long = refused(r#"{"model":"m","messages":[{"content":"x"}],"max_tokens":131072}"#);
    assert_eq!(too_long.code, Some("context_length_exceeded"));
}

#[test]
fn only_configured_models_are_served() {
    let config = MockConfig { models: vec!["a".into()], ..MockConfig::default() };
    let ask = |body: &str| read_at(CHAT, body, &config).map(|(ask, _)| ask);
    assert!(ask(r#"{"model":"a","messages":[{}]}"#).is_ok());
    let error = ask(r#"{"model":"b","messages":[{}]}"#).unwrap_err();
    assert_eq!((error.status, error.code), (404, Some("model_not_found")));
    assert!(OpenAi.refusal(&error, "").contains(r#""type":"invalid_request_error""#));
}

#[test]
fn a_cache_salt_separates_equal_prompts() {
    let blocks = |salt: &str| {
        let words = "w ".repeat(20);
        chat(&format!(r#"{{"model":"m","messages":[{{"content":"{words}"}}],"cache_salt":"{salt}"}}"#))
            .unwrap()
            .prompt
            .blocks
    };
    assert_eq!(blocks("a"), blocks("a"));
    assert_ne!(blocks("a"), blocks("b"));
}

fn reply(operation: Operation, rest: &str) -> Reply {
    let (path, body) = match operation {
        Operation::Chat => (CHAT, format!(r#"{{"model":"m\"x","messages":[{{"content":"a b"}}]{rest}}}"#)),
        Operation::Completion => (COMPLETIONS, format!(r#"{{"model":"m\"x","prompt":"a b"{rest}}}"#)),
    };
    let (ask, voice) = read_at(path, &body, &MockConfig::default()).unwrap();
    Reply::new(&ask, voice, 16, 3)
}

fn events(bytes: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(bytes).unwrap();
    text.split_terminator("\n\n")
        .map(|event| event.strip_prefix("data: ").unwrap())
        .map(|data| if data == "[DONE]" { Value::from(data) } else { serde_json::from_str(data).unwrap() })
        .collect()
}

#[test]
fn a_chat_stream_has_role_tokens_finish_usage_and_end() {
    let mut reply = reply(Operation::Chat, r#","stream":true,"stream_options":{"include_usage":true}"#);
    let words = TextMaker::new();
    let role = &events(&reply.opening(1).unwrap())[0];
    assert_eq!(role["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(role["usage"], Value::Null);
    assert_eq!(
        (role["model"].as_str(), role["object"].as_str()),
        (Some("m\"x"), Some("chat.completion.chunk"))
    );
    let token = &events(&reply.token(&words, 1, 4))[0];
    assert!(token["choices"][0]["delta"]["content"].as_str().unwrap().starts_with(' '));
    let tail = events(&reply.tail(1, 5));
    assert_eq!(tail[0]["choices"][0]["finish_reason"], "stop");
    assert_eq!(tail[0]["choices"][0]["delta"], serde_json::json!({}));
    let usage = serde_json::json!({
        "prompt_tokens": 2, "completion_tokens": 5, "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 1}
    });
    assert_eq!((&tail[1]["usage"], &tail[1]["choices"]), (&usage, &serde_json::json!([])));
    assert_eq!(tail[2], "[DONE]");
}

#[test]
fn usage_is_left_out_unless_asked_for() {
    let mut reply = reply(Operation::Completion, r#","stream":true"#);
    let tail = events(&reply.tail(0, 5));
    assert_eq!((tail.len(), tail[0].get("usage")), (2, None));
    assert_eq!(tail[0]["choices"][0]["text"], "");
    assert_eq!(reply.opening(0), None);
}

#[test]
fn usage_can_ride_on_every_chunk() {
    let mut reply = reply(
        Operation::Chat,
        r#","stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}"#,
    );
    let token = &events(&reply.token(&TextMaker::new(), 0, 4))[0];
    assert_eq!(token["usage"]["completion_tokens"], 5);
}

#[test]
fn the_streamed_text_equals_the_whole_one() {
    let words = TextMaker::new();
    let mut stream = reply(Operation::Completion, r#","stream":true"#);
    let streamed: String = (0..9)
        .map(|n| events(&stream.token(&words, 0, n))[0]["choices"][0]["text"].as_str().unwrap().to_owned())
        .collect();
    let mut whole = reply(Operation::Completion, "");
    let body: Value = serde_json::from_slice(&whole.whole(&words, 0, 9)).unwrap();
    assert_eq!(body["choices"][0]["text"], streamed.as_str());
    assert_eq!(body["usage"]["completion_tokens"], 9);
    assert_eq!(tracewheel_tokens::count(&streamed), 9);
}
