//! What to send and what a stream's bytes mean, per provider, without sockets.
//!
//! A [`Provider`] renders one request into exact, deterministic JSON bytes and hands out a [`Decoder`] for the
//! answer. A decoder is fed the body as it was read, in pieces of any size, and gives [`Event`]s: each says what
//! kind of thing arrived, how much of it, and at which byte of the body it was complete. It never looks at a
//! clock. Whoever read the body knows when each byte arrived and joins the two by [`Event::end_offset`].
//!
//! Decoding runs off the path that sends and reads, so it may be thorough: framing ([`sse`]) works on bytes and
//! knows nothing of JSON; classification works on whole events and accepts what the clones of an API really send.
//!
//! A new provider is one file here and one line in [`PROVIDERS`].
//!
//! ```
//! use tracewheel_protocol::{ResponseHead, StreamEnd, provider};
//! use tracewheel_timeline::vocab::EventKind;
//!
//! let chat = provider("openai-chat").expect("it is in the table");
//! let mut decoder = chat.decoder(&ResponseHead { status: 200, content_type: Some("text/event-stream") });
//! let mut events = Vec::new();
//! decoder.feed(b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Blue\"}}]}\n\ndata: [D", &mut events);
//! decoder.feed(b"ONE]\n\n", &mut events);
//! assert_eq!(decoder.finish(&mut events), StreamEnd::Complete);
//! assert_eq!(events[0].kind, EventKind::Text);
//! assert_eq!((events[0].bytes, events[0].end_offset), (4, 60));
//! assert_eq!(events[1].kind, EventKind::Terminal);
//! ```

mod anthropic_messages;
mod azure_openai;
mod body;
mod conversation;
mod decode;
mod gemini;
mod gemini_embeddings;
mod headers;
mod http;
#[cfg(test)]
mod known_answers;
mod lenient;
mod lines;
mod ollama;
mod ollama_chat;
mod ollama_generate;
mod openai;
mod openai_chat;
mod openai_completions;
mod openai_embeddings;
mod openai_responses;
mod options;
mod provider;
mod recorded;
mod splice;
pub mod sse;
mod tgi_generate;
mod usage;
mod write;

pub use anthropic_messages::AnthropicMessages;
pub use azure_openai::{AzureEmbeddings, AzureOpenAi};
pub use conversation::{Chat, Speaker, Threaded, Turn};
pub use decode::{Decoder, ErrorDetail, Event, ResponseHead, ResponseMeta, StreamEnd, TokenSource, Warnings};
pub use gemini::Gemini;
pub use gemini_embeddings::GeminiEmbeddings;
pub use headers::ReportedHeaders;
pub use http::{Http, Template};
pub use ollama_chat::OllamaChat;
pub use ollama_generate::OllamaGenerate;
pub use openai_chat::OpenAiChat;
pub use openai_completions::OpenAiCompletions;
pub use openai_embeddings::OpenAiEmbeddings;
pub use openai_responses::OpenAiResponses;
pub use options::{AnswerForm, Engine, LimitField, OptionError, ProtocolOptions, Settled, TokenDetail};
pub use provider::{Knobs, Place, Provider, RenderRequest, carrier};
pub use recorded::Overrides;
pub use splice::render_around;
pub use tgi_generate::TgiGenerate;
pub use usage::Usage;

/// Every provider, one line each. The names are what a scenario writes.
pub static PROVIDERS: &[&dyn Provider] = &[
    &OpenAiChat,
    &OpenAiCompletions,
    &OpenAiResponses,
    &OpenAiEmbeddings,
    &AzureOpenAi,
    &AzureEmbeddings,
    &AnthropicMessages,
    &Gemini,
    &GeminiEmbeddings,
    &TgiGenerate,
    &OllamaChat,
    &OllamaGenerate,
    &Http,
];

/// The provider of that name, if there is one.
pub fn provider(name: &str) -> Option<&'static dyn Provider> {
    PROVIDERS.iter().copied().find(|provider| provider.name() == name)
}
