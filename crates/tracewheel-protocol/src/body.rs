//! From the bytes of a body to events: chooses the framing, holds what all protocols share, and leaves the meaning of
//! a message to a [`Dialect`].

use tracewheel_timeline::vocab::EventKind;

use crate::lenient::{self, Sink};
use crate::lines::LineFramer;
use crate::options::AnswerForm;
use crate::sse::{Frame, Framer, MAX_EVENT_BYTES, Tail, append};
use crate::{
    Decoder, ErrorDetail, Event, ResponseHead, ResponseMeta, StreamEnd, TokenSource, Usage, Warnings,
};

mod state;

pub(crate) use state::{State, event, outputs};

/// The meaning of one protocol's messages.
pub(crate) trait Dialect {
    /// One message of a stream, never empty. `end_offset` is that of its events.
    fn message(&mut self, name: &[u8], data: &[u8], end_offset: u64, state: &mut State, out: &mut Vec<Event>);

    /// A whole, plain answer: appends the events of its output and takes its counts over into `state`. An error if it is
    /// no JSON.
    fn answer(
        &mut self,
        body: &[u8],
        end_offset: u64,
        state: &mut State,
        out: &mut Vec<Event>,
    ) -> serde_json::Result<Answer>;

    /// What the server said about itself so far.
    fn meta(&self) -> &ResponseMeta;
}

/// What one message says: read leniently, kept, and cleared for the next one.
pub(crate) trait Said: Sink + Default {
    /// It is an error.
    fn is_error(&self) -> bool;

    /// What the server said about itself so far.
    fn meta_mut(&mut self) -> &mut ResponseMeta;

    /// Forgets all but what the server said about itself.
    fn clear(&mut self) {
        let meta = std::mem::take(self.meta_mut());
        *self = Self::default();
        *self.meta_mut() = meta;
    }

    /// Reads a message of a stream. False where it is no JSON, or an error, which `state` then knows.
    fn hear(&mut self, data: &[u8], end_offset: u64, state: &mut State, out: &mut Vec<Event>) -> bool {
        self.clear();
        match lenient::read_message(data, self, Self::clear) {
            Err(error) => state.malformed(format!("invalid JSON: {error}"), data.len(), end_offset, out),
            Ok(()) if self.is_error() => state.failed(data, end_offset, out),
            Ok(()) => return true,
        }
        false
    }

    /// Reads a whole, plain answer. False where it is an error.
    fn hear_whole(&mut self, body: &[u8]) -> serde_json::Result<bool> {
        self.clear();
        lenient::read_message(body, self, Self::clear)?;
        Ok(!self.is_error())
    }
}

/// What a whole, plain answer turned out to be.
pub(crate) enum Answer {
    /// An error of the server's.
    Failed,
    /// No answer of the protocol: this is missing.
    Lacks(&'static str),
    /// An answer, with or without token counts.
    Whole { has_usage: bool },
}

/// How the bytes of a body are cut into messages.
enum Framing {
    /// Only white space so far. It is given to the framer, in case it is a stream.
    Undecided,
    Stream,
    /// One JSON text a line.
    Lines(LineFramer),
    /// One JSON text, gathered.
    Plain,
    /// Bytes of any kind, of which the first is the first output.
    Bytes,
    /// One answer of any kind, which is output when it is whole.
    Whole,
    /// The body of an error status, of which the beginning is kept.
    ErrorStatus,
    /// A content type that no answer of an LLM has; nothing is decoded.
    Foreign(String),
    /// Too large to go on.
    Oversize,
}

/// How much of an error status's body is read.
const ERROR_BODY_MAX_BYTES: usize = 64 << 10;

/// The decoder of every protocol: over server-sent events, or over lines.
pub(crate) struct BodyDecoder<D> {
    dialect: D,
    state: State,
    framing: Framing,
    framer: Framer,
    gathered: Vec<u8>,
    fed: u64,
    finished: bool,
}

impl<D: Dialect> BodyDecoder<D> {
    /// A decoder at the start of the body.
    pub(crate) fn new(head: &ResponseHead<'_>, dialect: D) -> Self {
        Self::framed(head, dialect, Framing::Undecided)
    }

