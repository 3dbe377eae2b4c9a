//! A hand-written streaming server: one thread a connection, a script that answers by request, a log of all it heard.

#![allow(dead_code)] // Each test file uses a part.

use std::io::{BufRead as _, BufReader, IoSliceMut, Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};
use tracewheel_clock::blocking;

/// A request as the server heard it.
#[derive(Debug, Clone)]
pub(crate) struct Heard {
    /// When the kernel received the bytes that completed its head, in nanoseconds since 1970: whatever thread runs when,
    /// this is when the request came.
    pub(crate) at_unix_ns: i64,
    pub(crate) id: String,
    pub(crate) head: String,
    pub(crate) body: String,
    /// Which request of this id it is, from 1.
    pub(crate) nth: usize,
    /// Number of the connection, from 0.
    pub(crate) connection: usize,
}

impl Heard {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn max_tokens(&self) -> u32 {
        serde_json::from_str::<serde_json::Value>(&self.body).unwrap()["max_tokens"].as_u64().unwrap() as u32
    }
}

/// What the server does with a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// So many chunks of one word, so many microseconds apart, the first after as long, then usage and `[DONE]`.
    Stream { chunks: u32, gap_us: u32 },
    /// As a stream, but the connection is reset after the first chunk.
    ResetMid,
    /// As a stream, but it ends after the first chunk as if that were all.
    Truncated,
    /// An error object in a stream that had begun.
    ErrorInStream,
    /// A status with further header lines (each with its line end) and a body.
    Status(u16, &'static str, &'static str),
    /// The connection is reset.
    Reset,
    /// Bytes that are not HTTP.
    Garbage,
    /// These bytes and no more; then the connection is closed in order.
    Bytes(&'static [u8]),
    /// No answer until the client leaves.
    Hang,
    /// One chunk, then nothing until the client leaves.
    HangMid,
    /// A stream that carries this event, then a good end.
    StreamOf(&'static str),
    /// Interim answers (100) without end.
    InterimFlood,
    /// A stream of so many empty comments, then a good end.
    CommentFlood(u32),
    /// A good answer, after which the connection is closed without a word.
    StreamThenClose { chunks: u32 },
}

type Script = dyn Fn(&Heard) -> Reply + Send + Sync;

/// The running server.
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    log: Arc<Mutex<Vec<Heard>>>,
    listening: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn start(script: impl Fn(&Heard) -> Reply + Send + Sync + 'static) -> Server {
        Self::start_at("127.0.0.1:0".parse().unwrap(), script)
    }

    /// Starts at this address: where another one was before, for example.
    pub(crate) fn start_at(
        addr: SocketAddr,
        script: impl Fn(&Heard) -> Reply + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind(addr).unwrap();
        let addr = listener.local_addr().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let script: Arc<Script> = Arc::new(script);
        let listening = Arc::new(AtomicBool::new(true));
        let (shared_log, shared_listening) = (Arc::clone(&log), Arc::clone(&listening));
        std::thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                let Ok(stream) = stream else { return };
                if !shared_listening.load(Ordering::SeqCst) {
                    return;
                }
                let (script, log) = (Arc::clone(&script), Arc::clone(&shared_log));
                std::thread::spawn(move || {
                    let _client_left = serve(stream, connection, script.as_ref(), &log);
                });
            }
        });
        Server { addr, log, listening }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Stops listening once so many requests were heard, and closes no connection.
    pub(crate) fn stop_listening_after(&self, requests: usize) {
        while lock(&self.log).len() < requests {
            blocking::sleep(1_000_000);
        }
        self.listening.store(false, Ordering::SeqCst);
        // The accepting thread is woken to see it.
        let _woken = TcpStream::connect(self.addr);
    }

    /// All requests heard so far, in the order of their arrival.
    pub(crate) fn heard(&self) -> Vec<Heard> {
        lock(&self.log).clone()
    }
}

/// A reader that keeps the kernel's receive stamp of its latest read.
struct Stamped {
    stream: TcpStream,
    at_unix_ns: i64,
}

impl Stamped {
    fn new(stream: TcpStream) -> Self {
        setsockopt(&stream, sockopt::ReceiveTimestampns, &true).unwrap();
        Stamped { stream, at_unix_ns: 0 }
    }
}

