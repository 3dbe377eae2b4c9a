//! A client made of a bare socket, so that nothing between the test and the bytes decides anything.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// A connection to the mock.
pub(crate) struct Client {
    reader: BufReader<TcpStream>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    /// The body's transfer chunks; one entry if it was not chunked.
    pub(crate) chunks: Vec<String>,
}

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { reader: BufReader::new(stream) }
    }

    pub(crate) fn raw(&mut self) -> &mut TcpStream {
        self.reader.get_mut()
    }

    pub(crate) fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) {
        let bytes = request(method, path, headers, body);
        self.raw().write_all(bytes.as_bytes()).unwrap();
    }

    pub(crate) fn call(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.send(method, path, headers, body);
        self.answer()
    }

    pub(crate) fn chat(&mut self, body: &str) -> Answer {
        self.call("POST", "/v1/chat/completions", &[], body)
    }

    /// Reads one whole answer.
    pub(crate) fn answer(&mut self) -> Answer {
        let (status, headers) = self.head();
        let mut chunks = Vec::new();
        if headers.get("transfer-encoding").map(String::as_str) == Some("chunked") {
            while let Some(chunk) = self.chunk() {
                chunks.push(chunk);
            }
        } else {
            let length = headers.get("content-length").map_or(0, |value| value.parse().unwrap());
            let mut body = vec![0; length];
            self.reader.read_exact(&mut body).unwrap();
            chunks.push(String::from_utf8(body).unwrap());
        }
        Answer { status, headers, chunks }
    }

    pub(crate) fn head(&mut self) -> (u16, BTreeMap<String, String>) {
        let status_line = self.line();
        let status =
            status_line.split(' ').nth(1).unwrap_or_else(|| panic!("{status_line:?}")).parse().unwrap();
        let mut headers = BTreeMap::new();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        (status, headers)
    }

    /// Reads one transfer chunk; `None` after the last.
    pub(crate) fn chunk(&mut self) -> Option<String> {
        let size = usize::from_str_radix(&self.line(), 16).unwrap();
        let mut bytes = vec![0; size + 2];
        self.reader.read_exact(&mut bytes).unwrap();
        bytes.truncate(size);
        (size > 0).then(|| String::from_utf8(bytes).unwrap())
    }

    /// Whether the server has closed the connection, or resets it, after whatever it had sent.
    pub(crate) fn is_closed(&mut self) -> bool {
        match self.reader.read_to_end(&mut Vec::new()) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    /// Reads a streamed answer and keeps nothing of it.
    pub(crate) fn skip_stream(&mut self) {
        let mut tail = Vec::new();
        while !tail.ends_with(b"\r\n0\r\n\r\n") {
            let read = self.reader.fill_buf().unwrap();
            assert!(!read.is_empty(), "the stream ended early");
            let (all, last) = (read.len(), &read[read.len().saturating_sub(7)..]);
            tail.extend_from_slice(last);
            tail.drain(..tail.len().saturating_sub(7));
            self.reader.consume(all);
        }
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.trim_end_matches(['\r', '\n']).to_owned()
    }
}

impl Answer {
    pub(crate) fn body(&self) -> String {
        self.chunks.concat()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body()).unwrap()
    }

    /// The data of every server-sent event.
    pub(crate) fn events(&self) -> Vec<String> {
        let body = self.body();
        assert!(body.ends_with("\n\n"), "{body:?}");
        body.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap().to_owned()).collect()
    }

    /// The events that are JSON.
    pub(crate) fn json_events(&self) -> Vec<Value> {
        self.events()
            .iter()
            .filter(|data| *data != "[DONE]")
            .map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }

    /// The text of all deltas.
    pub(crate) fn text(&self) -> String {
        self.json_events()
            .iter()
            .filter_map(|event| {
                let choice = &event["choices"][0];
                choice["delta"]["content"].as_str().or(choice["text"].as_str()).map(str::to_owned)
            })
            .collect()
    }
}

pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: mock\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text + "\r\n" + body
}

/// A chat request of `prompt` words that begin with `word`.
pub(crate) fn chat_body(word: &str, prompt: u32, output: u32, rest: &str) -> String {
    let content = format!("{word} ").repeat(prompt as usize);
    format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"{content}"}}],"max_tokens":{output},"ignore_eos":true{rest}}}"#
    )
}

/// As [`chat_body`], streamed with usage.
pub(crate) fn stream_body(word: &str, prompt: u32, output: u32) -> String {
    chat_body(word, prompt, output, r#","stream":true,"stream_options":{"include_usage":true}"#)
}
