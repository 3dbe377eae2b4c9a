//! The two logs, written by a thread of their own.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tracewheel_clock::{Clock, RunClock};

use crate::config::MockConfig;
use crate::dialect;

/// Attempts that may lie between the server and the log's thread; beyond it lines are dropped and counted.
const CHANNEL_ATTEMPTS: usize = 8192;
/// How often the clock's offset is sampled and files are flushed.
const PERIOD: Duration = Duration::from_secs(1);
const PERIOD_NS: i64 = 1_000_000_000;

/// Everything about one attempt: one line of the witness log.
///
/// `_mono_ns` is `CLOCK_MONOTONIC`, which every process of the machine shares; `_unix_ns` is the wall clock.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct AttemptLog {
    pub(crate) request_id: String,
    pub(crate) retry_count: u32,
    pub(crate) connection: u64,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) model: Option<String>,
    pub(crate) stream: Option<bool>,
    /// Of the answer; absent when the client went before there was one.
    pub(crate) status: Option<u16>,
    pub(crate) arrival_kernel_unix_ns: Option<i64>,
    pub(crate) arrival_user_unix_ns: i64,
    pub(crate) arrival_kernel_mono_ns: Option<i64>,
    pub(crate) arrival_user_mono_ns: i64,
    pub(crate) prompt_tokens: Option<u32>,
    pub(crate) cached_tokens: Option<u32>,
    /// Tokens that the engine gave out for it.
    pub(crate) completion_tokens: Option<u32>,
    pub(crate) admitted_mono_ns: Option<i64>,
    /// When the model gave the first and the latest token; the difference to the written ones is the server's delay.
    pub(crate) first_token_model_mono_ns: Option<i64>,
    pub(crate) last_token_model_mono_ns: Option<i64>,
    pub(crate) first_chunk_unix_ns: Option<i64>,
    pub(crate) first_chunk_mono_ns: Option<i64>,
    /// When the kernel had taken each token's chunk.
    pub(crate) token_mono_ns: Vec<i64>,
    pub(crate) end_unix_ns: i64,
    pub(crate) end_mono_ns: i64,
    /// The client went before it had everything.
    pub(crate) client_gone: bool,
    /// The mock was stopped before the client had everything.
    pub(crate) server_stopped: bool,
    /// The rule of the fault that it met.
    pub(crate) fault: Option<String>,
}

impl AttemptLog {
    /// When it began: the kernel's stamp where there is one.
    fn start_mono_ns(&self) -> i64 {
        self.arrival_kernel_mono_ns.unwrap_or(self.arrival_user_mono_ns)
    }

    fn start_unix_ns(&self) -> i64 {
        self.arrival_kernel_unix_ns.unwrap_or(self.arrival_user_unix_ns)
    }
}

/// One line of the gateway log.
#[derive(Debug, Serialize)]
struct GatewayLine<'a> {
    ts: String,
    request_id: &'a str,
    retry_count: u32,
    model: Option<&'a str>,
    stream: Option<bool>,
    status: u16,
    prompt_tokens: Option<u32>,
    completion_tokens: Option<u32>,
    cached_tokens: Option<u32>,
    ttft_ms: Option<Millis>,
    duration_ms: Millis,
}

/// Milliseconds with three decimals, rounded to the microsecond.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Millis(f64);

impl Millis {
    fn of_ns(ns: i64) -> Self {
        Self((ns as f64 / 1000.0).round() / 1000.0)
    }
}

