//! Response bodies.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tracewheel_tokens::TextMaker;

use crate::api::ApiError;
use crate::config::RoleDelta;
use crate::engine::Ticket;
use crate::reply::Reply;
use crate::server::exchange::{Exchange, Piece};
use crate::server::hub::{Hub, StreamState};
use crate::server::tamper::{Cut, Source, Tamper};

/// A response body: given whole, or token by token.
pub(crate) enum ReplyBody {
    Whole { bytes: Option<Bytes>, exchange: Rc<Exchange>, tamper: Option<Box<Tamper>> },
    Stream(TokenStream),
}

impl ReplyBody {
    /// A body that is there at once.
    pub(crate) fn whole(bytes: Bytes, exchange: Rc<Exchange>, mut tamper: Option<Box<Tamper>>) -> Self {
        let bytes = match &mut tamper {
            Some(tamper) => tamper.whole(bytes),
            None => bytes,
        };
        if bytes.is_empty() {
            // Nobody will ask for a piece: the head is all.
            exchange.gave(Piece::Last);
            return Self::Whole { bytes: None, exchange, tamper: None };
        }
        Self::Whole { bytes: Some(bytes), exchange, tamper }
    }
}

/// A request's place in the engine; letting go of it takes the request out.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) hub: Rc<Hub>,
    pub(crate) ticket: Ticket,
    pub(crate) state: Rc<StreamState>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.hub.leave(self.ticket);
    }
}

/// A stream of server-sent events, one a token.
pub(crate) struct TokenStream {
    pub(crate) place: Place,
    pub(crate) exchange: Rc<Exchange>,
    pub(crate) reply: Reply,
    pub(crate) words: Rc<TextMaker>,
    pub(crate) role_delta: RoleDelta,
    pub(crate) progress: Progress,
    pub(crate) tamper: Option<Box<Tamper>>,
}

/// What a stream has given out.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    opened: bool,
    tokens: u32,
    tail: bool,
}

impl Source for TokenStream {
    fn next(&mut self, cx: &Context<'_>) -> Poll<Option<(Bytes, Piece)>> {
        let state = &self.place.state;
        if self.progress.tail {
            return Poll::Ready(None);
        }
        if let Some(cached) = state.cached_tokens() {
            let available = state.available();
            let early = self.role_delta == RoleDelta::Admission || self.reply.opens_early();
            if !self.progress.opened && (available > 0 || early) {
                self.progress.opened = true;
                if let Some(opening) = self.reply.opening(cached) {
                    return Poll::Ready(Some((opening, Piece::Other)));
                }
            }
            if self.progress.tokens < available {
                let index = self.progress.tokens;
                self.progress.tokens += 1;
                return Poll::Ready(Some((self.reply.token(&self.words, cached, index), Piece::Token)));
            }
            if state.complete() {
                self.progress.tail = true;
                return Poll::Ready(Some((self.reply.tail(cached, available), Piece::Last)));
            }
        }
        state.wake_me(cx);
        Poll::Pending
    }

    fn failure(&mut self, error: &ApiError) -> Bytes {
        self.reply.failure(error)
    }
}

/// A body that is there as a whole.
struct Once<'a>(&'a mut Option<Bytes>);

impl Source for Once<'_> {
    fn next(&mut self, _cx: &Context<'_>) -> Poll<Option<(Bytes, Piece)>> {
        Poll::Ready(self.0.take().map(|bytes| (bytes, Piece::Last)))
    }

    fn failure(&mut self, _error: &ApiError) -> Bytes {
        Bytes::new()
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match self.get_mut() {
            Self::Whole { bytes, exchange, tamper: None } => Poll::Ready(bytes.take().map(|bytes| {
                exchange.gave(Piece::Last);
                Ok(Frame::data(bytes))
            })),
            Self::Whole { bytes, tamper: Some(tamper), .. } => {
                tamper.poll(cx, &mut Once(bytes)).map(|next| next.map(|given| given.map(Frame::data)))
            }
            Self::Stream(stream) => match stream.tamper.take() {
                None => stream.next(cx).map(|next| {
                    next.map(|(bytes, piece)| {
                        stream.exchange.gave(piece);
                        Ok(Frame::data(bytes))
                    })
                }),
                Some(mut tamper) => {
                    let given = tamper.poll(cx, stream);
                    stream.tamper = Some(tamper);
                    given.map(|next| next.map(|given| given.map(Frame::data)))
                }
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole { bytes, tamper: None, .. } => bytes.is_none(),
            Self::Stream(stream) if stream.tamper.is_none() => stream.progress.tail,
            // Only the end itself tells it.
            _ => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole { bytes, .. } => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Stream(_) => SizeHint::default(),
        }
    }
}
