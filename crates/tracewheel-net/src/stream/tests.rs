use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener as StdListener, TcpStream as StdStream};
use std::thread;

use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tracewheel_clock::blocking;

use super::*;
use crate::{StampedListener, WriteMarks};

const MS: i64 = 1_000_000;

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime").block_on(future)
}

fn anywhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// A stamped stream and the plain other end of its connection.
async fn pair(clock: &Arc<RunClock>) -> (StampedStream, StdStream) {
    let listener = StdListener::bind(anywhere()).expect("a free port");
    let addr = listener.local_addr().expect("bound");
    let stream = StampedStream::connect(addr, Arc::clone(clock)).await.expect("somebody listens");
    let (peer, _) = listener.accept().expect("connected");
    peer.set_nodelay(true).expect("an option");
    (stream, peer)
}

fn drained(stamps: &StreamStamps) -> Vec<ReadStamp> {
    let mut reads = Vec::new();
    stamps.drain_reads(&mut reads);
    reads
}

/// How far a kernel stamp may lie from the truth by the mapping alone.
fn mapping_error_ns(clock: &RunClock) -> i64 {
    let sample = clock.sample_offset();
    assert!(!sample.stepped, "somebody set the clock during a test");
    sample.bracket_ns + 1_000
}

/// Asks once whether this kernel stamps, and says so if it does not.
fn kernel_stamps(stream: &StampedStream) -> bool {
    if !stream.kernel_stamps() {
        println!("skipped: this kernel gives no receive stamps");
    }
    stream.kernel_stamps()
}

/// The kernel switches stamping on with a delay: exchanges bytes until they come.
async fn warm_up(stream: &mut StampedStream, peer: &mut StdStream) {
    for _ in 0..1_000 {
        peer.write_all(b"w").expect("connected");
        stream.read_exact(&mut [0]).await.expect("connected");
        if drained(&stream.stamps()).iter().any(|read| read.kernel_ns.is_some()) {
            return;
        }
        blocking::sleep(MS);
    }
    panic!("the kernel agreed to stamp and never did");
}

#[test]
fn kernel_stamps_are_ordered_and_never_after_the_user_stamp() {
    let clock = RunClock::start();
    block_on(async {
        let (mut stream, mut peer) = pair(&clock).await;
        if !kernel_stamps(&stream) {
            return;
        }
        warm_up(&mut stream, &mut peer).await;
        let error_ns = mapping_error_ns(&clock);
        let mut last = RunNs::ZERO;
        for _ in 0..500 {
            let sent = clock.now();
            peer.write_all(b"data: x\n\n").expect("connected");
            let mut into = [0; 64];
            let bytes = stream.read(&mut into).await.expect("connected");
            let returned = clock.now();
            let reads = drained(&stream.stamps());
            let [read] = reads[..] else { panic!("one read, {} logged", reads.len()) };
            assert_eq!(read.bytes as usize, bytes);
            assert!(read.user_ns >= sent && read.user_ns <= returned, "stamped before the bytes went up");
            let kernel_ns = read.kernel_ns.expect("stamping is on");
            assert!(kernel_ns <= read.user_ns);
            assert!(kernel_ns.since(sent) >= -error_ns, "not before the peer sent it");
            assert!(kernel_ns.since(last) >= -error_ns, "in order");
            last = kernel_ns;
        }
    });
}

#[test]
fn a_gap_of_fifty_milliseconds_shows_in_the_kernel_stamps() {
    let clock = RunClock::start();
    block_on(async {
        let (mut stream, mut peer) = pair(&clock).await;
        if !kernel_stamps(&stream) {
            return;
        }
        warm_up(&mut stream, &mut peer).await;
        peer.write_all(b"one").expect("connected");
        stream.read_exact(&mut [0; 3]).await.expect("connected");
        // The first chunk has been read, so all that follows comes at least the pause later.
        blocking::sleep(50 * MS);
        peer.write_all(b"two").expect("connected");
        stream.read_exact(&mut [0; 3]).await.expect("connected");
        let reads = drained(&stream.stamps());
        assert_eq!(reads.len(), 2);
        assert!(reads[1].user_ns.since(reads[0].user_ns) >= 50 * MS);
        let [first, second] = [&reads[0], &reads[1]].map(|read| read.kernel_ns.expect("stamping is on"));
        assert!(second.since(first) >= 50 * MS - 2 * mapping_error_ns(&clock));
    });
}

