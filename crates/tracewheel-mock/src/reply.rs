//! What the endpoint answers: the words, and the counts that go with them. How they are put is the dialect's.

use bytes::Bytes;
use http::header::HeaderValue;
use tracewheel_tokens::TextMaker;

use crate::api::{ApiError, Ask};

/// Token counts of one exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    /// All of the prompt, cached or not.
    pub(crate) prompt_tokens: u32,
    pub(crate) cached_tokens: u32,
    /// Tokens of full blocks that were not in the cache.
    pub(crate) written_tokens: u32,
    /// All of the answer, thoughts among them.
    pub(crate) completion_tokens: u32,
    pub(crate) thought_tokens: u32,
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

/// One token of an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Token<'a> {
    /// Letters, digits and a leading space at most: nothing that JSON escapes.
    pub(crate) text: &'a str,
    /// Whether it is a thought.
    pub(crate) thought: bool,
    /// Counts up to and with this token; nothing if the stream shall not tell them.
    pub(crate) usage: Option<Usage>,
}

/// The text of a whole answer, with nothing in it that JSON escapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) thoughts: String,
    pub(crate) answer: String,
}

/// How one answer is put, event by event or whole. Each call's bytes are one write.
pub(crate) trait Voice {
    /// The content type of a stream.
    fn stream_type(&self) -> HeaderValue {
        HeaderValue::from_static("text/event-stream; charset=utf-8")
    }

    /// Whether the opening comes as soon as the request has a place, wherever the first token is.
    fn opens_early(&self) -> bool {
        false
    }

    /// What comes before the first token, if anything does.
    fn opening(&mut self, _usage: Usage) -> Option<String> {
        None
    }

    /// The event of one token.
    fn token(&mut self, token: Token<'_>) -> String;

    /// What ends a stream. That it comes twice is not its business.
    fn tail(&mut self, usage: Usage, shape: TailShape) -> String;

    /// An error in a stream that began well; nothing follows it.
    fn failure(&mut self, error: &ApiError) -> String;

    /// The whole answer of a request that did not ask for a stream.
    fn whole(&mut self, text: &Text, usage: Usage) -> String;
}

/// One answer, streamed or whole.
pub(crate) struct Reply {
    voice: Box<dyn Voice>,
    stream: bool,
    thoughts: u32,
    prompt_tokens: u32,
    /// Tokens of the prompt's full blocks; 0 where nothing is cached.
    block_tokens: u32,
    text_key: u64,
    shape: TailShape,
}

impl Reply {
    /// `block_tokens` is a block's size where prompts are cached, else 0; `text_key` decides the words.
    pub(crate) fn new(ask: &Ask, voice: Box<dyn Voice>, block_tokens: u32, text_key: u64) -> Self {
        let blocks = u32::try_from(ask.prompt.blocks.len()).unwrap_or(u32::MAX);
        Self {
            voice,
            stream: ask.stream,
            thoughts: ask.answer.thoughts,
            prompt_tokens: ask.prompt.tokens,
            block_tokens: blocks.saturating_mul(block_tokens),
            text_key,
            shape: TailShape::default(),
        }
    }

    /// The end is to look so.
    pub(crate) fn set_tail_shape(&mut self, shape: TailShape) {
        self.shape = shape;
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.stream
    }

    pub(crate) fn stream_type(&self) -> HeaderValue {
        self.voice.stream_type()
    }

    pub(crate) fn opens_early(&self) -> bool {
        self.voice.opens_early()
    }

    /// What comes before the first token, if anything does.
    pub(crate) fn opening(&mut self, cached_tokens: u32) -> Option<Bytes> {
        let usage = self.usage(cached_tokens, 0);
        self.voice.opening(usage).map(Bytes::from)
    }

    /// The event of token `index` (from 0).
    pub(crate) fn token(&mut self, words: &TextMaker, cached_tokens: u32, index: u32) -> Bytes {
        let usage = self.shape.usage.then(|| self.usage(cached_tokens, index + 1));
        let (thought, word) = (index < self.thoughts, words.word(self.text_key, index));
        let spaced;
        let text = if index == 0 || index == self.thoughts {
            word
        } else {
            spaced = format!(" {word}");
            &spaced
        };
        Bytes::from(self.voice.token(Token { text, thought, usage }))
    }

    /// What ends a stream after so many tokens.
    pub(crate) fn tail(&mut self, cached_tokens: u32, completion_tokens: u32) -> Bytes {
        let usage = self.usage(cached_tokens, completion_tokens);
        let tail = self.voice.tail(usage, self.shape);
        Bytes::from(if self.shape.twice { tail.repeat(2) } else { tail })
    }

    /// An error in the middle of a stream.
    pub(crate) fn failure(&mut self, error: &ApiError) -> Bytes {
        Bytes::from(self.voice.failure(error))
    }

    /// The whole answer of a request that did not ask for a stream.
    pub(crate) fn whole(&mut self, words: &TextMaker, cached_tokens: u32, completion_tokens: u32) -> Bytes {
        let text = |from: u32, to: u32| {
            let mut text = String::with_capacity((to - from) as usize * 6);
            for index in from..to {
                if index > from {
                    text.push(' ');
                }
                text.push_str(words.word(self.text_key, index));
            }
            text
        };
        let thoughts = self.thoughts.min(completion_tokens);
        let text = Text { thoughts: text(0, thoughts), answer: text(thoughts, completion_tokens) };
        let usage = self.usage(cached_tokens, completion_tokens);
        Bytes::from(self.voice.whole(&text, usage))
    }

    /// Counts after `completion_tokens` tokens.
    fn usage(&self, cached_tokens: u32, completion_tokens: u32) -> Usage {
        Usage {
            prompt_tokens: self.prompt_tokens,
            cached_tokens,
            written_tokens: self.block_tokens.saturating_sub(cached_tokens),
            completion_tokens,
            thought_tokens: self.thoughts.min(completion_tokens),
        }
    }
}