impl Read for Stamped {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let mut space = nix::cmsg_space!(nix::sys::time::TimeSpec);
        let mut pieces = [IoSliceMut::new(into)];
        let fd = self.stream.as_raw_fd();
        let message = recvmsg::<SockaddrStorage>(fd, &mut pieces, Some(&mut space), MsgFlags::empty())?;
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmTimestampns(at) = control {
                self.at_unix_ns = at.tv_sec() * 1_000_000_000 + at.tv_nsec();
            }
        }
        Ok(message.bytes)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(
    stream: TcpStream,
    connection: usize,
    script: &Script,
    log: &Mutex<Vec<Heard>>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(64 << 10, Stamped::new(stream.try_clone()?));
    let mut writer = stream;
    loop {
        let mut head = String::new();
        loop {
            let before = head.len();
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
            if head.len() - before <= 2 {
                break;
            }
        }
        let at_unix_ns = reader.get_ref().at_unix_ns;
        let mut heard =
            Heard { at_unix_ns, id: String::new(), head, body: String::new(), nth: 0, connection };
        heard.id = heard.header("x-request-id").unwrap_or_default().to_owned();
        let length: usize = heard.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        heard.body = String::from_utf8_lossy(&body).into_owned();
        {
            let mut log = lock(log);
            heard.nth = 1 + log.iter().filter(|other| other.id == heard.id).count();
            log.push(heard.clone());
        }
        if !answer(&mut writer, &mut reader, script(&heard))? {
            return Ok(());
        }
    }
}

/// Whether the connection goes on.
fn answer(writer: &mut TcpStream, reader: &mut BufReader<Stamped>, reply: Reply) -> std::io::Result<bool> {
    match reply {
        Reply::Stream { chunks, gap_us } => stream(writer, chunks, gap_us).map(|()| true),
        Reply::StreamThenClose { chunks } => stream(writer, chunks, 0).map(|()| false),
        Reply::ResetMid => {
            begin(writer)?;
            chunk(writer, &delta("one"))?;
            blocking::sleep(3_000_000);
            reset(writer)
        }
        Reply::Truncated => {
            begin(writer)?;
            chunk(writer, &delta("one"))?;
            writer.write_all(b"0\r\n\r\n").map(|()| true)
        }
        Reply::ErrorInStream => {
            begin(writer)?;
            chunk(writer, &delta("one"))?;
            chunk(writer, "data: {\"error\":{\"message\":\"overloaded\",\"type\":\"server_error\"}}\n\n")?;
            writer.write_all(b"0\r\n\r\n").map(|()| true)
        }
        Reply::Status(status, headers, body) => {
            let text = format!(
                "HTTP/1.1 {status} X\r\nserver: scripted\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
                body.len()
            );
            writer.write_all(text.as_bytes()).map(|()| true)
        }
        Reply::StreamOf(event) => {
            begin(writer)?;
            chunk(writer, event)?;
            chunk(writer, "data: [DONE]\n\n")?;
            writer.write_all(b"0\r\n\r\n").map(|()| true)
        }
        Reply::InterimFlood => {
            let many = "HTTP/1.1 100 Continue\r\n\r\n".repeat(4096);
            while writer.write_all(many.as_bytes()).is_ok() {}
            Ok(false)
        }
        Reply::CommentFlood(comments) => {
            begin(writer)?;
            chunk(writer, &":\n\n".repeat(comments as usize))?;
            chunk(writer, "data: [DONE]\n\n")?;
            writer.write_all(b"0\r\n\r\n").map(|()| true)
        }
        Reply::Reset => reset(writer),
        Reply::Bytes(bytes) => writer.write_all(bytes).map(|()| false),
        Reply::Garbage => writer.write_all(b"220 mail.example ESMTP\r\n\r\n").map(|()| false),
        Reply::Hang => drain(reader),
        Reply::HangMid => {
            begin(writer)?;
            chunk(writer, &delta("one"))?;
            drain(reader)
        }
    }
}

fn begin(writer: &mut TcpStream) -> std::io::Result<()> {
    writer.write_all(
        b"HTTP/1.1 200 OK\r\nserver: scripted\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
    )
}

fn stream(writer: &mut TcpStream, chunks: u32, gap_us: u32) -> std::io::Result<()> {
    begin(writer)?;
    for _ in 0..chunks {
        blocking::sleep(i64::from(gap_us) * 1_000);
        chunk(writer, &delta(" word"))?;
    }
    let usage = format!(
        "data: {{\"id\":\"c\",\"model\":\"served\",\"system_fingerprint\":\"fp\",\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"stop\"}}]}}\n\n\
         data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":9,\"completion_tokens\":{chunks},\"prompt_tokens_details\":{{\"cached_tokens\":3}}}}}}\n\n\
         data: [DONE]\n\n"
    );
    chunk(writer, &usage)?;
    writer.write_all(b"0\r\n\r\n")
}

fn delta(word: &str) -> String {
    format!(
        "data: {{\"id\":\"c\",\"model\":\"served\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{word}\"}}}}]}}\n\n"
    )
}

fn chunk(writer: &mut TcpStream, text: &str) -> std::io::Result<()> {
    writer.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())
}

fn reset(writer: &TcpStream) -> std::io::Result<bool> {
    let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    setsockopt(writer, sockopt::Linger, &linger)?;
    writer.shutdown(std::net::Shutdown::Read)?;
    Ok(false)
}

fn drain(reader: &mut BufReader<Stamped>) -> std::io::Result<bool> {
    std::io::copy(reader, &mut std::io::sink())?;
    Ok(false)
}
