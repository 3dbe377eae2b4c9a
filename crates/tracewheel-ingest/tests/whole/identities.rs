//! Ids, sessions, retries, and what must never be in a timeline.

use tracewheel_ingest::IngestOptions;

use crate::{import, mapped, options};

const SECOND_NS: i64 = 1_000_000_000;
const MAP: &str = "arrival=ts_s,e2e=took_s,request_id=id,attempt=retry_count,status=status,session=session";
const LOG: &str = "ts_s,took_s,id,retry_count,status,session\n\
                   0,1,q-1,0,429,s-1\n\
                   2,1,q-1,1,429,s-1\n\
                   3,4,q-2,0,200,s-2\n\
                   5,2,q-1,2,200,s-1\n\
                   9,1,q-3,0,200,s-1\n";

#[test]
fn retry_rows_are_counted_and_folded_when_asked() {
    let done = import(LOG, mapped(MAP));
    assert_eq!((done.report.retries.marked, done.report.retries.folded), (2, false));
    assert!(done.rows.iter().all(|row| row.retry_of_row.is_none()));
    assert!(done.report.warnings.iter().any(|warning| warning.contains("look like retries")));
    let done = import(LOG, IngestOptions { fold_retries: true, ..mapped(MAP) });
    assert_eq!(done.each(|row| row.retry_of_row), [None, Some(0), None, Some(0), None]);
    assert_eq!(done.each(|row| row.turn.unwrap()), [0, 0, 0, 0, 1]);
    assert_eq!(done.rows[4].think_ns, Some(2 * SECOND_NS), "from the end of the last attempt");
    assert_eq!((done.report.sessions, done.report.sessions_computed), (2, true));
    assert_eq!(done.stats().production.unwrap().attempts.retry_rows, 2);
}

#[test]
fn without_an_attempt_column_a_failure_just_before_makes_a_retry() {
    let log = "ts_s,took_s,id,status\n0,1,q,503\n30,1,q,200\n200,1,q,200\n";
    let map = "arrival=ts_s,e2e=took_s,request_id=id,status=status";
    let done = import(log, IngestOptions { fold_retries: true, ..mapped(map) });
    assert_eq!(done.each(|row| row.retry_of_row), [None, Some(0), None]);
    assert_eq!(done.report.retries.after_failure, 1);
}

#[test]
fn a_record_that_was_written_twice_counts_once() {
    let log = "ts_s,id\n1,a\n1,a\n2,a\n1,b\n";
    let done = import(log, mapped("arrival=ts_s,request_id=id"));
    assert_eq!((done.report.rows_kept, done.report.rows_rejected), (3, 1));
    assert_eq!((done.report.rejects[0].line, done.report.rejects[0].offset), (3, 12));
    assert_eq!(done.report.files[0].rows_kept, 3);
}

#[test]
fn turns_and_pauses_that_the_log_has_stay() {
    let log = "ts_s,s,turn,think_s\n1,x,7,0.5\n9,x,8,\n";
    let done = import(log, mapped("arrival=ts_s,session=s,turn=turn,think=think_s"));
    assert_eq!(done.each(|row| row.turn), [Some(7), Some(8)]);
    assert_eq!(done.each(|row| row.think_ns), [Some(SECOND_NS / 2), None]);
    assert!(!done.report.sessions_computed);
}

#[test]
fn hashes_depend_on_the_key_and_the_metadata_tells_keys_apart() {
    let with = |key: &str| {
        let keyed = IngestOptions { hash_key: key.into(), ..mapped(MAP) };
        let done = import(LOG, keyed);
        (done.rows[0].session_hash, done.timeline.meta().key_fingerprint.clone().unwrap())
    };
    assert_eq!(with("one"), with("one"));
    assert_ne!(with("one").0, with("two").0);
    assert_ne!(with("one").1, with("two").1);
}

#[test]
fn no_id_no_key_and_no_text_gets_into_the_file_or_the_report() {
    let secrets =
        ["req-SECRET", "sess-SECRET", "org-SECRET", "ada-SECRET", "key-SECRET", "say-SECRET", "token-SECRET"];
    let log = r#"{"ts": 1795536000, "id": "req-SECRET", "s": "sess-SECRET", "org": "org-SECRET", "u": "ada-SECRET", "prompt": "say-SECRET", "url": "/v1/x?k=token-SECRET", "err": "failed on say-SECRET again"}
{"ts": "say-SECRET", "id": "req-SECRET"}
{"ts": 1795536001, "say-SECRET"
"#;
    let map = "arrival=ts,request_id=id,session=s,tenant=org,user=u,path=url,error=err";
    let done = import(log, IngestOptions { hash_key: "key-SECRET".into(), ..mapped(map) });
    assert_eq!((done.report.rows_kept, done.report.rows_rejected), (1, 2));
    let rows = format!("{:?} {:?}", done.rows, done.timeline.meta());
    let report = serde_json::to_string(&done.report).unwrap();
    for secret in secrets {
        assert!(!rows.contains(secret) && !report.contains(secret), "{secret}");
    }
    let error = format!("{:?}", IngestOptions { hash_key: "key-SECRET".into(), ..options() });
    assert!(!error.contains("SECRET"));
}

#[test]
fn the_report_goes_into_the_timeline() {
    let done = import(LOG, mapped(MAP));
    let quality = &done.timeline.meta().quality;
    assert_eq!(quality["rows_kept"], 5);
    assert_eq!(quality["files"][0]["format"], "csv");
    assert_eq!(done.timeline.meta().ingest_options["map"], MAP);
    assert_eq!(done.timeline.meta().ingest_options["hash_key"], serde_json::Value::Null);
}
