//! Where requests go: a base URL taken apart, and its addresses.

use std::net::{SocketAddr, ToSocketAddrs};

use http::{HeaderValue, Uri};

/// A target's base URL, taken apart. A path in it is put before every request's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    https: bool,
    host: String,
    port: u16,
    authority: String,
    base_path: String,
}

/// Why a URL can't be used as a target.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The text is no URL.
    #[error("target {url:?} is not a URL: write it as http://HOST:PORT or https://HOST")]
    NotAUrl {
        /// The text.
        url: String,
        /// What the parser said.
        source: http::uri::InvalidUri,
    },
    /// The URL lacks a host or a scheme, or carries what a base URL must not.
    #[error("target {url:?} {problem}: write it as http://HOST:PORT or https://HOST")]
    Incomplete {
        /// The text.
        url: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The scheme is not spoken.
    #[error("target {url:?} asks for {scheme:?}: http and https are spoken")]
    Scheme {
        /// The text.
        url: String,
        /// Its scheme.
        scheme: String,
    },
    /// The host has no address.
    #[error("cannot resolve {host}: check the name in the target, and this machine's DNS")]
    Resolve {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Endpoint {
    /// Takes a base URL apart: `http://host:8000`, `https://host`, `http://[::1]:8000/prefix`.
    ///
    /// # Errors
    /// The text is no URL, has no host, has a query, a fragment or user information, or another scheme than `http` and `https`.
    pub fn parse(url: &str) -> Result<Endpoint, EndpointError> {
        // Every text of an error, also that of a URL which cannot be taken apart.
        let shown = without_secrets(url);
        let incomplete = |problem| EndpointError::Incomplete { url: shown.clone(), problem };
        let uri: Uri =
            url.trim().parse().map_err(|source| EndpointError::NotAUrl { url: shown.clone(), source })?;
        let https = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(other) => {
                return Err(EndpointError::Scheme { url: shown, scheme: other.to_owned() });
            }
            None => return Err(incomplete("has no scheme")),
        };
        let authority = uri.authority().ok_or_else(|| incomplete("has no host"))?;
        if authority.as_str().contains('@') {
            return Err(incomplete("carries user information, which would be recorded"));
        }
        if uri.query().is_some() {
            return Err(incomplete("has a query"));
        }
        if url.contains('#') {
            return Err(incomplete("has a fragment"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(incomplete("has no host"));
        }
        // `Uri` keeps a port that is no port, and then says that there is none.
        let port = match authority.as_str().rsplit_once(':') {
            Some((_, text)) if !text.ends_with(']') => {
                let port = text.parse().ok().filter(|port| *port != 0);
                port.ok_or_else(|| incomplete("has no port from 1 to 65535"))?
            }
            _ if https => 443,
            _ => 80,
        };
        Ok(Endpoint {
            https,
            host,
            port,
            authority: authority.as_str().to_owned(),
            base_path: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    /// Host name or address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether TLS is spoken.
    pub fn is_https(&self) -> bool {
        self.https
    }

    /// Port; 80, or 443 with TLS, where the URL names none.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL again, without anything secret.
    pub fn url(&self) -> String {
        let scheme = if self.https { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority, self.base_path)
    }

    /// Value of the `Host` header.
    pub fn host_header(&self) -> HeaderValue {
        HeaderValue::from_str(&self.authority).expect("an authority that was parsed is a valid header value")
    }

    /// Origin form of a request's target: the base path, then `path` (which begins with a slash). A version that both
    /// name stands there once: clients' base URLs end with `/v1`, and so begins `path`.
    ///
    /// # Errors
    /// `path` is not the path of a URL.
    pub fn uri(&self, path: &str) -> Result<Uri, http::uri::InvalidUri> {
        let version = path.match_indices('/').nth(1).map(|(end, _)| &path[..end]);
        let version = version.filter(|version| version.starts_with("/v"));
        let base = version.and_then(|version| self.base_path.strip_suffix(version));
        format!("{}{path}", base.unwrap_or(&self.base_path)).parse()
    }

    /// All addresses of the host, in the system's order. Blocks; meant for set-up.
    ///
    /// # Errors
    /// The host has no address.
    pub fn resolve(&self) -> Result<Vec<SocketAddr>, EndpointError> {
        let failed = |source| EndpointError::Resolve { host: self.host.clone(), port: self.port, source };
        let addrs: Vec<_> = (self.host.as_str(), self.port).to_socket_addrs().map_err(failed)?.collect();
        if addrs.is_empty() {
            return Err(failed(std::io::Error::from(std::io::ErrorKind::NotFound)));
        }
        Ok(addrs)
    }
}

/// The longest part of a URL that an error repeats, in characters.
const SHOWN_CHARS: usize = 200;

/// A URL to be shown, whether it is one or not: without what stands before an `@` and behind a `?`, and not endless.
fn without_secrets(url: &str) -> String {
    let (path, query) = url.split_once(['?', '#']).map_or((url, ""), |(path, _)| (path, "?..."));
    let (scheme, rest) = path.split_once("://").map_or(("", path), |(scheme, rest)| (scheme, rest));
    let separator = if scheme.is_empty() { "" } else { "://" };
    let host = rest.rsplit_once('@').map_or(rest.to_owned(), |(_, host)| format!("...@{host}"));
    let shown = format!("{scheme}{separator}{host}{query}");
    match shown.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}...", &shown[..end]),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_is_taken_apart() {
        let endpoint = Endpoint::parse("http://[::1]:8000/prefix/").unwrap();
        assert_eq!((endpoint.host(), endpoint.port()), ("::1", 8000));
        assert_eq!(endpoint.uri("/v1/x").unwrap().path(), "/prefix/v1/x");
        let versioned = Endpoint::parse("http://h/openai/v1/").unwrap();
        assert_eq!(versioned.uri("/v1/x").unwrap().path(), "/openai/v1/x");
        assert_eq!(Endpoint::parse("http://h/v2").unwrap().uri("/v1/x").unwrap().path(), "/v2/v1/x");
        assert_eq!(endpoint.host_header(), "[::1]:8000");
        assert_eq!(endpoint.resolve().unwrap()[0].to_string(), "[::1]:8000");
        let plain = Endpoint::parse("http://localhost").unwrap();
        assert_eq!((plain.port(), plain.url().as_str()), (80, "http://localhost"));
        assert!(!plain.is_https());
        let secure = Endpoint::parse("https://api.example/base/").unwrap();
        assert_eq!((secure.port(), secure.url().as_str()), (443, "https://api.example/base"));
        assert!(secure.is_https());
    }

    #[test]
    fn what_is_no_base_url_is_refused_with_the_remedy() {
        for (url, part) in [
            ("ftp://api.example", "http and https are spoken"),
            ("127.0.0.1:80", "http://HOST:PORT"),
            ("http://host/?q=1", "has a query"),
            ("", "http://HOST:PORT"),
        ] {
            let text = Endpoint::parse(url).unwrap_err().to_string();
            assert!(text.contains(part), "{url}: {text}");
        }
    }

    #[test]
    fn user_information_is_refused_and_not_repeated() {
        for url in [
            "http://me:secret@host",
            "https://me:secret@host",
            "me:secret@host:80",
            "http://me:secret@my host/",
            "http://me:secret@host:99999",
            "http://me:sec@secret@host",
            "http://host/?key=secret",
            "https://host/#secret",
        ] {
            let text = Endpoint::parse(url).unwrap_err().to_string();
            assert!(!text.contains("secret") && text.contains("host"), "{text}");
        }
    }

    #[test]
    fn a_port_that_is_no_port_is_refused_and_none_is_made_up() {
        for url in ["http://h:99999", "http://h:0", "http://h:", "http://[::1]:65536/p"] {
            let text = Endpoint::parse(url).unwrap_err().to_string();
            assert!(text.contains("port from 1 to 65535"), "{url}: {text}");
        }
        assert_eq!(Endpoint::parse("http://[::1]").unwrap().port(), 80);
        assert_eq!(Endpoint::parse("http://[::1]:65535").unwrap().port(), 65_535);
    }

    #[test]
    fn an_endless_url_is_cut_where_it_is_told() {
        let text = Endpoint::parse(&format!("ftp://{}", "h".repeat(100_000))).unwrap_err().to_string();
        assert!(text.len() < 500);
    }
}
