//! A server that answers each request at once.

use std::net::SocketAddr;
use std::sync::mpsc::sync_channel;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Starts it in a thread that ends with the program; where it listens.
pub(crate) fn start() -> SocketAddr {
    let (told, addr) = sync_channel(1);
    std::thread::spawn(move || {
        super::runtime().block_on(async {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
            told.send(listener.local_addr().expect("an address")).expect("the starter waits");
            loop {
                let (stream, _) = listener.accept().await.expect("connections are accepted");
                stream.set_nodelay(true).expect("an option");
                tokio::spawn(serve(stream));
            }
        });
    });
    addr.recv().expect("it says where it listens")
}

/// Answers until the client leaves.
async fn serve(mut stream: TcpStream) {
    let answer = answer();
    let mut held = Vec::new();
    loop {
        let Some(whole) = whole_request(&held) else {
            match stream.read_buf(&mut held).await {
                Ok(0) | Err(_) => return,
                Ok(_) => continue,
            }
        };
        held.drain(..whole);
        if stream.write_all(&answer).await.is_err() {
            return;
        }
    }
}

/// Length of the request, once it is there.
fn whole_request(held: &[u8]) -> Option<usize> {
    let head = held.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&held[..head]).ok()?;
    let length = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    let whole = head + length.unwrap_or(0);
    (held.len() >= whole).then_some(whole)
}

fn answer() -> Vec<u8> {
    let chunk = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"}}]}\n\n";
    let body = format!("{}data: [DONE]\n\n", chunk.repeat(16));
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    (head + &body).into_bytes()
}
