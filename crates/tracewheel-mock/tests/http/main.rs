//! The mock over a socket.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod client;
mod dialects;
mod faults;
mod faults_of_clients;
mod http2;
mod logs;
mod pacing;
mod routes;
mod streams;
mod virtual_time;

use std::net::SocketAddr;
use std::num::NonZeroU32;

use tracewheel_clock::RunClock;
use tracewheel_mock::{Mock, MockConfig};

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// A fast model: 2 ms a step, 20 µs a decoding sequence, 1 µs a prompt token.
fn fast() -> MockConfig {
    let mut config = MockConfig::default();
    config.engine.step_base_us = 2_000;
    config.engine.decode_us_per_sequence = 20;
    config.engine.prefill_us_per_token = 1;
    config
}

fn start(config: MockConfig) -> Mock {
    Mock::bind(config, LOOPBACK, RunClock::start()).unwrap()
}

fn some(n: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(n)
}
