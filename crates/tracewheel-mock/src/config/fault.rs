//! Faults by rule: which requests, at which point, what goes wrong.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::ConfigError;

/// One rule. Rules are tried in the file's order; the first that matches a request fires, and no other.
///
/// All matchers that are given must hold; a rule without any fires on every model request. `every` and `probability`
/// count the requests that pass the other matchers and that no earlier rule took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRule {
    /// The rule's name in the witness log, the summary and the description.
    pub name: String,
    /// What goes wrong.
    pub kind: FaultKind,

    /// Every so many matching requests: 3 takes the third, sixth and so on.
    pub every: Option<NonZeroU32>,
    /// Chance of a matching request to be hit, 0 to 1; seeded.
    pub probability: Option<f64>,
    /// It fires at most so often.
    pub times: Option<NonZeroU32>,
    /// Not before so long after the start, milliseconds.
    pub from_ms: Option<u64>,
    /// Not from so long after the start on, milliseconds.
    pub to_ms: Option<u64>,
    /// Prompts of at least so many tokens.
    pub min_input_tokens: Option<u32>,
    /// Prompts of at most so many tokens.
    pub max_input_tokens: Option<u32>,
    /// Requests to this path; without it, the model routes only.
    pub path: Option<String>,
    /// Requests for this model.
    pub model: Option<String>,
    /// Requests that have this header.
    pub header: Option<HeaderMatch>,
    /// Streamed requests only, or only whole ones.
    pub stream: Option<bool>,
    /// First attempts only, or only retries, as the client's retry header tells.
    pub attempts: Option<Attempts>,

    /// In the answer, once so many chunks with a token have gone out; streamed answers only.
    pub after_chunks: Option<u32>,
    /// In the answer, once so many bytes of its body have gone out.
    pub after_bytes: Option<u32>,

    /// How long it lasts, milliseconds.
    pub for_ms: Option<u32>,
    /// Status of the answer.
    pub status: Option<u16>,
    /// Body of the answer, or the error's message.
    pub body: Option<String>,
    /// Wait that the answer asks for in `retry-after` and `retry-after-ms`, milliseconds.
    pub retry_after_ms: Option<u32>,
    /// The answer's content type; empty for none.
    pub content_type: Option<String>,
    /// Bytes: of the padding, or of one write.
    pub bytes: Option<NonZeroU32>,
    /// Events in one write.
    pub chunks: Option<NonZeroU32>,
    /// Time between two writes, microseconds.
    pub gap_us: Option<u32>,
}

/// A header that a request must have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderMatch {
    /// Its name, in any case.
    pub name: String,
    /// Its value; absent: any.
    pub value: Option<String>,
}

/// Which attempts of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attempts {
    /// The first one.
    First,
    /// All others.
    Retries,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// Nobody listens: the port is closed during the rule's time window.
    Refuse,
    /// The connection is reset as soon as it is accepted.
    AcceptReset,
    /// The connection is closed in order as soon as it is accepted.
    AcceptClose,
    /// The connection is accepted, but not read for a while.
    SlowAccept,
    /// The connection is reset (RST), before the head or in the answer.
    Reset,
    /// The connection is closed (FIN) without the answer's end, before the head or in the answer.
    Close,
    /// Nothing more comes, for a while or for ever, before the head or in the answer.
    Stall,
    /// The head comes in pieces.
    SlowHeaders,
    /// Another status, before anything is computed.
    Status,
    /// An error as an event of a stream that began with 200; the stream ends with it, without `[DONE]`.
    StreamError,
    /// Data that is not JSON.
    BadJson,
    /// The empty line after an event is missing, so that it runs into the next one.
    BadSse,
    /// A chunk of the transfer coding whose size is no number.
    BadChunk,
    /// Text that is not UTF-8.
    BadUtf8,
    /// The body ends in the middle, though the transfer is complete.
    Truncated,
    /// Far more text than a token in one event (or in the whole answer).
    Oversized,
    /// Another content type.
    ContentType,
    /// Several events in one write.
    Merged,
    /// Writes of a few bytes each.
    Split,
    /// The finish reason, usage and `[DONE]` come twice.
    DuplicateEnd,
    /// No usage, though it was asked for.
    NoUsage,
    /// No `[DONE]`.
    NoDone,
}

/// When in an answer a fault happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    /// Before its head.
    Head,
    /// After so many chunks.
    Chunks(u32),
    /// After so many bytes of its body.
    Bytes(u32),
}

impl FaultKind {
    /// All kinds, in the order of the documentation.
    pub const ALL: [Self; 22] = [
        Self::Refuse,
        Self::AcceptReset,
        Self::AcceptClose,
        Self::SlowAccept,
        Self::Reset,
        Self::Close,
        Self::Stall,
        Self::SlowHeaders,
        Self::Status,
        Self::StreamError,
        Self::BadJson,
        Self::BadSse,
        Self::BadChunk,
        Self::BadUtf8,
        Self::Truncated,
        Self::Oversized,
        Self::ContentType,
        Self::Merged,
        Self::Split,
        Self::DuplicateEnd,
        Self::NoUsage,
        Self::NoDone,
    ];