    /// As [`new`](Self::new), for a protocol that answers with a JSON text a line.
    pub(crate) fn of_lines(head: &ResponseHead<'_>, dialect: D) -> Self {
        Self::framed(head, dialect, Framing::Lines(LineFramer::new()))
    }

    /// As [`new`](Self::new), for a body of which only the form is known. It has no end marker.
    pub(crate) fn free(head: &ResponseHead<'_>, dialect: D, form: AnswerForm) -> Self {
        let framing = match form {
            _ if !(200..300).contains(&head.status) => Framing::ErrorStatus,
            AnswerForm::Sse => Framing::Stream,
            AnswerForm::Ndjson => Framing::Lines(LineFramer::new()),
            AnswerForm::Bytes => Framing::Bytes,
            AnswerForm::Auto | AnswerForm::Plain => Framing::Whole,
        };
        let mut decoder = Self::with_framing(dialect, framing);
        decoder.state.may_end = true;
        decoder
    }

    fn framed(head: &ResponseHead<'_>, dialect: D, usual: Framing) -> Self {
        let framing = match (head.status, head.content_type) {
            (..200 | 300.., _) => Framing::ErrorStatus,
            (_, Some(content_type)) if is_foreign(content_type) => Framing::Foreign(content_type.to_owned()),
            _ => usual,
        };
        Self::with_framing(dialect, framing)
    }

    fn with_framing(dialect: D, framing: Framing) -> Self {
        BodyDecoder {
            dialect,
            state: State::default(),
            framing,
            framer: Framer::new(),
            gathered: Vec::new(),
            fed: 0,
            finished: false,
        }
    }

    /// Decides by the first byte that is no white space: JSON begins with a bracket, which no field of SSE does.
    /// Content types are not asked: gateways send error objects as event streams and streams as JSON.
    fn decide(&mut self, bytes: &[u8]) -> usize {
        let blank = |byte: &u8| byte.is_ascii_whitespace() || b"\xef\xbb\xbf".contains(byte);
        let Some(first) = bytes.iter().position(|byte| !blank(byte)) else { return bytes.len() };
        self.framing = if matches!(bytes[first], b'{' | b'[') { Framing::Plain } else { Framing::Stream };
        first
    }

    fn stream(&mut self, bytes: &[u8], out: &mut Vec<Event>) {
        let BodyDecoder { dialect, state, framer, .. } = self;
        framer.feed(bytes, |frame| match frame {
            Frame::Event { data, end_offset, .. } if data.trim_ascii_start().first() == Some(&b':') => {
                state.warnings.wrapped_comments = state.warnings.wrapped_comments.saturating_add(1);
                out.push(event(EventKind::Heartbeat, data.trim_ascii().len(), end_offset));
            }
            frame => line(dialect, state, frame, out),
        });
    }

    fn lines(&mut self, bytes: &[u8], out: &mut Vec<Event>) {
        let BodyDecoder { dialect, state, framing, .. } = self;
        let Framing::Lines(framer) = framing else { return };
        framer.feed(bytes, |frame| line(dialect, state, frame, out));
    }

    fn gather(&mut self, bytes: &[u8], out: &mut Vec<Event>) {
        if (self.gathered.len() + bytes.len()) as u64 > MAX_EVENT_BYTES {
            let at = self.fed + MAX_EVENT_BYTES + 1 - self.gathered.len() as u64;
            self.state.too_large(at, out);
            self.gathered = Vec::new();
            self.framing = Framing::Oversize;
        } else {
            append(&mut self.gathered, bytes);
        }
    }

