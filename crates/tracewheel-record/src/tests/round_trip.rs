use proptest::prelude::*;

use super::samples::Dice;
use super::*;

fn entries(seed: u64, count: usize) -> Vec<Entry> {
    let mut dice = Dice::new(seed);
    (0..count).map(|_| dice.entry()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn what_is_recorded_is_read_back_from_a_closed_run(
        seed: u64, count in 0_usize..60, part_rows in 1_usize..40,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let entries = entries(seed, count);
        let options = WriterOptions { part_rows, ..WriterOptions::default() };
        let mut writer = writer(dir.path(), &entries, options);
        for entry in &entries {
            record(&mut writer, entry).unwrap();
        }
        let summary = writer.finish(&manifest_for(&entries), &clock()).unwrap();
        let run = Run::open(&summary.dir).unwrap();
        prop_assert!(run.is_closed());
        prop_assert!(!summary.dir.join("journal").exists());
        let content = Content::read(&run).unwrap();
        prop_assert_eq!(summary.counts.total(), content.requests.len() as u64);
        prop_assert_eq!(summary.attempts, content.attempts.len() as u64);
        prop_assert_eq!(content, Content::of(&entries));
    }

    #[test]
    fn what_was_flushed_is_read_back_from_an_open_run(
        seed: u64, count in 0_usize..60, part_rows in 1_usize..40,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let entries = entries(seed, count);
        let options = WriterOptions { part_rows, ..WriterOptions::default() };
        let mut writer = writer(dir.path(), &entries, options);
        for entry in &entries {
            record(&mut writer, entry).unwrap();
        }
        writer.flush().unwrap();
        let run = Run::open(writer.dir()).unwrap();
        prop_assert!(!run.is_closed() && run.is_in_use().unwrap());
        prop_assert_eq!(Content::read(&run).unwrap(), Content::of(&entries));
        drop(writer);
        prop_assert!(!run.is_in_use().unwrap());
    }
}

#[test]
fn attempts_without_events_are_the_same_but_for_the_lists() {
    let dir = tempfile::tempdir().unwrap();
    let mut dice = Dice::new(5);
    let attempts: Vec<Entry> = (0..50).map(|_| Entry::Attempt(dice.attempt())).collect();
    let mut writer = writer(dir.path(), &attempts, WriterOptions::default());
    attempts.iter().for_each(|entry| record(&mut writer, entry).unwrap());
    let dir = writer.finish(&manifest_for(&attempts), &clock()).unwrap().dir;
    let run = Run::open(&dir).unwrap();
    let whole = run.attempts().unwrap().map(Result::unwrap);
    let bare = whole.map(|attempt| AttemptRecord { reads: Vec::new(), events: Vec::new(), ..attempt });
    let read: Vec<_> = run.attempts_without_events().unwrap().map(Result::unwrap).collect();
    assert_eq!(read, bare.collect::<Vec<_>>());
}

#[test]
fn error_bodies_are_redacted_and_cut_at_a_character() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = writer(dir.path(), &[], WriterOptions::default());
    let body = format!("key sk-abcdefghijklmnop refused {}", "é".repeat(2000));
    let attempt = AttemptRecord { error_body: Some(body.into()), ..AttemptRecord::default() };
    writer.attempt(&attempt).unwrap();
    writer.flush().unwrap();
    let run = Run::open(writer.dir()).unwrap();
    let read = run.attempts().unwrap().next().unwrap().unwrap().error_body.unwrap();
    assert!(read.starts_with("key [redacted] refused é") && read.ends_with('é'), "{read}");
    assert!((2047..=2048).contains(&read.len()), "{}", read.len());
}

#[test]
fn names_that_never_repeat_do_not_grow_the_dictionary_without_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = writer(dir.path(), &[], WriterOptions::default());
    let mut entries = Vec::new();
    for row in 0..12_000_u64 {
        let mut request = RequestRecord { row, ..RequestRecord::default() };
        request.strata.path = Some(format!("/v1/responses/{row}").into());
        request.strata.model = Some("m".into());
        entries.push(Entry::Request(request));
    }
    for chunk in entries.chunks(1500) {
        chunk.iter().for_each(|entry| record(&mut writer, entry).unwrap());
        writer.flush().unwrap();
    }
    let run = Run::open(writer.dir()).unwrap();
    assert_eq!(Content::read(&run).unwrap(), Content::of(&entries));
    let dir = writer.finish(&manifest_for(&entries), &clock()).unwrap().dir;
    assert_eq!(Content::read(&Run::open(&dir).unwrap()).unwrap(), Content::of(&entries));
}
