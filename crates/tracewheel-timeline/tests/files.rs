//! What stands in the file, and which files are refused.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::file::metadata::KeyValue;
use parquet::file::reader::{FileReader, SerializedFileReader};
use tracewheel_timeline::{
    RequestRow, Source, Timeline, TimelineError, TimelineMeta, TimelineWriter, TtftKind, meta::keys, schema,
};

fn row(arrival_unix_ns: i64) -> RequestRow {
    RequestRow {
        arrival_unix_ns: Some(arrival_unix_ns),
        input_tokens: Some(5),
        input_tokens_source: Some(Source::Reported),
        prod_ttft_ns: Some(1),
        prod_ttft_kind: Some(TtftKind::Token),
        prod_event_ns: Some(vec![1, 2]),
        body: Some("secret".into()),
        ..RequestRow::default()
    }
}

fn write(path: &Path, arrivals: &[i64]) {
    let mut writer = TimelineWriter::create(path, TimelineMeta::default()).unwrap();
    arrivals.iter().for_each(|arrival| {
        writer.push(&row(*arrival)).unwrap();
    });
    writer.finish().unwrap();
}

fn foreign(path: &Path, columns: Vec<(&str, ArrayRef)>, pairs: &[(&str, &str)]) {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    for (key, value) in pairs {
        writer.append_key_value_metadata(KeyValue::new((*key).to_owned(), (*value).to_owned()));
    }
    writer.close().unwrap();
}

const IS_TIMELINE: &[(&str, &str)] =
    &[(keys::KIND, "timeline"), (keys::VERSION, "1.0"), (keys::DIGEST, "00")];

type Columns = Vec<(&'static str, ArrayRef)>;

fn required_columns() -> Columns {
    let numbers = || Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef;
    let words = |word: &str| Arc::new(StringArray::from(vec![word, word])) as ArrayRef;
    vec![
        ("arrival_unix_ns", numbers()),
        ("arrival_precision_ns", numbers()),
        ("arrival_source", words("start")),
        ("operation", words("chat")),
        ("body_state", words("absent")),
        ("source_file", words("a.csv")),
        ("source_offset", Arc::new(arrow_array::UInt64Array::from(vec![0, 9]))),
    ]
}

#[test]
fn time_columns_are_delta_packed_and_everything_but_hashes_is_zstd() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    write(&path, &[1, 2, 2]);
    let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
    let mut deltas = 0;
    for chunk in reader.metadata().row_group(0).columns() {
        let name = chunk.column_path().parts()[0].as_str();
        if name == "prefix_hashes" {
            assert_eq!(chunk.compression(), Compression::UNCOMPRESSED);
            assert!(chunk.dictionary_page_offset().is_none() && chunk.statistics().is_none());
        } else {
            assert!(matches!(chunk.compression(), Compression::ZSTD(_)), "{name}");
        }
        let delta = chunk.encodings().any(|encoding| encoding == Encoding::DELTA_BINARY_PACKED);
        assert_eq!(delta, schema::is_time(name) || name == "source_offset", "{name}");
        deltas += usize::from(delta);
        assert!(!delta || chunk.dictionary_page_offset().is_none(), "{name}");
        assert!(name != "body" || chunk.statistics().is_none(), "statistics hold a part of the body");
    }
    assert_eq!(deltas, 8);
    let metadata = reader.metadata().file_metadata();
    let pairs = metadata.key_value_metadata().unwrap();
    let ours = pairs.iter().filter(|pair| pair.key.starts_with("tracewheel."));
    assert!(ours.count() >= 5);
    assert_eq!(metadata.created_by().unwrap(), format!("tracewheel {}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn unsorted_rows_are_refused_with_their_number_and_the_writer_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let mut writer = TimelineWriter::create(&path, TimelineMeta::default()).unwrap();
    writer.push(&row(5)).unwrap();
    writer.push(&row(5)).unwrap();
    let error = writer.push(&row(4)).unwrap_err();
    assert!(matches!(error, TimelineError::Unsorted { row: 2, arrival_unix_ns: 4, previous_unix_ns: 5 }));
    assert!(error.to_string().contains("row 2") && error.to_string().contains("row 1"), "{error}");
    let error = writer.push(&RequestRow::default()).unwrap_err();
    assert!(matches!(error, TimelineError::ArrivalUnknown { row: 2 }), "{error}");
    assert_eq!(writer.push(&row(6)).unwrap(), 2);
    assert_eq!(writer.finish().unwrap().rows, 3);
    assert_eq!(Timeline::open(&path).unwrap().rows().count(), 3);
}

#[test]
fn the_file_appears_only_when_it_is_whole_and_nothing_else_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let names = || {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    let mut writer = TimelineWriter::create(&path, TimelineMeta::default()).unwrap();
    writer.push(&row(1)).unwrap();
    assert!(!path.exists());
    assert!(names().len() <= 1, "no name, or one of its own");
    drop(writer);
    assert_eq!(names(), Vec::<String>::new());

    write(&path, &[1]);
    assert_eq!(names(), ["t.parquet"]);
    let open = Timeline::open(&path).unwrap();
    write(&path, &[1, 2]);
    assert_eq!(open.rows().map(Result::unwrap).count(), 1, "an open timeline keeps its file");
    assert_eq!(Timeline::open(&path).unwrap().num_rows(), 2);
}

#[test]
fn an_output_that_cannot_be_written_is_told_apart_from_a_bad_input() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("no such folder").join("t.parquet");
    let error = TimelineWriter::create(&path, TimelineMeta::default()).unwrap_err();
    assert!(error.is_output() && error.to_string().contains("no such folder/t.parquet"), "{error}");
    assert!(!Timeline::open(&path).unwrap_err().is_output());
}

#[test]
fn a_timeline_of_no_rows_is_a_timeline() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    write(&path, &[]);
    let timeline = Timeline::open(&path).unwrap();
    assert_eq!((timeline.num_rows(), timeline.rows().count(), timeline.arrivals().count()), (0, 0, 0));
}

