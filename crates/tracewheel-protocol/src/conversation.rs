//! Conversations: the text of an answer, and its way into the next turn's request.
//!
//! Decoders measure output and keep none of it. Where a conversation is to go on with what the target really said, the
//! text is read here, and put in the place of the answer that was recorded. All of it is work for a thread without due times.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::lines::LineFramer;
use crate::sse::{Frame, Framer};
use crate::write::string;

/// How a protocol writes a conversation down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chat {
    /// `messages`; answers in `choices`: OpenAI's chat completions and their clones.
    OpenAi,
    /// `messages`; answers in content blocks: Anthropic.
    Anthropic,
    /// `contents` in parts, the assistant is called `model`: Gemini.
    Gemini,
    /// `messages`; a line of JSON an event: Ollama.
    Ollama,
    /// `input` as a list of items: OpenAI's Responses.
    Responses,
}

/// One earlier message of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn<'a> {
    /// Whose it is.
    pub speaker: Speaker,
    /// Its text.
    pub text: &'a str,
}

/// Who said something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// A recorded body whose answers were replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Threaded {
    /// The body, byte for byte as recorded but for the replaced texts.
    pub body: Vec<u8>,
    /// How many answers were replaced.
    pub replaced: u32,
    /// The last answer before the final message is among them.
    pub last: bool,
}

impl Chat {
    /// The text of a whole answer: what its first choice says, without reasoning and tool arguments. `None` where it has
    /// none, or more than `most_bytes`.
    pub fn answer_text(self, body: &[u8], most_bytes: usize) -> Option<String> {
        let mut text = String::new();
        let mut said = |json: &[u8], streamed: bool| {
            if text.len() <= most_bytes
                && let Ok(value) = serde_json::from_slice::<Value>(json)
            {
                self.add_text(&value, streamed, &mut text);
            }
        };
        let first = body.iter().find(|byte| !byte.is_ascii_whitespace())?;
        match (self, first) {
            (Chat::Ollama, _) => {
                let mut framer = LineFramer::new();
                framer.feed(body, |frame| {
                    if let Frame::Event { data, .. } = frame {
                        said(data, true);
                    }
                });
                if let Some((rest, _)) = framer.rest() {
                    said(rest, true);
                }
            }
            (_, b'{') => said(body, false),
            _ => Framer::new().feed(body, |frame| {
                if let Frame::Event { data, .. } = frame {
                    said(data, true);
                }
            }),
        }
        (!text.is_empty() && text.len() <= most_bytes).then_some(text)
    }

    /// Appends what one message of a stream, or a whole answer, says.
    fn add_text(self, value: &Value, streamed: bool, text: &mut String) {
        match self {
            Chat::OpenAi => {
                let of = if streamed { "delta" } else { "message" };
                let choices = value["choices"].as_array().into_iter().flatten();
                for choice in choices.filter(|choice| choice["index"].as_u64().unwrap_or(0) == 0) {
                    text.push_str(choice[of]["content"].as_str().unwrap_or_default());
                }
            }
            Chat::Ollama => text.push_str(value["message"]["content"].as_str().unwrap_or_default()),
            Chat::Anthropic if streamed => {
                for block in [&value["delta"], &value["content_block"]] {
                    if matches!(block["type"].as_str(), Some("text_delta" | "text")) {
                        text.push_str(block["text"].as_str().unwrap_or_default());
                    }
                }
            }
            Chat::Anthropic => texts(&value["content"], "text", text),
            Chat::Gemini => {
                let parts = value["candidates"][0]["content"]["parts"].as_array().into_iter().flatten();
                for part in parts.filter(|part| part["thought"] != Value::Bool(true)) {
                    text.push_str(part["text"].as_str().unwrap_or_default());
                }
            }
            Chat::Responses if streamed => {
                if value["type"] == "response.output_text.delta" {
                    text.push_str(value["delta"].as_str().unwrap_or_default());
                }
            }
            Chat::Responses => {
                for item in value["output"].as_array().into_iter().flatten() {
                    texts(&item["content"], "output_text", text);
                }
            }
        }
    }

