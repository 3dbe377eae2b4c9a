//! Reasons: why a request or an attempt did not end well.

use super::{RequestStatus, vocabulary};

vocabulary! {
    /// Why a request or an attempt did not end well: a closed list. An `ok` has none. Each reason belongs to exactly one
    /// status ([`Reason::status`]).
    Reason, "reason" {
        /// The host name did not resolve.
        Dns = "dns",
        /// The address refused the connection.
        ConnectRefused = "connect_refused",
        /// The connection was not made within its limit.
        ConnectTimeout = "connect_timeout",
        /// No route to the address, or a network device said that there is none.
        ConnectUnreachable = "connect_unreachable",
        /// The connection was not made for another reason of the network or the peer.
        ConnectOther = "connect_other",
        /// The generator's own machine could not open a connection: ports or memory ran out.
        LocalResources = "local_resources",
        /// The generator's process had no file descriptor left for a connection.
        LocalDescriptors = "local_descriptors",
        /// The attempt got none of the connections that the run may have open: its limit of time passed before.
        ConnectionLimit = "connection_limit",
        /// The peer's certificate is not trusted: an unknown issuer, or not acceptable in another way.
        TlsUntrusted = "tls_untrusted",
        /// The peer's certificate has expired or is not valid yet.
        TlsExpired = "tls_expired",
        /// The peer's certificate is for another name.
        TlsWrongName = "tls_wrong_name",
        /// The peer refused the TLS handshake with an alert.
        TlsAlert = "tls_alert",
        /// The peer closed or reset the connection within the TLS handshake.
        TlsClosed = "tls_closed",
        /// TCP stood, but the TLS handshake was not over within the limit for connecting.
        TlsTimeout = "tls_timeout",
        /// The peer does not speak TLS on this port.
        TlsNotSpoken = "tls_not_spoken",
        /// TLS failed in another way: no version, cipher or protocol in common, or broken messages.
        Tls = "tls",
        /// HTTP/2 was asked for, and the peer speaks only HTTP/1.1.
        Http1Only = "http1_only",
        /// HTTP/2 was asked for, and the peer closed the connection, refused it or answered with something else.
        Http2Refused = "http2_refused",
        /// HTTP/2 was asked for, and the peer's part of its beginning did not come within the limit for connecting.
        Http2Timeout = "http2_timeout",
        /// The peer refused the stream before doing any work on it (an HTTP/2 refusal or a GOAWAY below its id).
        StreamRefused = "stream_refused",
        /// The peer reset the HTTP/2 stream with the code `CANCEL`.
        StreamCancelled = "stream_cancelled",
        /// The peer reset the HTTP/2 stream with the code `INTERNAL_ERROR`.
        StreamInternalError = "stream_internal_error",
        /// The peer reset the HTTP/2 stream with the code `ENHANCE_YOUR_CALM`: it finds the load excessive.
        StreamCalm = "stream_calm",
        /// The peer reset the HTTP/2 stream with the code `PROTOCOL_ERROR` or `FLOW_CONTROL_ERROR`.
        StreamProtocol = "stream_protocol",
        /// The peer reset the HTTP/2 stream with another code; the attempt's error text names it.
        StreamReset = "stream_reset",
        /// The connection broke before any byte of the response: whether the server saw the request cannot be known.
        ResetBeforeResponse = "reset_before_response",
        /// The connection broke within the response's status line and headers.
        ResetInHeaders = "reset_in_headers",
        /// The connection broke after the response had begun and before its framing said that it was over.
        ResetMidStream = "reset_mid_stream",
        /// The peer's bytes are not HTTP, or break its rules.
        HttpProtocol = "http_protocol",
        /// The peer answered plain HTTP with TLS: the port wants https.
        HttpsExpected = "https_expected",
        /// The peer answered HTTP/1.1 with HTTP/2.
        Http2Only = "http2_only",
        /// The response's body breaks its own framing: chunks that are no chunks.
        HttpFraming = "http_framing",
        /// The response's head is too large or has no end: too many headers, or informational answers without end.
        HeadTooLarge = "head_too_large",
        /// No response header within its limit.
        ResponseTimeout = "response_timeout",
        /// The response began, then stayed silent longer than its limit.
        IdleTimeout = "idle_timeout",
        /// The attempt took longer than its whole limit.
        TotalTimeout = "total_timeout",
        /// HTTP status 429.
        RateLimited = "rate_limited",
        /// HTTP status 503 or 529: the server says that it is overloaded or not ready.
        Overloaded = "overloaded",
        /// HTTP status 401 or 403: the key is missing, wrong or not allowed to do this.
        Unauthorized = "unauthorized",
        /// HTTP status 400 or 422: the server does not take the request as it is.
        InvalidRequest = "invalid_request",
        /// HTTP status 404: no such path or no such model.
        NotFound = "not_found",
        /// HTTP status 413: the request is larger than the server takes.
        RequestTooLarge = "request_too_large",
        /// Any other HTTP status from 400 to 499.
        Http4xx = "http_4xx",
        /// HTTP status 502 or 504: a proxy had no good answer from the server behind it.
        BadGateway = "bad_gateway",
        /// Any other HTTP status from 500 up.
        Http5xx = "http_5xx",
        /// An HTTP status from 300 to 399: the server points elsewhere, which is not followed.
        HttpRedirect = "http_redirect",
        /// An HTTP status that is no answer to this request: 1xx or a 2xx without a body.
        HttpUnexpected = "http_unexpected",
        /// An error object inside an answer whose HTTP status was good.
        ErrorInStream = "error_in_stream",
        /// The body ended as its framing said, but without the dialect's terminal event.
        Truncated = "truncated",
        /// The body ended in the middle of an event.
        UnterminatedTail = "unterminated_tail",
        /// The body is not what the dialect says: other content type, broken JSON, missing fields.
        Malformed = "malformed",
        /// The body came compressed (`content-encoding`), although the request asked for none: its tokens have no times.
        ContentEncoded = "content_encoded",
        /// The server ended the generation itself and said so (`finish_reason` is `abort`): the output is cut short.
        AbortedByServer = "aborted_by_server",
        /// The answer went over a bound of ours: line, event, body size, events or reads.
        LimitExceeded = "limit_exceeded",
        /// The generator itself failed on this request: a fault in tracewheel.
        Internal = "internal",
        /// The client left at the recorded offset, as in production.
        CancelledAsRecorded = "cancelled_as_recorded",
        /// In flight or waiting for a retry when a person cut the run.
        InterruptedByUser = "interrupted_by_user",
        /// In flight or waiting for a retry when the time for draining was over.
        InterruptedByDrainLimit = "interrupted_by_drain_limit",
        /// In flight or waiting for a retry when the run stopped itself: recorder full, disk full, target failing.
        InterruptedByAbort = "interrupted_by_abort",
        /// Released by a process that died before the end was recorded: only its release is known.
        InterruptedByCrash = "interrupted_by_crash",
        /// Not yet released when a person stopped the run.
        StoppedByUser = "stopped_by_user",
        /// Due after the run's own limit of time.
        TooLate = "too_late",
        /// A gated turn whose previous turn did not end well, so that it has no due time.
        PreviousTurnFailed = "previous_turn_failed",
        /// The wait for a client budget would have been longer than its limit.
        BudgetExceeded = "budget_exceeded",
        /// Not yet released when the run stopped itself: recorder full, disk full, target failing.
        RunAborted = "run_aborted",
        /// Not released by a process that died.
        RunCrashed = "run_crashed",
    }
}

