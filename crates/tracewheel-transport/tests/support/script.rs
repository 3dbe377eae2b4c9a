//! A TCP server that plays one script a connection, byte by byte as told; with TLS before it where that is asked for.

#![allow(dead_code)] // Each test file uses a part.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustls::ServerConfig;

use crate::pki;

/// One step of a script.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Act {
    /// Read a whole request with a body of so many bytes, and remember it.
    Read(usize),
    /// Wait until the client closes.
    Wait,
    /// Send this text.
    Send(&'static str),
    /// Send these bytes.
    Bytes(&'static [u8]),
    /// Send this text again and again until the client leaves.
    Repeat(&'static str),
    /// Send so many bytes.
    Flood(usize),
    /// Wait so many milliseconds.
    Pause(u32),
    /// Close in order; ends the script.
    Close,
    /// Reset; ends the script.
    Reset,
}

/// The running server. Connections are served one after another.
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
    bytes: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl Server {
    /// The requests read so far.
    pub(crate) fn heard(&self) -> Vec<Vec<u8>> {
        self.heard.lock().unwrap().clone()
    }

    /// All bytes read so far.
    pub(crate) fn heard_bytes(&self) -> usize {
        self.bytes.load(Ordering::SeqCst)
    }

    /// Waits for the end of the scripts.
    pub(crate) fn join(self) {
        self.thread.join().unwrap();
    }
}

/// Serves the scripts, one a connection, on a free port of 127.0.0.1.
pub(crate) fn serve(scripts: Vec<Vec<Act>>) -> Server {
    serve_over(None, scripts)
}

/// As [`serve`], with TLS before it where it is given.
pub(crate) fn serve_over(tls: Option<Arc<ServerConfig>>, scripts: Vec<Vec<Act>>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let bytes = Arc::new(AtomicUsize::new(0));
    let (log, count) = (Arc::clone(&heard), Arc::clone(&bytes));
    let thread = std::thread::spawn(move || {
        for script in scripts {
            let (stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            match &tls {
                None => play(stream, &script, &log, &count),
                Some(config) => play(pki::accept(config, stream), &script, &log, &count),
            }
        }
    });
    Server { addr, heard, bytes, thread }
}

/// A connection with or without TLS.
trait Wire: Read + Write {
    fn tcp(&self) -> &TcpStream;
    /// Ends an orderly connection.
    fn close(&mut self) {}
}

impl Wire for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Wire for rustls::StreamOwned<rustls::ServerConnection, TcpStream> {
    fn tcp(&self) -> &TcpStream {
        &self.sock
    }

    fn close(&mut self) {
        self.conn.send_close_notify();
        let _left = self.flush();
    }
}

fn play(mut stream: impl Wire, script: &[Act], heard: &Mutex<Vec<Vec<u8>>>, count: &AtomicUsize) {
    for act in script {
        match *act {
            Act::Read(body) => match read_request(&mut stream, body, count) {
                Some(request) => heard.lock().unwrap().push(request),
                None => return,
            },
            Act::Wait => {
                let mut rest = [0; 1024];
                while matches!(stream.read(&mut rest), Ok(1..)) {}
            }
            // The client may have left: that is its right.
            Act::Send(text) => drop(stream.write_all(text.as_bytes())),
            Act::Bytes(bytes) => drop(stream.write_all(bytes)),
            Act::Repeat(text) => while stream.write_all(text.as_bytes()).is_ok() {},
            Act::Flood(size) => drop(stream.write_all(&vec![b'.'; size])),
            Act::Pause(ms) => tracewheel_clock::blocking::sleep(i64::from(ms) * 1_000_000),
            Act::Close => return stream.close(),
            Act::Reset => {
                let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
                nix::sys::socket::setsockopt(stream.tcp(), nix::sys::socket::sockopt::Linger, &linger)
                    .unwrap();
                return;
            }
        }
    }
    stream.close();
}

fn read_request(stream: &mut impl Read, body: usize, count: &AtomicUsize) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let head = request.windows(4).position(|four| four == b"\r\n\r\n");
        if head.is_some_and(|head| request.len() >= head + 4 + body) {
            return Some(request);
        }
        let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
        count.fetch_add(read, Ordering::SeqCst);
        request.extend_from_slice(&buffer[..read]);
    }
}
