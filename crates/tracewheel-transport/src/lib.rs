//! HTTP/1.1 exchanges and connections with a stamp at every milestone; knows nothing of LLMs.
