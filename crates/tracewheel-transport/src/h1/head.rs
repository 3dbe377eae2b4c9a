//! An answer's head: gathered until it is whole, then read once.

use http::header::{CONNECTION, CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, StatusCode, Version};

use super::Framing;

/// Bytes that may come before an answer's head is whole, informational answers included.
const MAX_HEAD_BYTES: usize = 1 << 20;
/// Headers of one head.
const MAX_HEADERS: usize = 100;
/// Bytes of empty lines before a head.
const MAX_EMPTY_BYTES: usize = 16;
/// What every answer begins with.
const START: &[u8] = b"HTTP/1.";

/// The head of an answer that counts.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: StatusCode,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    /// How the body is framed.
    pub(crate) framing: Framing,
    /// Whether the server means to keep the connection.
    pub(crate) keeps: bool,
}

/// Why there is no head.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeadError {
    /// It has no end, or too many headers.
    #[error("{0}")]
    TooLarge(String),
    /// It is no head of HTTP/1.1.
    #[error("{0}")]
    Malformed(String),
}

/// Gathers an answer's head. Kept and cleared for the next answer.
#[derive(Debug, Default)]
pub(crate) struct HeadReader {
    held: Vec<u8>,
    /// Up to here no blank line ends.
    looked: usize,
    /// Bytes of informational answers that were passed over.
    passed: usize,
}

impl HeadReader {
    /// Takes what came. `Some` once the head that counts is whole, with the bytes of `read` that it took.
    ///
    /// # Errors
    /// [`HeadError`].
    pub(crate) fn take(&mut self, read: &[u8]) -> Result<Option<(Head, usize)>, HeadError> {
        let before = self.held.len();
        self.held.extend_from_slice(read);
        // What was taken out of `held` in front of the bytes of this read.
        let mut gone = 0;
        loop {
            self.begins_well()?;
            let Some(end) = self.blank_line() else {
                if self.passed + self.held.len() > MAX_HEAD_BYTES {
                    let said =
                        format!("more than {MAX_HEAD_BYTES} bytes came before the answer's head was whole");
                    return Err(HeadError::TooLarge(said));
                }
                return Ok(None);
            };
            let head = parse(&self.held[..end])?;
            if head.status.is_informational() && head.status != StatusCode::SWITCHING_PROTOCOLS {
                self.held.drain(..end);
                (self.looked, self.passed, gone) = (0, self.passed + end, gone + end);
                continue;
            }
            return Ok(Some((head, gone + end - before)));
        }
    }

    /// The first bytes of what came, to say what it is.
    pub(crate) fn begins_with(&self) -> &[u8] {
        &self.held[..self.held.len().min(64)]
    }

    /// Forgets everything, and gives memory back that a long head took.
    pub(crate) fn clear(&mut self) {
        self.held = Vec::new();
        (self.looked, self.passed) = (0, 0);
    }

    /// What is no HTTP/1 is told by its first bytes: the rest may never come.
    fn begins_well(&self) -> Result<(), HeadError> {
        let start = &self.held[self.empty_lines()..];
        let seen = start.len().min(START.len());
        if start[..seen] == START[..seen] {
            return Ok(());
        }
        Err(HeadError::Malformed("the answer is no HTTP/1".to_owned()))
    }

    /// Bytes of empty lines before the head: some servers end the answer before with one too many.
    fn empty_lines(&self) -> usize {
        let most = &self.held[..self.held.len().min(MAX_EMPTY_BYTES)];
        most.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count()
    }

    /// Where the first blank line after some text ends.
    fn blank_line(&mut self) -> Option<usize> {
        let from = self.looked.max(self.empty_lines());
        let mut at = from;
        while let Some(found) = memchr::memchr(b'\n', &self.held[at..]) {
            let line_end = at + found + 1;
            match self.held[line_end..] {
                [b'\n', ..] => return Some(line_end + 1),
                [b'\r', b'\n', ..] => return Some(line_end + 2),
                _ => at = line_end,
            }
        }
        self.looked = self.held.len().saturating_sub(3).max(from);
        None
    }
}

fn parse(bytes: &[u8]) -> Result<Head, HeadError> {
    let malformed = |error: &dyn std::fmt::Display| HeadError::Malformed(format!("invalid head: {error}"));
    let mut slots = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Response::new(&mut slots);
    match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Err(malformed(&"it ends before its end")),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(HeadError::TooLarge(format!("the answer has more than {MAX_HEADERS} headers")));
        }
        Err(error) => return Err(malformed(&error)),
    }
    let status = StatusCode::from_u16(parsed.code.unwrap_or(0)).map_err(|error| malformed(&error))?;
    let version = if parsed.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
    let mut headers = HeaderMap::with_capacity(parsed.headers.len());
    for header in parsed.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|error| malformed(&error))?;
        let value = HeaderValue::from_bytes(header.value).map_err(|error| malformed(&error))?;
        headers.append(name, value);
    }
    let framing = framing(status, version, &headers)?;
    let keeps = match version {
        Version::HTTP_10 => says(&headers, "keep-alive"),
        _ => !says(&headers, "close"),
    };
    let keeps = keeps && framing != Framing::UntilClose && status != StatusCode::SWITCHING_PROTOCOLS;
    Ok(Head { status, version, headers, framing, keeps })
}

