//! Embeddings, of OpenAI and of Gemini.
#![no_main]

#[path = "../check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    check::check("openai-embeddings", input);
    check::check("gemini-embeddings", input);
});