#[test]
fn the_kernel_stamp_does_not_wait_for_a_late_reader() {
    let clock = RunClock::start();
    block_on(async {
        let (mut stream, mut peer) = pair(&clock).await;
        if !kernel_stamps(&stream) {
            return;
        }
        warm_up(&mut stream, &mut peer).await;
        peer.write_all(b"x").expect("connected");
        // The chunk has arrived once it can be peeked at.
        stream.tcp.peek(&mut [0]).await.expect("connected");
        let arrived = clock.now();
        blocking::sleep(50 * MS);
        stream.read_exact(&mut [0]).await.expect("connected");
        let read = drained(&stream.stamps())[0];
        assert!(read.user_ns.since(arrived) >= 50 * MS);
        assert!(read.kernel_ns.expect("stamping is on").since(arrived) <= mapping_error_ns(&clock));
    });
}

#[test]
fn segments_taken_by_one_read_carry_the_stamp_of_the_last() {
    let clock = RunClock::start();
    block_on(async {
        let (mut stream, mut peer) = pair(&clock).await;
        if !kernel_stamps(&stream) {
            return;
        }
        warm_up(&mut stream, &mut peer).await;
        peer.write_all(b"one").expect("connected");
        stream.tcp.peek(&mut [0; 8]).await.expect("connected");
        blocking::sleep(20 * MS);
        let second_sent = clock.now();
        peer.write_all(b"two").expect("connected");
        while stream.tcp.peek(&mut [0; 8]).await.expect("connected") < 6 {}
        let mut into = [0; 8];
        assert_eq!(stream.read(&mut into).await.expect("connected"), 6);
        let reads = drained(&stream.stamps());
        assert_eq!(reads.len(), 1);
        let kernel_ns = reads[0].kernel_ns.expect("stamping is on");
        assert!(kernel_ns.since(second_sent) >= -mapping_error_ns(&clock), "an upper bound for the first");
    });
}

#[test]
fn without_kernel_stamps_reads_carry_the_user_stamp_only() {
    let clock = RunClock::start();
    block_on(async {
        let listener = StdListener::bind(anywhere()).expect("a free port");
        let tcp = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("listened on");
        let mut stream = StampedStream::over(tcp, Arc::clone(&clock), false).expect("a socket");
        let (mut peer, _) = listener.accept().expect("connected");
        assert!(!stream.kernel_stamps());
        let sent = clock.now();
        peer.write_all(b"hello").expect("connected");
        stream.read_exact(&mut [0; 5]).await.expect("connected");
        let reads = drained(&stream.stamps());
        assert_eq!(reads.iter().map(|read| read.bytes).sum::<u32>(), 5);
        assert!(reads.iter().all(|read| read.kernel_ns.is_none() && read.user_ns >= sent));
    });
}

#[test]
fn a_kernel_stamp_from_after_the_read_is_cut_off_or_dropped() {
    let clock = RunClock::start();
    block_on(async {
        let (stream, _peer) = pair(&clock).await;
        let stream = StampedStream { kernel_stamps: true, ..stream };
        let user_ns = clock.now();
        for (ahead_ns, expected) in [(-5, Some(user_ns.plus(-5))), (20_000, Some(user_ns)), (MS, None)] {
            let kernel_unix_ns = Some(clock.wall(user_ns) + ahead_ns);
            let stamp = stream.stamp(Received { bytes: 1, kernel_unix_ns }, user_ns);
            assert_eq!(stamp.expect("it brought a byte").kernel_ns, expected);
        }
    });
}

