//! The server's end of an HTTP/2 connection, written down frame by frame.

#![allow(dead_code)] // Each test file uses a part.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;

/// `:status: 200`, an entry of HPACK's static table.
pub(crate) const STATUS_200: &[u8] = &[0x88];
/// `:status: 103`, a literal.
pub(crate) const STATUS_103: &[u8] = &[0x08, 3, b'1', b'0', b'3'];

pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;

trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

/// A frame that the client sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// One connection, as the server has it.
pub(crate) struct Peer {
    wire: Box<dyn Wire>,
    tcp: TcpStream,
}

/// A frame's bytes, as RFC 9113, section 4.1, draws them.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

pub(crate) fn settings(pairs: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> =
        pairs.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
    frame(SETTINGS, 0, 0, &payload)
}

pub(crate) fn goaway(last_stream: u32, code: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[last_stream.to_be_bytes(), code.to_be_bytes()].concat())
}

pub(crate) fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

pub(crate) fn window_update(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

pub(crate) fn ok_head(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, STATUS_200)
}

pub(crate) fn last_data(stream: u32, data: &[u8]) -> Vec<u8> {
    frame(DATA, END_STREAM, stream, data)
}

impl Peer {
    /// Reads the preface and the client's SETTINGS, and says its own.
    pub(crate) fn greet(&mut self, pairs: &[(u16, u32)]) -> Frame {
        let mut preface = [0; 24];
        self.wire.read_exact(&mut preface).unwrap();
        assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        let first = self.next();
        assert_eq!((first.kind, first.flags), (SETTINGS, 0));
        self.send(&[settings(pairs), frame(SETTINGS, ACK, 0, &[])].concat());
        first
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.wire.write_all(bytes).unwrap();
        self.wire.flush().unwrap();
    }

    /// Reads so many bytes of whatever it is.
    pub(crate) fn hear(&mut self, bytes: usize) {
        self.wire.read_exact(&mut vec![0; bytes]).unwrap();
    }

    /// The next frame of any kind.
    pub(crate) fn next(&mut self) -> Frame {
        self.try_next().expect("the client is still there")
    }

    pub(crate) fn try_next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.wire.read_exact(&mut head).ok()?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        self.wire.read_exact(&mut payload).ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// The next frame of a kind; others are passed over.
    pub(crate) fn until(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.next();
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// Reads a whole request: its stream and its body.
    pub(crate) fn request(&mut self) -> (u32, Vec<u8>) {
        let head = self.until(HEADERS);
        let mut body = Vec::new();
        let mut over = head.flags & END_STREAM != 0;
        while !over {
            let data = self.until(DATA);
            assert_eq!(data.stream, head.stream);
            body.extend(&data.payload);
            over = data.flags & END_STREAM != 0;
        }
        (head.stream, body)
    }

    /// Waits until the client closes.
    pub(crate) fn wait(&mut self) {
        while self.try_next().is_some() {}
    }

    /// Resets the connection.
    pub(crate) fn reset(self) {
        nix::sys::socket::setsockopt(
            &self.tcp,
            nix::sys::socket::sockopt::Linger,
            &nix::libc::linger { l_onoff: 1, l_linger: 0 },
        )
        .unwrap();
    }
}

/// A server of one connection.
pub(crate) struct Server<T> {
    pub(crate) addr: SocketAddr,
    thread: JoinHandle<T>,
}

impl<T> Server<T> {
    pub(crate) fn join(self) -> T {
        self.thread.join().unwrap()
    }
}

/// Serves one connection as told, on a free port of 127.0.0.1; over TLS where it is given.
pub(crate) fn serve<T: Send + 'static>(
    tls: Option<Arc<ServerConfig>>,
    play: impl FnOnce(Peer) -> T + Send + 'static,
) -> Server<T> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let (tcp, _) = listener.accept().unwrap();
        tcp.set_nodelay(true).unwrap();
        let twin = tcp.try_clone().unwrap();
        let wire: Box<dyn Wire> = match tls {
            None => Box::new(tcp),
            Some(config) => Box::new(StreamOwned::new(ServerConnection::new(config).unwrap(), tcp)),
        };
        play(Peer { wire, tcp: twin })
    });
    Server { addr, thread }
}
