//! One JSON message of the Messages protocol: an event of a stream, or a whole answer. Read leniently.

use serde::de::{MapAccess, SeqAccess};

use crate::body::State;
use crate::lenient::{Payload, Sink, Truthy, count, first, length, measure, skip, take, take_element};
use crate::{ResponseMeta, Usage};

/// What an event is, by its `type` or its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    MessageStart,
    BlockStart,
    BlockDelta,
    BlockStop,
    MessageDelta,
    MessageStop,
    Ping,
    Error,
    #[default]
    Unknown,
}

impl Kind {
    pub(super) fn of(name: &[u8]) -> Self {
        match name {
            b"message_start" => Kind::MessageStart,
            b"content_block_start" => Kind::BlockStart,
            b"content_block_delta" => Kind::BlockDelta,
            b"content_block_stop" => Kind::BlockStop,
            b"message_delta" => Kind::MessageDelta,
            b"message_stop" => Kind::MessageStop,
            b"ping" => Kind::Ping,
            b"error" => Kind::Error,
            _ => Kind::Unknown,
        }
    }
}

impl Sink for Kind {
    fn text(&mut self, value: &str) {
        *self = Kind::of(value.as_bytes());
    }
}

/// What one message says. Kept and cleared for the next one.
#[derive(Default)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) block: Block,
    /// A whole answer has content, be it empty.
    pub(super) has_content: bool,
    /// A truthy `error`.
    pub(super) error: bool,
    pub(super) tokens: Tokens,
    pub(super) meta: ResponseMeta,
}

impl Message {
    pub(super) fn clear(&mut self) {
        self.kind = Kind::Unknown;
        self.block = Block::default();
        self.has_content = false;
        self.error = false;
        self.tokens = Tokens::default();
    }
}

impl Sink for Message {
    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "type" => take(values, &mut self.kind),
            // `message` of the first event holds what a whole answer has; its own `type` says nothing of the event.
            "message" => take(values, &mut Inner(self)),
            "content" => {
                self.has_content = true;
                take(values, &mut Blocks(&mut self.block))
            }
            "content_block" => take(values, &mut BlockSink { block: &mut self.block, meta: None }),
            "delta" => take(values, &mut BlockSink { block: &mut self.block, meta: Some(&mut self.meta) }),
            "error" => {
                let mut truthy = Truthy::default();
                take(values, &mut truthy)?;
                self.error |= truthy.0;
                Ok(())
            }
            "usage" => take(values, &mut self.tokens),
            "id" => first(values, &mut self.meta.id),
            "model" => first(values, &mut self.meta.model),
            "stop_reason" => first(values, &mut self.meta.finish_reason),
            _ => skip(values),
        }
    }
}

/// The message within `message_start`.
struct Inner<'m>(&'m mut Message);

impl Sink for Inner<'_> {
    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "id" | "model" | "usage" => self.0.entry(key, values),
            _ => skip(values),
        }
    }
}

/// What blocks or a delta hold; lengths in bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct Block {
    pub(super) text: u32,
    pub(super) reasoning: u32,
    pub(super) tool_args: u32,
    pub(super) opaque: u32,
}

/// `content` of a whole answer: an array of blocks, or plain text of a clone.
struct Blocks<'m>(&'m mut Block);

impl Sink for Blocks<'_> {
    fn text(&mut self, value: &str) {
        self.0.text = self.0.text.saturating_add(length(value));
    }

    fn element<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<bool, A::Error> {
        take_element(elements, &mut BlockSink { block: self.0, meta: None })
    }
}

/// One block, its beginning, or a delta of it. Each kind has a key of its own, so `type` is not needed.
struct BlockSink<'m> {
    block: &'m mut Block,
    meta: Option<&'m mut ResponseMeta>,
}

impl Sink for BlockSink<'_> {
    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "text" => measure(values, &mut self.block.text),
            "thinking" => measure(values, &mut self.block.reasoning),
            "partial_json" | "name" => measure(values, &mut self.block.tool_args),
            // Whole in a whole answer, an empty object where arguments follow in pieces.
            "input" => take(values, &mut Payload(&mut self.block.tool_args)),
            // Signatures, encrypted reasoning, citations, results of the server's own tools.
            "signature" | "data" => measure(values, &mut self.block.opaque),
            "citation" | "content" => take(values, &mut Payload(&mut self.block.opaque)),
            "stop_reason" => match &mut self.meta {
                Some(meta) => first(values, &mut meta.finish_reason),
                None => skip(values),
            },
            _ => skip(values),
        }
    }
}

/// Counts as the protocol has them: cached tokens apart from the rest of the input, all of them cumulative.
#[derive(Clone, Copy, Default)]
pub(super) struct Tokens {
    uncached: Option<u32>,
    read: Option<u32>,
    written: Option<u32>,
    output: Option<u32>,
    thinking: Option<u32>,
}

impl Tokens {
    /// Takes over what `later` knows and tells `state` the inclusive form. Whether `later` knew anything.
    pub(super) fn report(&mut self, later: &Tokens, state: &mut State) -> bool {
        let take = |mine: &mut Option<u32>, theirs: Option<u32>| {
            *mine = theirs.or(*mine);
            theirs.is_some()
        };
        let known = [
            take(&mut self.uncached, later.uncached),
            take(&mut self.read, later.read),
            take(&mut self.written, later.written),
            take(&mut self.output, later.output),
            take(&mut self.thinking, later.thinking),
        ];
        let cached = self.read.unwrap_or(0).saturating_add(self.written.unwrap_or(0));
        state.usage.update(&Usage {
            input_tokens: self.uncached.map(|uncached| uncached.saturating_add(cached)),
            cached_tokens: self.read,
            cache_write_tokens: self.written,
            output_tokens: self.output,
            reasoning_tokens: self.thinking,
            input_was_exclusive: cached > 0,
        });
        known.contains(&true)
    }
}

impl Sink for Tokens {
    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "input_tokens" => count(values, &mut self.uncached, true),
            "cache_read_input_tokens" => count(values, &mut self.read, true),
            "cache_creation_input_tokens" => count(values, &mut self.written, true),
            "output_tokens" => count(values, &mut self.output, true),
            "output_tokens_details" => take(values, &mut Thinking(&mut self.thinking)),
            _ => skip(values),
        }
    }
}

struct Thinking<'m>(&'m mut Option<u32>);

impl Sink for Thinking<'_> {
    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        if key == "thinking_tokens" { count(values, self.0, true) } else { skip(values) }
    }
}
