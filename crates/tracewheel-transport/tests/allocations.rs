//! A chunk that arrives costs no allocation beyond the record's own buffers, which double. An allocator that counts
//! by thread watches; nothing is timed.
#![allow(clippy::unwrap_used, reason = "the helpers of a test are a part of it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::task::Poll;

use bytes::Bytes;
use tracewheel_clock::RunClock;
use tracewheel_transport::{Endpoint, ExchangeLimits, ExchangeOutcome, H1Connection, PreparedRequest};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that is being taken down has no counter any more.
    let _counted = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: every call goes to the system's allocator as it came; only a number is kept beside it.
#[allow(unsafe_code, reason = "an allocator is unsafe by its trait")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.realloc(pointer, layout, bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Reads an answer of so many chunks, each by a read of its own: the outcome, and the allocations from the head's end to
/// the last chunk.
async fn allocations_of(chunks: usize) -> (ExchangeOutcome, u64) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let connection = H1Connection::open(addr, RunClock::start()).await.unwrap();
    let (mut server, _) = listener.accept().unwrap();
    server.set_nodelay(true).unwrap();
    let endpoint = Endpoint::parse(&format!("http://{addr}")).unwrap();
    let request =
        PreparedRequest::post(endpoint.uri("/").unwrap(), endpoint.host_header(), Bytes::from_static(b"{}"));
    let mut exchange = connection.arm(request, ExchangeLimits::default());
    exchange.release();
    let mut allocations = 0;
    for number in 0..=chunks + 1 {
        let (bytes, is_chunk) = match number {
            0 => (&b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"[..], false),
            last if last > chunks => (&b"0\r\n\r\n"[..], false),
            _ => (&b"18\r\ndata: {\"text\":\" word\"}\n\n\r\n"[..], true),
        };
        let mut written = number > 0;
        if written {
            server.write_all(bytes).unwrap();
        }
        // The first poll writes the request; each later one reads what was just written, once the reactor knows of it.
        for _ in 0..3 {
            let before = ALLOCATIONS.get();
            let ended = std::future::poll_fn(|cx| Poll::Ready(exchange.poll(cx).is_ready())).await;
            allocations += if is_chunk { ALLOCATIONS.get() - before } else { 0 };
            if ended {
                return (exchange.finish().0, allocations);
            }
            if !std::mem::replace(&mut written, true) {
                let mut heard = [0; 4096];
                assert!(server.read(&mut heard).unwrap() > 0);
                server.write_all(bytes).unwrap();
            }
            tokio::task::yield_now().await;
        }
    }
    panic!("the answer of {chunks} chunks has no end");
}

#[test]
fn a_chunk_costs_no_allocation_beyond_the_records_buffers() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().event_interval(1).build().unwrap();
    let (few, few_allocations) = runtime.block_on(allocations_of(64));
    let (many, many_allocations) = runtime.block_on(allocations_of(64 * 32));
    for (outcome, chunks) in [(&few, 64), (&many, 64 * 32)] {
        assert_eq!(outcome.error, None);
        assert_eq!((outcome.marks.len(), outcome.body.len()), (chunks, 24 * chunks), "one read a chunk");
    }
    // Three buffers that double five times more: body, reads, marks.
    let more = many_allocations - few_allocations;
    assert!(more <= 3 * 5, "{more} allocations for {} more chunks", 64 * 31);
}
