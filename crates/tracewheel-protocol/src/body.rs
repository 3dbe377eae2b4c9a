//! From the bytes of a body to events: chooses the framing, holds what all protocols share, and leaves the meaning of
//! a message to a [`Dialect`].

use tracewheel_timeline::vocab::EventKind;

use crate::sse::{Frame, Framer, MAX_EVENT_BYTES, Tail};
use crate::{
    Decoder, ErrorDetail, Event, ResponseHead, ResponseMeta, StreamEnd, TokenSource, Usage, Warnings,
};

/// The meaning of one protocol's messages.
pub(crate) trait Dialect {
    /// One message of a stream, never empty. `end_offset` is that of its events.
    fn message(&mut self, name: &[u8], data: &[u8], end_offset: u64, state: &mut State, out: &mut Vec<Event>);

    /// A whole, plain answer. An error if it is no JSON; what else is wrong with it is recorded in `state`.
    fn answer(
        &mut self,
        body: &[u8],
        end_offset: u64,
        state: &mut State,
        out: &mut Vec<Event>,
    ) -> serde_json::Result<()>;

    /// What the server said about itself so far.
    fn meta(&self) -> &ResponseMeta;
}

/// What a decoder knows besides its events.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) usage: Usage,
    pub(crate) token_source: Option<TokenSource>,
    pub(crate) warnings: Warnings,
    /// The first error that the server sent.
    pub(crate) error: Option<ErrorDetail>,
    /// How the body will have ended because of the first message that could not be understood.
    broken: Option<StreamEnd>,
    /// The protocol's end marker was seen.
    pub(crate) terminal: bool,
    /// There is no end marker, and what was seen is enough for a whole answer.
    pub(crate) may_end: bool,
}

impl State {
    /// Notes a message that is no message of the protocol, and gives an event for it.
    pub(crate) fn malformed(&mut self, what: String, bytes: usize, offset: u64, out: &mut Vec<Event>) {
        self.broken.get_or_insert(StreamEnd::Malformed { offset, what });
        out.push(event(EventKind::Error, bytes, offset));
    }

    /// Notes a message beyond the bound, whose first byte too many ends at `offset`, and gives an event for it.
    fn too_large(&mut self, offset: u64, out: &mut Vec<Event>) {
        self.broken.get_or_insert(StreamEnd::TooLarge { offset });
        out.push(event(EventKind::Error, MAX_EVENT_BYTES as usize, offset));
    }

    /// Notes the server's error in `json`, and gives an event for it.
    pub(crate) fn failed(&mut self, json: &[u8], end_offset: u64, out: &mut Vec<Event>) {
        self.error.get_or_insert_with(|| ErrorDetail::of(json));
        out.push(event(EventKind::Error, json.len(), end_offset));
    }
}

/// An event that is not output and of no choice.
pub(crate) fn event(kind: EventKind, bytes: usize, end_offset: u64) -> Event {
    Event { kind, choice: 0, tokens: None, bytes: u32::try_from(bytes).unwrap_or(u32::MAX), end_offset }
}

/// How the bytes of a body are cut into messages.
enum Framing {
    /// Only white space so far. It is given to the framer, in case it is a stream.
    Undecided,
    Stream,
    /// One JSON text, gathered.
    Plain,
    /// The body of an error status, of which the beginning is kept.
    ErrorStatus,
    /// A content type that no answer of an LLM has; nothing is decoded.
    Foreign(String),
    /// Too large to go on.
    Oversize,
}

/// How much of an error status's body is read.
const ERROR_BODY_MAX_BYTES: usize = 64 << 10;

/// The decoder of every protocol over SSE.
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
        let framing = match (head.status, head.content_type) {
            (..200 | 300.., _) => Framing::ErrorStatus,
            (_, Some(content_type)) if is_foreign(content_type) => Framing::Foreign(content_type.to_owned()),
            _ => Framing::Undecided,
        };
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
            Frame::Comment { text, end_offset } => {
                out.push(event(EventKind::Heartbeat, text.len(), end_offset));
            }
            Frame::Oversize { end_offset } => {
                state.too_large(end_offset, out);
            }
            Frame::Event { name, data, end_offset } => {
                let data = data.trim_ascii();
                match data.first() {
                    None => out.push(event(EventKind::Heartbeat, 0, end_offset)),
                    Some(b':') => {
                        state.warnings.wrapped_comments += 1;
                        out.push(event(EventKind::Heartbeat, data.len(), end_offset));
                    }
                    Some(_) if state.terminal => {
                        state.warnings.after_terminal += 1;
                        out.push(event(EventKind::Meta, data.len(), end_offset));
                    }
                    Some(_) => dialect.message(name, data, end_offset, state, out),
                }
            }
        });
    }

    fn gather(&mut self, bytes: &[u8], out: &mut Vec<Event>) {
        if (self.gathered.len() + bytes.len()) as u64 > MAX_EVENT_BYTES {
            let at = self.fed + MAX_EVENT_BYTES + 1 - self.gathered.len() as u64;
            self.state.too_large(at, out);
            self.gathered = Vec::new();
            self.framing = Framing::Oversize;
        } else {
            self.gathered.extend_from_slice(bytes);
        }
    }

    fn stream_end(&mut self) -> StreamEnd {
        if let Some(error) = self.state.error.clone() {
            return StreamEnd::ErrorInStream(error);
        }
        if let Some(end) = self.state.broken.clone() {
            return end;
        }
        match self.framer.finish() {
            _ if self.state.terminal => StreamEnd::Complete,
            Tail::Unterminated => StreamEnd::UnterminatedTail,
            Tail::Clean if self.state.may_end => StreamEnd::Complete,
            Tail::Clean => StreamEnd::Truncated,
        }
    }

    fn plain_end(&mut self, out: &mut Vec<Event>) -> StreamEnd {
        let body = std::mem::take(&mut self.gathered);
        match self.dialect.answer(&body, self.fed, &mut self.state, out) {
            Ok(()) => {}
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
            Framing::Undecided | Framing::Foreign(_) | Framing::Oversize => {}
            Framing::Stream => self.stream(bytes, out),
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