impl Serialize for Millis {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

impl<'a> GatewayLine<'a> {
    /// An access log knows of requests to the model only. A client that goes before the head was sent is logged as
    /// 499, as nginx does.
    fn of(log: &'a AttemptLog) -> Option<Self> {
        let to_model = log.path.starts_with("/v1/") || dialect::find(&log.path).is_some();
        if !to_model || log.method != "POST" {
            return None;
        }
        let status = log.status.unwrap_or(499);
        let served = log.status == Some(200);
        let first_token = log.token_mono_ns.first().filter(|_| log.stream == Some(true));
        let ts = Timestamp::from_nanosecond(i128::from(log.start_unix_ns())).unwrap_or_default();
        Some(Self {
            ts: format!("{ts:.9}"),
            request_id: &log.request_id,
            retry_count: log.retry_count,
            model: log.model.as_deref(),
            stream: log.stream,
            status,
            prompt_tokens: log.prompt_tokens,
            completion_tokens: log.completion_tokens.filter(|_| served),
            cached_tokens: log.cached_tokens,
            ttft_ms: first_token.map(|at| Millis::of_ns(at - log.start_mono_ns())),
            duration_ms: Millis::of_ns(log.end_mono_ns - log.start_mono_ns()),
        })
    }
}

/// What a line of the gateway log holds, to tell one from any other line.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only the names and kinds are looked at")]
struct GatewayLineRead {
    ts: String,
    request_id: String,
    retry_count: u32,
    model: Option<String>,
    stream: Option<bool>,
    status: u16,
    prompt_tokens: Option<u32>,
    completion_tokens: Option<u32>,
    cached_tokens: Option<u32>,
    ttft_ms: Option<f64>,
    duration_ms: f64,
}

/// Whether a line (without its end) is one of a gateway log that a mock wrote.
pub fn is_gateway_line(line: &[u8]) -> bool {
    serde_json::from_slice::<GatewayLineRead>(line).is_ok()
}

/// Whether a line, or its first kilobytes, is one of a witness log that a mock wrote. The stamps of a long answer may be
/// cut off.
pub fn is_witness_line(line: &[u8]) -> bool {
    let has = |part: &[u8]| line.windows(part.len()).any(|window| window == part);
    line.starts_with(b"{\"request_id\":") && has(b"\"connection\":") && has(b"\"arrival_user_mono_ns\":")
}

/// A log could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the log {path}", path = path.display())]
pub struct LogError {
    /// The log's file.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// Where attempts are handed to the log's thread. Never waits.
#[derive(Debug, Clone)]
pub(crate) struct LogSink {
    sender: Option<SyncSender<Box<AttemptLog>>>,
    dropped: Arc<AtomicU64>,
}

impl LogSink {
    /// Hands an attempt over, or drops and counts it if the thread is behind.
    pub(crate) fn send(&self, log: AttemptLog) {
        if let Some(sender) = &self.sender
            && sender.try_send(Box::new(log)).is_err()
        {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lines that were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// A sink that forgets everything.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self { sender: None, dropped: Arc::default() }
    }
}

/// What the log's thread reads from.
pub(crate) type LogReceiver = Receiver<Box<AttemptLog>>;

/// A sink, and where its attempts come out.
pub(crate) fn channel() -> (LogSink, LogReceiver) {
    let (sender, receiver) = sync_channel(CHANNEL_ATTEMPTS);
    (LogSink { sender: Some(sender), dropped: Arc::default() }, receiver)
}

/// The thread that writes the logs and keeps the clock's offset to wall time fresh.
#[derive(Debug)]
pub(crate) struct LogThread {
    thread: JoinHandle<Result<(), LogError>>,
}

impl LogThread {
    /// Creates the configured files and starts the thread. It ends once every clone of the receiver's sink is gone.
    pub(crate) fn start(
        config: &MockConfig,
        clock: Arc<RunClock>,
        receiver: LogReceiver,
    ) -> Result<Self, LogError> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(LogFile::create).transpose();
        let mut files = Files { witness: open(&config.witness_log)?, gateway: open(&config.gateway_log)? };
        let thread = std::thread::Builder::new()
            .name("mock-log".to_owned())
            .spawn(move || files.write_all(&receiver, &clock))
            .map_err(|source| LogError { path: PathBuf::from("(thread)"), source })?;
        Ok(Self { thread })
    }

    /// Waits until everything handed over is in the files.
    pub(crate) fn join(self) -> Result<(), LogError> {
        self.thread.join().expect("the log's thread does not panic")
    }
}

struct Files {
    witness: Option<LogFile>,
    gateway: Option<LogFile>,
}

impl Files {
    fn write_all(&mut self, receiver: &Receiver<Box<AttemptLog>>, clock: &RunClock) -> Result<(), LogError> {
        let mut sampled = clock.now();
        // After an error the channel is still drained, so that the server does not count drops for it.
        let mut result = Ok(());
        loop {
            let received = receiver.recv_timeout(PERIOD);
            let closed = matches!(received, Err(RecvTimeoutError::Disconnected));
            if let (Ok(log), Ok(())) = (received, &result) {
                result = self.write(&log);
            }
            let now = clock.now();
            if closed || now.since(sampled) >= PERIOD_NS {
                sampled = now;
                clock.sample_offset();
                result = result.and_then(|()| self.flush());
            }
            if closed {
                return result;
            }
        }
    }

    fn write(&mut self, log: &AttemptLog) -> Result<(), LogError> {
        if let Some(file) = &mut self.witness {
            file.line(log)?;
        }
        if let (Some(file), Some(line)) = (&mut self.gateway, GatewayLine::of(log)) {
            file.line(&line)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), LogError> {
        [&mut self.witness, &mut self.gateway].into_iter().flatten().try_for_each(LogFile::flush)
    }
}

struct LogFile {
    path: PathBuf,
    out: BufWriter<File>,
}

impl LogFile {
    fn create(path: &Path) -> Result<Self, LogError> {
        let path = path.to_owned();
        match File::create(&path) {
            Ok(file) => Ok(Self { path, out: BufWriter::new(file) }),
            Err(source) => Err(LogError { path, source }),
        }
    }

    fn line<T: Serialize>(&mut self, line: &T) -> Result<(), LogError> {
        serde_json::to_writer(&mut self.out, line)
            .map_err(io::Error::from)
            .and_then(|()| self.out.write_all(b"\n"))
            .map_err(|source| self.error(source))
    }

    fn flush(&mut self) -> Result<(), LogError> {
        self.out.flush().map_err(|source| self.error(source))
    }