#[test]
fn a_file_that_is_no_parquet_and_a_cut_one_are_refused_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.csv");
    std::fs::write(&path, "TIMESTAMP,ContextTokens\n").unwrap();
    let text = Timeline::open(&path).unwrap_err().to_string();
    assert!(text.contains("log.csv") && text.contains("tracewheel ingest"), "{text}");

    let path = folder.path().join("t.parquet");
    write(&path, &[1, 2]);
    let whole = std::fs::read(&path).unwrap();
    for len in [0, 3, 40, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..len]).unwrap();
        assert!(matches!(Timeline::open(&path), Err(TimelineError::NotParquet { .. })), "{len}");
    }
    let missing = Timeline::open(folder.path().join("none")).unwrap_err();
    assert!(matches!(missing, TimelineError::Io { action: "open", .. }));
}

#[test]
fn another_parquet_file_is_refused_as_no_timeline() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.parquet");
    foreign(&path, required_columns(), &[]);
    let error = Timeline::open(&path).unwrap_err();
    assert!(matches!(error, TimelineError::NotTimeline { key: keys::KIND, .. }));
    assert!(error.to_string().contains("no tracewheel timeline"), "{error}");
}

#[test]
fn another_major_version_is_refused_with_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new.parquet");
    let pairs = [(keys::KIND, "timeline"), (keys::VERSION, "2.1")];
    foreign(&path, vec![("x", Arc::new(Int64Array::from(vec![1])))], &pairs);
    let text = Timeline::open(&path).unwrap_err().to_string();
    assert!(text.contains("version 2.1") && text.contains("reads 1.1"), "{text}");
}

