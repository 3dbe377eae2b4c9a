//! What a fault does to an answer's body.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use crate::api::ApiError;
use crate::config::{FaultKind, FaultRule, Point};
use crate::reply::TailShape;
use crate::server::alarm::Alarm;
use crate::server::exchange::{Exchange, Piece};
use crate::server::io::Connection;
use crate::server::routes::Service;

/// The connection (HTTP/2: the stream) ends here, by a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// In order; a stream is cancelled, for HTTP/2 has no end in the middle that is in order.
    Close,
    /// By a reset; of a stream as after an internal error.
    Reset,
}

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cut by a rule")
    }
}

impl std::error::Error for Cut {
    /// The code of a stream's reset, where hyper looks for it.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        static CANCEL: OnceLock<h2::Error> = OnceLock::new();
        static INTERNAL: OnceLock<h2::Error> = OnceLock::new();
        Some(match self {
            Self::Close => CANCEL.get_or_init(|| h2::Reason::CANCEL.into()),
            Self::Reset => INTERNAL.get_or_init(|| h2::Reason::INTERNAL_ERROR.into()),
        })
    }
}

/// Events in one write unless a rule says otherwise.
const MERGED_EVENTS: u32 = 4;

/// A body's pieces, as they would come without a rule.
pub(crate) trait Source {
    /// The next piece.
    fn next(&mut self, cx: &Context<'_>) -> Poll<Option<(Bytes, Piece)>>;

    /// An error instead of the pieces that are left.
    fn failure(&mut self, error: &ApiError) -> Bytes;
}

/// One rule at work on one answer.
pub(crate) struct Tamper {
    rule: Rc<FaultRule>,
    service: Rc<Service>,
    connection: Rc<Connection>,
    exchange: Rc<Exchange>,
    /// Token chunks and bytes that were let through.
    chunks: u32,
    bytes: usize,
    /// What was taken from the body and not let through.
    held: Option<(Bytes, Piece)>,
    merged: Vec<(Bytes, Piece)>,
    alarm: Option<Alarm>,
    /// It has happened.
    struck: bool,
    /// The body is over, whatever else there would be.
    over: bool,
}

/// What a look at the point came to.
enum Strike {
    /// The body goes on.
    Nothing,
    /// This is the last of the body.
    Last(Bytes),
}

impl Tamper {
    pub(crate) fn new(
        rule: Rc<FaultRule>,
        service: Rc<Service>,
        connection: Rc<Connection>,
        exchange: Rc<Exchange>,
    ) -> Self {
        Self {
            rule,
            service,
            connection,
            exchange,
            chunks: 0,
            bytes: 0,
            held: None,
            merged: Vec::new(),
            alarm: None,
            struck: false,
            over: false,
        }
    }

    /// How the stream's end is to look.
    pub(crate) fn tail_shape(&self) -> TailShape {
        TailShape {
            usage: self.rule.kind != FaultKind::NoUsage,
            done: self.rule.kind != FaultKind::NoDone,
            twice: self.rule.kind == FaultKind::DuplicateEnd,
        }
    }

    /// Changes a body that is there as a whole; what ends in the middle ends in [`Self::poll`].
    pub(crate) fn whole(&mut self, bytes: Bytes) -> Bytes {
        if self.rule.kind == FaultKind::Truncated {
            self.strike();
            let most = self.rule.after_bytes.map_or(bytes.len() / 2, |most| most as usize);
            return bytes.slice(..most.min(bytes.len()));
        }
        self.changed(bytes)
    }

    /// The next piece of the body that `source` gives.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut impl Source,
    ) -> Poll<Option<Result<Bytes, Cut>>> {
        loop {
            if self.over {
                return Poll::Ready(None);
            }
            if self.is_due() {
                match ready!(self.poll_strike(cx, source))? {
                    Strike::Nothing => {}
                    Strike::Last(bytes) => return Poll::Ready(Some(Ok(self.last(bytes)))),
                }
            }
            let taken = match self.held.take() {
                Some(held) => Some(held),
                None => ready!(source.next(cx)),
            };
            let Some((bytes, piece)) = taken else {
                self.over = true;
                return Poll::Ready(None);
            };
            if self.rule.kind == FaultKind::Merged {
                if let Some(bytes) = self.merge(bytes, piece) {
                    return Poll::Ready(Some(Ok(bytes)));
                }
                continue;
            }
            return self.let_through(cx, bytes, piece);
        }
    }

