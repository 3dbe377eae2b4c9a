//! The witness: a server in a process of its own, one thread over raw sockets, that shares no code with what it judges.
//!
//! It takes the kernel's receive stamp (`SO_TIMESTAMPNS`) of each request's first bytes, writes the chunks of the answer
//! on an exact schedule, and notes the wall clock right before and right after each write. When its standard input ends it
//! stores all of it and leaves.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, BufRead as _, BufReader, ErrorKind, IoSliceMut, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::sockopt::ReceiveTimestampns;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::{ClockId as Clock, clock_gettime};
use rustls::{ServerConfig, ServerConnection};

use crate::answer::Answer;
use crate::pki::Authority;

/// What a witness is asked to do.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    /// Events with output in an answer; 0: a short answer at once.
    pub(crate) chunks: usize,
    /// From a request to the first chunk.
    pub(crate) first_ns: i64,
    /// Between two chunks; 0: as fast as the sockets take them.
    pub(crate) gap_ns: i64,
    /// Where the certificate that it is trusted by goes; `None` without TLS.
    pub(crate) ca_file: Option<PathBuf>,
    /// Over HTTP/2 with prior knowledge.
    pub(crate) http2: bool,
}

/// One request as the witness saw it; wall time in nanoseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    pub(crate) id: u64,
    pub(crate) arrived_ns: i64,
    /// Right before each chunk's write; empty where it wrote as fast as it could.
    pub(crate) written_ns: Vec<i64>,
    /// Right after it: the chunk left in between.
    pub(crate) taken_ns: Vec<i64>,
}

/// A running witness, as its starter holds it.
pub(crate) struct Witness {
    child: Child,
    log: PathBuf,
    pub(crate) port: u16,
}

impl Witness {
    pub(crate) fn start(script: &Script, folder: &Path) -> io::Result<Witness> {
        let log = folder.join("witness.log");
        let mut command = std::process::Command::new(std::env::current_exe()?);
        let role = if script.http2 { "witness-h2" } else { "witness" };
        command.args(["--role", role, "--log"]).arg(&log);
        for (name, value) in
            [("--chunks", script.chunks as i64), ("--first-ns", script.first_ns), ("--gap-ns", script.gap_ns)]
        {
            command.args([name, &value.to_string()]);
        }
        if let Some(file) = &script.ca_file {
            command.arg("--ca-file").arg(file);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| io::Error::other("a pipe was asked for"))?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let port = line.trim().parse().map_err(|_| io::Error::other("the witness did not start"))?;
        Ok(Witness { child, log, port })
    }

    /// Ends it; what it saw, in the order of arrival.
    pub(crate) fn end(mut self) -> io::Result<Vec<Seen>> {
        drop(self.child.stdin.take());
        self.child.wait()?;
        let bytes = std::fs::read(&self.log)?;
        let mut numbers = bytes
            .chunks_exact(8)
            .map(|eight| i64::from_le_bytes(eight.try_into().expect("a chunk of eight bytes has eight")));
        let mut seen = Vec::new();
        while let (Some(id), Some(arrived_ns), Some(writes)) =
            (numbers.next(), numbers.next(), numbers.next())
        {
            let written_ns = numbers.by_ref().take(writes as usize).collect();
            let taken_ns = numbers.by_ref().take(writes as usize).collect();
            seen.push(Seen { id: id as u64, arrived_ns, written_ns, taken_ns });
        }
        Ok(seen)
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _already_gone = self.child.wait();
    }
}

/// The witness's own process.
pub(crate) fn serve(script: &Script, log: &Path) -> io::Result<()> {
    let mut server = Server::new(script)?;
    println!("{}", server.listener.local_addr()?.port());
    io::stdout().flush()?;
    server.run()?;
    store(&server.seen, log)
}

