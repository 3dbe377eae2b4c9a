//! Chunks that differ from the one before in nothing but their text are not parsed again.
//!
//! The chunks of one stream are alike: the same id, the same model, the same empty fields, and a word. Once a chunk was
//! parsed, the bytes before and behind its text are remembered. A later chunk that has the same bytes around a plain
//! string says the same with another text, and all that is asked of a text is its length.

use memchr::memmem::Finder;
use memchr::{memchr, memchr2};

use super::message::{Choice, Message};
use crate::lenient;

/// What stands before a text.
const OPENINGS: [&[u8]; 4] = [b"\"content\":\"", b"\"content\": \"", b"\"text\":\"", b"\"text\": \""];
/// Chunks unlike the one before after which it is no longer tried.
const MAX_MISSES: u8 = 8;
/// A longer chunk is parsed each time.
const MAX_BYTES: usize = 4096;

/// The frame around the text of a chunk.
#[derive(Default)]
pub(super) struct Template {
    before: Vec<u8>,
    behind: Vec<u8>,
    choice: Choice,
    known: bool,
    misses: u8,
}

impl Template {
    /// Whether `json` is a chunk like the one that was learned; then `message` says what it says.
    pub(super) fn reads(&mut self, json: &[u8], message: &mut Message) -> bool {
        if !self.known {
            return false;
        }
        let Some(text) =
            json.strip_prefix(&self.before[..]).and_then(|rest| rest.strip_suffix(&self.behind[..]))
        else {
            return false;
        };
        if !is_plain(text) || text.is_empty() {
            return false;
        }
        message.clear();
        message.has_choices = true;
        message.choices.push(Choice { text: u32::try_from(text.len()).unwrap_or(u32::MAX), ..self.choice });
        self.misses = 0;
        true
    }

    /// Looks at a chunk that had to be parsed: whether others may be like it.
    pub(super) fn learn(&mut self, json: &[u8], message: &Message) {
        self.known = false;
        let [choice] = message.choices[..] else { return };
        let other = message.usage.is_some()
            || message.timings.is_some()
            || message.error
            || message.progress
            || message.annotation;
        if other || choice.text == 0 || choice.finished || json.len() > MAX_BYTES || self.misses >= MAX_MISSES
        {
            return;
        }
        self.misses += 1;
        let Some((start, end)) = text_of(json, choice.text as usize) else { return };
        if !decides_the_text(json, end, choice) {
            return;
        }
        self.before.clear();
        self.before.extend_from_slice(&json[..start]);
        self.behind.clear();
        self.behind.extend_from_slice(&json[end..]);
        (self.choice, self.known) = (choice, true);
    }
}

/// Where the one string lies that is a text of that length.
fn text_of(json: &[u8], length: usize) -> Option<(usize, usize)> {
    let mut found = None;
    for opening in OPENINGS {
        for at in Finder::new(opening).find_iter(json) {
            let start = at + opening.len();
            let end = start + memchr(b'"', &json[start..])?;
            if found.replace((start, end)).is_some() {
                return None;
            }
        }
    }
    found.filter(|(start, end)| end - start == length && is_plain(&json[*start..*end]))
}

/// Whether a letter more at `end` makes the text longer by one and changes nothing else: tried once, by parsing it.
fn decides_the_text(json: &[u8], end: usize, choice: Choice) -> bool {
    let longer = [&json[..end], b"x", &json[end..]].concat();
    let mut message = Message::default();
    lenient::read(&longer, &mut message).is_ok()
        && message.choices == [Choice { text: choice.text + 1, ..choice }]
        && message.usage.is_none()
        && message.timings.is_none()
        && !(message.error || message.progress || message.annotation)
}

/// Whether the bytes between two quotes are the text itself: no escape, no quote, nothing that JSON forbids in a string.
fn is_plain(text: &[u8]) -> bool {
    memchr2(b'"', b'\\', text).is_none()
        && text.iter().all(|byte| *byte >= 0x20)
        && std::str::from_utf8(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chunk(text: &str) -> String {
        format!(
            "{{\"id\":\"c1\",\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":{}}},\"finish_reason\":null}}]}}",
            serde_json::to_string(text).unwrap()
        )
    }

    fn parsed(json: &[u8]) -> Option<Message> {
        let mut message = Message::default();
        lenient::read(json, &mut message).ok().map(|()| message)
    }

    fn learned(json: &str) -> Template {
        let mut template = Template::default();
        template.learn(json.as_bytes(), &parsed(json.as_bytes()).unwrap());
        template
    }

    #[test]
    fn a_chunk_like_the_one_before_is_read_and_another_is_not() {
        let mut template = learned(&chunk(" word"));
        assert!(template.known);
        let mut message = Message::default();
        assert!(template.reads(chunk(" other word").as_bytes(), &mut message));
        assert_eq!((message.choices.len(), message.choices[0].text), (1, 11));
        let last = "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}";
        for other in [&chunk("a\"b"), &chunk("a\nb"), &chunk(""), last, &chunk("x").replace("c1", "c2")] {
            assert!(!template.reads(other.as_bytes(), &mut message), "{other}");
        }
    }

    #[test]
    fn a_frame_that_says_more_than_a_text_is_not_learned() {
        let usage = chunk("w").replace("\"id\"", "\"usage\":{\"prompt_tokens\":3},\"id\"");
        let error = chunk("w").replace("\"id\"", "\"error\":{\"code\":3},\"id\"");
        let finished = chunk("w").replace("null", "\"stop\"");
        let twice = chunk("w").replace("\"id\"", "\"x\":{\"content\":\"w\"},\"id\"");
        // The text lies elsewhere, and something of the same length in a field of that name.
        let elsewhere =
            "{\"x\":{\"content\":\"ab\"},\"choices\":[{\"index\":0,\"delta\":{\"content\" :\"cd\"}}]}";
        for json in [&usage, &error, &finished, &twice, elsewhere] {
            assert!(!learned(json).known, "{json}");
        }
    }

    #[test]
    fn a_stream_whose_chunks_are_all_different_is_no_longer_tried() {
        let mut template = Template::default();
        for number in 0..2 * MAX_MISSES {
            let json = chunk("w").replace("c1", &format!("c{number}"));
            assert!(!template.reads(json.as_bytes(), &mut Message::default()));
            template.learn(json.as_bytes(), &parsed(json.as_bytes()).unwrap());
        }
        assert!(!template.known);
    }

    proptest! {
        #[test]
        fn what_a_template_reads_is_what_parsing_says(
            first in "[ -~é世]{0,6}",
            bytes in proptest::collection::vec(any::<u8>(), 0..8),
        ) {
            let mut template = learned(&chunk(&first));
            let frame = chunk("");
            let at = frame.find("\"content\":\"").unwrap() + 11;
            let json = [&frame.as_bytes()[..at], &bytes, &frame.as_bytes()[at..]].concat();
            let mut read = Message::default();
            if template.reads(&json, &mut read) {
                let parsed = parsed(&json).expect("what a template reads is JSON");
                prop_assert_eq!(&read.choices, &parsed.choices);
                prop_assert_eq!(read.has_choices, parsed.has_choices);
            }
        }
    }
}