    fn let_through(
        &mut self,
        cx: &mut Context<'_>,
        bytes: Bytes,
        piece: Piece,
    ) -> Poll<Option<Result<Bytes, Cut>>> {
        let (bytes, piece) = self.before_point(bytes, piece);
        let hit = piece == Piece::Token && !self.struck && self.reached();
        if hit && self.rule.kind == FaultKind::Truncated {
            self.strike();
            let half = bytes.slice(..bytes.len() / 2);
            return Poll::Ready(Some(Ok(self.last(half))));
        }
        if hit && self.rule.kind == FaultKind::BadChunk {
            // The chunk must begin a write of its own.
            if self.exchange.has_unflushed() {
                self.held = Some((bytes, piece));
                self.exchange.wake_when_flushed(cx);
                return Poll::Pending;
            }
            self.strike();
            self.connection.wire.corrupt_next_chunk();
        }
        if piece == Piece::Last && self.tail_shape() != TailShape::default() {
            self.strike();
        }
        let bytes = if hit { self.changed(bytes) } else { bytes };
        self.give(&bytes, piece);
        Poll::Ready(Some(Ok(bytes)))
    }

    /// The part of a piece that comes before the point, if that is counted in bytes; the rest is held.
    fn before_point(&mut self, mut bytes: Bytes, piece: Piece) -> (Bytes, Piece) {
        let Point::Bytes(most) = self.rule.point() else { return (bytes, piece) };
        let room = (most as usize).saturating_sub(self.bytes);
        if self.struck || bytes.len() <= room || !self.ends() {
            return (bytes, piece);
        }
        let rest = bytes.split_off(room);
        self.held = Some((rest, piece));
        (bytes, Piece::Other)
    }

    /// Whether the rule does something between two pieces, now.
    fn is_due(&self) -> bool {
        !self.struck && self.ends() && self.reached() && !self.truncates_an_event()
    }

    fn truncates_an_event(&self) -> bool {
        self.rule.kind == FaultKind::Truncated && !matches!(self.rule.point(), Point::Bytes(_))
    }

    fn ends(&self) -> bool {
        matches!(
            self.rule.kind,
            FaultKind::Reset
                | FaultKind::Close
                | FaultKind::Stall
                | FaultKind::StreamError
                | FaultKind::Truncated
        )
    }

    fn reached(&self) -> bool {
        match self.rule.point() {
            Point::Head => true,
            Point::Chunks(chunks) => self.chunks >= chunks,
            Point::Bytes(bytes) => self.bytes >= bytes as usize,
        }
    }

    fn poll_strike(&mut self, cx: &mut Context<'_>, source: &mut impl Source) -> Poll<Result<Strike, Cut>> {
        match self.rule.kind {
            FaultKind::Stall => self.poll_stall(cx),
            FaultKind::StreamError => {
                self.strike();
                Poll::Ready(Ok(Strike::Last(source.failure(&self.error()))))
            }
            FaultKind::Truncated => {
                self.strike();
                Poll::Ready(Ok(Strike::Last(Bytes::new())))
            }
            kind => {
                // What came before is to reach the client.
                if self.exchange.has_unflushed() {
                    self.exchange.wake_when_flushed(cx);
                    return Poll::Pending;
                }
                self.strike();
                Poll::Ready(Err(self.connection.cut(kind == FaultKind::Reset)))
            }
        }
    }

    fn poll_stall(&mut self, cx: &mut Context<'_>) -> Poll<Result<Strike, Cut>> {
        self.service.note_fault(&self.rule, &self.exchange);
        // For ever: until the client leaves.
        let Some(ms) = self.rule.for_ms else { return Poll::Pending };
        let alarms = self.service.hub.alarms();
        let alarm = self.alarm.get_or_insert_with(|| alarms.after(i64::from(ms) * 1_000_000));
        ready!(Pin::new(alarm).poll(cx));
        self.alarm = None;
        self.struck = true;
        Poll::Ready(Ok(Strike::Nothing))
    }

