//! Production trace replay load generator for LLM and other streaming HTTP endpoints.
fn main() {}
