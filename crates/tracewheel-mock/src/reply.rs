//! What the endpoint answers, byte for byte.

use std::fmt::Write as _;

use bytes::Bytes;
use tracewheel_tokens::TextMaker;

use crate::api::{Ask, Finish, Operation};

/// Token counts of one exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: u32,
    pub(crate) cached_tokens: u32,
    pub(crate) completion_tokens: u32,
}

/// How a stream's end looks; as it should be by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TailShape {
    /// Usage is told if it was asked for.
    pub(crate) usage: bool,
    /// The end marker comes.
    pub(crate) done: bool,
    /// All of it comes twice.
    pub(crate) twice: bool,
}

impl Default for TailShape {
    fn default() -> Self {
        Self { usage: true, done: true, twice: false }
    }
}

/// Renders one answer, streamed or whole.
#[derive(Debug)]
pub(crate) struct Reply {
    operation: Operation,
    stream: bool,
    include_usage: bool,
    usage_on_every_chunk: bool,
    finish: Finish,
    prompt_tokens: u32,
    text_key: u64,
    /// What every chunk begins with, up to the choices.
    head: String,
}

impl Reply {
    /// `number` names the answer, `created_s` is wall time in seconds, `text_key` decides the words.
    pub(crate) fn new(ask: &Ask, number: u64, created_s: i64, fingerprint: &str, text_key: u64) -> Self {
        let (id, object) = match (ask.operation, ask.stream) {
            (Operation::Chat, true) => ("chatcmpl", "chat.completion.chunk"),
            (Operation::Chat, false) => ("chatcmpl", "chat.completion"),
            (Operation::Completion, _) => ("cmpl", "text_completion"),
        };
        let model = serde_json::Value::from(ask.model.as_str());
        let head = format!(
            r#"{{"id":"{id}-{number:016x}","object":"{object}","created":{created_s},"model":{model},"system_fingerprint":"{fingerprint}","choices":"#
        );
        Self {
            operation: ask.operation,
            stream: ask.stream,
            include_usage: ask.include_usage,
            usage_on_every_chunk: ask.usage_on_every_chunk,
            finish: ask.answer.finish,
            prompt_tokens: ask.prompt.tokens,
            text_key,
            head,
        }
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.stream
    }

    /// Whether the stream begins with a delta that carries nothing but the role.
    pub(crate) fn has_role_delta(&self) -> bool {
        self.stream && self.operation == Operation::Chat
    }

    /// The role-only first delta of a chat stream.
    pub(crate) fn role_chunk(&self, cached_tokens: u32) -> Bytes {
        let choices =
            r#"[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]"#;
        self.chunk(choices, self.usage(cached_tokens, 0))
    }

