//! Packed logs: the text inside them, and damage that keeps what stands before it.

use std::io::Cursor;

use tracewheel_ingest::{IngestOptions, Input, RejectReason};

use crate::{Done, fixture, import, options, text, try_import};

const CUT: &str = "azure2023_conv_20s.csv";

fn bytes(name: &str) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces").join(name);
    std::fs::read(path).unwrap()
}

/// Packed by the tools themselves: `gzip -9` and `zstd -19`.
fn packed() -> [(&'static str, Vec<u8>); 2] {
    [("gzip", bytes("azure2023_conv_20s.csv.gz")), ("zstd", bytes("azure2023_conv_20s.csv.zst"))]
}

fn places(done: &Done) -> Vec<(u64, String)> {
    done.each(|row| (row.source_offset, row.source_file.to_string()))
}

#[test]
fn a_packed_log_gives_the_timeline_of_its_text_whatever_its_name() {
    let plain = try_import(vec![fixture(CUT)], options()).unwrap();
    for (packing, packed) in packed() {
        let length = packed.len() as u64;
        let done = try_import(vec![Input::reader(CUT, Cursor::new(packed))], options()).unwrap();
        assert_eq!(done.report.timeline_digest, plain.report.timeline_digest);
        assert_eq!(places(&done), places(&plain), "places are those of the text");
        let file = &done.report.files[0];
        assert_eq!(file.bytes, plain.report.files[0].bytes);
        let archive = file.packed.as_ref().unwrap();
        assert_eq!((archive.packing, archive.bytes, archive.members), (packing, length, 1));
        assert_eq!((&archive.damage, done.report.over_reject_limit), (&None, false));
    }
    let named = try_import(vec![fixture("azure2023_conv_20s.csv.gz")], options()).unwrap();
    assert_eq!(&*named.rows[0].source_file, "azure2023_conv_20s.csv.gz", "the label is the file's name");
    assert_eq!(named.timeline.meta().quality["files"][0]["packed"]["packing"], "gzip");
}

#[test]
fn every_member_of_an_archive_is_read() {
    let json = |n: u64| format!("{{\"arrival_unix_ms\":{},\"input_tokens\":{n}}}\n", 1_795_536_000_000 + n);
    let whole: String = (0..2000).map(json).collect();
    let pack = |text: &str| zstd::encode_all(text.as_bytes(), 3).unwrap();
    let (first, second) = whole.split_at(whole.len() / 3);
    let done = import([pack(first), pack(second)].concat(), options());
    assert_eq!((done.rows.len(), done.report.rows_rejected), (2000, 0), "a row may span two members");
    assert_eq!(done.report.files[0].packed.as_ref().unwrap().members, 2);
    assert_eq!(done.report.timeline_digest, import(&whole, options()).report.timeline_digest);
}

#[test]
fn a_cut_archive_keeps_the_rows_before_the_cut_and_rejects_the_one_at_it() {
    let plain = try_import(vec![fixture(CUT)], options()).unwrap();
    let rows = |done: &Done| {
        done.each(|row| (row.arrival_unix_ns, row.input_tokens, row.output_tokens, row.source_offset))
    };
    let (mut cut_rows, mut kept) = (0, 0);
    for (packing, packed) in packed() {
        for length in (4..packed.len()).step_by(if packing == "gzip" { 29 } else { 211 }) {
            let damaged = Input::reader("log", Cursor::new(packed[..length].to_vec()));
            let done = match try_import(vec![damaged], options()) {
                Ok(done) => done,
                Err(error) => {
                    let error = error.to_string();
                    assert!(error.contains(packing) && error.contains("cut"), "{length}: {error}");
                    continue;
                }
            };
            // A row whose last digits are missing would be a good row with a wrong count.
            assert!(rows(&plain).starts_with(&rows(&done)), "{packing} {length}");
            let report = &done.report;
            assert!(report.over_reject_limit && report.damaged().count() == 1);
            assert_eq!(report.files[0].packed.as_ref().unwrap().bytes, length as u64);
            let warning = report.warnings.iter().find(|warning| warning.contains("damaged")).unwrap();
            assert!(warning.contains(&format!("byte {length}")) && warning.contains("cut"), "{warning}");
            for reject in &report.rejects {
                assert_eq!((reject.reason, reject.line), (RejectReason::CutOff, done.rows.len() as u64 + 2));
                cut_rows += 1;
            }
            kept = kept.max(done.rows.len());
        }
    }
    assert!(cut_rows > 10 && kept > 100, "{cut_rows} {kept}");
}

#[test]
fn a_corrupt_archive_is_over_any_limit_and_keeps_what_came_before() {
    // Incompressible enough to have many blocks.
    let line = |n: u64| {
        format!(
            "{{\"arrival_unix_ns\":{},\"input_tokens\":1}}\n",
            1_795_536_000_000_000_000 + n * n % 999_983
        )
    };
    let whole: String = (0..40_000).map(line).collect();
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    std::io::Write::write_all(&mut encoder, whole.as_bytes()).unwrap();
    let mut packed = encoder.finish().unwrap();
    let at = packed.len() * 3 / 4;
    packed[at..at + 64].fill(0xa5);
    let lenient = IngestOptions { max_rejects: Some(1_000_000), ..options() };
    let done = import(&packed, lenient);
    assert!(done.report.over_reject_limit, "lost rows cannot be counted");
    assert!(done.rows.len() > 10_000, "{}", done.rows.len());
    let archive = done.report.files[0].packed.as_ref().unwrap();
    assert!(archive.bytes >= 1_000 && archive.damage.as_ref().unwrap().contains("corrupt"), "{archive:?}");
}

#[test]
fn an_archive_in_an_archive_is_refused_with_the_remedy() {
    let inner = bytes("azure2023_conv_20s.csv.gz");
    let outer = zstd::encode_all(inner.as_slice(), 3).unwrap();
    let error = try_import(text(outer), options()).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("twice") && error.contains("gzip -dc"), "{error}");
}

#[test]
fn a_bomb_is_read_in_bounded_memory() {
    // 512 MiB of one line behind a good row, in some 50 kB.
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
    std::io::Write::write_all(&mut encoder, b"arrival_unix_ms,input_tokens\n1795536000001,1\n").unwrap();
    let block = vec![b'7'; 1 << 20];
    for _ in 0..512 {
        std::io::Write::write_all(&mut encoder, &block).unwrap();
    }
    std::io::Write::write_all(&mut encoder, b"\n1795536000002,2\n").unwrap();
    let packed = encoder.finish().unwrap();
    assert!(packed.len() < 1 << 20);
    let done = import(packed, options());
    assert_eq!((done.rows.len(), done.report.rejects[0].reason), (2, RejectReason::RowTooLong));
}