/// Stores what was seen, for [`Witness::end`].
pub(crate) fn store(seen: &[Seen], log: &Path) -> io::Result<()> {
    let mut bytes = Vec::new();
    for seen in seen {
        for number in [seen.id as i64, seen.arrived_ns, seen.written_ns.len() as i64] {
            bytes.extend(number.to_le_bytes());
        }
        seen.written_ns.iter().chain(&seen.taken_ns).for_each(|at| bytes.extend(at.to_le_bytes()));
    }
    std::fs::write(log, bytes)
}

const LISTENER: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;
const STDIN: u64 = u64::MAX - 2;
/// Writes to one connection before the others get their turn, where it writes as fast as it can.
const FLOOD_WRITES: usize = 32;

struct Server {
    script: Script,
    answer: Answer,
    tls: Option<Arc<ServerConfig>>,
    listener: TcpListener,
    epoll: Epoll,
    timer: TimerFd,
    armed_ns: i64,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// When a connection's next chunk is to leave, on the monotonic clock.
    due: BinaryHeap<Reverse<(i64, usize, u32)>>,
    /// Connections that are written to as fast as they take it.
    flooding: Vec<usize>,
    seen: Vec<Seen>,
}

struct Connection {
    stream: TcpStream,
    tls: Option<ServerConnection>,
    /// Told apart from others that had the same place.
    number: u32,
    held: Vec<u8>,
    /// The kernel's stamp of the first bytes of the request being read.
    arrived_ns: Option<i64>,
    /// The kernel's stamp of the latest read.
    stamp_ns: i64,
    /// Of the answer being written: its place in the log, its next write, and the monotonic time of its first.
    writing: Option<(usize, usize, i64)>,
    /// What the socket did not take yet.
    unsent: Vec<u8>,
    watches_room: bool,
}

