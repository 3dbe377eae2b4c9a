//! Files of tiktoken: one byte string a line, in base64, then a space and its rank.
//!
//! The patterns of these vocabularies (`r50k`, `p50k`, `cl100k`, `o200k`) cut a text of lower-case words at each space,
//! which goes with the word after it; and a piece that stands in the file as a whole is one token, whatever its rank. So
//! a look into the file tells which words are single: nothing has to be merged.

use std::collections::HashSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The words that are one token each, in the order of the list.
///
/// # Errors
/// What is wrong with the file, with the line.
pub(super) fn single_words(file: &[u8]) -> Result<Vec<&'static str>, String> {
    let mut pieces: HashSet<Vec<u8>> = HashSet::new();
    for (number, line) in (1..).zip(file.split(|byte| *byte == b'\n')) {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        pieces.insert(piece(line).map_err(|problem| format!("line {number} {problem}"))?);
    }
    if pieces.is_empty() {
        return Err("it holds no line".to_owned());
    }
    let single = super::spaced().filter(|(_, spaced)| pieces.contains(spaced.as_bytes()));
    Ok(single.map(|(word, _)| word).collect())
}

fn piece(line: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut parts = line.split(|byte| *byte == b' ');
    let (Some(encoded), Some(rank), None) = (parts.next(), parts.next(), parts.next()) else {
        return Err("is not a base64 text, a space and a rank");
    };
    let is_rank = str::from_utf8(rank).is_ok_and(|rank| rank.parse::<u32>().is_ok());
    if !is_rank {
        return Err("ends with something that is no rank, a number from 0");
    }
    STANDARD.decode(encoded).map_err(|_| "begins with something that is no base64 text")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(pieces: &[&str]) -> Vec<u8> {
        let lines =
            pieces.iter().zip(0..).map(|(piece, rank)| format!("{} {rank}\n", STANDARD.encode(piece)));
        lines.collect::<String>().into_bytes()
    }

    #[test]
    fn words_count_that_stand_in_the_file_with_their_space() {
        // By hand: " able" is IGFibGU=, in r50k it has the rank 1498; "about" stands here without its space.
        assert_eq!(single_words(b"IGFibGU= 1498\r\nYWJvdXQ= 10755\n\n").unwrap(), ["able"]);
        assert_eq!(single_words(&file(&[" zoo", "able", " abou", "t", " able"])).unwrap(), ["able", "zoo"]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let wrong = |file: &[u8]| single_words(file).unwrap_err();
        assert_eq!(wrong(b"\n \n"), "it holds no line");
        assert_eq!(wrong(b"IGFibGU= 1\nIGFibGU=\n"), "line 2 is not a base64 text, a space and a rank");
        assert_eq!(wrong(b"IGFibGU= 1 2"), "line 1 is not a base64 text, a space and a rank");
        assert_eq!(wrong(b"\n\nIGFibGU= -1"), "line 3 ends with something that is no rank, a number from 0");
        assert_eq!(wrong(b"I*= 1"), "line 1 begins with something that is no base64 text");
        assert_eq!(wrong(b"\xff\xfe \xff"), "line 1 ends with something that is no rank, a number from 0");
    }
}