    /// The keys beyond the matchers that a rule of this kind may have.
    pub fn takes(self) -> &'static [&'static str] {
        match self {
            Self::Refuse | Self::AcceptReset | Self::AcceptClose => &[],
            Self::DuplicateEnd | Self::NoUsage | Self::NoDone => &[],
            Self::SlowAccept | Self::SlowHeaders => &["for_ms"],
            Self::Reset | Self::Close => &["after_chunks", "after_bytes"],
            Self::Stall => &["after_chunks", "after_bytes", "for_ms"],
            Self::Status => &["status", "body", "content_type", "retry_after_ms"],
            Self::StreamError => &["after_chunks", "status", "body"],
            Self::BadJson | Self::BadSse | Self::BadChunk | Self::BadUtf8 => &["after_chunks"],
            Self::Truncated => &["after_chunks", "after_bytes"],
            Self::Oversized => &["after_chunks", "bytes"],
            Self::ContentType => &["content_type"],
            Self::Merged => &["chunks"],
            Self::Split => &["bytes", "gap_us"],
        }
    }

    /// The keys that a rule of this kind must have.
    pub fn needs(self) -> &'static [&'static str] {
        match self {
            Self::Refuse => &["from_ms", "to_ms"],
            Self::SlowAccept | Self::SlowHeaders => &["for_ms"],
            Self::Status => &["status"],
            Self::ContentType => &["content_type"],
            Self::Oversized => &["bytes"],
            _ => &[],
        }
    }

    /// Whether it concerns connections before anything is asked on them: such a rule knows of no request.
    pub fn is_of_connections(self) -> bool {
        matches!(self, Self::Refuse | Self::AcceptReset | Self::AcceptClose | Self::SlowAccept)
    }

    /// Whether only a stream of events can have it.
    pub fn is_of_streams(self) -> bool {
        matches!(
            self,
            Self::StreamError
                | Self::BadSse
                | Self::BadChunk
                | Self::Merged
                | Self::DuplicateEnd
                | Self::NoUsage
                | Self::NoDone
        )
    }

    /// As it is written in a file.
    pub fn name(self) -> String {
        serde_json::to_value(self).ok().and_then(|value| Some(value.as_str()?.to_owned())).unwrap_or_default()
    }
}

impl FaultRule {
    /// A rule that hits every model request; change its fields for others.
    pub fn new(name: impl Into<String>, kind: FaultKind) -> Self {
        Self {
            name: name.into(),
            kind,
            every: None,
            probability: None,
            times: None,
            from_ms: None,
            to_ms: None,
            min_input_tokens: None,
            max_input_tokens: None,
            path: None,
            model: None,
            header: None,
            stream: None,
            attempts: None,
            after_chunks: None,
            after_bytes: None,
            for_ms: None,
            status: None,
            body: None,
            retry_after_ms: None,
            content_type: None,
            bytes: None,
            chunks: None,
            gap_us: None,
        }
    }

    /// When in the answer it happens.
    pub(crate) fn point(&self) -> Point {
        match (self.after_chunks, self.after_bytes) {
            (Some(chunks), _) => Point::Chunks(chunks),
            (None, Some(bytes)) => Point::Bytes(bytes),
            (None, None) => Point::Head,
        }
    }

    /// Whether only streamed answers can have it.
    pub(crate) fn needs_stream(&self) -> bool {
        self.kind.is_of_streams() || self.after_chunks.is_some()
    }

