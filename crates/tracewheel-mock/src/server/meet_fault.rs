//! Rules of faults at work on one request: before the head here, in the answer by [`Tamper`].

use std::future::pending;
use std::rc::Rc;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Response, StatusCode};

use crate::api::{ApiError, Ask};
use crate::config::{FaultKind, FaultRule, Point};
use crate::fault::{AskFacts, Facts};
use crate::server::body::ReplyBody;
use crate::server::exchange::Piece;
use crate::server::routes::{Call, JSON, retry_count};
use crate::server::tamper::{Cut, Tamper};
use crate::server::wire::Pace;

const HTML: HeaderValue = HeaderValue::from_static("text/html");

impl Call {
    /// Looks whether a rule hits the request. What happens before an answer's head happens here; what happens to the
    /// answer is kept for it.
    pub(crate) async fn meet_fault(&self, ask: Option<&Ask>) -> Result<Option<Response<ReplyBody>>, Cut> {
        let headers = &self.parts.headers;
        let facts = Facts {
            since_start_ms: self.service.since_start_ms(self.arrival.best()),
            path: self.parts.uri.path(),
            ask: ask.map(|ask| AskFacts {
                model: &ask.model,
                input_tokens: ask.prompt.tokens,
                stream: ask.stream,
            }),
            retry: retry_count(headers) > 0,
            header: &|name| headers.get(name).map(HeaderValue::as_bytes),
        };
        let picked = self.service.faults.borrow_mut().pick(&facts);
        let Some(rule) = picked else { return Ok(None) };
        let before_head = rule.point() == Point::Head;
        match rule.kind {
            FaultKind::Status => {
                self.service.note_fault(&rule, &self.exchange);
                return Ok(Some(self.status_by_rule(&rule)));
            }
            FaultKind::Reset | FaultKind::Close if before_head => {
                self.service.note_fault(&rule, &self.exchange);
                return Err(self.connection.cut(rule.kind == FaultKind::Reset));
            }
            FaultKind::Stall if before_head => {
                self.service.note_fault(&rule, &self.exchange);
                match rule.for_ms {
                    Some(ms) => self.service.hub.alarms().after(i64::from(ms) * 1_000_000).await,
                    None => pending().await,
                }
            }
            _ => *self.fault.borrow_mut() = Some(rule),
        }
        Ok(None)
    }

    fn status_by_rule(&self, rule: &FaultRule) -> Response<ReplyBody> {
        let status = rule.status.and_then(|status| StatusCode::from_u16(status).ok());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let html = rule.content_type.as_deref().is_some_and(|kind| kind.starts_with("text/html"));
        let wait_ns = rule.retry_after_ms.map(|ms| i64::from(ms) * 1_000_000);
        let body = match &rule.body {
            Some(body) => body.clone(),
            None if html => format!(
                "<html>\r\n<head><title>{status}</title></head>\r\n<body>\r\n<center><h1>{status}</h1></center>\r\n</body>\r\n</html>\r\n"
            ),
            None => self.refusal(&ApiError {
                status: status.as_u16(),
                kind: "server_error",
                retry_after_ns: wait_ns,
                ..ApiError::invalid(None, "the server could not answer this request")
            }),
        };
        let kind = if html { HTML } else { JSON };
        let body = ReplyBody::whole(body.into(), Rc::clone(&self.exchange), None);
        let mut response = self.respond(status, kind, body);
        if let Some(kind) = &rule.content_type {
            set_content_type(response.headers_mut(), kind);
        }
        if let Some(ns) = wait_ns {
            self.dialect.add_wait(response.headers_mut(), ns);
        }
        response
    }

    /// The rule's work on the answer's body, if there is a rule.
    pub(crate) fn tamper(&self) -> Option<Box<Tamper>> {
        let rule = self.fault.borrow().clone()?;
        // Whoever ends a body after what came before wants to know when the head is out.
        self.exchange.gave(Piece::Head);
        let (connection, exchange) = (Rc::clone(&self.connection), Rc::clone(&self.exchange));
        Some(Box::new(Tamper::new(rule, Rc::clone(&self.service), connection, exchange)))
    }

    /// What a rule does to the head of an answer.
    pub(crate) fn tamper_with_head(&self, headers: &mut HeaderMap) {
        let Some(rule) = self.fault.borrow().clone() else { return };
        let wire = &self.connection.wire;
        match rule.kind {
            FaultKind::ContentType => {
                set_content_type(headers, rule.content_type.as_deref().unwrap_or_default());
            }
            FaultKind::SlowHeaders => {
                let total_ns = i64::from(rule.for_ms.unwrap_or(0)) * 1_000_000;
                wire.set_pace(Pace::Head { total_ns });
            }
            FaultKind::Split => {
                let bytes = rule.bytes.map_or(1, |bytes| bytes.get() as usize);
                wire.set_pace(Pace::Pieces { bytes, gap_ns: i64::from(rule.gap_us.unwrap_or(0)) * 1000 });
            }
            _ => return,
        }
        self.service.note_fault(&rule, &self.exchange);
    }
}

/// Empty: there is none.
fn set_content_type(headers: &mut HeaderMap, kind: &str) {
    match HeaderValue::from_str(kind) {
        Ok(value) if !kind.is_empty() => headers.insert(CONTENT_TYPE, value),
        _ => headers.remove(CONTENT_TYPE),
    };
}
