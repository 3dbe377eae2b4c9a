use tracewheel_timeline::vocab::EventKind::{Opaque, Usage as UsageEvent};

use super::*;
use crate::known_answers::{JSON, STREAM, decode};
use crate::{StreamEnd, carrier, provider};

#[test]
fn vectors_are_opaque_and_have_no_output() {
    let body = "{\"object\":\"list\",\"data\":[{\"object\":\"embedding\",\"index\":0,\"embedding\":[0.5,-1e-3]}],\
                \"model\":\"e\",\"usage\":{\"prompt_tokens\":8,\"total_tokens\":8}}";
    let decoded = decode("openai-embeddings", &JSON, body);
    let size = body.len() as u32;
    assert_eq!(decoded.kinds(), [(Opaque, size), (UsageEvent, size)]);
    assert_eq!((decoded.end.is_success(), decoded.first_output()), (true, None));
    assert_eq!((decoded.usage.input_tokens, decoded.usage.output_tokens), (Some(8), None));
    assert_eq!(decoded.meta.model.as_deref(), Some("e"));
}

#[test]
fn what_is_no_list_of_vectors_is_no_success() {
    for body in [
        "{}",
        "{\"data\":[]}",
        "{\"error\":{\"message\":\"no\"}}",
        "{\"object\":\"error\",\"message\":\"no\"}",
        "{\"data\":[",
    ] {
        assert!(!decode("openai-embeddings", &JSON, body).end.is_success(), "{body}");
    }
    let stream = decode("openai-embeddings", &STREAM, "data: {\"choices\":[]}\n\n");
    assert!(matches!(stream.end, StreamEnd::Malformed { .. }));
}

#[test]
fn a_request_is_a_model_and_an_input() {
    let mut out = Vec::new();
    let request =
        RenderRequest { model: "e", prompt: "a\"b", force_length: true, ..RenderRequest::default() };
    OpenAiEmbeddings.render(&request, &mut out);
    assert_eq!(out, b"{\"model\":\"e\",\"input\":\"a\\\"b\"}");
}

#[test]
fn gemini_asks_for_content_by_the_models_path_and_answers_with_values() {
    let gemini = provider("gemini-embeddings").unwrap();
    let mut out = Vec::new();
    gemini.render(&RenderRequest { prompt: "a\"b", ..RenderRequest::default() }, &mut out);
    assert_eq!(out, b"{\"content\":{\"parts\":[{\"text\":\"a\\\"b\"}]}}");
    let place = crate::Place { model: "text-embedding 1", ..crate::Place::default() };
    assert_eq!(gemini.path(&place), "/v1beta/models/text-embedding%201:embedContent");
    assert_eq!(gemini.key_header("k"), ("x-goog-api-key", "k".to_owned()));
    let bare = decode("gemini-embeddings", &JSON, "{\"embedding\":{\"values\":[0.5,-1e-3]}}");
    assert_eq!((bare.end.is_success(), bare.usage.input_tokens), (true, None));
    let counted = "{\"embedding\":{\"values\":[1]},\"usageMetadata\":{\"promptTokenCount\":4}}";
    assert_eq!(decode("gemini-embeddings", &JSON, counted).usage.input_tokens, Some(4));
    for body in ["{\"embedding\":null}", "{\"error\":{\"code\":404,\"message\":\"no\"}}"] {
        assert!(!decode("gemini-embeddings", &JSON, body).end.is_success(), "{body}");
    }
}

#[test]
fn embeddings_find_their_route_beside_the_chats_and_nothing_else_carries_plain_requests() {
    let carried =
        |main: &str, operation| carrier(provider(main).unwrap(), operation).map(|found| found.name());
    assert_eq!(carried("openai-chat", Operation::Embeddings), Some("openai-embeddings"));
    assert_eq!(carried("azure-openai", Operation::Embeddings), Some("azure-embeddings"));
    assert_eq!(carried("gemini", Operation::Embeddings), Some("gemini-embeddings"));
    assert_eq!(carried("openai-chat", Operation::Messages), Some("openai-chat"));
    assert_eq!(carried("openai-embeddings", Operation::Embeddings), Some("openai-embeddings"));
    for (main, operation) in [
        ("anthropic-messages", Operation::Embeddings),
        ("openai-embeddings", Operation::Chat),
        ("openai-chat", Operation::Http),
    ] {
        assert_eq!(carried(main, operation), None, "{main}");
    }
    for operation in Operation::ALL {
        assert_eq!(carried("http", *operation), Some("http"));
    }
}