    fn stream_end(&mut self) -> StreamEnd {
        self.failed_end(match self.framer.finish() {
            _ if self.state.terminal => StreamEnd::Complete,
            Tail::Unterminated => StreamEnd::UnterminatedTail,
            Tail::Clean if self.state.may_end => StreamEnd::Complete,
            Tail::Clean => StreamEnd::Truncated,
        })
    }

    /// What the last line says, which servers leave without its end, and how the body ended by it.
    fn lines_end(&mut self, out: &mut Vec<Event>) -> StreamEnd {
        let BodyDecoder { dialect, state, framing, .. } = self;
        if let Framing::Lines(framer) = framing
            && let Some((rest, end_offset)) = framer.rest()
        {
            // Half an object is the mark of a stream that was cut, not of one that is malformed.
            if serde_json::from_slice::<serde::de::IgnoredAny>(rest).is_err_and(|error| error.is_eof()) {
                let whole = state.terminal && state.error.is_none() && state.broken.is_none();
                return if whole {
                    StreamEnd::Complete
                } else {
                    self.failed_end(StreamEnd::UnterminatedTail)
                };
            }
            line(dialect, state, Frame::Event { name: b"", data: rest, end_offset }, out);
        }
        let whole = self.state.terminal || self.state.may_end;
        let end = if whole { StreamEnd::Complete } else { StreamEnd::Truncated };
        self.failed_end(end)
    }

    /// The failure that was noted, else `end`.
    fn failed_end(&self, end: StreamEnd) -> StreamEnd {
        match (&self.state.error, &self.state.broken) {
            (Some(error), _) => StreamEnd::ErrorInStream(error.clone()),
            (None, Some(broken)) => broken.clone(),
            (None, None) => end,
        }
    }

    fn plain_end(&mut self, out: &mut Vec<Event>) -> StreamEnd {
        let body = std::mem::take(&mut self.gathered);
        let before = out.len();
        match self.dialect.answer(&body, self.fed, &mut self.state, out) {
            Ok(Answer::Failed) => self.state.failed(&body, self.fed, out),
            Ok(Answer::Lacks(what)) => {
                self.state.malformed(format!("the answer has no {what}"), body.len(), self.fed, out);
            }
            Ok(Answer::Whole { has_usage }) => {
                if has_usage {
                    out.push(event(EventKind::Usage, body.len(), self.fed));
                }
                if out.len() == before {
                    out.push(event(EventKind::Structure, body.len(), self.fed));
                }
            }
            Err(error) if error.is_eof() => return StreamEnd::Truncated,
            Err(error) => self.state.malformed(format!("invalid JSON: {error}"), body.len(), self.fed, out),
        }
        if let Some(error) = self.state.error.clone() {
            return StreamEnd::ErrorBody(error);
        }
        self.state.broken.clone().unwrap_or(StreamEnd::NonStream)
    }

