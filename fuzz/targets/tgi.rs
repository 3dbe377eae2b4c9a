//! Text Generation Inference's own stream.
#![no_main]

#[path = "../check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| check::check("tgi-generate", input));