#[test]
fn a_body_beyond_the_socket_buffer_is_marked_at_its_first_and_last_byte() {
    let clock = RunClock::start();
    block_on(async {
        let body = vec![7; 48 << 20];
        let (mut stream, mut peer) = pair(&clock).await;
        let stamps = stream.stamps();
        stamps.begin_exchange();
        assert_eq!(stamps.write_marks(), WriteMarks::default());
        let called = clock.now();
        let bytes = body.len();
        let writer = tokio::spawn(async move {
            stream.write_all(&body).await.expect("connected");
            stream
        });
        while stamps.write_marks().bytes == 0 {
            tokio::task::yield_now().await;
        }
        // Nobody reads yet, so the kernel can't have taken it all.
        let reading_from = clock.now();
        let early = stamps.write_marks();
        assert!(early.bytes < bytes as u64);
        let reader = thread::spawn(move || {
            let mut into = vec![0; 1 << 20];
            let mut total = 0;
            while total < bytes {
                total += peer.read(&mut into).expect("connected");
                blocking::sleep(1);
            }
            total
        });
        let stream = writer.await.expect("no panic");
        let marks = stamps.write_marks();
        assert_eq!(reader.join().expect("read all"), bytes);
        assert_eq!(marks.bytes, bytes as u64);
        let first_call_ns = marks.first_call_ns.expect("written");
        let (first_ns, last_ns) = (marks.first_ns.expect("written"), marks.last_ns.expect("written"));
        assert_eq!(early.first_ns, Some(first_ns), "the first mark stays");
        assert!(called <= first_call_ns && first_call_ns <= first_ns && first_ns <= reading_from);
        assert!(reading_from <= last_ns && last_ns <= clock.now());
        stream.stamps().begin_exchange();
        assert_eq!(stamps.write_marks(), WriteMarks::default());
    });
}

#[test]
fn a_large_body_lets_other_tasks_run_between_its_slices() {
    let clock = RunClock::start();
    block_on(async {
        let (mut stream, mut peer) = pair(&clock).await;
        let bytes = 32 * WRITE_SLICE_BYTES;
        let reader = thread::spawn(move || peer.read_exact(&mut vec![0; bytes]).expect("connected"));
        let stamps = stream.stamps();
        let writer = tokio::spawn(async move { stream.write_all(&vec![1; bytes]).await.expect("connected") });
        let mut seen = Vec::new();
        while !writer.is_finished() {
            tokio::task::yield_now().await;
            seen.push(stamps.write_marks().bytes);
        }
        let most = seen.windows(2).map(|pair| pair[1] - pair[0]).max().expect("many turns");
        assert!(most <= WRITE_SLICE_BYTES as u64, "{most} bytes in one turn");
        reader.join().expect("read all");
    });
}

#[test]
fn vectored_writes_arrive_whole_and_in_order() {
    let clock = RunClock::start();
    block_on(async {
        let (mut stream, mut peer) = pair(&clock).await;
        let parts: Vec<Vec<u8>> = (0..40u8).map(|n| vec![n; usize::from(n) * 700]).collect();
        let expected: Vec<u8> = parts.concat();
        let bytes = expected.len();
        let reader = thread::spawn(move || {
            let mut into = vec![0; bytes];
            peer.read_exact(&mut into).expect("connected");
            into
        });
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut left = &mut slices[..];
        while !left.is_empty() {
            let written = poll_fn(|cx| Pin::new(&mut stream).poll_write_vectored(cx, left)).await;
            IoSlice::advance_slices(&mut left, written.expect("connected"));
        }
        assert!(stream.is_write_vectored());
        assert_eq!(stream.stamps().write_marks().bytes, bytes as u64);
        assert_eq!(reader.join().expect("read all"), expected);
    });
}

proptest! {
    #[test]
    fn a_slice_is_the_beginning_of_the_buffers_and_never_too_large(
        sizes in prop::collection::vec(prop_oneof![Just(0usize), 0usize..50, 0usize..100_000], 0..40),
    ) {
        let parts: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(n, &size)| vec![n as u8; size]).collect();
        let bufs: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut slice = [IoSlice::new(&[]); WRITE_BUFFERS];
        let (taken, whole) = one_slice(&bufs, &mut slice);
        let taken: Vec<u8> = slice[..taken].iter().flat_map(|buf| buf.to_vec()).collect();
        let all = parts.concat();
        prop_assert!(taken.len() <= WRITE_SLICE_BYTES && all.starts_with(&taken));
        prop_assert_eq!(whole, taken.len() == all.len());
        prop_assert!(!taken.is_empty() || all.is_empty());
    }
}

