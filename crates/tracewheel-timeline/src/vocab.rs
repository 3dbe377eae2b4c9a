//! The closed vocabularies: every word that a dictionary column, a record or a manifest may carry.
//!
//! Each word is written once, here, with its meaning; `docs/reference/vocabulary.md` repeats both and a test holds the
//! page against this code. Words are stored as text, so that a file reads without us; [`EventKind`] has a code
//! besides, because a run stores millions of events.

mod event;
mod reason;

pub use event::EventKind;
pub use reason::Reason;

/// Declares one closed vocabulary: the enum, its words, its meanings, its parser and its serde form (the word).
macro_rules! vocabulary {
    (
        $(#[$meta:meta])*
        $name:ident, $title:literal $(, default $default:ident)? {
            $( $(#[doc = $doc:literal])+ $variant:ident = $word:literal, )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $( $(#[doc = $doc])+ $variant, )+
        }

        impl $name {
            /// Every word of the vocabulary, in the order of its documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// What the vocabulary is called in error texts and in the reference.
            pub const TITLE: &'static str = $title;

            /// The word as it is stored.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// The variant that is stored as `word`; `None` for any other text (matching is exact).
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }

            /// What the word means, in one sentence: the same text as in the reference.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+).trim_ascii()),+ }
            }
        }

        $(impl Default for $name {
            fn default() -> Self {
                Self::$default
            }
        })?

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::vocab::UnknownWord;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                Self::parse(word).ok_or_else(|| $crate::vocab::UnknownWord {
                    vocabulary: $title,
                    word: word.chars().take(80).collect(),
                })
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let word = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
                word.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use vocabulary;

/// A text that is not a word of the vocabulary it was read as.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is not a word of the vocabulary `{vocabulary}`")]
pub struct UnknownWord {
    /// The vocabulary's title.
    pub vocabulary: &'static str,
    /// The text, cut to 80 characters.
    pub word: String,
}

vocabulary! {
    /// What a request asks for: decides which provider dialect can carry it.
    Operation, "operation", default Chat {
        /// A chat completion: messages in, one assistant message out (`/v1/chat/completions` and its like).
        Chat = "chat",
        /// A text completion: a prompt in, its continuation out (`/v1/completions`).
        Completion = "completion",
        /// A stateful response with typed items (`/v1/responses`).
        Responses = "responses",
        /// A message with content blocks (`/v1/messages`).
        Messages = "messages",
        /// Content generation by the method in the path (`:generateContent`, `:streamGenerateContent`).
        GenerateContent = "generate_content",
        /// Embedding vectors: input tokens only, no stream.
        Embeddings = "embeddings",
        /// Any other HTTP request: no tokens are expected.
        Http = "http",
    }
}

vocabulary! {
    /// What the recorded stamp meant before it became `arrival_unix_ns`.
    ArrivalSource, "arrival source", default Unknown {
        /// The source recorded the start of the request.
        Start = "start",
        /// The source recorded the end, and the recorded duration was taken off.
        DerivedFromEnd = "derived_from_end",
        /// The source recorded when it wrote the line, and nothing allows the start to be found: arrivals lie late.
        LogWrite = "log_write",
        /// The source does not say what its stamp means, or there is no stamp.
        Unknown = "unknown",
    }
}

vocabulary! {
    /// How a value came to be known. Null beside a null value means unknown.
    Source, "source" {
        /// The recorded system stated the value.
        Reported = "reported",
        /// Computed from other recorded values, without a guess.
        Derived = "derived",
        /// Guessed by a named rule (a tokenizer of another model, bytes per token).
        Estimated = "estimated",
        /// Known not to exist: the value is null and would mean nothing.
        Absent = "absent",
    }
}

vocabulary! {
    /// Which moment `prod_ttft_ns` ends at. `compare` takes the replay's stamp of the same kind.
    TtftKind, "ttft kind" {
        /// The first output token, as the serving engine saw it.
        Token = "token",
        /// The first chunk that carries output, as a client or gateway saw it.
        FirstChunk = "first_chunk",
        /// The first byte of the response's body.
        FirstByte = "first_byte",
        /// The response's headers, as the recording point sent or received them.
        Headers = "headers",
        /// The response's headers, as a proxy received them from its upstream.
        UpstreamHeaders = "upstream_headers",
    }
}

vocabulary! {
    /// How much of the request's body the timeline holds.
    BodyState, "body state", default Absent {
        /// The whole body, as it was sent.
        Full = "full",
        /// A part: must not be replayed as if it were whole.
        Truncated = "truncated",
        /// A body whose text was replaced.
        Redacted = "redacted",
        /// No body.
        Absent = "absent",
    }
}

vocabulary! {
    /// How a request ended: in every run planned = ok + failed + cancelled + interrupted + unsent.
    RequestStatus, "request status" {
        /// An attempt brought a whole, well-formed, successful answer.
        Ok = "ok",
        /// Every attempt that the policy allowed failed; the reason is the last attempt's.
        Failed = "failed",
        /// The client left on purpose, as the recorded one did.
        Cancelled = "cancelled",
        /// Released, but the run ended before the request did.
        Interrupted = "interrupted",
        /// Planned, but never released.
        Unsent = "unsent",
    }
}

vocabulary! {
    /// How one HTTP exchange ended. An attempt exists only once it was released, so `unsent` is not among them.
    AttemptStatus, "attempt status" {
        /// A whole, well-formed, successful answer.
        Ok = "ok",
        /// No answer, a broken one or an error: the reason says which.
        Failed = "failed",
        /// The client left on purpose, as the recorded one did.
        Cancelled = "cancelled",
        /// The run ended before the exchange did.
        Interrupted = "interrupted",
    }
}

vocabulary! {
    /// The part of a run that a request belongs to. Only `measure` enters statistics.
    Phase, "phase", default Measure {
        /// Before the run: network round trip, tokens a word.
        Calibrate = "calibrate",
        /// Prefixes that were live before the window are sent ahead.
        Prime = "prime",
        /// The timeline's own requests before the measured window.
        Warmup = "warmup",
        /// The measured window.
        Measure = "measure",
        /// After the window: what was already released may finish, nothing counts.
        Drain = "drain",
    }
}

vocabulary! {
    /// The HTTP version and carrier of an attempt.
    Protocol, "protocol", default H1 {
        /// HTTP/1.1, with or without TLS.
        H1 = "h1",
        /// HTTP/2 over TLS.
        H2 = "h2",
        /// HTTP/2 over plain TCP, by prior knowledge.
        H2c = "h2c",
    }
}

impl From<AttemptStatus> for RequestStatus {
    fn from(status: AttemptStatus) -> Self {
        match status {
            AttemptStatus::Ok => Self::Ok,
            AttemptStatus::Failed => Self::Failed,
            AttemptStatus::Cancelled => Self::Cancelled,
            AttemptStatus::Interrupted => Self::Interrupted,
        }
    }
}
