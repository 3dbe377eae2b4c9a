//! Invariant 4: timeline -> Parquet -> timeline is the identity, whatever the rows are.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::{collection, option};
use tracewheel_timeline::{
    ArrivalSource, BodyState, Operation, RequestRow, RowDigest, RowPacker, Source, Timeline, TimelineMeta,
    TimelineWriter, TtftKind,
};

fn word<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    proptest::sample::select(all)
}

fn text() -> impl Strategy<Value = Arc<str>> {
    prop_oneof![Just("".to_owned()), "[a-c]", "\\PC{0,12}"].prop_map(Arc::from)
}

fn count() -> impl Strategy<Value = (Option<u32>, Option<Source>)> {
    (option::of(any::<u32>()), option::of(word(Source::ALL)))
}

prop_compose! {
    fn identity()(
        arrival_precision_ns in any::<i64>(),
        arrival_source in word(ArrivalSource::ALL),
        (source_id_hash, session_hash, tenant_hash, user_hash) in any::<(Option<u64>, Option<u64>, Option<u64>, Option<u64>)>(),
        (turn, think_ns, retry_of_row) in any::<(Option<u32>, Option<i64>, Option<u64>)>(),
        operation in word(Operation::ALL),
        texts in [option::of(text()), option::of(text()), option::of(text()), option::of(text()), option::of(text()), option::of(text()), option::of(text())],
        stream in any::<Option<bool>>(),
    ) -> RequestRow {
        let [method, path, endpoint, model, model_served, provider, route] = texts;
        RequestRow {
            arrival_precision_ns, arrival_source, source_id_hash, session_hash, tenant_hash, user_hash, turn,
            think_ns, retry_of_row, operation, method, path, endpoint, model, model_served, provider, route,
            stream, ..RequestRow::default()
        }
    }
}

prop_compose! {
    fn content(base: RequestRow)(
        counts in [count(), count(), count(), count(), count()],
        prefix_hashes in option::of(collection::vec(any::<u64>(), 0..6)),
        prefix_block_tokens in option::of(collection::vec(any::<u32>(), 0..6)),
        (images, tools) in any::<(Option<u16>, Option<u16>)>(),
        params in option::of(text()),
        body in option::of(collection::vec(any::<u8>(), 0..40)),
        body_state in word(BodyState::ALL),
        tags in option::of(collection::btree_map(text(), text(), 0..4)),
        request_headers in option::of(collection::btree_map(text(), text(), 0..3)),
    ) -> RequestRow {
        let [input, output, cached, written, reasoning] = counts;
        RequestRow {
            input_tokens: input.0, input_tokens_source: input.1,
            output_tokens: output.0, output_tokens_source: output.1,
            cached_tokens: cached.0, cached_tokens_source: cached.1,
            cache_write_tokens: written.0, cache_write_tokens_source: written.1,
            reasoning_tokens: reasoning.0, reasoning_tokens_source: reasoning.1,
            prefix_hashes, prefix_block_tokens, images, tools, params, body: body.map(Bytes::from), body_state,
            tags, request_headers, ..base.clone()
        }
    }
}

prop_compose! {
    fn outcome(base: RequestRow)(
        (served_by_gateway_cache, client_gone, cancel_after_ns) in any::<(Option<bool>, Option<bool>, Option<i64>)>(),
        (prod_status, prod_attempts, prod_ttft_ns, prod_e2e_ns) in any::<(Option<u16>, Option<u16>, Option<i64>, Option<i64>)>(),
        prod_error in option::of(text()),
        prod_ttft_kind in option::of(word(TtftKind::ALL)),
        prod_event_ns in option::of(collection::vec(any::<i64>(), 0..6)),
        sample_rate in option::of(0.0..=1.0_f64),
        source_file in text(),
        source_offset in any::<u64>(),
    ) -> RequestRow {
        RequestRow {
            served_by_gateway_cache, client_gone, cancel_after_ns, prod_status, prod_error, prod_attempts,
            prod_ttft_ns, prod_ttft_kind, prod_e2e_ns, prod_event_ns, sample_rate, source_file, source_offset,
            ..base.clone()
        }
    }
}

fn any_row() -> impl Strategy<Value = RequestRow> {
    identity().prop_flat_map(content).prop_flat_map(outcome)
}

/// Rows with their arrivals: sorted, ties likely; some without where `baseline`.
fn any_rows(baseline: bool) -> impl Strategy<Value = Vec<RequestRow>> {
    let arrival = prop_oneof![Just(0_i64), 0..5_i64, any::<i64>()];
    collection::vec((any_row(), arrival, any::<bool>()), 0..24).prop_map(move |mut drawn| {
        drawn.sort_by_key(|(_, arrival, _)| *arrival);
        let rows = drawn.into_iter().map(|(row, arrival, known)| RequestRow {
            arrival_unix_ns: (known || !baseline).then_some(arrival),
            ..row
        });
        rows.collect()
    })
}

/// In memory where the system offers that: each file is made durable, and a disk takes long for hundreds.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn write_and_open(rows: &[RequestRow], meta: TimelineMeta) -> (tempfile::TempDir, Timeline) {
    let folder = folder();
    let path = folder.path().join("t.parquet");
    let mut writer = TimelineWriter::create(&path, meta).unwrap();
    for (position, row) in rows.iter().enumerate() {
        assert_eq!(writer.push(row).unwrap(), position as u64);
    }
    let summary = writer.finish().unwrap();
    assert_eq!(summary.rows, rows.len() as u64);
    let timeline = Timeline::open(&path).unwrap();
    assert_eq!(timeline.meta().digest, summary.digest);
    (folder, timeline)
}