    fn error(&self, source: io::Error) -> LogError {
        LogError { path: self.path.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn attempt() -> AttemptLog {
        AttemptLog {
            request_id: "r1".into(),
            method: "POST".into(),
            path: "/v1/chat/completions".into(),
            model: Some("m".into()),
            stream: Some(true),
            status: Some(200),
            arrival_kernel_unix_ns: Some(1_800_000_000_000_123_456),
            arrival_kernel_mono_ns: Some(5_000_000_000),
            arrival_user_mono_ns: 5_000_040_000,
            prompt_tokens: Some(10),
            cached_tokens: Some(0),
            completion_tokens: Some(2),
            token_mono_ns: vec![5_070_123_456, 5_082_000_000],
            end_mono_ns: 5_082_000_400,
            ..AttemptLog::default()
        }
    }

    fn gateway(log: &AttemptLog) -> Value {
        serde_json::to_value(GatewayLine::of(log).unwrap()).unwrap()
    }

    #[test]
    fn a_gateway_line_counts_from_the_kernel_stamp() {
        let expected = serde_json::json!({
            "ts": "2027-01-15T08:00:00.000123456Z", "request_id": "r1", "retry_count": 0, "model": "m",
            "stream": true, "status": 200, "prompt_tokens": 10, "completion_tokens": 2, "cached_tokens": 0,
            "ttft_ms": 70.123, "duration_ms": 82.0
        });
        assert_eq!(gateway(&attempt()), expected);
    }

    #[test]
    fn lines_of_both_logs_are_known_again_and_no_others() {
        let gateway = serde_json::to_vec(&GatewayLine::of(&attempt()).unwrap()).unwrap();
        let witness = serde_json::to_vec(&attempt()).unwrap();
        assert!(is_gateway_line(&gateway) && is_witness_line(&witness));
        assert!(!is_gateway_line(&witness) && !is_witness_line(&gateway));
        let other = br#"{"ts":"2027-01-15T08:00:00Z","request_id":"r1","status":200,"duration_ms":82.0}"#;
        for line in [&b""[..], b"[engine]", b"TIMESTAMP,ContextTokens,GeneratedTokens", b"PAR1", other] {
            assert!(!is_gateway_line(line) && !is_witness_line(line));
        }
    }

    #[test]
    fn a_refusal_has_no_answer_and_no_first_token() {
        let log =
            AttemptLog { status: Some(429), token_mono_ns: vec![], completion_tokens: None, ..attempt() };
        let line = gateway(&log);
        assert_eq!((&line["status"], &line["ttft_ms"]), (&Value::from(429), &Value::Null));
        assert_eq!(line["completion_tokens"], Value::Null);
    }

    #[test]
    fn an_answer_that_was_not_streamed_has_no_first_token() {
        let log = AttemptLog { stream: Some(false), ..attempt() };
        assert_eq!(gateway(&log)["ttft_ms"], Value::Null);
    }

    #[test]
    fn a_client_that_went_before_the_answer_is_a_499() {
        let log = AttemptLog { status: None, token_mono_ns: vec![], client_gone: true, ..attempt() };
        assert_eq!(gateway(&log)["status"], 499);
    }

    #[test]
    fn an_access_log_knows_model_requests_only() {
        let of = |method: &str, path: &str| {
            GatewayLine::of(&AttemptLog { method: method.into(), path: path.into(), ..attempt() }).is_some()
        };
        assert!(of("POST", "/v1/completions"));
        assert!(!of("GET", "/v1/models") && !of("GET", "/health") && !of("POST", "/reset_prefix_cache"));
    }

    #[test]
    fn what_was_handed_over_is_in_the_files_after_the_join() {
        let dir = tempfile::tempdir().unwrap();
        let config = MockConfig {
            witness_log: Some(dir.path().join("w.jsonl")),
            gateway_log: Some(dir.path().join("g.jsonl")),
            ..MockConfig::default()
        };
        let (sink, receiver) = channel();
        let thread = LogThread::start(&config, RunClock::start(), receiver).unwrap();
        for _ in 0..1000 {
            sink.send(attempt());
        }
        assert_eq!(sink.dropped(), 0);
        drop(sink);
        thread.join().unwrap();
        for name in ["w.jsonl", "g.jsonl"] {
            assert_eq!(std::fs::read_to_string(dir.path().join(name)).unwrap().lines().count(), 1000);
        }
    }

    #[test]
    fn a_log_that_cannot_be_created_is_named() {
        let config = MockConfig { witness_log: Some("/nonexistent/w.jsonl".into()), ..MockConfig::default() };
        let error = LogThread::start(&config, RunClock::start(), channel().1).unwrap_err();
        assert_eq!(error.to_string(), "cannot write the log /nonexistent/w.jsonl");
    }

    #[test]
    fn a_thread_that_is_behind_drops_and_counts() {
        let (sender, receiver) = sync_channel(1);
        let sink = LogSink { sender: Some(sender), dropped: Arc::default() };
        (0..3).for_each(|_| sink.send(attempt()));
        assert_eq!(sink.dropped(), 2);
        drop(receiver);
        LogSink::none().send(attempt());
    }
}