impl Server {
    fn new(script: &Script) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        // As much as a burst may bring before the thread comes back to accept.
        nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(4096)?)?;
        listener.set_nonblocking(true)?;
        setsockopt(&listener, ReceiveTimestampns, &true)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let timer =
            TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        epoll.add(timer.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, TIMER))?;
        epoll.add(io::stdin(), EpollEvent::new(EpollFlags::EPOLLIN, STDIN))?;
        let tls = match &script.ca_file {
            None => None,
            Some(file) => {
                let authority = Authority::new();
                std::fs::write(file, authority.pem())?;
                Some(authority.issue(&["127.0.0.1"]).server())
            }
        };
        let answer = if script.chunks == 0 { Answer::at_once() } else { Answer::of(script.chunks) };
        Ok(Server {
            script: script.clone(),
            answer,
            tls,
            listener,
            epoll,
            timer,
            armed_ns: i64::MAX,
            connections: Vec::new(),
            free: Vec::new(),
            due: BinaryHeap::new(),
            flooding: Vec::new(),
            seen: Vec::new(),
        })
    }

    fn run(&mut self) -> io::Result<()> {
        tracewheel_clock::tighten_timer_slack();
        let mut events = [EpollEvent::empty(); 256];
        loop {
            self.write_due()?;
            self.flood()?;
            let patience = if self.flooding.is_empty() { EpollTimeout::NONE } else { EpollTimeout::ZERO };
            let count = match self.epoll.wait(&mut events, patience) {
                Ok(count) => count,
                Err(nix::errno::Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            for event in &events[..count] {
                match event.data() {
                    LISTENER => self.accept()?,
                    TIMER => {
                        let _expired = self.timer.wait();
                        self.armed_ns = i64::MAX;
                    }
                    STDIN => return Ok(()),
                    place => self.ready(place as usize, event.events())?,
                }
                self.write_due()?;
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        for _ in 0..64 {
            let (stream, _) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let place = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            self.epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, place as u64))?;
            let tls = self.tls.clone().map(ServerConnection::new).transpose().map_err(io::Error::other)?;
            let number = self.seen.len() as u32;
            self.connections[place] = Some(Connection {
                stream,
                tls,
                number,
                held: Vec::new(),
                arrived_ns: None,
                stamp_ns: 0,
                writing: None,
                unsent: Vec::new(),
                watches_room: false,
            });
        }
        Ok(())
    }

    fn ready(&mut self, place: usize, flags: EpollFlags) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(place).and_then(Option::as_mut) else {
            return Ok(());
        };
        if flags.contains(EpollFlags::EPOLLOUT) && !connection.unsent.is_empty() {
            connection.push_out()?;
        }
        if flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR) {
            if !connection.take_in()? {
                // A connection's number in the heap no longer matches when its place is used again.
                self.connections[place] = None;
                self.free.push(place);
                self.flooding.retain(|flooded| *flooded != place);
                return Ok(());
            }
            self.begin(place);
        }
        self.watch(place)
    }

    /// Begins the answer of a request that is whole.
    fn begin(&mut self, place: usize) {
        let Some(connection) = self.connections[place].as_mut() else { return };
        if connection.writing.is_some() {
            return;
        }
        let Some((head, whole)) = whole_request(&connection.held) else { return };
        let id = header(&connection.held[..head], "x-request-id")
            .and_then(|hex| u64::from_str_radix(hex, 16).ok())
            .unwrap_or(0);
        connection.held.drain(..whole);
        let arrived_ns = connection.arrived_ns.take().unwrap_or(connection.stamp_ns);
        let room = if self.script.gap_ns > 0 { self.answer.writes.len() } else { 1 };
        let (written_ns, taken_ns) = (Vec::with_capacity(room), Vec::with_capacity(room));
        self.seen.push(Seen { id, arrived_ns, written_ns, taken_ns });
        let at = now_ns() + self.script.first_ns;
        connection.number = connection.number.wrapping_add(1);
        connection.writing = Some((self.seen.len() - 1, 0, at));
        self.due.push(Reverse((at, place, connection.number)));
    }

    fn write_due(&mut self) -> io::Result<()> {
        while let Some(Reverse((at, place, number))) = self.due.peek().copied() {
            if at > now_ns() {
                if at < self.armed_ns {
                    self.armed_ns = at;
                    let expiry = Expiration::OneShot(TimeSpec::nanoseconds(at));
                    self.timer.set(expiry, TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
                }
                return Ok(());
            }
            self.due.pop();
            let Some(connection) = self.connections[place].as_mut() else { continue };
            let Some((log, next, first_at)) = connection.writing.filter(|_| connection.number == number)
            else {
                continue;
            };
            let Some(bytes) = self.answer.writes.get(next) else { continue };
            self.seen[log].written_ns.push(wall_ns());
            connection.write(bytes)?;
            self.seen[log].taken_ns.push(wall_ns());
            let last = next + 1 == self.answer.writes.len();
            connection.writing = (!last).then_some((log, next + 1, first_at));
            if !last && self.script.gap_ns > 0 {
                let at = first_at + (next as i64 + 1) * self.script.gap_ns;
                self.due.push(Reverse((at, place, number)));
            } else if !last {
                self.flooding.push(place);
            }
            self.watch(place)?;
            if last {
                // A client may have sent its next request before it had the answer.
                self.begin(place);
            }
        }
        Ok(())
    }

    /// A few writes to each connection that is flooded.
    fn flood(&mut self) -> io::Result<()> {
        let mut at = 0;
        while at < self.flooding.len() {
            let place = self.flooding[at];
            let Some(connection) = self.connections[place].as_mut() else {
                self.flooding.swap_remove(at);
                continue;
            };
            for _ in 0..FLOOD_WRITES {
                let Some((log, next, first_at)) = connection.writing else { break };
                if !connection.unsent.is_empty() {
                    break;
                }
                connection.write(&self.answer.writes[next])?;
                let more = next + 1 < self.answer.writes.len();
                connection.writing = more.then_some((log, next + 1, first_at));
            }
            if connection.writing.is_none() || !connection.unsent.is_empty() {
                self.flooding.swap_remove(at);
            } else {
                at += 1;
            }
            self.watch(place)?;
        }
        Ok(())
    }

    /// Asks to be told of room in the socket where something waits for it.
    fn watch(&mut self, place: usize) -> io::Result<()> {
        let Some(connection) = self.connections[place].as_mut() else { return Ok(()) };
        let wants = !connection.unsent.is_empty();
        if wants == connection.watches_room {
            return Ok(());
        }
        connection.watches_room = wants;
        let flags = if wants { EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN };
        self.epoll.modify(&connection.stream, &mut EpollEvent::new(flags, place as u64))?;
        if !wants && connection.writing.is_some() && self.script.gap_ns == 0 {
            self.flooding.push(place);
        }
        Ok(())
    }
}