impl Reason {
    /// The one status that the reason goes with. Never [`RequestStatus::Ok`].
    pub const fn status(self) -> RequestStatus {
        match self {
            Self::CancelledAsRecorded => RequestStatus::Cancelled,
            Self::InterruptedByUser
            | Self::InterruptedByDrainLimit
            | Self::InterruptedByAbort
            | Self::InterruptedByCrash => RequestStatus::Interrupted,
            Self::StoppedByUser
            | Self::TooLate
            | Self::PreviousTurnFailed
            | Self::BudgetExceeded
            | Self::RunAborted
            | Self::RunCrashed => RequestStatus::Unsent,
            _ => RequestStatus::Failed,
        }
    }

    /// Whether no connection came to be, so that the server surely saw nothing.
    pub const fn is_connect(self) -> bool {
        matches!(
            self,
            Self::Dns
                | Self::ConnectRefused
                | Self::ConnectTimeout
                | Self::ConnectUnreachable
                | Self::ConnectOther
                | Self::LocalResources
                | Self::LocalDescriptors
                | Self::ConnectionLimit
                | Self::TlsUntrusted
                | Self::TlsExpired
                | Self::TlsWrongName
                | Self::TlsAlert
                | Self::TlsClosed
                | Self::TlsTimeout
                | Self::TlsNotSpoken
                | Self::Tls
                | Self::Http1Only
                | Self::Http2Refused
                | Self::Http2Timeout
        )
    }