    /// The keys of the point and of the kind that are given.
    fn given(&self) -> Vec<&'static str> {
        let keys = [
            ("after_chunks", self.after_chunks.is_some()),
            ("after_bytes", self.after_bytes.is_some()),
            ("for_ms", self.for_ms.is_some()),
            ("status", self.status.is_some()),
            ("body", self.body.is_some()),
            ("retry_after_ms", self.retry_after_ms.is_some()),
            ("content_type", self.content_type.is_some()),
            ("bytes", self.bytes.is_some()),
            ("chunks", self.chunks.is_some()),
            ("gap_us", self.gap_us.is_some()),
        ];
        keys.into_iter().filter(|(_, given)| *given).map(|(key, _)| key).collect()
    }

    /// The matchers that look at a request.
    fn asks_of_requests(&self) -> Option<&'static str> {
        let keys = [
            ("min_input_tokens", self.min_input_tokens.is_some()),
            ("max_input_tokens", self.max_input_tokens.is_some()),
            ("path", self.path.is_some()),
            ("model", self.model.is_some()),
            ("header", self.header.is_some()),
            ("stream", self.stream.is_some()),
            ("attempts", self.attempts.is_some()),
        ];
        keys.into_iter().find(|(_, given)| *given).map(|(key, _)| key)
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let wrong = |why: String| Err(ConfigError::Fault { rule: self.name.clone(), why });
        let kind = self.kind.name();
        let given = self.given();
        if let Some(key) = given.iter().find(|key| !self.kind.takes().contains(key)) {
            let takes = match self.kind.takes() {
                [] => "nothing but matchers".to_owned(),
                keys => keys.join(", "),
            };
            return wrong(format!("`{key}` means nothing to `{kind}`, which takes {takes}"));
        }
        let window = [("from_ms", self.from_ms), ("to_ms", self.to_ms)];
        let windowed = |key: &str| window.iter().any(|(name, value)| *name == key && value.is_some());
        if let Some(key) = self.kind.needs().iter().find(|key| !given.contains(key) && !windowed(key)) {
            return wrong(format!("`{kind}` needs `{key}`"));
        }
        if self.kind.is_of_connections()
            && let Some(key) = self.asks_of_requests()
        {
            return wrong(format!("`{key}` looks at a request, but `{kind}` happens before there is one"));
        }
        if self.kind == FaultKind::Refuse
            && (self.every.is_some() || self.probability.is_some() || self.times.is_some())
        {
            return wrong("`refuse` closes the port for its whole window: every, probability and times mean nothing to it".to_owned());
        }
        self.validate_values(wrong)
    }

    fn validate_values(&self, wrong: impl Fn(String) -> Result<(), ConfigError>) -> Result<(), ConfigError> {
        if self.name.trim().is_empty() {
            return wrong("`name` is empty".to_owned());
        }
        if self.after_chunks.is_some() && self.after_bytes.is_some() {
            return wrong("`after_chunks` and `after_bytes` are both given: keep one".to_owned());
        }
        if let Some(chance) = self.probability.filter(|chance| !(0.0..=1.0).contains(chance)) {
            return wrong(format!("`probability` is {chance}, but lies between 0 and 1"));
        }
        if let (Some(from), Some(to)) = (self.from_ms, self.to_ms)
            && from >= to
        {
            return wrong(format!("its window ends at {to} ms, before it begins at {from} ms"));
        }
        if let Some(status) = self.status.filter(|status| !(400..=599).contains(status)) {
            return wrong(format!("`status` is {status}, but an error lies between 400 and 599"));
        }
        if self.stream == Some(false) && self.needs_stream() {
            return wrong("it can happen in streams only, but `stream` is false".to_owned());
        }
        if let Some(text) = self.content_type.as_ref().filter(|text| !is_header_text(text)) {
            return wrong(format!("`content_type` is {text:?}, which no header can hold"));
        }
        Ok(())
    }
}

fn is_header_text(text: &str) -> bool {
    text.bytes().all(|byte| (32..127).contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Result<FaultRule, String> {
        let text = format!("name = \"r\"\n{text}");
        let rule: FaultRule = toml::from_str(&text).map_err(|error| error.to_string())?;
        rule.validate().map_err(|error| error.to_string())?;
        Ok(rule)
    }

    #[test]
    fn a_rule_needs_what_its_kind_needs_and_takes_nothing_else() {
        assert_eq!(rule("kind = \"reset\""), Ok(FaultRule::new("r", FaultKind::Reset)));
        assert_eq!(rule("kind = \"reset\"\nafter_chunks = 3").unwrap().point(), Point::Chunks(3));
        let error = |text: &str| rule(text).unwrap_err();
        assert_eq!(
            error("kind = \"reset\"\nfor_ms = 3"),
            "fault rule `r`: `for_ms` means nothing to `reset`, which takes after_chunks, after_bytes"
        );
        assert!(error("kind = \"no-done\"\nstatus = 500").contains("takes nothing but matchers"));
        assert!(error("kind = \"status\"").contains("`status` needs `status`"));
        assert!(error("kind = \"refuse\"\nfrom_ms = 1").contains("`refuse` needs `to_ms`"));
        assert!(error("kind = \"slow-accept\"\nfor_ms = 1\nmodel = \"m\"").contains("before there is one"));
        assert!(error("kind = \"rst\"").contains("unknown variant"));
    }

    #[test]
    fn impossible_values_are_refused() {
        let error = |text: &str| rule(&format!("kind = \"reset\"\n{text}")).unwrap_err();
        assert!(error("probability = 1.5").contains("between 0 and 1"));
        assert!(error("probability = nan").contains("between 0 and 1"));
        assert!(error("from_ms = 5\nto_ms = 5").contains("ends at 5 ms"));
        assert!(error("after_chunks = 1\nafter_bytes = 1").contains("keep one"));
        assert!(error("after_chunks = 1\nstream = false").contains("streams only"));
        assert!(rule("kind = \"status\"\nstatus = 200").unwrap_err().contains("between 400 and 599"));
        assert!(rule("kind = \"content-type\"\ncontent_type = \"a\\nb\"").unwrap_err().contains("no header"));
    }

    #[test]
    fn every_kind_is_listed_once_and_named_as_in_a_file() {
        let names: std::collections::BTreeSet<String> =
            FaultKind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), FaultKind::ALL.len());
        // The list that serde gives with an unknown name is complete; ours must be as long.
        let error = toml::from_str::<FaultRule>("name = \"r\"\nkind = \"x\"").unwrap_err().to_string();
        assert!(names.iter().all(|name| error.contains(&format!("`{name}`"))), "{error}");
        let listed = error.split("expected one of").nth(1).unwrap().split('\n').next().unwrap();
        assert_eq!(listed.matches(',').count() + 1, names.len());
    }
}
