//! The stream that the witness answers with: the chunks of a chat answer as servers write them today.

/// One answer, cut into what leaves with one write each.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The head and the first event, the further events, the last one with everything that ends the answer.
    pub(crate) writes: Vec<Vec<u8>>,
}

impl Answer {
    /// An answer of `chunks` events with output, one write each.
    pub(crate) fn of(chunks: usize) -> Self {
        let mut writes: Vec<Vec<u8>> =
            (0..chunks).map(|_| http_chunk(&event(r#"{"content":" word"}"#, "null"))).collect();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
        if let Some(first) = writes.first_mut() {
            first.splice(0..0, head.bytes());
        }
        if let Some(last) = writes.last_mut() {
            last.extend(http_chunk(&event("{}", r#""stop""#)));
            last.extend(http_chunk("data: [DONE]\n\n"));
            last.extend(b"0\r\n\r\n");
        }
        Answer { writes }
    }

    /// The same events with a length instead of chunks, in one write: for a client that must not be disturbed.
    pub(crate) fn at_once() -> Self {
        let body = "data: [DONE]\n\n";
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        Answer { writes: vec![(head + body).into_bytes()] }
    }
}

/// The events of an answer without the framing of HTTP/1.1: one a write, the last with everything that ends the answer.
pub(crate) fn events(chunks: usize) -> Vec<Vec<u8>> {
    let mut events: Vec<Vec<u8>> =
        (0..chunks).map(|_| event(r#"{"content":" word"}"#, "null").into_bytes()).collect();
    if let Some(last) = events.last_mut() {
        last.extend(event("{}", r#""stop""#).into_bytes());
        last.extend(b"data: [DONE]\n\n");
    }
    events
}

fn event(delta: &str, finish: &str) -> String {
    format!(
        concat!(
            "data: {{\"id\":\"chatcmpl-8f14e45fceea167a5a36dedd4bea2543\",\"object\":\"chat.completion.chunk\",",
            "\"created\":1780000000,\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{},\"logprobs\":null,",
            "\"finish_reason\":{}}}]}}\n\n"
        ),
        delta, finish
    )
}

fn http_chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}
