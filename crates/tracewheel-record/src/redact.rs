//! Keeping secrets out of what is written.
//!
//! A run is made to be handed on. Its writer therefore passes every text of the manifest through here, whatever
//! the caller did before; the scenario's text included.

use serde_json::Value;

/// Stands where a secret stood.
pub const REDACTED: &str = "[redacted]";

/// Shortest run of key characters behind a known prefix that is taken for a key.
const KEY_LENGTH: usize = 12;
/// What keys of known services begin with.
const KEY_PREFIXES: [&str; 9] = ["sk-", "rk-", "pk-", "xai-", "gsk_", "hf_", "ghp_", "AIza", "AKIA"];
/// Authentication schemes that are followed by a secret.
const SCHEMES: [&str; 2] = ["bearer ", "basic "];

/// An address without user info, query and fragment: what remains names the place, not the way in.
///
/// ```
/// # use tracewheel_record::redact::redact_url;
/// assert_eq!(redact_url("https://me:secret@api.example/v1?key=secret#x"), "https://api.example/v1");
/// assert_eq!(redact_url("10.0.0.1:8000"), "10.0.0.1:8000");
/// ```
pub fn redact_url(url: &str) -> String {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let url = &url[..end];
    let (scheme, rest) = match url.find("://") {
        Some(at) => url.split_at(at + 3),
        None => ("", url),
    };
    let authority = rest.find('/').unwrap_or(rest.len());
    let host = rest[..authority].rfind('@').map_or(0, |at| at + 1);
    format!("{scheme}{}", &rest[host..])
}