    /// The recorded `body` with the last answers of its conversation replaced by `answers`, which are in the order of the
    /// turns: the last of them takes the place of the last answer before the final message, and so on. `None` in the list
    /// leaves one as recorded, and so does a recorded answer that called tools, because what follows refers to its calls.
    /// `None` where nothing is replaced: no conversation, or none of its answers has a text in its place.
    pub fn with_answers(self, body: &[u8], answers: &[Option<&str>]) -> Option<Threaded> {
        let fields: HashMap<Cow<'_, str>, &RawValue> = serde_json::from_slice(body).ok()?;
        let items: Vec<&RawValue> = serde_json::from_str(fields.get(self.list())?.get()).ok()?;
        let items: Vec<Item<'_>> =
            items.iter().map(|item| serde_json::from_str(item.get()).unwrap_or_default()).collect();
        let asked = items.iter().rposition(|item| !item.is_of_model())?;
        let mut found = Vec::new();
        let mut spoken = items[..asked].chunk_by(|a, b| a.is_of_model() == b.is_of_model());
        let mut answers = answers.iter().rev().enumerate();
        while let Some(run) = spoken.next_back() {
            if !run[0].is_of_model() {
                continue;
            }
            let Some((back, answer)) = answers.next() else { break };
            if let (Some(answer), Some(place)) = (answer, self.place(run)) {
                let at = place.get().as_ptr().addr() - body.as_ptr().addr();
                found.push((at..at + place.get().len(), *answer, back == 0));
            }
        }
        if found.is_empty() {
            return None;
        }
        found.reverse();
        Some(Threaded {
            replaced: found.len() as u32,
            last: found.iter().any(|(.., last)| *last),
            body: self.spliced(body, &found),
        })
    }

    /// How many messages a recorded body holds; `None` for one without a conversation.
    pub fn messages_in(self, body: &[u8]) -> Option<usize> {
        let fields: HashMap<Cow<'_, str>, &RawValue> = serde_json::from_slice(body).ok()?;
        let items: Vec<&RawValue> = serde_json::from_str(fields.get(self.list())?.get()).ok()?;
        Some(items.len())
    }

    /// The field that holds the conversation.
    fn list(self) -> &'static str {
        match self {
            Chat::OpenAi | Chat::Anthropic | Chat::Ollama => "messages",
            Chat::Gemini => "contents",
            Chat::Responses => "input",
        }
    }

    /// Where the text of an answer stands that is one message, or several items of one, without tool calls.
    fn place<'a>(self, run: &[Item<'a>]) -> Option<&'a RawValue> {
        if run.iter().any(Item::calls_tools) {
            return None;
        }
        let of = |item: &Item<'a>| if self == Chat::Gemini { item.parts } else { item.content };
        let mut places = run.iter().filter_map(of);
        let place = places.next()?;
        places.next().is_none().then_some(place)
    }

    fn spliced(self, body: &[u8], found: &[(Range<usize>, &str, bool)]) -> Vec<u8> {
        let more: usize = found.iter().map(|(_, text, _)| text.len() + text.len() / 16 + 64).sum();
        let mut out = Vec::with_capacity(body.len() + more);
        let mut kept = 0;
        for (range, text, _) in found {
            out.extend_from_slice(&body[kept..range.start]);
            if body[range.start] == b'[' {
                out.extend_from_slice(match self {
                    Chat::Gemini => b"[{\"text\":".as_slice(),
                    Chat::Responses => b"[{\"type\":\"output_text\",\"annotations\":[],\"text\":",
                    Chat::OpenAi | Chat::Anthropic | Chat::Ollama => b"[{\"type\":\"text\",\"text\":",
                });
                string(&mut out, text);
                out.extend_from_slice(b"}]");
            } else {
                string(&mut out, text);
            }
            kept = range.end;
        }
        out.extend_from_slice(&body[kept..]);
        out
    }

    /// Appends one message as the protocol writes it.
    pub(crate) fn message(self, turn: Turn<'_>, out: &mut Vec<u8>) {
        let assistant = turn.speaker == Speaker::Assistant;
        let (head, tail): (&[u8], &[u8]) = match (self, assistant) {
            (Chat::Gemini, false) => (b"{\"role\":\"user\",\"parts\":[{\"text\":", b"}]}"),
            (Chat::Gemini, true) => (b"{\"role\":\"model\",\"parts\":[{\"text\":", b"}]}"),
            (_, false) => (b"{\"role\":\"user\",\"content\":", b"}"),
            (_, true) => (b"{\"role\":\"assistant\",\"content\":", b"}"),
        };
        out.extend_from_slice(head);
        string(out, turn.text);
        out.extend_from_slice(tail);
    }

    /// Appends a conversation that ends with `prompt` as a list.
    pub(crate) fn messages(self, turns: &[Turn<'_>], prompt: &str, out: &mut Vec<u8>) {
        out.push(b'[');
        for turn in turns {
            self.message(*turn, out);
            out.push(b',');
        }
        self.message(Turn { speaker: Speaker::User, text: prompt }, out);
        out.push(b']');
    }
}