impl Connection {
    /// Reads what lies there; whether the connection goes on.
    fn take_in(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 16 << 10];
        let mut control = nix::cmsg_space!(TimeSpec);
        let (count, stamp_ns) = {
            let mut buffers = [IoSliceMut::new(&mut bytes)];
            let fd = self.stream.as_raw_fd();
            match recvmsg::<()>(fd, &mut buffers, Some(&mut control), MsgFlags::empty()) {
                Ok(message) => {
                    let stamp =
                        message.cmsgs().ok().into_iter().flatten().find_map(|message| match message {
                            ControlMessageOwned::ScmTimestampns(at) => Some(ns(at)),
                            _ => None,
                        });
                    (message.bytes, stamp)
                }
                Err(nix::errno::Errno::EAGAIN) => return Ok(true),
                Err(_) => return Ok(false),
            }
        };
        if count == 0 {
            return Ok(false);
        }
        let stamp_ns = stamp_ns.unwrap_or_else(wall_ns);
        self.stamp_ns = stamp_ns;
        let Some(tls) = &mut self.tls else {
            self.arrived_ns.get_or_insert(stamp_ns);
            self.held.extend_from_slice(&bytes[..count]);
            return Ok(true);
        };
        let mut rest = &bytes[..count];
        while !rest.is_empty() {
            tls.read_tls(&mut rest)?;
            if tls.process_new_packets().is_err() {
                return Ok(false);
            }
            let before = self.held.len();
            let _nothing_more = tls.reader().read_to_end(&mut self.held);
            if self.held.len() > before {
                self.arrived_ns.get_or_insert(stamp_ns);
            }
        }
        self.flush_tls()?;
        Ok(true)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.writer().write_all(bytes)?;
            return self.flush_tls();
        }
        if !self.unsent.is_empty() {
            self.unsent.extend_from_slice(bytes);
            return Ok(());
        }
        let taken = written(self.stream.write(bytes))?;
        self.unsent.extend_from_slice(&bytes[taken.min(bytes.len())..]);
        Ok(())
    }

    fn flush_tls(&mut self) -> io::Result<()> {
        while let Some(tls) = self.tls.as_mut().filter(|tls| tls.wants_write()) {
            tls.write_tls(&mut self.unsent)?;
        }
        self.push_out()
    }

    fn push_out(&mut self) -> io::Result<()> {
        if !self.unsent.is_empty() {
            let taken = written(self.stream.write(&self.unsent))?;
            self.unsent.drain(..taken.min(self.unsent.len()));
        }
        Ok(())
    }
}

/// Bytes taken; a client that left takes them all.
fn written(outcome: io::Result<usize>) -> io::Result<usize> {
    match outcome {
        Ok(bytes) => Ok(bytes),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
            Ok(usize::MAX)
        }
        Err(error) => Err(error),
    }
}

pub(crate) fn ns(at: TimeSpec) -> i64 {
    at.tv_sec() * 1_000_000_000 + at.tv_nsec()
}

pub(crate) fn now_ns() -> i64 {
    ns(clock_gettime(Clock::CLOCK_MONOTONIC).expect("the clock is always there"))
}

pub(crate) fn wall_ns() -> i64 {
    ns(clock_gettime(Clock::CLOCK_REALTIME).expect("the clock is always there"))
}

/// Lengths of the head and of the whole request, once it is there.
fn whole_request(held: &[u8]) -> Option<(usize, usize)> {
    let head = held.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let body = header(&held[..head], "content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    (held.len() >= head + body).then_some((head, head + body))
}

fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    let text = std::str::from_utf8(head).ok()?;
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