/// How the body of the answer to a POST is framed (RFC 9112, section 6.3).
fn framing(status: StatusCode, version: Version, headers: &HeaderMap) -> Result<Framing, HeadError> {
    if status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return Ok(Framing::Length(0));
    }
    if let Some(coding) = headers.get_all(TRANSFER_ENCODING).iter().next_back() {
        if version == Version::HTTP_10 {
            return Err(HeadError::Malformed("transfer-encoding in an answer of HTTP/1.0".to_owned()));
        }
        let last = coding.as_bytes().rsplit(|byte| *byte == b',').next().unwrap_or_default();
        let chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
        return Ok(if chunked { Framing::chunked() } else { Framing::UntilClose });
    }
    let mut length = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        for part in value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            let digits = !part.is_empty() && part.iter().all(u8::is_ascii_digit);
            let number = std::str::from_utf8(part).ok().filter(|_| digits).and_then(|text| text.parse().ok());
            let number: u64 = number.ok_or_else(|| {
                HeadError::Malformed(format!(
                    "invalid content-length \"{}\"",
                    value.as_bytes().escape_ascii()
                ))
            })?;
            if *length.get_or_insert(number) != number {
                return Err(HeadError::Malformed(
                    "content-length stands twice, with different values".to_owned(),
                ));
            }
        }
    }
    Ok(length.map_or(Framing::UntilClose, Framing::Length))
}

/// Whether `Connection` has the word.
fn says(headers: &HeaderMap, word: &str) -> bool {
    headers.get_all(CONNECTION).iter().any(|value| {
        value
            .as_bytes()
            .split(|byte| *byte == b',')
            .any(|part| part.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a head cut at `at`; the head and how much of the whole it took.
    fn read_cut(whole: &[u8], at: usize) -> Result<Option<(Head, usize)>, HeadError> {
        let mut reader = HeadReader::default();
        if let Some((head, used)) = reader.take(&whole[..at])? {
            return Ok(Some((head, used)));
        }
        Ok(reader.take(&whole[at..])?.map(|(head, used)| (head, at + used)))
    }

    #[test]
    fn a_head_is_the_same_however_it_was_cut_and_what_follows_is_left() {
        let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n";
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nx-a: 1\r\nx-a: 2\r\n\r\n";
        let whole = format!("{interim}{head}abc");
        let end = interim.len() + head.len();
        for at in 0..=whole.len() {
            let (found, used) = read_cut(whole.as_bytes(), at).unwrap().unwrap();
            assert_eq!(
                (found.status.as_u16(), found.framing, used),
                (200, Framing::Length(3), end),
                "cut at {at}"
            );
            assert_eq!(found.headers.get_all("x-a").iter().count(), 2);
            assert!(found.keeps);
        }
        for at in 0..end {
            assert!(HeadReader::default().take(&whole.as_bytes()[..at]).unwrap().is_none(), "{at}");
        }
    }

    #[test]
    fn bare_line_feeds_and_an_empty_line_before_are_overlooked() {
        for text in
            ["HTTP/1.1 200 OK\ncontent-length: 0\n\n", "\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"]
        {
            for at in 0..=text.len() {
                let (found, used) = read_cut(text.as_bytes(), at).unwrap().unwrap();
                assert_eq!((found.status.as_u16(), used), (200, text.len()), "{text:?} cut at {at}");
            }
        }
    }

    #[test]
    fn framing_and_keeping_follow_the_headers() {
        let framed = |rest: &str| {
            let text = format!("HTTP/1.1 {rest}\r\n\r\n");
            HeadReader::default()
                .take(text.as_bytes())
                .map(|head| head.map(|(head, _)| (head.framing, head.keeps)))
        };
        let ok = |framing, keeps| Ok(Some((framing, keeps)));
        assert_eq!(framed("204 No Content"), ok(Framing::Length(0), true));
        assert_eq!(framed("200 OK"), ok(Framing::UntilClose, false));
        assert_eq!(framed("200 OK\r\ncontent-length: 5, 5"), ok(Framing::Length(5), true));
        assert_eq!(
            framed("200 OK\r\nconnection: x, Close\r\ncontent-length: 5"),
            ok(Framing::Length(5), false)
        );
        assert_eq!(
            framed("200 OK\r\ntransfer-encoding: gzip, Chunked\r\ncontent-length: 5"),
            ok(Framing::chunked(), true)
        );
        assert_eq!(framed("200 OK\r\ntransfer-encoding: gzip"), ok(Framing::UntilClose, false));
        for bad in ["content-length: 5\r\ncontent-length: 6", "content-length: +5", "content-length: 5,"] {
            assert!(matches!(framed(&format!("200 OK\r\n{bad}")), Err(HeadError::Malformed(_))), "{bad}");
        }
    }

    #[test]
    fn old_servers_keep_a_connection_only_when_they_say_so() {
        for (extra, keeps) in [("", false), ("connection: keep-alive\r\n", true)] {
            let text = format!("HTTP/1.0 200 OK\r\n{extra}content-length: 0\r\n\r\n");
            let (head, _) = HeadReader::default().take(text.as_bytes()).unwrap().unwrap();
            assert_eq!((head.version, head.keeps), (Version::HTTP_10, keeps));
        }
    }

    #[test]
    fn what_is_no_answer_is_told_by_its_first_bytes() {
        for bytes in [&b"SSH-2.0"[..], b"\x15\x03\x01", b"\0\0\x06\x04", b"HTTQ"] {
            assert!(matches!(HeadReader::default().take(bytes), Err(HeadError::Malformed(_))), "{bytes:?}");
        }
        assert!(HeadReader::default().take(b"HTT").unwrap().is_none());
    }

    #[test]
    fn a_head_has_bounds() {
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(MAX_HEADERS + 1));
        assert!(matches!(HeadReader::default().take(many.as_bytes()), Err(HeadError::TooLarge(_))));
        let mut reader = HeadReader::default();
        reader.take(b"HTTP/1.1 200 OK\r\nx: ").unwrap();
        let outcome = (0..=(MAX_HEAD_BYTES >> 10)).map(|_| reader.take(&[b'a'; 1024])).find(Result::is_err);
        assert!(matches!(outcome, Some(Err(HeadError::TooLarge(_)))));
    }
}