    /// The chunk of token `index` (from 0).
    pub(crate) fn token_chunk(&self, words: &TextMaker, cached_tokens: u32, index: u32) -> Bytes {
        let space = if index == 0 { "" } else { " " };
        let word = words.word(self.text_key, index);
        let choices = match self.operation {
            Operation::Chat => {
                format!(
                    r#"[{{"index":0,"delta":{{"content":"{space}{word}"}},"logprobs":null,"finish_reason":null}}]"#
                )
            }
            Operation::Completion => {
                format!(r#"[{{"index":0,"text":"{space}{word}","logprobs":null,"finish_reason":null}}]"#)
            }
        };
        self.chunk(&choices, self.usage(cached_tokens, index + 1))
    }

    /// What ends a stream: the finish reason, usage if asked for, the end marker.
    pub(crate) fn tail(&self, usage: Usage, shape: TailShape) -> Bytes {
        let reason = self.finish.as_str();
        let choices = match self.operation {
            Operation::Chat => {
                format!(r#"[{{"index":0,"delta":{{}},"logprobs":null,"finish_reason":"{reason}"}}]"#)
            }
            Operation::Completion => {
                format!(r#"[{{"index":0,"text":"","logprobs":null,"finish_reason":"{reason}"}}]"#)
            }
        };
        let mut out = String::from_utf8_lossy(&self.chunk(&choices, usage)).into_owned();
        if self.include_usage && shape.usage {
            write!(out, "data: {}[],\"usage\":{}}}\n\n", self.head, usage_json(usage)).expect(INFALLIBLE);
        }
        if shape.done {
            out.push_str("data: [DONE]\n\n");
        }
        Bytes::from(if shape.twice { out.repeat(2) } else { out })
    }

    /// The whole answer of a request that did not ask for a stream.
    pub(crate) fn whole(&self, words: &TextMaker, usage: Usage) -> Bytes {
        let mut text = String::with_capacity(usage.completion_tokens as usize * 6);
        for index in 0..usage.completion_tokens {
            if index > 0 {
                text.push(' ');
            }
            text.push_str(words.word(self.text_key, index));
        }
        let reason = self.finish.as_str();
        let choice = match self.operation {
            Operation::Chat => format!(r#""message":{{"role":"assistant","content":"{text}"}}"#),
            Operation::Completion => format!(r#""text":"{text}""#),
        };
        Bytes::from(format!(
            r#"{}[{{"index":0,{choice},"logprobs":null,"finish_reason":"{reason}"}}],"usage":{}}}"#,
            self.head,
            usage_json(usage)
        ))
    }

    /// Counts after `completion_tokens` tokens.
    pub(crate) fn usage(&self, cached_tokens: u32, completion_tokens: u32) -> Usage {
        Usage { prompt_tokens: self.prompt_tokens, cached_tokens, completion_tokens }
    }

    fn chunk(&self, choices: &str, usage: Usage) -> Bytes {
        let mut out = String::with_capacity(self.head.len() + choices.len() + 32);
        write!(out, "data: {}{choices}", self.head).expect(INFALLIBLE);
        if self.usage_on_every_chunk {
            write!(out, ",\"usage\":{}", usage_json(usage)).expect(INFALLIBLE);
        } else if self.include_usage {
            // With usage asked for, all chunks but its own say null.
            out.push_str(",\"usage\":null");
        }
        out.push_str("}\n\n");
        Bytes::from(out)
    }
}

const INFALLIBLE: &str = "writing to a string cannot fail";

fn usage_json(usage: Usage) -> String {
    let Usage { prompt_tokens, cached_tokens, completion_tokens } = usage;
    let total = u64::from(prompt_tokens) + u64::from(completion_tokens);
    format!(
        r#"{{"prompt_tokens":{prompt_tokens},"completion_tokens":{completion_tokens},"total_tokens":{total},"prompt_tokens_details":{{"cached_tokens":{cached_tokens}}}}}"#
    )
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::api::parse;
    use crate::config::MockConfig;

    fn reply(operation: Operation, rest: &str) -> Reply {
        let body = match operation {
            Operation::Chat => format!(r#"{{"model":"m\"x","messages":[{{"content":"a b"}}]{rest}}}"#),
            Operation::Completion => format!(r#"{{"model":"m\"x","prompt":"a b"{rest}}}"#),
        };
        let ask = parse(operation, body.as_bytes(), &MockConfig::default()).unwrap();
        Reply::new(&ask, 7, 1_800_000_000, "fp_1", 3)
    }

    fn events(bytes: &Bytes) -> Vec<Value> {
        let text = std::str::from_utf8(bytes).unwrap();
        text.split_terminator("\n\n")
            .map(|event| event.strip_prefix("data: ").unwrap())
            .map(
                |data| if data == "[DONE]" { Value::from(data) } else { serde_json::from_str(data).unwrap() },
            )
            .collect()
    }

    #[test]
    fn a_chat_stream_has_role_tokens_finish_usage_and_end() {
        let reply = reply(Operation::Chat, r#","stream":true,"stream_options":{"include_usage":true}"#);
        let words = TextMaker::new();
        let role = &events(&reply.role_chunk(1))[0];
        assert_eq!(role["choices"][0]["delta"]["role"], "assistant");
        assert_eq!(role["usage"], Value::Null);
        assert_eq!(
            (role["model"].as_str(), role["object"].as_str()),
            (Some("m\"x"), Some("chat.completion.chunk"))
        );
        let token = &events(&reply.token_chunk(&words, 1, 4))[0];
        assert!(token["choices"][0]["delta"]["content"].as_str().unwrap().starts_with(' '));
        let tail = events(&reply.tail(reply.usage(1, 5), TailShape::default()));
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
        let reply = reply(Operation::Completion, r#","stream":true"#);
        let tail = events(&reply.tail(reply.usage(0, 5), TailShape::default()));
        assert_eq!((tail.len(), tail[0].get("usage")), (2, None));
        assert_eq!(tail[0]["choices"][0]["text"], "");
        assert!(!reply.has_role_delta());
    }

    #[test]
    fn usage_can_ride_on_every_chunk() {
        let reply = reply(
            Operation::Chat,
            r#","stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}"#,
        );
        let token = &events(&reply.token_chunk(&TextMaker::new(), 0, 4))[0];
        assert_eq!(token["usage"]["completion_tokens"], 5);
    }

    #[test]
    fn the_streamed_text_equals_the_whole_one() {
        let words = TextMaker::new();
        let stream = reply(Operation::Completion, r#","stream":true"#);
        let streamed: String = (0..9)
            .map(|n| {
                events(&stream.token_chunk(&words, 0, n))[0]["choices"][0]["text"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            })
            .collect();
        let whole = reply(Operation::Completion, "");
        let body: Value = serde_json::from_slice(&whole.whole(&words, whole.usage(0, 9))).unwrap();
        assert_eq!(body["choices"][0]["text"], streamed.as_str());
        assert_eq!(body["usage"]["completion_tokens"], 9);
        assert_eq!(tracewheel_tokens::count(&streamed), 9);
    }
}
