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
        /// The generator's own machine could not open a connection: descriptors, ports or memory ran out.
        LocalResources = "local_resources",
        /// TLS failed: handshake, certificate or protocol choice.
        Tls = "tls",
        /// The peer refused the stream before doing any work on it (an HTTP/2 refusal or a GOAWAY below its id).
        StreamRefused = "stream_refused",
        /// The connection broke before any byte of the response: whether the server saw the request cannot be known.
        ResetBeforeResponse = "reset_before_response",
        /// The connection broke after the response had begun and before its framing said that it was over.
        ResetMidStream = "reset_mid_stream",
        /// The peer's bytes are not HTTP, or break its rules.
        HttpProtocol = "http_protocol",
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
        /// Any other HTTP status from 400 to 499.
        Http4xx = "http_4xx",
        /// Any other HTTP status from 500 up.
        Http5xx = "http_5xx",
        /// An HTTP status that is no answer to this request: 1xx, 3xx (not followed) or a 2xx without a body.
        HttpUnexpected = "http_unexpected",
        /// An error object inside an answer whose HTTP status was good.
        ErrorInStream = "error_in_stream",
        /// The body ended as its framing said, but without the dialect's terminal event.
        Truncated = "truncated",
        /// The body ended in the middle of an event.
        UnterminatedTail = "unterminated_tail",
        /// The body is not what the dialect says: other content type, broken JSON, missing fields.
        Malformed = "malformed",
        /// The answer went over a bound of ours: line, event or body size.
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
                | Self::Tls
        )
    }

    /// Whether a limit of time of ours ended the attempt.
    pub const fn is_timeout(self) -> bool {
        matches!(self, Self::ConnectTimeout | Self::ResponseTimeout | Self::IdleTimeout | Self::TotalTimeout)
    }

    /// Whether the reason is an HTTP status of the server's.
    pub const fn is_http_status(self) -> bool {
        matches!(
            self,
            Self::RateLimited
                | Self::Overloaded
                | Self::Unauthorized
                | Self::Http4xx
                | Self::Http5xx
                | Self::HttpUnexpected
        )
    }

    /// The reason for a response's HTTP status; `None` for 200 to 299.
    pub const fn from_http_status(status: u16) -> Option<Self> {
        match status {
            200..=299 => None,
            429 => Some(Self::RateLimited),
            503 | 529 => Some(Self::Overloaded),
            401 | 403 => Some(Self::Unauthorized),
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
    fn http_statuses_become_reasons() {
        assert_eq!(Reason::from_http_status(200), None);
        assert_eq!(Reason::from_http_status(302), Some(Reason::HttpUnexpected));
        assert_eq!(Reason::from_http_status(401), Some(Reason::Unauthorized));
        assert_eq!(Reason::from_http_status(422), Some(Reason::Http4xx));
        assert_eq!(Reason::from_http_status(429), Some(Reason::RateLimited));
        assert_eq!(Reason::from_http_status(500), Some(Reason::Http5xx));
        assert_eq!(Reason::from_http_status(503), Some(Reason::Overloaded));
        for status in 0..=999 {
            let reason = Reason::from_http_status(status);
            assert!(reason.is_none_or(Reason::is_http_status), "{status}");
        }
    }
}
