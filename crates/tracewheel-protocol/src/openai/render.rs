//! Request bodies, byte for byte.

use crate::RenderRequest;
use crate::options::{Engine, LimitField, TokenDetail};
use crate::write::{self, OPENAI_NAMES, json, number, sampling, text};

/// Where the prompt goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PromptShape {
    /// `messages` with one user message.
    Chat,
    /// `prompt`.
    Completion,
}

/// Writes the body of `request` into the cleared `out`. Keys stand in a fixed order, without spaces.
pub(crate) fn render(shape: PromptShape, request: &RenderRequest<'_>, out: &mut Vec<u8>) {
    write::begin(request, out);
    match (shape, request.prompt_ids) {
        (PromptShape::Chat, _) => write::user_message(request, out),
        (PromptShape::Completion, None) => text(out, "prompt", request.prompt),
        (PromptShape::Completion, Some(ids)) => {
            out.extend_from_slice(b",\"prompt\":");
            json(out, ids);
        }
    }
    lengths(shape, request, out);
    sampling(request, OPENAI_NAMES, out);
    if let Some(salt) = request.cache_salt {
        text(out, "cache_salt", salt);
    }
    streaming(request, out);
    out.push(b'}');
}

fn lengths(shape: PromptShape, request: &RenderRequest<'_>, out: &mut Vec<u8>) {
    let field = match (shape, request.limit_field) {
        (PromptShape::Chat, LimitField::MaxCompletionTokens) => "max_completion_tokens",
        _ => "max_tokens",
    };
    number(out, field, request.max_tokens);
    if request.force_length {
        if request.engine.is_none_or(Engine::knows_min_tokens) {
            number(out, "min_tokens", request.max_tokens);
        }
        out.extend_from_slice(b",\"ignore_eos\":true");
    }
}

fn streaming(request: &RenderRequest<'_>, out: &mut Vec<u8>) {
    match request.token_detail {
        TokenDetail::TokenIds => out.extend_from_slice(b",\"return_token_ids\":true"),
        TokenDetail::Timings => out.extend_from_slice(b",\"timings_per_token\":true"),
        TokenDetail::ContinuousUsage | TokenDetail::None => {}
    }
    if !request.stream {
        out.extend_from_slice(b",\"stream\":false");
        return;
    }
    out.extend_from_slice(b",\"stream\":true,\"stream_options\":{\"include_usage\":true");
    if request.token_detail == TokenDetail::ContinuousUsage {
        out.extend_from_slice(b",\"continuous_usage_stats\":true");
    }
    if let Some(obfuscation) = request.include_obfuscation {
        out.extend_from_slice(b",\"include_obfuscation\":");
        json(out, &obfuscation);
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(shape: PromptShape, request: &RenderRequest<'_>) -> String {
        let mut out = b"left over from the last request".to_vec();
        render(shape, request, &mut out);
        let text = String::from_utf8(out).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(value.is_object());
        text
    }

    #[test]
    fn a_streamed_chat_request_has_exactly_these_bytes() {
        let request = RenderRequest {
            model: "m",
            prompt: "say \"hi\"\n\u{1F600}\u{2028}\u{1}",
            max_tokens: 7,
            ..RenderRequest::default()
        };
        assert_eq!(
            body(PromptShape::Chat, &request),
            "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"say \\\"hi\\\"\\n\u{1F600}\u{2028}\\u0001\"}],\
             \"max_tokens\":7,\"temperature\":0.0,\"stream\":true,\"stream_options\":{\"include_usage\":true}}"
        );
    }

    #[test]
    fn every_option_shows_in_its_place() {
        let request = RenderRequest {
            model: "m",
            prompt: "p",
            max_tokens: 9,
            limit_field: LimitField::MaxCompletionTokens,
            force_length: true,
            token_detail: TokenDetail::ContinuousUsage,
            temperature: 0.25,
            cache_salt: Some("00ff"),
            include_obfuscation: Some(false),
            ..RenderRequest::default()
        };
        assert_eq!(
            body(PromptShape::Chat, &request),
            "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"p\"}],\"max_completion_tokens\":9,\
             \"min_tokens\":9,\"ignore_eos\":true,\"temperature\":0.25,\"cache_salt\":\"00ff\",\"stream\":true,\
             \"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true,\
             \"include_obfuscation\":false}}"
        );
    }

    #[test]
    fn a_plain_completion_request_asks_for_no_stream_options() {
        let request = RenderRequest {
            model: "m",
            prompt: "p",
            max_tokens: 9,
            limit_field: LimitField::MaxCompletionTokens,
            stream: false,
            token_detail: TokenDetail::TokenIds,
            ..RenderRequest::default()
        };
        assert_eq!(
            body(PromptShape::Completion, &request),
            "{\"model\":\"m\",\"prompt\":\"p\",\"max_tokens\":9,\"temperature\":0.0,\"return_token_ids\":true,\
             \"stream\":false}"
        );
    }

    #[test]
    fn an_engine_gets_the_fields_that_it_knows_and_a_prompt_may_be_ids() {
        let request = RenderRequest {
            model: "m",
            prompt_ids: Some(&[7, 40]),
            max_tokens: 9,
            force_length: true,
            engine: Some(Engine::LlamaCpp),
            token_detail: TokenDetail::Timings,
            ..RenderRequest::default()
        };
        assert_eq!(
            body(PromptShape::Completion, &request),
            "{\"model\":\"m\",\"prompt\":[7,40],\"max_tokens\":9,\"ignore_eos\":true,\"temperature\":0.0,\
             \"timings_per_token\":true,\"stream\":true,\"stream_options\":{\"include_usage\":true}}"
        );
    }

    #[test]
    fn recorded_sampling_numbers_are_sent_as_they_were_written() {
        let request = RenderRequest {
            model: "m",
            prompt: "p",
            temperature: 0.5,
            params: Some(
                r#"{"temperature":1.10,"seed":18446744073709551615,"top_p":"high","stop":["x"],"n":3}"#,
            ),
            ..RenderRequest::default()
        };
        let text = body(PromptShape::Completion, &request);
        assert!(text.contains(",\"temperature\":1.10,\"seed\":18446744073709551615,\"stream\""), "{text}");
        assert!(!text.contains("top_p") && !text.contains("stop") && !text.contains("\"n\""), "{text}");
    }

    #[test]
    fn parameters_that_are_no_object_count_as_none() {
        for params in ["", "[1]", "{\"temperature\":", "7", "{\"temperature\":null}"] {
            let request =
                RenderRequest { params: Some(params), temperature: 0.5, ..RenderRequest::default() };
            let text = body(PromptShape::Chat, &request);
            assert!(text.contains(",\"temperature\":0.5,\"stream\""), "{params}: {text}");
        }
    }
}
