//! OpenAI's chat stream, which completions and Azure share.
#![no_main]

#[path = "../check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| check::check("openai-chat", input));