#[test]
fn columns_are_found_by_name_in_any_order_and_foreign_ones_are_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("minor.parquet");
    let mut columns = required_columns();
    columns.reverse();
    columns.insert(2, ("of_a_later_minor", Arc::new(Int64Array::from(vec![Some(1), None]))));
    columns.push(("model", Arc::new(StringArray::from(vec![Some("m"), None]))));
    let newer = [(keys::KIND, "timeline"), (keys::VERSION, "1.9"), (keys::DIGEST, "00")];
    foreign(&path, columns, &newer);
    let timeline = Timeline::open(&path).unwrap();
    let rows: Vec<RequestRow> = timeline.rows().map(|row| row.unwrap().1).collect();
    assert_eq!(rows.len(), 2);
    assert_eq!((rows[1].arrival_unix_ns, rows[1].source_offset), (Some(2), 9));
    assert_eq!((rows[0].model.as_deref(), rows[1].model.as_deref()), (Some("m"), None));
    assert_eq!(rows[0].input_tokens, None);
}

#[test]
fn missing_columns_wrong_types_and_bad_cells_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.parquet");
    let refused = |change: &dyn Fn(&mut Columns)| {
        let mut columns = required_columns();
        change(&mut columns);
        foreign(&path, columns, IS_TIMELINE);
        let rows = Timeline::open(&path).and_then(|timeline| timeline.rows().collect::<Result<Vec<_>, _>>());
        rows.unwrap_err().to_string()
    };
    let text = refused(&|columns| columns.retain(|(name, _)| *name != "operation"));
    assert!(text.contains("no column `operation`"), "{text}");
    let text = refused(&|columns| columns[0].1 = Arc::new(StringArray::from(vec!["1", "2"])));
    assert!(text.contains("`arrival_unix_ns` is Utf8, not Int64"), "{text}");
    let text = refused(&|columns| columns[3].1 = Arc::new(StringArray::from(vec!["chat", "poem"])));
    assert!(text.contains("row 1") && text.contains("`operation`") && text.contains("`poem`"), "{text}");
    let text = refused(&|columns| columns[0].1 = Arc::new(Int64Array::from(vec![Some(1), None])));
    assert!(text.contains("row 1") && text.contains("`arrival_unix_ns`: null"), "{text}");
}

#[test]
fn a_damaged_page_is_an_error_and_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    write(&path, &(0..2_000).collect::<Vec<_>>());
    let whole = std::fs::read(&path).unwrap();
    let mut failures = 0;
    for position in (4..whole.len() / 2).step_by(97) {
        let mut damaged = whole.clone();
        damaged[position..position + 8].fill(0xA5);
        std::fs::write(&path, &damaged).unwrap();
        let rows = Timeline::open(&path).and_then(|timeline| timeline.rows().collect::<Result<Vec<_>, _>>());
        failures += usize::from(rows.is_err());
    }
    assert!(failures > 0);
}

#[test]
fn a_damaged_page_of_hashes_is_no_panic_either() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let mut writer = TimelineWriter::create(&path, TimelineMeta::default()).unwrap();
    for number in 0..300_u64 {
        let hashes = (0..number % 7).map(|block| (number + block).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let prefix_hashes = (number % 5 > 0).then(|| hashes.collect());
        let row = RequestRow { arrival_unix_ns: Some(number as i64), prefix_hashes, ..RequestRow::default() };
        writer.push(&row).unwrap();
    }
    writer.finish().unwrap();
    let whole = std::fs::read(&path).unwrap();
    let metadata = SerializedFileReader::new(File::open(&path).unwrap()).unwrap().metadata().clone();
    let columns = metadata.row_group(0).columns();
    let hashes = columns.iter().find(|column| column.column_path().parts()[0] == "prefix_hashes").unwrap();
    let (start, length) = hashes.byte_range();
    for position in (start..start + length - 8).step_by(3) {
        let mut damaged = whole.clone();
        damaged[position as usize..position as usize + 8].fill(0xA5);
        std::fs::write(&path, &damaged).unwrap();
        let rows = Timeline::open(&path).and_then(|timeline| timeline.rows().collect::<Result<Vec<_>, _>>());
        // A changed hash is as good as another; what matters is that nothing ends the process.
        assert!(rows.is_err() || rows.is_ok_and(|rows| rows.len() <= 300));
    }
}

