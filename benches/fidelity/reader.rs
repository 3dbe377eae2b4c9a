//! The byte reader: a closed loop that keeps so many streams going, finds the end of each answer and records nothing. It
//! does per chunk what `wrk` does: one event, one `read` into a buffer, one look at the framing.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

use memchr::memchr;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// Bytes of one read, as `wrk` has it.
const READ_BYTES: usize = 8192;

/// Reads `streams` answers over `connections` kept connections.
pub(crate) fn read(port: u16, connections: usize, streams: usize) -> io::Result<()> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let request = crate::request(0);
    let mut open = Vec::with_capacity(connections);
    for place in 0..connections.min(streams) {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, place as u64))?;
        open.push((stream, Framing::Head(0)));
    }
    for (stream, _) in &mut open {
        stream.write_all(&request)?;
    }
    let (mut begun, mut ended) = (open.len(), 0);
    let mut events = [EpollEvent::empty(); 1024];
    let mut buffer = [0; READ_BYTES];
    while ended < streams {
        let count = match epoll.wait(&mut events, EpollTimeout::NONE) {
            Ok(count) => count,
            Err(nix::errno::Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
        };
        for event in &events[..count] {
            let (stream, framing) = &mut open[event.data() as usize];
            loop {
                let bytes = match stream.read(&mut buffer) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(bytes) => bytes,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                };
                if framing.take(&buffer[..bytes]) {
                    *framing = Framing::Head(0);
                    ended += 1;
                    if begun < streams {
                        begun += 1;
                        stream.write_all(&request)?;
                    }
                }
                if bytes < READ_BYTES {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Where in an answer with chunked coding the reader stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// In the head; so many bytes of the blank line were seen.
    Head(u8),
    /// In a chunk's size.
    Size(usize),
    /// In a chunk, so many bytes before its line end is over.
    Data(usize),
    /// After the last chunk; so many bytes before the end.
    Tail(usize),
}

impl Framing {
    /// Takes what came; whether the answer is whole.
    fn take(&mut self, mut bytes: &[u8]) -> bool {
        while let Some(&first) = bytes.first() {
            match self {
                Framing::Head(seen) => {
                    *seen = match (first, *seen) {
                        (b'\r', 0 | 2) | (b'\n', 1 | 3) => *seen + 1,
                        _ => 0,
                    };
                    if *seen == 4 {
                        *self = Framing::Size(0);
                    }
                    bytes = &bytes[1..];
                }
                Framing::Size(size) => {
                    let end = memchr(b'\n', bytes).unwrap_or(bytes.len());
                    for digit in bytes[..end].iter().filter_map(|byte| (*byte as char).to_digit(16)) {
                        *size = *size << 4 | digit as usize;
                    }
                    if end == bytes.len() {
                        return false;
                    }
                    *self = if *size == 0 { Framing::Tail(2) } else { Framing::Data(*size + 2) };
                    bytes = &bytes[end + 1..];
                }
                Framing::Data(left) => {
                    let taken = bytes.len().min(*left);
                    *left -= taken;
                    bytes = &bytes[taken..];
                    if *left == 0 {
                        *self = Framing::Size(0);
                    }
                }
                Framing::Tail(left) => {
                    *left -= 1;
                    if *left == 0 {
                        return true;
                    }
                    bytes = &bytes[1..];
                }
            }
        }
        false
    }
}