fn read(timeline: &Timeline) -> Vec<RequestRow> {
    timeline.rows().map(|row| row.unwrap().1).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn rows_come_back_as_they_were_written(rows in any_rows(false)) {
        let (_folder, timeline) = write_and_open(&rows, TimelineMeta::default());
        prop_assert_eq!(timeline.num_rows(), rows.len() as u64);
        prop_assert_eq!(&read(&timeline), &rows);
        let arrivals: Vec<i64> = timeline.arrivals().map(Result::unwrap).collect();
        prop_assert_eq!(arrivals, rows.iter().map(|row| row.arrival_unix_ns.unwrap()).collect::<Vec<_>>());
        prop_assert_eq!(timeline.compute_digest().unwrap(), timeline.meta().digest.clone());
    }

    #[test]
    fn rows_come_back_from_their_packed_form(rows in any_rows(true)) {
        let mut packer = RowPacker::new();
        for row in rows {
            let mut bytes = Vec::new();
            packer.pack(&row, &mut bytes);
            prop_assert_eq!(packer.unpack(&bytes), Ok(row));
        }
    }

    #[test]
    fn a_baseline_keeps_unknown_arrivals(rows in any_rows(true)) {
        let (_folder, timeline) = write_and_open(&rows, TimelineMeta { baseline: true, ..TimelineMeta::default() });
        prop_assert!(timeline.meta().baseline);
        prop_assert_eq!(read(&timeline), rows);
    }

    #[test]
    fn a_range_of_rows_is_that_part_of_all_rows(rows in any_rows(false), start in 0..30_u64, len in 0..30_u64) {
        let (_folder, timeline) = write_and_open(&rows, TimelineMeta::default());
        let expected: Vec<(u64, RequestRow)> =
            (0..).zip(rows).filter(|(position, _)| (start..start + len).contains(position)).collect();
        let found: Vec<(u64, RequestRow)> = timeline.rows_in(start..start + len).map(Result::unwrap).collect();
        prop_assert_eq!(found, expected);
    }
}

fn numbered(count: u64) -> impl Iterator<Item = RequestRow> {
    (0..count).map(|number| RequestRow {
        arrival_unix_ns: Some(number as i64 / 3),
        input_tokens: Some(number as u32),
        model: Some(format!("m{}", number % 7).into()),
        tags: (number % 5 == 0).then(|| BTreeMap::from([("k".into(), format!("{number}").into())])),
        ..RequestRow::default()
    })
}

#[test]
fn ranges_cross_the_borders_of_row_groups() {
    // Twice the rows of a row group and some more.
    let count = 2 * 128 * 1024 + 1_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let mut writer = TimelineWriter::create(&path, TimelineMeta::default()).unwrap();
    numbered(count).for_each(|row| {
        writer.push(&row).unwrap();
    });
    writer.finish().unwrap();
    let timeline = Timeline::open(&path).unwrap();
    assert_eq!(timeline.num_rows(), count);
    let border = 128 * 1024;
    for range in
        [0..3, border - 2..border + 2, border..border + 1, 2 * border - 1..count, count - 1..count + 9]
    {
        let expected: Vec<u64> = (range.start..range.end.min(count)).collect();
        let rows = timeline.columns_in(range, &["input_tokens"]).map(Result::unwrap);
        let found: Vec<(u64, u32)> = rows.map(|(row, cells)| (row, cells.input_tokens.unwrap())).collect();
        assert_eq!(found, expected.iter().map(|row| (*row, *row as u32)).collect::<Vec<_>>());
    }
    assert_eq!(timeline.arrivals().count() as u64, count);
}

#[test]
fn the_digest_does_not_depend_on_batches_and_row_groups() {
    let rows: Vec<RequestRow> = numbered(10_000).collect();
    let mut digest = RowDigest::new();
    rows.iter().for_each(|row| digest.push(row));
    // Bodies of a megabyte make the writer cut its batches and row groups elsewhere.
    let wide: Vec<RequestRow> = numbered(100)
        .map(|row| RequestRow { body: Some(vec![7; 1 << 20].into()), body_state: BodyState::Full, ..row })
        .collect();
    let mut wide_digest = RowDigest::new();
    wide.iter().for_each(|row| wide_digest.push(row));
    for (rows, digest) in [(rows, digest), (wide, wide_digest)] {
        let (_folder, timeline) = write_and_open(&rows, TimelineMeta::default());
        assert_eq!(timeline.meta().digest, digest.to_hex());
        assert_eq!(timeline.compute_digest().unwrap(), digest.to_hex());
        assert_eq!(read(&timeline), rows);
    }
}

#[test]
fn two_passes_over_one_timeline_do_not_disturb_each_other() {
    let rows: Vec<RequestRow> = numbered(9_000).collect();
    let (_folder, timeline) = write_and_open(&rows, TimelineMeta::default());
    let one = timeline.rows().map(|row| row.unwrap().1);
    let two = timeline.rows().map(|row| row.unwrap().1);
    assert!(one.zip(two).zip(&rows).all(|((one, two), row)| one == *row && two == *row));
    std::thread::scope(|scope| {
        for pass in [timeline.rows(), timeline.rows_in(500..8_500), timeline.rows()] {
            let rows = &rows;
            scope.spawn(move || {
                pass.map(Result::unwrap).for_each(|(position, row)| assert_eq!(row, rows[position as usize]));
            });
        }
    });
}
