//! What a certificate says of itself: read for the record, never to trust it.

use ring::digest::{SHA256, digest};

/// Longest name that is kept, in characters.
const NAME_CHARS: usize = 200;

/// What a server's certificate says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CertificateFacts {
    /// Whom it is for, as `CN=api.example, O=Example`; `None` where it has no readable name.
    pub subject: Option<String>,
    /// Who issued it.
    pub issuer: Option<String>,
    /// Last moment of its validity, as `2030-01-31T00:00:00Z`.
    pub not_after: Option<String>,
    /// SHA-256 of the certificate, in hexadecimal digits: what browsers and `openssl x509 -fingerprint -sha256` show.
    pub sha256: String,
}

impl CertificateFacts {
    /// Reads a certificate in DER. What can't be read stays unknown.
    pub fn of(der: &[u8]) -> Self {
        let sha256 = digest(&SHA256, der).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let parts = parts(der);
        Self {
            subject: parts.as_ref().and_then(|parts| name(parts.subject)),
            issuer: parts.as_ref().and_then(|parts| name(parts.issuer)),
            not_after: parts.as_ref().and_then(|parts| time(parts.not_after)),
            sha256,
        }
    }
}

/// The parts of a certificate that are shown.
struct Parts<'a> {
    issuer: &'a [u8],
    not_after: Item<'a>,
    subject: &'a [u8],
}

/// One element of DER: its tag and its content.
#[derive(Clone, Copy)]
struct Item<'a> {
    tag: u8,
    content: &'a [u8],
}

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const OBJECT_ID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Takes the next element off `bytes`.
fn next<'a>(bytes: &mut &'a [u8]) -> Option<Item<'a>> {
    let [tag, length, rest @ ..] = *bytes else { return None };
    let (length, rest) = match *length {
        short @ ..0x80 => (usize::from(short), rest),
        long => {
            let count = usize::from(long & 0x7f);
            if !(1..=4).contains(&count) || rest.len() < count {
                return None;
            }
            let (digits, rest) = rest.split_at(count);
            (digits.iter().fold(0_usize, |sum, digit| (sum << 8) | usize::from(*digit)), rest)
        }
    };
    if rest.len() < length {
        return None;
    }
    let (content, after) = rest.split_at(length);
    *bytes = after;
    Some(Item { tag: *tag, content })
}

fn sequence<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    next(bytes).filter(|item| item.tag == SEQUENCE).map(|item| item.content)
}

/// By RFC 5280, 4.1: version (tagged), serial number, signature, issuer, validity, subject, ...
fn parts(mut der: &[u8]) -> Option<Parts<'_>> {
    let mut certificate = sequence(&mut der)?;
    let mut signed = sequence(&mut certificate)?;
    let first = next(&mut signed)?;
    if first.tag == VERSION {
        let _serial = next(&mut signed)?;
    }
    let _signature = sequence(&mut signed)?;
    let issuer = sequence(&mut signed)?;
    let mut validity = sequence(&mut signed)?;
    let _not_before = next(&mut validity)?;
    let not_after = next(&mut validity)?;
    let subject = sequence(&mut signed)?;
    Some(Parts { issuer, not_after, subject })
}

/// A name's known attributes, in their order.
fn name(mut sets: &[u8]) -> Option<String> {
    let mut shown = Vec::new();
    while let Some(set) = next(&mut sets) {
        let mut pairs = set.content;
        while let Some(mut pair) = sequence(&mut pairs) {
            let id = next(&mut pair).filter(|item| item.tag == OBJECT_ID)?;
            let value = next(&mut pair)?;
            // 2.5.4.x, the usual ones.
            let label = match id.content {
                [0x55, 4, 3] => "CN",
                [0x55, 4, 6] => "C",
                [0x55, 4, 7] => "L",
                [0x55, 4, 8] => "ST",
                [0x55, 4, 10] => "O",
                [0x55, 4, 11] => "OU",
                _ => continue,
            };
            let text: String = String::from_utf8_lossy(value.content)
                .chars()
                .map(|letter| if letter.is_control() { ' ' } else { letter })
                .collect();
            shown.push(format!("{label}={text}"));
        }
    }
    let whole: String = shown.join(", ").chars().take(NAME_CHARS).collect();
    Some(whole).filter(|whole| !whole.is_empty())
}

/// UTCTime has two digits of the year, from 1950 on; GeneralizedTime has four. Both end in `Z`.
fn time(item: Item<'_>) -> Option<String> {
    let text = std::str::from_utf8(item.content).ok()?.strip_suffix('Z')?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let full = match (item.tag, text.len()) {
        (UTC_TIME, 12) if &text[..2] >= "50" => format!("19{text}"),
        (UTC_TIME, 12) => format!("20{text}"),
        (GENERALIZED_TIME, 14) => text.to_owned(),
        _ => return None,
    };
    let part = |from: usize, to: usize| &full[from..to];
    Some(format!(
        "{}-{}-{}T{}:{}:{}Z",
        part(0, 4),
        part(4, 6),
        part(6, 8),
        part(8, 10),
        part(10, 12),
        part(12, 14)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate() -> Vec<u8> {
        let mut params = rcgen::CertificateParams::new(vec!["api.example".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, "api.example");
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "Example");
        params.not_after = rcgen::date_time_ymd(2049, 12, 31);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn a_certificate_tells_subject_issuer_and_end() {
        let facts = CertificateFacts::of(&certificate());
        assert_eq!(facts.subject.as_deref(), Some("CN=api.example, O=Example"));
        assert_eq!(facts.issuer, facts.subject, "self-signed");
        assert_eq!(facts.not_after.as_deref(), Some("2049-12-31T00:00:00Z"));
        assert_eq!(facts.sha256.len(), 64);
    }

    #[test]
    fn years_of_two_digits_turn_at_1950() {
        let at = |tag, text: &str| time(Item { tag, content: text.as_bytes() });
        assert_eq!(at(UTC_TIME, "500102030405Z").as_deref(), Some("1950-01-02T03:04:05Z"));
        assert_eq!(at(UTC_TIME, "491231235959Z").as_deref(), Some("2049-12-31T23:59:59Z"));
        assert_eq!(at(GENERALIZED_TIME, "20500101000000Z").as_deref(), Some("2050-01-01T00:00:00Z"));
        assert_eq!(at(UTC_TIME, "5001020304Z"), None);
    }

    #[test]
    fn the_fingerprint_is_the_known_one() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(CertificateFacts::of(b"").sha256, empty);
    }

    #[test]
    fn a_certificate_cut_or_changed_anywhere_is_read_without_harm() {
        let whole = certificate();
        for cut in 0..whole.len() {
            let _facts = CertificateFacts::of(&whole[..cut]);
        }
        for at in 0..whole.len() {
            for value in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                let _facts = CertificateFacts::of(&changed);
            }
        }
    }
}
