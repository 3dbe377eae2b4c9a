//! Production logs of each format, streamed in bounded memory, redacted and counted into a timeline.