/// A row whose texts and hashes take every way into a page: alone, recurring, changing each time, missing.
fn motley(number: u64) -> RequestRow {
    let hashes = (0..number % 40).map(|block| (number + block).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    RequestRow {
        arrival_unix_ns: Some(number as i64),
        path: Some(format!("/{number:0>90}").into()),
        model: number.is_multiple_of(2).then(|| ["small", "large", "medium"][number as usize / 2 % 3].into()),
        provider: (number >= 25_000).then(|| "late".into()),
        prefix_hashes: (!number.is_multiple_of(5)).then(|| hashes.collect()),
        ..RequestRow::default()
    }
}

#[test]
fn texts_behind_a_full_dictionary_and_lists_of_any_length_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let mut writer = TimelineWriter::create(&path, TimelineMeta::default()).unwrap();
    (0..30_000).for_each(|number| assert_eq!(writer.push(&motley(number)).unwrap(), number));
    let digest = writer.finish().unwrap().digest;
    let timeline = Timeline::open(&path).unwrap();
    for (number, row) in (0..).zip(timeline.rows()) {
        assert_eq!(row.unwrap(), (number, motley(number)));
    }
    assert_eq!(timeline.compute_digest().unwrap(), digest);

    let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
    let group = reader.metadata().row_group(0);
    let column =
        |name: &str| group.columns().iter().find(|column| column.column_path().parts()[0] == name).unwrap();
    let nulls = |name| column(name).statistics().and_then(|statistics| statistics.null_count_opt());
    let encodings = |name| column(name).encodings().collect::<Vec<_>>();
    assert!(encodings("path").contains(&Encoding::RLE_DICTIONARY), "the first 11,000 or so");
    assert!(encodings("path").contains(&Encoding::PLAIN));
    assert!(column("path").compressed_size() < 400_000, "{} bytes", column("path").compressed_size());
    assert!(column("path").statistics().unwrap().min_bytes_opt().is_none(), "not all words were compared");
    let model = column("model").statistics().unwrap();
    assert_eq!((model.min_bytes_opt(), model.max_bytes_opt()), (Some(&b"large"[..]), Some(&b"small"[..])));
    assert_eq!([nulls("path"), nulls("model"), nulls("provider")], [Some(0), Some(15_000), Some(25_000)]);
    // No dictionary without a word, and a page without any is no page of numbers.
    assert!(column("endpoint").dictionary_page_offset().is_none());
    assert!(!encodings("endpoint").contains(&Encoding::RLE_DICTIONARY));
    assert!(
        column("operation").compressed_size() < 200,
        "one word, {}",
        column("operation").compressed_size()
    );
}

#[test]
fn nothing_but_a_timeline_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let create = |path: &Path| TimelineWriter::create(path, TimelineMeta::default());
    let log = dir.path().join("log.csv");
    std::fs::write(&log, "ts,in,out\n").unwrap();
    let link = dir.path().join("link.csv");
    std::os::unix::fs::symlink(&log, &link).unwrap();
    let socket = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for path in [&log, &link, &socket, &dir.path().to_owned()] {
        let error = create(path).unwrap_err();
        assert!(matches!(error, TimelineError::Occupied { .. }) && !error.is_output(), "{error}");
        assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
    }
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "ts,in,out\n");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3, "nothing is left behind");
}

#[test]
fn a_timeline_behind_a_link_is_replaced_and_the_link_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (real, link) = (dir.path().join("real.parquet"), dir.path().join("link.parquet"));
    write(&real, &[1]);
    std::os::unix::fs::symlink(&real, &link).unwrap();
    write(&link, &[1, 2]);
    assert!(link.is_symlink());
    assert_eq!(Timeline::open(&real).unwrap().num_rows(), 2);
}

#[test]
fn a_directory_is_told_apart_and_a_run_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let told = |path: &Path| Timeline::open(path).unwrap_err().to_string();
    assert!(told(dir.path()).contains("is a directory: name a timeline"), "{}", told(dir.path()));
    std::fs::write(dir.path().join("manifest.json"), "{}").unwrap();
    assert!(told(dir.path()).contains("`compare`"), "{}", told(dir.path()));
}
