//! Prompts of many thousand tokens: their bodies arrive whole, and hold up nobody.

#![allow(clippy::unwrap_used)] // In a test an unwrap is an assertion.

#[path = "support/bench.rs"]
mod bench;
#[path = "support/server.rs"]
mod server;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use bench::{Bench, MS};
use server::{Reply, Server};
use tracewheel_replay::{LookAhead, ReplayConfig};
use tracewheel_timeline::RequestStatus;

const BLOCKS: u64 = 190;
const BLOCK_TOKENS: u32 = 512;

/// The prompt in a chat body.
fn prompt_of(body: &str) -> String {
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    body["messages"][0]["content"].as_str().unwrap().to_owned()
}

#[test]
fn long_prompts_share_their_beginning_to_the_byte_and_have_their_lengths() {
    let server = Server::start(|_| Reply::Stream { chunks: 1, gap_us: 0 });
    let offsets: Vec<i64> = (0..12).map(|row| row * 5 * MS).collect();
    // Even rows share all their blocks, odd ones the first half; every fourth is short.
    let bench = Bench::new(&offsets, |row, request| {
        let odd = 1_000_000 * (row as u64 % 2) * (1 + row as u64);
        let blocks = if row % 4 == 3 { 2 } else { BLOCKS };
        let hash = |block| if block < BLOCKS / 2 { block } else { block + odd };
        request.prefix_hashes = Some((0..blocks).map(hash).collect());
        request.prefix_block_tokens = Some(vec![BLOCK_TOKENS; blocks as usize]);
        request.input_tokens = Some(blocks as u32 * BLOCK_TOKENS + 40 + row as u32);
    });
    // Less than two whole bodies of look-ahead.
    let look_ahead = LookAhead { bytes: 1 << 20, ..LookAhead::default() };
    let config = ReplayConfig { target: server.url(), look_ahead, ..ReplayConfig::default() };
    let finished = bench.run(&config);
    assert_eq!(finished.report.counts.ok, 12);
    let heard = server.heard();
    let prompts: Vec<String> = (0..12)
        .map(|row| {
            let id = finished.id(&bench, row);
            prompt_of(&heard.iter().find(|heard| heard.id == id).unwrap().body)
        })
        .collect();
    let words = |row: usize| prompts[row].split_ascii_whitespace();
    let shared = |a, b| words(a).zip(words(b)).take_while(|(a, b)| a == b).count() as u32;
    for (row, asked) in (0..12).map(|row| (row, finished.request(row as u64).asked_input_tokens)) {
        assert_eq!(asked, Some(words(row).count() as u32), "row {row}");
    }
    let near = |found: u32, blocks: u64| (0..8).contains(&(found - blocks as u32 * BLOCK_TOKENS));
    assert!(near(shared(0, 2), BLOCKS) && near(shared(4, 10), BLOCKS), "{}", shared(0, 2));
    assert!(near(shared(0, 1), BLOCKS / 2) && near(shared(1, 5), BLOCKS / 2), "{}", shared(0, 1));
    assert!(near(shared(0, 3), 2) && near(shared(7, 11), 2), "{}", shared(0, 3));
    let attempt = finished.attempts_of(finished.request(0))[0];
    assert!(attempt.first_write_ns < attempt.last_write_ns, "it went out in slices");
}

/// A server that leaves long bodies unread until it has had a short request on another connection.
fn reads_long_bodies_last() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let short_came = Arc::new((Mutex::new(false), Condvar::new()));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let short_came = Arc::clone(&short_came);
            std::thread::spawn(move || {
                let _client_left = serve(stream, &short_came);
            });
        }
    });
    addr
}

fn serve(mut stream: TcpStream, (came, told): &(Mutex<bool>, Condvar)) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut came = came.lock().unwrap();
        if length > 1_000_000 {
            while !*came {
                came = told.wait(came).unwrap();
            }
        } else {
            *came = true;
            told.notify_all();
        }
        drop(came);
        std::io::copy(&mut (&mut reader).take(length), &mut std::io::sink())?;
        let event = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" a\"}}]}\n\ndata: [DONE]\n\n";
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length";
        write!(stream, "{head}: {}\r\n\r\n{event}", event.len())?;
    }
}

#[test]
fn a_body_that_the_server_does_not_read_holds_up_no_later_request() {
    let addr = reads_long_bodies_last();
    let bench = Bench::new(&[0, 0, 30 * MS], |row, request| {
        // More than the kernel takes for a reader that does not read.
        request.input_tokens = Some(if row < 2 { 6_000_000 } else { 100 });
    });
    let config = ReplayConfig { target: format!("http://{addr}"), ..ReplayConfig::default() };
    let finished = bench.run(&config);
    assert!((0..3).all(|row| finished.request(row).status == RequestStatus::Ok));
    let written = |row| finished.attempts_of(finished.request(row))[0].last_write_ns;
    assert!(written(2) < written(0) && written(2) < written(1), "the short one left before they had");
}