/// Takes secrets out of any JSON: whole values under names that hold secrets, addresses' user info and query under
/// names that hold addresses, and whatever [`redact_text`] finds in every other text.
pub fn redact_json(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::Null | Value::Bool(_) => {}
                    Value::String(text) if is_secret_name(name) => *text = redact_value(text),
                    value if is_secret_name(name) => *value = Value::String(REDACTED.to_owned()),
                    Value::String(text) if is_url_name(name) => *text = redact_text(&redact_url(text)),
                    value => redact_json(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(redact_json),
        Value::String(text) => {
            let redacted = redact_text(text);
            if redacted != *text {
                *text = redacted;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Takes secrets out of free text (a scenario, an error's body): values assigned to names that hold secrets, user
/// info in addresses, what follows an authentication scheme, and keys of known shape.
///
/// ```
/// # use tracewheel_record::redact::redact_text;
/// assert_eq!(redact_text(r#"api_key = "abc", max_tokens = 5"#), r#"api_key = "[redacted]", max_tokens = 5"#);
/// assert_eq!(redact_text(r#"api_key = "env:OPENAI_API_KEY""#), r#"api_key = "env:OPENAI_API_KEY""#);
/// ```
pub fn redact_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if let Some((kept, after)) = address(rest).or_else(|| scheme_secret(rest)) {
            out.push_str(&kept);
            rest = after;
        } else if is_word(first) {
            let (word, after) = split_word(rest);
            rest = after;
            if is_key(word) {
                out.push_str(REDACTED);
                continue;
            }
            out.push_str(word);
            if is_secret_name(word)
                && let Some((between, value, after)) = assigned(rest)
            {
                out.push_str(between);
                out.push_str(&redact_value(value));
                rest = after;
            }
        } else {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    out
}

/// A secret's value; a mere pointer to where the secret stands is kept, so that a run can be made again.
fn redact_value(value: &str) -> String {
    let kept = ["env:", "file:", "$", "[redacted"].iter().any(|prefix| value.starts_with(prefix));
    if kept || value.is_empty() { value.to_owned() } else { REDACTED.to_owned() }
}

/// Whether a field or variable of this name holds a secret: it ends in a word for one. `max_tokens` and `key_from`
/// do not.
fn is_secret_name(name: &str) -> bool {
    let bare: String =
        name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let ends = [
        "apikey",
        "accesskey",
        "secretkey",
        "privatekey",
        "signingkey",
        "authkey",
        "secret",
        "password",
        "passwd",
        "passphrase",
        "authorization",
        "credential",
        "credentials",
        "cookie",
        "token",
        "bearer",
        "signature",
    ];
    ends.iter().any(|end| bare.ends_with(end))
}

fn is_url_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["url", "uri", "address", "endpoint"].iter().any(|end| name.ends_with(end))
}

fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-')
}

fn split_word(text: &str) -> (&str, &str) {
    text.split_at(text.find(|letter| !is_word(letter)).unwrap_or(text.len()))
}

fn is_key(word: &str) -> bool {
    KEY_PREFIXES.iter().any(|prefix| word.strip_prefix(prefix).is_some_and(|rest| rest.len() >= KEY_LENGTH))
}

/// An address with user info at the start of `text`: what is kept of both, and what follows.
fn address(text: &str) -> Option<(String, &str)> {
    let rest = text.strip_prefix("://")?;
    let end = rest.find(|letter: char| letter.is_whitespace() || "/?#\"'<>,;)]}".contains(letter));
    let (authority, after) = rest.split_at(end.unwrap_or(rest.len()));
    let host = authority.rfind('@')?;
    Some((format!("://{}", &authority[host + 1..]), after))
}

/// The authentication scheme that a text begins with, blank included.
fn scheme_of(text: &str) -> Option<&str> {
    SCHEMES.iter().find_map(|scheme| {
        let start = text.get(..scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(start)
    })
}

/// An authentication scheme and its secret at the start of `text`: what is kept of both, and what follows.
fn scheme_secret(text: &str) -> Option<(String, &str)> {
    let scheme = scheme_of(text)?;
    let rest = &text[scheme.len()..];
    let end = rest.find(|letter: char| letter.is_whitespace() || "\"',;".contains(letter));
    let (secret, after) = rest.split_at(end.unwrap_or(rest.len()));
    // A word of prose after "basic" is no secret.
    let looks_secret = secret.len() >= 8 && secret.chars().any(|letter| !letter.is_ascii_lowercase());
    looks_secret.then(|| (format!("{scheme}{}", redact_value(secret)), after))
}

/// What is assigned to the name that ended just before `text`: what stands between, the value, and what follows.
fn assigned(text: &str) -> Option<(&str, &str, &str)> {
    let after_name = text.trim_start_matches(['"', '\'']).trim_start_matches([' ', '\t']);
    let after_sign = after_name.strip_prefix([':', '='])?.trim_start_matches([' ', '\t']);
    let quotes: &[&str] = &["\"\"\"", "'''", "\"", "'"];
    let quote = quotes.iter().find(|quote| after_sign.starts_with(**quote)).copied().unwrap_or_default();
    let value = &after_sign[quote.len()..];
    let between = &text[..text.len() - value.len()];
    let end = match quote {
        "" => {
            let scheme = scheme_of(value).map_or(0, str::len);
            let end = |letter: char| letter.is_whitespace() || ",;&}])".contains(letter);
            value[scheme..].find(end).map(|at| scheme + at)
        }
        quote => closing(value, quote),
    };
    let (value, after) = value.split_at(end.unwrap_or(value.len()));
    Some((between, value, after))
}

/// Where a quoted text ends: at the first closing quote that no backslash stands before.
fn closing(text: &str, quote: &str) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + text[from..].find(quote)?;
        let slashes = text[..at].bytes().rev().take_while(|byte| *byte == b'\\').count();
        if quote.starts_with('\'') || slashes % 2 == 0 {
            return Some(at);
        }
        from = at + quote.len();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_keep_the_place_and_lose_the_way_in() {
        for (given, kept) in [
            ("http://user:pass@host:8000/v1", "http://host:8000/v1"),
            ("http://host/v1?api-version=1&key=s", "http://host/v1"),
            ("http://host/a@b", "http://host/a@b"),
            ("http://u:p%40@x@host#f", "http://host"),
            ("user:pass@host/v1", "host/v1"),
            ("http://[::1]:80/", "http://[::1]:80/"),
            ("", ""),
        ] {
            assert_eq!(redact_url(given), kept, "{given}");
        }
    }

    #[test]
    fn texts_lose_assigned_secrets_and_keep_everything_else() {
        for (given, kept) in [
            ("max_tokens = 12\nkey_from = \"env:K\"", "max_tokens = 12\nkey_from = \"env:K\""),
            ("api_key=abc def", "api_key=[redacted] def"),
            ("{\"client-secret\": \"a\\\"b\", \"n\": 1}", "{\"client-secret\": \"[redacted]\", \"n\": 1}"),
            ("password = 'p w'", "password = '[redacted]'"),
            ("password = \"\"\"p\nw\"\"\" # x", "password = \"\"\"[redacted]\"\"\" # x"),
            ("Authorization: Bearer abcDEF123456 x", "Authorization: [redacted] x"),
            ("sent bearer abcDEF123456, refused", "sent bearer [redacted], refused"),
            ("see http://u:p@h:1/x, ok", "see http://h:1/x, ok"),
            ("wrong key sk-proj-abcdefghijkl given", "wrong key [redacted] given"),
            ("the basic principle", "the basic principle"),
            ("https://h/x?access_token=abc&n=1", "https://h/x?access_token=[redacted]&n=1"),
            ("token = $TOKEN", "token = $TOKEN"),
            ("grüße — sk-", "grüße — sk-"),
        ] {
            assert_eq!(redact_text(given), kept, "{given}");
        }
    }

    #[test]
    fn json_loses_secrets_at_any_depth() {
        let mut value = json!({
            "routes": [{"url": "http://u:planted@h/?k=planted", "headers": {"X-Api-Key": "planted", "n": 5}}],
            "token": 1234, "input_tokens": 7, "api_key": "env:NAME", "secret": null,
            "text": "auth_token = \"planted\"\nspeed = 2",
        });
        redact_json(&mut value);
        assert!(!value.to_string().contains("planted"), "{value}");
        assert_eq!(value["routes"][0]["url"], "http://h/");
        assert_eq!(value["routes"][0]["headers"]["n"], 5);
        assert_eq!(value["token"], REDACTED);
        assert_eq!(value["input_tokens"], 7);
        assert_eq!(value["api_key"], "env:NAME");
        assert_eq!(value["text"], "auth_token = \"[redacted]\"\nspeed = 2");
    }

    proptest::proptest! {
        #[test]
        fn redacting_twice_changes_nothing_more(text in "[ -~é\n]{0,60}") {
            let once = redact_text(&text);
            proptest::prop_assert_eq!(redact_text(&once), once);
        }
    }
}
