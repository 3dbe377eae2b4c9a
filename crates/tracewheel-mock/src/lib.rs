//! A deterministic, scriptable LLM endpoint.
