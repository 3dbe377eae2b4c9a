//! The fuzz corpus, replayed: what was ever found, and what fuzzing found worth keeping, holds on a plain `cargo test`.

#[path = "../../../fuzz/check.rs"]
mod check;

use std::fs;
use std::path::Path;

/// Each fuzz target and the protocol that it drives.
const TARGETS: [(&str, &str); 9] = [
    ("openai", "openai-chat"),
    ("responses", "openai-responses"),
    ("anthropic", "anthropic-messages"),
    ("gemini", "gemini"),
    ("ollama", "ollama-chat"),
    ("tgi", "tgi-generate"),
    ("http", "http"),
    ("embeddings", "openai-embeddings"),
    ("embeddings", "gemini-embeddings"),
];

#[test]
fn the_kept_corpus_holds_for_every_target() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let mut replayed = 0;
    for (target, protocol) in TARGETS {
        let source =
            fs::read_to_string(fuzz.join(format!("targets/{target}.rs"))).expect("the target is there");
        assert!(source.contains(&format!("\"{protocol}\"")), "{target} drives {protocol}");
        let mut inputs = 0;
        for entry in fs::read_dir(fuzz.join("corpus").join(target)).expect("it has a corpus") {
            let path = entry.expect("the folder is readable").path();
            check::check(protocol, &fs::read(&path).expect("the input is readable"));
            inputs += 1;
        }
        assert!(inputs > 0, "{target} has a corpus");
        replayed += inputs;
    }
    assert!(replayed >= 30, "{replayed} inputs");
}

#[test]
fn an_input_of_one_protocol_is_checked_against_every_other() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (target, _) in TARGETS {
        for entry in fs::read_dir(corpus.join(target)).expect("it has a corpus") {
            let input =
                fs::read(entry.expect("the folder is readable").path()).expect("the input is readable");
            for (_, protocol) in TARGETS {
                check::check(protocol, &input);
            }
        }
    }
}
