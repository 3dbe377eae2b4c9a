//! An endpoint that answers each request at once with a short stream.

use std::net::SocketAddr;
use std::sync::mpsc::sync_channel;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::DoctorError;

/// A request longer than this is none of ours.
const MOST_BYTES: usize = 1 << 20;

/// The running endpoint; dropped, it closes.
pub(crate) struct Endpoint {
    addr: SocketAddr,
    _stop: oneshot::Sender<()>,
}

impl Endpoint {
    /// Listens on a free port of the loopback, on a thread of its own.
    pub(crate) fn start(chunks: u32) -> Result<Self, DoctorError> {
        let (stop, stopped) = oneshot::channel();
        let (told, addr) = sync_channel(1);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
            let listening = runtime.and_then(|runtime| {
                let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0)))?;
                Ok((listener.local_addr()?, runtime, listener))
            });
            match listening {
                Ok((addr, runtime, listener)) => {
                    if told.send(Ok(addr)).is_ok() {
                        runtime.block_on(serve(listener, answer(chunks), stopped));
                    }
                }
                Err(error) => drop(told.send(Err(error))),
            }
        });
        let addr = addr.recv().unwrap_or_else(|_| Err(std::io::Error::other("its thread ended")));
        Ok(Endpoint { addr: addr.map_err(DoctorError::loopback("start an endpoint"))?, _stop: stop })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }
}

async fn serve(listener: TcpListener, answer: Vec<u8>, mut stopped: oneshot::Receiver<()>) {
    let answer: std::sync::Arc<[u8]> = answer.into();
    loop {
        tokio::select! {
            biased;
            _ = &mut stopped => return,
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    let answer = std::sync::Arc::clone(&answer);
                    tokio::spawn(async move {
                        // A client that goes away ends its own connection only.
                        let _gone = converse(stream, &answer).await;
                    });
                }
            }
        }
    }
}

async fn converse(mut stream: TcpStream, answer: &[u8]) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut held = Vec::with_capacity(4096);
    loop {
        while let Some(length) = request_length(&held) {
            held.drain(..length);
            stream.write_all(answer).await?;
        }
        if held.len() > MOST_BYTES || stream.read_buf(&mut held).await? == 0 {
            return Ok(());
        }
    }
}

/// Length of the first request, once all of it is there.
fn request_length(held: &[u8]) -> Option<usize> {
    let head = held.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&held[..head]).ok()?;
    let body = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let whole = head + body.unwrap_or(0);
    (held.len() >= whole).then_some(whole)
}

fn answer(chunks: u32) -> Vec<u8> {
    let mut body = String::new();
    for _ in 0..chunks {
        body.push_str("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"}}]}\n\n");
    }
    body.push_str("data: [DONE]\n\n");
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_whole_when_its_body_is() {
        let text = b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET";
        assert_eq!(request_length(&text[..20]), None);
        assert_eq!(request_length(&text[..text.len() - 4]), None);
        assert_eq!(request_length(text), Some(text.len() - 3));
    }
}
