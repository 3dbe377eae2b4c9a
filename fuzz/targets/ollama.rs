//! Ollama's lines of JSON.
#![no_main]

#[path = "../check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| check::check("ollama-chat", input));