    /// Whether a limit of time of ours ended the attempt.
    pub const fn is_timeout(self) -> bool {
        matches!(
            self,
            Self::ConnectTimeout
                | Self::ConnectionLimit
                | Self::TlsTimeout
                | Self::Http2Timeout
                | Self::ResponseTimeout
                | Self::IdleTimeout
                | Self::TotalTimeout
        )
    }

    /// Whether the reason is an HTTP status of the server's.
    pub const fn is_http_status(self) -> bool {
        matches!(
            self,
            Self::RateLimited
                | Self::Overloaded
                | Self::Unauthorized
                | Self::InvalidRequest
                | Self::NotFound
                | Self::RequestTooLarge
                | Self::Http4xx
                | Self::BadGateway
                | Self::Http5xx
                | Self::HttpRedirect
                | Self::HttpUnexpected
        )
    }

    /// What a person does about it, for the reasons that have one remedy: a fragment for the end of a message.
    pub const fn remedy(self) -> Option<&'static str> {
        Some(match self {
            Self::Dns => "check the name in --target, and this machine's DNS",
            Self::ConnectRefused => "nobody listens there: is the server up, is the port right?",
            Self::ConnectTimeout | Self::ConnectUnreachable => {
                "nothing answers from there: check the address, firewalls and routes"
            }
            Self::LocalDescriptors => "raise the limit of open files (ulimit -n), or lower --connections",
            Self::LocalResources => "this machine ran out of ports or memory: spread the run over machines",
            Self::ConnectionLimit => "raise --connections, or lower --speed",
            Self::TlsUntrusted => "name the issuer, or a self-signed certificate itself, with --ca-file",
            Self::TlsExpired => {
                "renew the certificate, or trust exactly this one by naming it with --ca-file"
            }
            Self::TlsWrongName => "use a name that the certificate is for, or give it with --tls-name",
            Self::TlsNotSpoken => "the port speaks plain HTTP: write the target as http://",
            Self::HttpsExpected => "the port speaks TLS: write the target as https://",
            Self::Http2Only => "the port speaks HTTP/2 only: give --http 2",
            Self::Http1Only => "give --http 1.1, or a target that speaks HTTP/2",
            Self::Http2Refused | Self::Http2Timeout => "does this port speak HTTP/2? --http 1.1 does without",
            Self::StreamCalm => "the server finds the load excessive: lower --speed or --http2-streams",
            Self::HttpProtocol => {
                "the port speaks something else, or the server, or a proxy before it, breaks the rules of HTTP"
            }
            Self::ResetBeforeResponse | Self::ResetInHeaders | Self::ResetMidStream => {
                "the server, or a proxy before it, closed the connection: see their logs and limits of time"
            }
            Self::Truncated | Self::UnterminatedTail => {
                "the answer ended without the end that --protocol has: see the server's log, and the limits of a proxy before it"
            }
            Self::Malformed => "is this the API that --protocol names? check the target's base path",
            Self::ErrorInStream => "the server ended an answer that had begun with this error: see its log",
            Self::ContentEncoded => "switch compression off, at the server or at the proxy before it",
            Self::LimitExceeded => {
                "docs/reference/vocabulary.md names the limits: leave such requests out, or ask for shorter answers"
            }
            Self::ResponseTimeout | Self::TotalTimeout => "the server took longer than --timeout allows",
            Self::Unauthorized => "check the key: --api-key-env or --api-key-file",
            Self::NotFound => "check the target's base path, --protocol and --model",
            Self::HttpRedirect => "redirects are not followed: name the final address as --target",
            Self::BadGateway => "a proxy answered, the server behind it did not",
            Self::RateLimited | Self::Overloaded => {
                "lower --speed, or let --retry wait as the clients of production do"
            }
            Self::InvalidRequest | Self::RequestTooLarge => {
                "the server's words stand in the attempts' error_body; see --model, --engine and --lengths"
            }
            _ => return None,
        })
    }

    /// The reason for a response's HTTP status; `None` for 200 to 299.
    pub const fn from_http_status(status: u16) -> Option<Self> {
        match status {
            200..=299 => None,
            429 => Some(Self::RateLimited),
            503 | 529 => Some(Self::Overloaded),
            401 | 403 => Some(Self::Unauthorized),
            400 | 422 => Some(Self::InvalidRequest),
            404 => Some(Self::NotFound),
            413 => Some(Self::RequestTooLarge),
            502 | 504 => Some(Self::BadGateway),
            300..=399 => Some(Self::HttpRedirect),
            400..=499 => Some(Self::Http4xx),
            500.. => Some(Self::Http5xx),
            _ => Some(Self::HttpUnexpected),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_reason_goes_with_ok_and_every_other_status_has_one() {
        for status in RequestStatus::ALL {
            let reasons = Reason::ALL.iter().filter(|reason| reason.status() == *status).count();
            assert_eq!(reasons == 0, *status == RequestStatus::Ok, "{status}");
        }
    }

    #[test]
    fn what_a_broken_answer_asks_of_a_person_is_told() {
        use Reason::*;

        let broken = [
            ResetBeforeResponse,
            ResetInHeaders,
            ResetMidStream,
            HttpProtocol,
            Truncated,
            UnterminatedTail,
            Malformed,
            ErrorInStream,
            ContentEncoded,
            LimitExceeded,
        ];
        for reason in broken {
            assert!(reason.remedy().is_some(), "{reason}");
        }
        for reason in Reason::ALL.iter().filter(|reason| reason.status() != RequestStatus::Failed) {
            assert!(reason.remedy().is_none(), "what did not fail needs no remedy: {reason}");
        }
    }

    #[test]
    fn http_statuses_become_reasons() {
        assert_eq!(Reason::from_http_status(200), None);
        assert_eq!(Reason::from_http_status(302), Some(Reason::HttpRedirect));
        assert_eq!(Reason::from_http_status(101), Some(Reason::HttpUnexpected));
        assert_eq!(Reason::from_http_status(401), Some(Reason::Unauthorized));
        assert_eq!(Reason::from_http_status(400), Some(Reason::InvalidRequest));
        assert_eq!(Reason::from_http_status(422), Some(Reason::InvalidRequest));
        assert_eq!(Reason::from_http_status(404), Some(Reason::NotFound));
        assert_eq!(Reason::from_http_status(413), Some(Reason::RequestTooLarge));
        assert_eq!(Reason::from_http_status(409), Some(Reason::Http4xx));
        assert_eq!(Reason::from_http_status(502), Some(Reason::BadGateway));
        assert_eq!(Reason::from_http_status(429), Some(Reason::RateLimited));
        assert_eq!(Reason::from_http_status(500), Some(Reason::Http5xx));
        assert_eq!(Reason::from_http_status(503), Some(Reason::Overloaded));
        for status in 0..=999 {
            let reason = Reason::from_http_status(status);
            assert!(reason.is_none_or(Reason::is_http_status), "{status}");
        }
    }
}
