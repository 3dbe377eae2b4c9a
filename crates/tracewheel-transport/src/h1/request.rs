//! A request's head as it goes over the wire.

use http::Method;
use http::header::CONTENT_LENGTH;

use crate::request::PreparedRequest;

/// Request line and headers, `Content-Length` added where none was set.
pub(crate) fn encode_head(request: &PreparedRequest) -> Vec<u8> {
    let headers: usize =
        request.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    let target = request.uri.path_and_query().map_or("/", |target| target.as_str());
    let mut head = Vec::with_capacity(headers + target.len() + 64);
    head.extend_from_slice(request.method.as_str().as_bytes());
    head.push(b' ');
    head.extend_from_slice(target.as_bytes());
    head.extend_from_slice(b" HTTP/1.1\r\n");
    for (name, value) in &request.headers {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    let says_nothing = request.body.is_empty() && matches!(request.method, Method::GET | Method::HEAD);
    if !says_nothing && !request.headers.contains_key(CONTENT_LENGTH) {
        head.extend_from_slice(format!("content-length: {}\r\n", request.body.len()).as_bytes());
    }
    head.extend_from_slice(b"\r\n");
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::HeaderValue;

    #[test]
    fn a_head_is_the_line_the_headers_and_a_length() {
        let host = HeaderValue::from_static("h:1");
        let mut request =
            PreparedRequest::post("/v1/x?a=b".parse().unwrap(), host, Bytes::from_static(b"hello"));
        let text = String::from_utf8(encode_head(&request)).unwrap();
        assert_eq!(
            text,
            "POST /v1/x?a=b HTTP/1.1\r\nhost: h:1\r\naccept-encoding: identity\r\ncontent-length: 5\r\n\r\n"
        );
        (request.body, request.method) = (Bytes::new().into(), Method::GET);
        assert!(!String::from_utf8(encode_head(&request)).unwrap().contains("content-length"));
        request.method = Method::POST;
        assert!(String::from_utf8(encode_head(&request)).unwrap().contains("content-length: 0\r\n"));
    }
}