/// One item of a recorded conversation. Anything else than an object says nothing.
#[derive(Default, Deserialize)]
struct Item<'a> {
    #[serde(borrow)]
    role: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    parts: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_calls: Option<&'a RawValue>,
    #[serde(borrow)]
    function_call: Option<&'a RawValue>,
}

impl Item<'_> {
    /// Part of an answer of the model.
    fn is_of_model(&self) -> bool {
        match (self.role.as_deref(), self.kind.as_deref()) {
            (Some(role), _) => matches!(role, "assistant" | "model"),
            (None, Some(kind)) => kind == "reasoning" || kind.ends_with("_call"),
            (None, None) => false,
        }
    }

    fn calls_tools(&self) -> bool {
        let says =
            |value: Option<&RawValue>| value.is_some_and(|value| !matches!(value.get(), "null" | "[]"));
        let marks = ["\"tool_use\"", "\"functionCall\"", "\"function_call\""];
        let in_parts = [self.content, self.parts]
            .into_iter()
            .flatten()
            .any(|place| place.get().starts_with('[') && marks.iter().any(|mark| place.get().contains(mark)));
        self.role.is_none() && self.kind.as_deref() != Some("reasoning")
            || says(self.tool_calls)
            || says(self.function_call)
            || in_parts
    }
}