#[test]
fn many_small_chunks_through_buffers_of_any_size_lose_nothing() {
    let clock = RunClock::start();
    for buffer in [1usize, 7, 64, 16_384] {
        let bytes: Vec<u8> = (0..30_000u32).map(|n| (n % 251) as u8).collect();
        let sent = bytes.clone();
        let (received, reads) = block_on(async {
            let (mut stream, mut peer) = pair(&clock).await;
            let sender = thread::spawn(move || {
                for (n, chunk) in sent.chunks(17).enumerate() {
                    peer.write_all(chunk).expect("connected");
                    if n % 50 == 0 {
                        blocking::sleep(100_000);
                    }
                }
            });
            let mut received = Vec::new();
            let mut into = vec![0; buffer];
            loop {
                match stream.read(&mut into).await.expect("connected") {
                    0 => break,
                    n => received.extend_from_slice(&into[..n]),
                }
            }
            sender.join().expect("sent all");
            assert!(stream.stamps().eof_ns().is_some());
            (received, drained(&stream.stamps()))
        });
        assert_eq!(received, bytes);
        assert_eq!(reads.iter().map(|read| read.bytes as usize).sum::<usize>(), bytes.len());
        assert!(reads.windows(2).all(|pair| pair[0].user_ns <= pair[1].user_ns));
        assert!(reads.iter().all(|read| read.kernel_ns.is_none_or(|kernel_ns| kernel_ns <= read.user_ns)));
    }
}

#[test]
fn the_end_of_the_stream_is_stamped_and_logged_as_no_read() {
    let clock = RunClock::start();
    block_on(async {
        let (mut stream, mut peer) = pair(&clock).await;
        peer.write_all(b"bye").expect("connected");
        drop(peer);
        let mut into = Vec::new();
        stream.read_to_end(&mut into).await.expect("ended in order");
        assert_eq!(into, b"bye");
        let reads = drained(&stream.stamps());
        assert_eq!(reads.iter().map(|read| read.bytes).sum::<u32>(), 3);
        let eof_ns = stream.stamps().eof_ns().expect("ended");
        assert!(reads.iter().all(|read| read.bytes > 0 && read.user_ns <= eof_ns));
        assert_eq!(stream.read(&mut [0; 4]).await.expect("still ended"), 0);
        assert_eq!(stream.stamps().eof_ns(), Some(eof_ns), "the first time counts");
    });
}

#[test]
fn a_reset_is_an_error_and_no_end() {
    let clock = RunClock::start();
    block_on(async {
        let listener = StampedListener::bind(anywhere(), Arc::clone(&clock)).expect("a free port");
        let addr = listener.local_addr().expect("bound");
        let (client, server) =
            tokio::join!(StampedStream::connect(addr, Arc::clone(&clock)), listener.accept());
        let (mut client, (server, _)) = (client.expect("listened on"), server.expect("connected"));
        server.reset_on_close().expect("an option");
        drop(server);
        let error = client.read(&mut [0; 4]).await.expect_err("reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert_eq!(client.stamps().eof_ns(), None);
        assert!(drained(&client.stamps()).is_empty());
        assert!(client.write_all(b"x").await.is_err());
        assert_eq!(client.stamps().write_marks(), WriteMarks::default(), "nothing was accepted");
    });
}

#[test]
fn nobody_listening_is_an_error_that_names_the_address() {
    let clock = RunClock::start();
    block_on(async {
        let free = StdListener::bind(anywhere()).expect("a free port");
        let addr = free.local_addr().expect("bound");
        drop(free);
        let error = StampedStream::connect(addr, clock).await.expect_err("nobody listens");
        assert_eq!(error.to_string(), format!("cannot connect to {addr}"));
        assert_eq!(error.io().kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn both_ends_stamp_and_bytes_that_came_before_accept_are_stamped_too() {
    let clock = RunClock::start();
    block_on(async {
        let listener = StampedListener::bind(anywhere(), Arc::clone(&clock)).expect("a free port");
        let addr = listener.local_addr().expect("bound");
        let (mut warm_client, mut warm_peer) = pair(&clock).await;
        if !kernel_stamps(&warm_client) {
            return;
        }
        warm_up(&mut warm_client, &mut warm_peer).await;
        let mut client = StampedStream::connect(addr, Arc::clone(&clock)).await.expect("listened on");
        client.write_all(b"GET").await.expect("connected");
        let written = client.stamps().write_marks();
        blocking::sleep(10 * MS);
        let (mut server, peer) = listener.accept().await.expect("connected");
        assert_eq!(peer, client.local_addr().expect("connected"));
        assert_eq!(client.peer_addr().expect("connected"), addr);
        server.read_exact(&mut [0; 3]).await.expect("connected");
        let read = drained(&server.stamps())[0];
        let error_ns = mapping_error_ns(&clock);
        let kernel_ns = read.kernel_ns.expect("the listener passed stamping on");
        assert!(kernel_ns.since(written.first_call_ns.expect("written")) >= -error_ns);
        assert!(read.user_ns.since(kernel_ns) >= 0);
    });
}