    fn strike(&mut self) {
        self.struck = true;
        self.service.note_fault(&self.rule, &self.exchange);
    }

    fn error(&self) -> ApiError {
        let status = self.rule.status.unwrap_or(500);
        let message =
            self.rule.body.clone().unwrap_or_else(|| "the model failed while it answered".to_owned());
        ApiError { status, kind: "server_error", ..ApiError::invalid(None, message) }
    }

    /// A token's event, or a whole body, changed as the rule says.
    fn changed(&mut self, bytes: Bytes) -> Bytes {
        let changed = match self.rule.kind {
            FaultKind::BadJson => without_last(&bytes, b'}'),
            FaultKind::BadSse => without_blank_line(&bytes),
            FaultKind::BadUtf8 => with_text(&bytes, &[0xff, 0xfe]),
            FaultKind::Oversized => {
                with_text(&bytes, &vec![b'x'; self.rule.bytes.map_or(0, |bytes| bytes.get() as usize)])
            }
            _ => return bytes,
        };
        self.strike();
        changed
    }

    /// Collects events; gives them once there are enough, or nothing more may be waited for.
    fn merge(&mut self, bytes: Bytes, piece: Piece) -> Option<Bytes> {
        self.merged.push((bytes, piece));
        let wanted = self.rule.chunks.map_or(MERGED_EVENTS, Into::into);
        if piece != Piece::Last && self.merged.len() < wanted as usize {
            return None;
        }
        if self.merged.len() > 1 && !self.struck {
            self.strike();
        }
        let mut all = Vec::new();
        for (bytes, piece) in std::mem::take(&mut self.merged) {
            self.give(&bytes, piece);
            all.extend_from_slice(&bytes);
        }
        Some(all.into())
    }

    fn give(&mut self, bytes: &Bytes, piece: Piece) {
        self.bytes += bytes.len();
        self.chunks += u32::from(piece == Piece::Token);
        self.exchange.gave(piece);
    }

    fn last(&mut self, bytes: Bytes) -> Bytes {
        self.over = true;
        self.exchange.gave(Piece::Last);
        bytes
    }
}

/// The bytes without the last one of a kind.
fn without_last(bytes: &Bytes, wanted: u8) -> Bytes {
    match bytes.iter().rposition(|byte| *byte == wanted) {
        Some(at) => [&bytes[..at], &bytes[at + 1..]].concat().into(),
        None => bytes.clone(),
    }
}

/// An event without the empty line at its end.
fn without_blank_line(bytes: &Bytes) -> Bytes {
    match bytes.strip_suffix(b"\r\n\r\n") {
        Some(event) => [event, b"\r\n"].concat().into(),
        None => without_last(bytes, b'\n'),
    }
}

/// The bytes with something put at the beginning of the answer's text (or of the error's message).
fn with_text(bytes: &Bytes, text: &[u8]) -> Bytes {
    let starts: [&[u8]; 5] =
        [b"\"content\":\"", b"\"text\":\"", b"\"thinking\":\"", b"\"delta\":\"", b"\"message\":\""];
    let found = starts.iter().find_map(|start| {
        bytes.windows(start.len()).position(|window| window == *start).map(|at| at + start.len())
    });
    match found {
        Some(at) => [&bytes[..at], text, &bytes[at..]].concat().into(),
        None => [bytes, text].concat().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_changed_where_told() {
        let event = Bytes::from_static(b"data: {\"delta\":{\"content\":\"a\"}}\n\n");
        assert_eq!(without_last(&event, b'}'), "data: {\"delta\":{\"content\":\"a\"}\n\n");
        assert_eq!(without_last(&event, b'\n'), "data: {\"delta\":{\"content\":\"a\"}}\n");
        assert_eq!(without_blank_line(&event), "data: {\"delta\":{\"content\":\"a\"}}\n");
        assert_eq!(without_blank_line(&Bytes::from_static(b"data: {}\r\n\r\n")), "data: {}\r\n");
        assert_eq!(with_text(&event, b"xx"), "data: {\"delta\":{\"content\":\"xxa\"}}\n\n");
        assert_eq!(with_text(&Bytes::from_static(b"{}"), b"x"), "{}x");
    }
}
