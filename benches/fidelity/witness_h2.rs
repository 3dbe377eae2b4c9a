//! The witness over HTTP/2 with prior knowledge. As [`crate::witness`], with `h2` for the framing.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, IoSliceMut, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::SendStream;
use nix::sys::socket::sockopt::ReceiveTimestampns;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{LocalSet, spawn_local};

use crate::answer;
use crate::witness::{Script, Seen, now_ns, ns, store, wall_ns};

/// What all connections share.
struct Shared {
    script: Script,
    events: Vec<Bytes>,
    seen: RefCell<Vec<Seen>>,
    /// When a stream's next event is to leave: time, place in the log, number of the event.
    due: RefCell<BinaryHeap<Reverse<(i64, usize, usize)>>>,
    streams: RefCell<Vec<Option<SendStream<Bytes>>>>,
    /// Something was put into `due`.
    earlier: Notify,
}

pub(crate) fn serve(script: &Script, log: &Path) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().event_interval(1).build()?;
    let shared = Rc::new(Shared {
        script: script.clone(),
        events: answer::events(script.chunks.max(1)).into_iter().map(Bytes::from).collect(),
        seen: RefCell::default(),
        due: RefCell::default(),
        streams: RefCell::default(),
        earlier: Notify::new(),
    });
    let over = std::sync::Arc::new(Notify::new());
    let told = std::sync::Arc::clone(&over);
    std::thread::spawn(move || {
        let _ended = io::stdin().read_to_end(&mut Vec::new());
        told.notify_one();
    });
    tracewheel_clock::tighten_timer_slack();
    LocalSet::new().block_on(&runtime, async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(4096)?)?;
        listener.set_nonblocking(true)?;
        setsockopt(&listener, ReceiveTimestampns, &true)?;
        println!("{}", listener.local_addr()?.port());
        io::stdout().flush()?;
        spawn_local(accept(TcpListener::from_std(listener)?, Rc::clone(&shared)));
        let pacing = spawn_local(pace(Rc::clone(&shared)));
        tokio::select! {
            () = over.notified() => Ok(()),
            ended = pacing => ended.map_err(io::Error::other)?,
        }
    })?;
    store(&shared.seen.borrow(), log)
}

async fn accept(listener: TcpListener, shared: Rc<Shared>) {
    while let Ok((tcp, _)) = listener.accept().await {
        let _as_it_is = tcp.set_nodelay(true);
        let shared = Rc::clone(&shared);
        spawn_local(async move {
            // A client that leaves ends its connection and nothing else.
            let _left = converse(tcp, shared).await;
        });
    }
}

async fn converse(tcp: TcpStream, shared: Rc<Shared>) -> Result<(), h2::Error> {
    let stamp_ns = Rc::new(Cell::new(0));
    let io = Stamped { tcp, stamp_ns: Rc::clone(&stamp_ns) };
    let mut connection = h2::server::Builder::new()
        .max_concurrent_streams(1_000)
        .initial_window_size(1 << 20)
        .initial_connection_window_size(16 << 20)
        .handshake::<_, Bytes>(io)
        .await?;
    while let Some(accepted) = connection.accept().await {
        let (request, mut respond) = accepted?;
        let id = request.headers().get("x-request-id").and_then(|id| id.to_str().ok());
        let id = id.and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0);
        let place = shared.seen.borrow().len();
        let room = shared.events.len();
        let (written_ns, taken_ns) = (Vec::with_capacity(room), Vec::with_capacity(room));
        shared.seen.borrow_mut().push(Seen { id, arrived_ns: stamp_ns.get(), written_ns, taken_ns });
        let mut body = request.into_body();
        spawn_local(async move {
            while let Some(Ok(data)) = body.data().await {
                let _stream_may_be_over = body.flow_control().release_capacity(data.len());
            }
        });
        let head = http::Response::builder().header("content-type", "text/event-stream").body(());
        let stream = respond.send_response(head.expect("a good head"), false)?;
        shared.streams.borrow_mut().push(Some(stream));
        shared.due.borrow_mut().push(Reverse((now_ns() + shared.script.first_ns, place, 0)));
        shared.earlier.notify_one();
    }
    Ok(())
}

impl Shared {
    /// Writes an event of a stream and plans the next one.
    fn write(&self, at: i64, place: usize, number: usize) {
        let last = number + 1 == self.events.len();
        self.seen.borrow_mut()[place].written_ns.push(wall_ns());
        let mut streams = self.streams.borrow_mut();
        let Some(stream) = &mut streams[place] else { return };
        let sent = stream.send_data(self.events[number].clone(), last);
        // Handed over; the library writes it when the stream's task has its turn.
        self.seen.borrow_mut()[place].taken_ns.push(wall_ns());
        if last || sent.is_err() {
            streams[place] = None;
        } else {
            self.due.borrow_mut().push(Reverse((at + self.script.gap_ns.max(1), place, number + 1)));
        }
    }
}

/// Writes each event at its time.
async fn pace(shared: Rc<Shared>) -> io::Result<()> {
    let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
    #[allow(deprecated, reason = "its successor is unsafe, and nothing else closes this descriptor")]
    let timer = AsyncFd::new(Timer(TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?))?;
    loop {
        let next = shared.due.borrow().peek().map(|Reverse(next)| *next);
        let Some((at, place, number)) = next else {
            shared.earlier.notified().await;
            continue;
        };
        if at > now_ns() {
            let expiry = Expiration::OneShot(TimeSpec::nanoseconds(at));
            timer.get_ref().0.set(expiry, TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
            tokio::select! {
                fired = timer.readable() => {
                    let _expired = timer.get_ref().0.wait();
                    fired?.clear_ready();
                }
                () = shared.earlier.notified() => {}
            }
            continue;
        }
        shared.due.borrow_mut().pop();
        shared.write(at, place, number);
        tokio::task::yield_now().await;
    }
}

/// A timer as tokio wants to see it.
struct Timer(TimerFd);

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// A stream that keeps the kernel's stamp of its latest read.
struct Stamped {
    tcp: TcpStream,
    stamp_ns: Rc<Cell<i64>>,
}

impl AsyncRead for Stamped {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.tcp.poll_read_ready(cx))?;
            let (fd, into) = (self.tcp.as_raw_fd(), buf.initialize_unfilled());
            let read = self.tcp.try_io(Interest::READABLE, || {
                let mut control = nix::cmsg_space!(TimeSpec);
                let mut buffers = [IoSliceMut::new(into)];
                let message = recvmsg::<()>(fd, &mut buffers, Some(&mut control), MsgFlags::empty())?;
                let stamp = message.cmsgs().ok().into_iter().flatten().find_map(|message| match message {
                    ControlMessageOwned::ScmTimestampns(at) => Some(ns(at)),
                    _ => None,
                });
                Ok((message.bytes, stamp))
            });
            match read {
                Ok((bytes, stamp)) => {
                    self.stamp_ns.set(stamp.unwrap_or_else(wall_ns));
                    buf.advance(bytes);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Stamped {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}
