use super::*;
use crate::{PROVIDERS, provider};

fn settle(protocol: &str, options: ProtocolOptions) -> Result<Settled, String> {
    options.settle(provider(protocol).unwrap()).map_err(|error| error.to_string())
}

fn of(engine: Engine) -> ProtocolOptions {
    ProtocolOptions { engine: Some(engine), ..ProtocolOptions::default() }
}

#[test]
fn without_an_engine_only_protocols_that_self_hosted_engines_speak_force_a_length() {
    for provider in PROVIDERS {
        let settled = ProtocolOptions::default().settle(*provider).unwrap();
        let forces = matches!(provider.name(), "openai-chat" | "openai-completions");
        assert_eq!(settled.force_length, forces, "{}", provider.name());
        assert_eq!(settled.token_detail, TokenDetail::None);
    }
}

#[test]
fn an_engine_decides_what_is_left_open() {
    let vllm = settle("openai-chat", of(Engine::Vllm)).unwrap();
    assert_eq!((vllm.force_length, vllm.token_detail), (true, TokenDetail::ContinuousUsage));
    let openai = settle("openai-chat", of(Engine::Openai)).unwrap();
    assert_eq!((openai.force_length, openai.limit_field), (false, LimitField::MaxCompletionTokens));
    assert_eq!(openai.include_obfuscation, Some(false));
    let llama = settle("openai-completions", of(Engine::LlamaCpp)).unwrap();
    assert_eq!((llama.force_length, llama.token_detail), (true, TokenDetail::Timings));
    assert!(!settle("ollama-chat", of(Engine::Ollama)).unwrap().force_length);
}

#[test]
fn every_engine_speaks_protocols_that_exist_and_settles_with_each() {
    for (word, engine, _) in Engine::ALL {
        assert_eq!(Engine::parse(word), Some(engine));
        assert!(!engine.preset().protocols.is_empty());
        for protocol in engine.preset().protocols {
            settle(protocol, of(engine)).unwrap();
        }
    }
}

#[test]
fn what_does_not_go_together_is_refused_with_its_remedy() {
    let base = ProtocolOptions::default;
    let cases = [
        (
            "anthropic-messages",
            of(Engine::LlamaCpp),
            "llama.cpp does not speak anthropic-messages: take openai-chat",
        ),
        (
            "anthropic-messages",
            ProtocolOptions { force_length: Some(true), ..base() },
            "lengths: anthropic-messages has no way to force a length: use `cap`",
        ),
        (
            "openai-chat",
            ProtocolOptions { force_length: Some(true), ..of(Engine::Tgi) },
            "lengths: tgi has no way to force a length: use `cap`",
        ),
        (
            "openai-chat",
            ProtocolOptions { token_detail: Some(TokenDetail::TokenIds), ..of(Engine::LlamaCpp) },
            "token_detail: llama.cpp does not know token_ids: take timings",
        ),
        (
            "openai-chat",
            ProtocolOptions { token_detail: Some(TokenDetail::TokenIds), ..of(Engine::Openai) },
            "take none",
        ),
        (
            "gemini",
            ProtocolOptions { token_detail: Some(TokenDetail::TokenIds), ..base() },
            "token_detail: gemini has no such option, only openai-chat and openai-completions: leave it out",
        ),
        ("openai-chat", ProtocolOptions { prompt_ids: true, ..base() }, "only openai-completions"),
        (
            "openai-completions",
            ProtocolOptions { prompt_ids: true, ..of(Engine::Litellm) },
            "litellm takes no token ids",
        ),
        ("openai-chat", ProtocolOptions { path: Some("/x".into()), ..base() }, "only http"),
        ("http", ProtocolOptions { path: Some("x".into()), ..base() }, "must begin with a slash"),
        ("http", ProtocolOptions { method: Some("post".into()), ..base() }, "in capitals"),
        ("http", ProtocolOptions { body: Some("{{promt}}".into()), ..base() }, "{{promt}}"),
        ("gemini", ProtocolOptions { api_version: Some("v1/../x".into()), ..base() }, "is no version"),
    ];
    for (protocol, options, told) in cases {
        let error = settle(protocol, options).unwrap_err();
        assert!(error.contains(told), "{error}");
    }
}