/// Appends the text of the parts of a kind.
fn texts(parts: &Value, kind: &str, text: &mut String) {
    for part in parts.as_array().into_iter().flatten().filter(|part| part["type"] == kind) {
        text.push_str(part["text"].as_str().unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PROVIDERS, RenderRequest};
    use proptest::prelude::*;

    fn said(chat: Chat, body: &str) -> Option<String> {
        chat.answer_text(body.as_bytes(), 1 << 20)
    }

    fn sse(events: &[&str]) -> String {
        events.iter().map(|event| format!("data: {event}\n\n")).collect()
    }

    #[test]
    fn the_text_of_a_stream_is_what_its_first_choice_says_in_order() {
        let openai = sse(&[
            r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}"#,
            r#"{"choices":[{"index":1,"delta":{"content":"other"}},{"index":0,"delta":{"content":"a \"b\""}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"\u00e9"}}],"usage":null}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":3}}"#,
            "[DONE]",
        ]);
        assert_eq!(said(Chat::OpenAi, &openai).unwrap(), "a \"b\"\u{e9}");
        let anthropic = sse(&[
            r#"{"type":"content_block_start","content_block":{"type":"thinking","thinking":""}}"#,
            r#"{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"hm"}}"#,
            r#"{"type":"content_block_start","content_block":{"type":"text","text":""}}"#,
            r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"one"}}"#,
            r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":" two"}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
        ]);
        assert_eq!(said(Chat::Anthropic, &anthropic).unwrap(), "one two");
        let gemini = sse(&[
            r#"{"candidates":[{"content":{"parts":[{"text":"hm","thought":true},{"text":"x"}]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":"y"}]},"finishReason":"STOP"}]}"#,
        ]);
        assert_eq!(said(Chat::Gemini, &gemini).unwrap(), "xy");
        let responses = sse(&[
            r#"{"type":"response.output_text.delta","delta":"p"}"#,
            r#"{"type":"response.reasoning_text.delta","delta":"hm"}"#,
            r#"{"type":"response.output_text.delta","delta":"q"}"#,
            r#"{"type":"response.completed","response":{"output":[{"content":[{"type":"output_text","text":"pq"}]}]}}"#,
        ]);
        assert_eq!(said(Chat::Responses, &responses).unwrap(), "pq");
        let ollama = "{\"message\":{\"content\":\"a\"},\"done\":false}\n{\"message\":{\"content\":\"b\"},\"done\":true}";
        assert_eq!(said(Chat::Ollama, ollama).unwrap(), "ab");
    }

    #[test]
    fn whole_answers_have_their_text_too_and_what_has_none_or_too_much_has_none() {
        let cases = [
            (Chat::OpenAi, r#"{"choices":[{"index":0,"message":{"content":"t"}}]}"#),
            (
                Chat::Anthropic,
                r#"{"content":[{"type":"thinking","thinking":"h"},{"type":"text","text":"t"}]}"#,
            ),
            (Chat::Gemini, r#"{"candidates":[{"content":{"parts":[{"text":"t"}]}}]}"#),
            (Chat::Ollama, r#"{"message":{"content":"t"},"done":true}"#),
            (
                Chat::Responses,
                r#"{"output":[{"type":"message","content":[{"type":"output_text","text":"t"}]}]}"#,
            ),
        ];
        for (chat, body) in cases {
            assert_eq!(said(chat, body).as_deref(), Some("t"), "{chat:?}");
            assert_eq!(said(chat, "{}"), None);
            assert_eq!(said(chat, ""), None);
            assert_eq!(chat.answer_text(body.as_bytes(), 0), None, "more than is kept");
        }
    }

    #[test]
    fn recorded_answers_are_replaced_from_the_last_and_every_other_byte_stays() {
        let body = r#"{"model":"m", "messages":[{"role":"system","content":"s"},{"role":"user","content":"q1"},
            {"content":"old 1","role":"assistant"},{"role":"user","content":"q2"},{"role":"assistant","content":[{"type":"text","text":"old 2"}]},
            {"role":"user","content":"q3"}],"tools":[{"b":1,"a":2}]}"#;
        let new = Chat::OpenAi.with_answers(body.as_bytes(), &[Some("new\n1"), Some("new 2")]).unwrap();
        let expected = body.replace("\"old 1\"", "\"new\\n1\"").replace("old 2", "new 2");
        assert_eq!((String::from_utf8(new.body).unwrap(), new.replaced, new.last), (expected, 2, true));
        let one = Chat::OpenAi.with_answers(body.as_bytes(), &[Some("new 2")]).unwrap();
        assert_eq!(String::from_utf8(one.body).unwrap(), body.replace("old 2", "new 2"));
        let first = Chat::OpenAi.with_answers(body.as_bytes(), &[Some("new 1"), None]).unwrap();
        assert_eq!((first.replaced, first.last), (1, false));
        assert_eq!(String::from_utf8(first.body).unwrap(), body.replace("old 1", "new 1"));
    }

    #[test]
    fn every_protocol_with_conversations_writes_earlier_turns_as_messages_of_their_own() {
        let turns =
            [Turn { speaker: Speaker::User, text: "q\"1" }, Turn { speaker: Speaker::Assistant, text: "a1" }];
        let request = RenderRequest { model: "m", prompt: "q2", turns: &turns, ..RenderRequest::default() };
        for provider in PROVIDERS {
            let Some(chat) = provider.chat() else { continue };
            let mut body = Vec::new();
            provider.render(&request, &mut body);
            let body: Value = serde_json::from_slice(&body).unwrap();
            let said = |role: &str, text: &str| match chat {
                Chat::Gemini => serde_json::json!({"role": role, "parts": [{"text": text}]}),
                _ => serde_json::json!({"role": role, "content": text}),
            };
            let model = if chat == Chat::Gemini { "model" } else { "assistant" };
            let expected = [said("user", "q\"1"), said(model, "a1"), said("user", "q2")];
            assert_eq!(body[chat.list()], Value::from(expected.to_vec()), "{}", provider.name());
        }
        let with: Vec<&str> = PROVIDERS
            .iter()
            .filter(|provider| provider.chat().is_some())
            .map(|provider| provider.name())
            .collect();
        let expected = [
            "openai-chat",
            "openai-responses",
            "azure-openai",
            "anthropic-messages",
            "gemini",
            "ollama-chat",
        ];
        assert_eq!(with, expected);
    }

    #[test]
    fn every_protocol_keeps_the_form_of_what_is_replaced() {
        let cases = [
            (
                Chat::Anthropic,
                r#"{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"thinking","thinking":"h"},{"type":"text","text":"o"}]},{"role":"user","content":"r"}]}"#,
                r#"{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"text","text":"n"}]},{"role":"user","content":"r"}]}"#,
            ),
            (
                Chat::Gemini,
                r#"{"contents":[{"role":"user","parts":[{"text":"q"}]},{"role":"model","parts":[{"text":"o"},{"text":"p"}]},{"parts":[{"text":"r"}]}]}"#,
                r#"{"contents":[{"role":"user","parts":[{"text":"q"}]},{"role":"model","parts":[{"text":"n"}]},{"parts":[{"text":"r"}]}]}"#,
            ),
            (
                Chat::Responses,
                r#"{"input":[{"role":"user","content":"q"},{"type":"reasoning","summary":[]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"o"}]},{"role":"user","content":"r"}]}"#,
                r#"{"input":[{"role":"user","content":"q"},{"type":"reasoning","summary":[]},{"type":"message","role":"assistant","content":[{"type":"output_text","annotations":[],"text":"n"}]},{"role":"user","content":"r"}]}"#,
            ),
            (
                Chat::Ollama,
                r#"{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"o"},{"role":"user","content":"r"}]}"#,
                r#"{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"n"},{"role":"user","content":"r"}]}"#,
            ),
        ];
        for (chat, body, expected) in cases {
            let new = chat.with_answers(body.as_bytes(), &[Some("n")]).unwrap();
            assert_eq!(String::from_utf8(new.body).unwrap(), expected);
        }
    }

    #[test]
    fn an_answer_that_called_tools_stays_and_a_prefill_is_no_answer() {
        let calls = [
            (
                Chat::OpenAi,
                r#"{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"","tool_calls":[{"id":"1"}]},{"role":"tool","content":"r"}]}"#,
            ),
            (
                Chat::Anthropic,
                r#"{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"1"}]},{"role":"user","content":[]}]}"#,
            ),
            (
                Chat::Gemini,
                r#"{"contents":[{"role":"model","parts":[{"functionCall":{}}]},{"role":"user","parts":[]}]}"#,
            ),
            (
                Chat::Responses,
                r#"{"input":[{"type":"function_call","call_id":"1"},{"type":"function_call_output","call_id":"1"}]}"#,
            ),
            (
                Chat::OpenAi,
                r#"{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"Sure:"}]}"#,
            ),
            (Chat::Responses, r#"{"input":"a text"}"#),
            (Chat::OpenAi, r#"{"messages":[]}"#),
            (Chat::OpenAi, "no JSON"),
        ];
        for (chat, body) in calls {
            assert_eq!(chat.with_answers(body.as_bytes(), &[Some("n")]), None, "{body}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics_on_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            for chat in [Chat::OpenAi, Chat::Anthropic, Chat::Gemini, Chat::Ollama, Chat::Responses] {
                let _text = chat.answer_text(&bytes, 100);
                let _messages = chat.messages_in(&bytes);
                let _body = chat.with_answers(&bytes, &[Some("n"), None]);
            }
        }

        #[test]
        fn what_was_put_in_is_read_back_as_json(
            answer in "\\PC{0,40}",
            before in "\\PC{0,20}",
        ) {
            let body = serde_json::json!({"messages": [
                {"role": "user", "content": before},
                {"role": "assistant", "content": "old"},
                {"role": "user", "content": "next"},
            ]});
            let new = Chat::OpenAi.with_answers(body.to_string().as_bytes(), &[Some(&answer)]).unwrap();
            let new: Value = serde_json::from_slice(&new.body).unwrap();
            prop_assert_eq!(new["messages"][1]["content"].as_str(), Some(answer.as_str()));
            prop_assert_eq!(&new["messages"][0], &body["messages"][0]);
        }
    }
}