    fn error_status_end(&mut self, out: &mut Vec<Event>) -> StreamEnd {
        let body = std::mem::take(&mut self.gathered);
        if self.fed > 0 {
            self.state.failed(first_data(&body).as_deref().unwrap_or(&body), self.fed, out);
        }
        StreamEnd::ErrorBody(self.state.error.clone().unwrap_or_default())
    }
}

impl<D: Dialect> Decoder for BodyDecoder<D> {
    fn feed(&mut self, bytes: &[u8], out: &mut Vec<Event>) {
        if self.finished {
            return;
        }
        let mut bytes = bytes;
        if matches!(self.framing, Framing::Undecided) {
            let blank = self.decide(bytes);
            let (start, rest) = bytes.split_at(blank);
            self.stream(start, out);
            self.fed += start.len() as u64;
            bytes = rest;
        }
        match self.framing {
            Framing::Undecided | Framing::Foreign(_) | Framing::Oversize | Framing::Whole => {}
            Framing::Bytes if self.fed == 0 && !bytes.is_empty() => out.push(event(EventKind::Text, 1, 1)),
            Framing::Bytes => {}
            Framing::Stream => self.stream(bytes, out),
            Framing::Lines(_) => self.lines(bytes, out),
            Framing::Plain => self.gather(bytes, out),
            Framing::ErrorStatus => {
                let room = ERROR_BODY_MAX_BYTES - self.gathered.len();
                self.gathered.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
        }
        self.fed += bytes.len() as u64;
    }

    fn finish(&mut self, out: &mut Vec<Event>) -> StreamEnd {
        self.finished = true;
        match &self.framing {
            Framing::Undecided | Framing::Stream => self.stream_end(),
            Framing::Lines(_) => self.lines_end(out),
            Framing::Bytes | Framing::Whole => {
                let bytes = matches!(self.framing, Framing::Bytes);
                let rest = self.fed.saturating_sub(u64::from(bytes));
                let size = usize::try_from(rest).unwrap_or(usize::MAX);
                if rest > 0 {
                    out.push(event(EventKind::Text, size, self.fed));
                }
                if bytes { StreamEnd::Complete } else { StreamEnd::NonStream }
            }
            Framing::Plain => self.plain_end(out),
            Framing::ErrorStatus => self.error_status_end(out),
            Framing::Foreign(content_type) => {
                let what = format!("content type {content_type} is neither an event stream nor JSON");
                if self.fed > 0 {
                    self.state.malformed(what.clone(), self.fed as usize, self.fed, out);
                }
                StreamEnd::Malformed { offset: self.fed, what }
            }
            Framing::Oversize => self.stream_end(),
        }
    }

    fn held_bytes(&self) -> usize {
        let lines = if let Framing::Lines(framer) = &self.framing { framer.held_bytes() } else { 0 };
        self.framer.held_bytes() + lines + self.gathered.capacity()
    }

    fn usage(&self) -> &Usage {
        &self.state.usage
    }

    fn meta(&self) -> &ResponseMeta {
        self.dialect.meta()
    }

    fn error(&self) -> Option<&ErrorDetail> {
        self.state.error.as_ref()
    }

    fn token_source(&self) -> Option<TokenSource> {
        self.state.token_source
    }

    fn warnings(&self) -> &Warnings {
        &self.state.warnings
    }
}

/// What one frame of a stream says.
fn line<D: Dialect>(dialect: &mut D, state: &mut State, frame: Frame<'_>, out: &mut Vec<Event>) {
    match frame {
        Frame::Comment { text, end_offset } => out.push(event(EventKind::Heartbeat, text.len(), end_offset)),
        Frame::Oversize { end_offset } => state.too_large(end_offset, out),
        Frame::Event { name, data, end_offset } => match data.trim_ascii() {
            [] => out.push(event(EventKind::Heartbeat, 0, end_offset)),
            data if state.terminal => {
                state.warnings.after_terminal = state.warnings.after_terminal.saturating_add(1);
                out.push(event(EventKind::Meta, data.len(), end_offset));
            }
            data => dialect.message(name, data, end_offset, state, out),
        },
    }
}

/// Types of pages and media. Everything else is looked at: servers are careless with this header.
fn is_foreign(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let starts =
        |prefix: &str| essence.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix));
    [
        "text/html",
        "text/css",
        "text/xml",
        "application/xml",
        "application/xhtml",
        "image/",
        "audio/",
        "video/",
    ]
    .into_iter()
    .any(starts)
}

/// The data of the first event, if an error's body is framed as a stream.
fn first_data(body: &[u8]) -> Option<Vec<u8>> {
    let mut first = None;
    let mut framer = Framer::new();
    let mut keep = |frame: Frame<'_>| {
        if let Frame::Event { data, .. } = frame
            && first.is_none()
        {
            first = Some(data.to_vec());
        }
    };
    framer.feed(body, &mut keep);
    framer.feed(b"\n\n", &mut keep);
    first
}
