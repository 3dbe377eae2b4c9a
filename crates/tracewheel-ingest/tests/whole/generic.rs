//! Generic logs: maps, units, zones, derived values.

use tracewheel_ingest::{IngestOptions, Input, RejectReason, TokenRule};
use tracewheel_timeline::{ArrivalSource, BodyState, Operation, Source, TtftKind};

use crate::{import, mapped, options, refusal, text, try_import};

const MS: i64 = 1_000_000;
const BASE_MS: i64 = 1_795_536_000_000;

#[test]
fn every_field_is_reachable_by_a_map() {
    let log = r#"{"t": 1795536000.000123, "id": "r-1", "usage": {"prompt": 100, "completion": 50, "details": {"cached": 64, "written": 16, "reasoning": 20}}, "timing": {"first": 12.5, "total": 2.25, "left": 900}, "m": "big", "mv": "big-0611", "p": "acme", "r": "eu", "host": "gw1", "verb": "POST", "url": "/v1/chat/completions?key=abc", "stream": true, "code": 200, "tries": 2, "turn": 3, "sess": "s-1", "org": "o-1", "who": "ada@example.org", "imgs": 1, "fns": 4, "gone": false, "hit": false, "rate": 0.5, "mt": 64, "temp": 0.2, "req": {"seed": 7, "stop": "SECRET", "response_format": {"type": "json_schema", "json_schema": {"x": "SECRET"}}}, "blocks": [11, "ab"], "lens": [60, 40], "heads": {"X-Tier": "gold", "authorization": "Bearer SECRET"}, "ev": [12.5, 20], "team": "blue"}"#;
    let map = "arrival=t,request_id=id,input_tokens=usage.prompt,output_tokens=usage.completion,\
               cached_tokens=usage.details.cached,cache_write_tokens=usage.details.written,\
               reasoning_tokens=usage.details.reasoning,ttft=timing.first:ms,e2e=timing.total:s,\
               cancel_after=timing.left:ms,model=m,model_served=mv,provider=p,route=r,endpoint=host,method=verb,\
               path=url,stream=stream,status=code,attempts=tries,turn=turn,session=sess,tenant=org,user=who,\
               images=imgs,tools=fns,client_gone=gone,served_by_gateway_cache=hit,sample_rate=rate,max_tokens=mt,\
               temperature=temp,params=req,prefix_hashes=blocks,prefix_block_tokens=lens,events=ev:ms,headers=heads,tags.team=team";
    let done = import(log, IngestOptions { ttft_kind: Some(TtftKind::FirstChunk), ..mapped(map) });
    let row = &done.rows[0];
    assert_eq!((row.arrival_unix_ns, row.arrival_precision_ns), (Some(1_795_536_000_000_123_000), 1_000));
    assert_eq!((row.input_tokens, row.output_tokens), (Some(100), Some(50)));
    assert_eq!(
        (row.cached_tokens, row.cache_write_tokens, row.reasoning_tokens),
        (Some(64), Some(16), Some(20))
    );
    assert_eq!(row.reasoning_tokens_source, Some(Source::Reported));
    assert_eq!((row.prod_ttft_ns, row.prod_ttft_kind), (Some(12_500_000), Some(TtftKind::FirstChunk)));
    assert_eq!((row.prod_e2e_ns, row.cancel_after_ns), (Some(2_250 * MS), Some(900 * MS)));
    assert_eq!(row.prod_event_ns, Some(vec![12_500_000, 20 * MS]));
    let texts =
        [&row.model, &row.model_served, &row.provider, &row.route, &row.endpoint, &row.method, &row.path];
    let texts: Vec<&str> = texts.into_iter().map(|text| text.as_deref().unwrap()).collect();
    assert_eq!(texts, ["big", "big-0611", "acme", "eu", "gw1", "POST", "/v1/chat/completions"]);
    assert_eq!(
        (row.stream, row.prod_status, row.prod_attempts, row.turn),
        (Some(true), Some(200), Some(2), Some(3))
    );
    assert!(
        [row.source_id_hash, row.session_hash, row.tenant_hash, row.user_hash].iter().all(Option::is_some)
    );
    assert_eq!((row.images, row.tools, row.sample_rate), (Some(1), Some(4), Some(0.5)));
    assert_eq!((row.client_gone, row.served_by_gateway_cache), (Some(false), Some(false)));
    assert_eq!(
        (row.prefix_hashes.as_ref().map(Vec::len), &row.prefix_block_tokens),
        (Some(2), &Some(vec![60, 40]))
    );
    let params: serde_json::Value = serde_json::from_str(row.params.as_deref().unwrap()).unwrap();
    let kept = serde_json::json!({"max_tokens": 64, "temperature": 0.2, "seed": 7, "response_format": {"type": "json_schema"}});
    assert_eq!(params, kept);
    assert_eq!(row.tags.as_ref().unwrap()["team"].as_ref(), "blue");
    assert_eq!(row.request_headers, Some([("x-tier".into(), "gold".into())].into()));
}

#[test]
fn headers_are_kept_where_they_are_asked_for_and_what_is_no_part_of_the_request_is_dropped_and_counted() {
    let log = r#"{"ts": 1795536000123, "headers": {"Content-Type": "application/json", "X-Tags": ["a", "b"], "x-limit": 5, "COOKIE": "SECRET-1", "x-api-key": "SECRET-2", "x-custom": "Bearer SECRET-3", "Host": "llm.example", "X-Forwarded-For": "192.0.2.1", "x-bad": "a\nb", "x-null": null}}
{"ts": 1795536000124, "headers": [{"name": "Accept", "value": "*/*"}, {"name": "Api-Key", "value": "SECRET-4"}]}
{"ts": 1795536000125, "headers": {"authorization": "SECRET-5"}}
{"ts": 1795536000126, "headers": null}
{"ts": 1795536000127, "headers": "content-type: text/plain"}
"#;
    let done = import(log, mapped("arrival=ts:ms,headers=headers"));
    let kept = |pairs: &[(&str, &str)]| {
        Some(pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect())
    };
    let expected = [
        kept(&[("content-type", "application/json"), ("x-limit", "5"), ("x-tags", "a, b")]),
        kept(&[("accept", "*/*")]),
        None,
        None,
    ];
    assert_eq!(done.each(|row| row.request_headers.clone()), expected);
    assert_eq!(done.report.rejected_by_reason[&RejectReason::BadValue], 1, "no JSON");
    let report = serde_json::to_string(&done.report).unwrap();
    assert!(!report.contains("SECRET") && !format!("{:?}", done.rows).contains("SECRET"));
    for (why, times) in [
        ("might be a secret", 5),
        ("of one connection", 1),
        ("tells who asked", 1),
        ("no header that", 1),
        ("no text", 1),
    ] {
        let told = done.report.dropped_values.iter().find(|(key, _)| key.contains(why));
        assert_eq!(told.map(|(_, count)| *count), Some(times), "{why}: {report}");
    }
    // Nobody asked for them: they stay where they are.
    let unasked = "{\"arrival_unix_ns\": 1795536000123456789, \"headers\": {\"x\": \"y\"}, \"request_headers\": {\"x\": \"y\"}}\n";
    assert_eq!(import(unasked, options()).rows[0].request_headers, None);
}

#[test]
fn bodies_are_kept_byte_for_byte_where_they_are_asked_for_and_what_was_cut_off_is_counted() {
    let log = r#"{"ts": 1795536000123, "req": {"model" : "m1",  "stream":true, "n":1.0}}
{"ts": 1795536000124, "req": "{\"model\":\"m2\",\"messages\":[\"\u00e9\"]}", "m": "asked"}
{"ts": 1795536000125, "req": "{\"model\":\"m3\",\"mess"}
{"ts": 1795536000126, "req": "a=1&b=2"}
{"ts": 1795536000127, "req": null}
"#;
    let done = import(log, mapped("arrival=ts:ms,body=req,model=m"));
    let kept = done.each(|row| row.body.as_ref().map(|body| String::from_utf8(body.to_vec()).unwrap()));
    let expected = [
        Some("{\"model\" : \"m1\",  \"stream\":true, \"n\":1.0}"),
        Some("{\"model\":\"m2\",\"messages\":[\"é\"]}"),
        None,
        Some("a=1&b=2"),
        None,
    ];
    assert_eq!(kept, expected.map(|body| body.map(str::to_owned)));
    let states = [BodyState::Full, BodyState::Full, BodyState::Truncated, BodyState::Full, BodyState::Absent];
    assert_eq!(done.each(|row| row.body_state), states);
    let models = [Some("m1"), Some("asked"), None, None, None];
    assert_eq!(
        done.each(|row| row.model.as_deref().map(str::to_owned)),
        models.map(|m| m.map(str::to_owned))
    );
    assert_eq!(done.each(|row| row.stream), [Some(true), None, None, None, None]);
    assert_eq!(done.report.dropped_values.values().sum::<u64>(), 1, "{:?}", done.report.dropped_values);
    // Nobody asked for them: they stay where they are.
    let unasked = "{\"arrival_unix_ns\": 1795536000123456789, \"body\": {\"model\": \"m\"}}\n";
    let row = &import(unasked, options()).rows[0];
    assert_eq!((&row.body, row.body_state), (&None, BodyState::Absent));
}

#[test]
fn columns_with_the_timelines_names_need_no_map() {
    let csv = "arrival_unix_ms,model,input_tokens,output_tokens,cached_tokens,prod_ttft_ms,prompt\n\
               1795536000123,m,812,64,0,31.25,\"hello, \"\"you\"\"\nthere\"\n\
               1795536000120,m,77,5,,,x\n";
    let done = import(csv, options());
    assert_eq!(done.report.files[0].format, "csv");
    assert_eq!(done.each(|row| row.input_tokens), [Some(77), Some(812)]);
    assert_eq!(done.each(|row| row.cached_tokens), [None, Some(0)], "a missing count is not zero");
    assert_eq!(done.rows[1].prod_ttft_ns, Some(31_250_000));
    assert_eq!(done.report.files[0].out_of_order, 1);
    assert!(done.report.warnings.iter().any(|warning| warning.contains("--ttft-kind")));
    let json = "{\"arrival_unix_ns\": 1795536000123456789, \"input_tokens\": 5, \"tags.team\": \"blue\"}\n";
    let done = import(json, options());
    assert_eq!(done.report.files[0].format, "jsonl");
    assert_eq!(
        done.report.files[0].map.as_deref(),
        Some("arrival=arrival_unix_ns,input_tokens=input_tokens,tags.team=tags.team")
    );
    assert_eq!(done.rows[0].arrival_unix_ns, Some(1_795_536_000_123_456_789), "no float in between");
}

#[test]
fn a_log_that_is_not_understood_is_answered_with_its_columns_and_the_way_to_map_them() {
    let error = refusal("ts,prompt_len\n1,2\n", options());
    assert!(error.contains("ts, prompt_len") && error.contains("arrival=ts"), "{error}");
    let error = refusal("{\"ts\": 1, \"usage\": {\"in\": 5}}\n", options());
    assert!(error.contains("ts, usage.in"), "{error}");
    let error = refusal("[\n{\"a\": 1}\n]", options());
    assert!(error.contains("jq -c"), "{error}");
    let error = refusal("just words\n", options());
    assert!(error.contains("plain text"), "{error}");
    assert!(refusal("", options()).contains("no text"));
}

#[test]
fn a_column_that_is_not_there_is_answered_with_those_that_are() {
    let error = refusal("ts,len\n1,2\n", mapped("arrival=ts:ms,input_tokens=length"));
    assert!(
        error.contains("`length`") && error.contains("`input_tokens`") && error.contains("ts, len"),
        "{error}"
    );
    let error = refusal("{\"ts\": 1, \"len\": 5}\n", mapped("arrival=ts:ms,input_tokens=length"));
    assert!(error.contains("`length`") && error.contains("len, ts"), "{error}");
    let error = refusal("{\"ts\": 1}\n", mapped("arrival=time:ms"));
    assert!(error.contains("`time`") && error.contains("ts"), "{error}");
}

#[test]
fn a_value_that_turns_up_late_is_no_wrong_map() {
    let mut log = "{\"ts\": 1}\n".repeat(50);
    log.push_str("{\"ts\": 2, \"error\": \"rate_limit\"}\n");
    let done = import(log, mapped("arrival=ts:ms,error=error"));
    assert_eq!(done.rows[50].prod_error.as_deref(), Some("rate_limit"));
}

#[test]
fn a_column_that_only_some_inputs_have_is_no_wrong_map() {
    let inputs = |second: &'static str| {
        vec![Input::reader("a", "{\"ts\": 1}\n".as_bytes()), Input::reader("b", second.as_bytes())]
    };
    let done =
        try_import(inputs("{\"ts\": 2, \"error\": \"x\"}"), mapped("arrival=ts:ms,error=error")).unwrap();
    assert_eq!(done.rows.len(), 2);
    assert!(try_import(inputs("{\"ts\": 2}"), mapped("arrival=ts:ms,error=error")).is_err());
}

#[test]
fn words_that_are_not_known_are_left_out_and_counted() {
    let log = "t_s,op,status\n1,rerank,200 OK\n2,text_completion,on fire\n";
    let done = import(log, mapped("arrival=t_s,operation=op,status=status"));
    assert_eq!(
        done.each(|row| (row.operation, row.prod_status)),
        [(Operation::Chat, Some(200)), (Operation::Completion, None)]
    );
    assert_eq!(done.report.dropped_values.len(), 2, "{:?}", done.report.dropped_values);
}

#[test]
fn a_timeline_does_not_replace_its_own_log() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log.csv");
    std::fs::write(&log, "arrival_s\n1\n").unwrap();
    let error = tracewheel_ingest::ingest(vec![Input::path(&log)], options(), &log).unwrap_err();
    assert!(error.to_string().contains("another name"), "{error}");
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "arrival_s\n1\n");
}

#[test]
fn numbers_without_a_unit_are_asked_about_unless_their_size_tells() {
    let error = refusal("ts\n82\n", mapped("arrival=ts"));
    assert!(error.contains("arrival=ts:ms"), "{error}");
    let done = import("ts\n1795536000123\n", mapped("arrival=ts"));
    assert_eq!(done.rows[0].arrival_unix_ns, Some((BASE_MS + 123) * MS));
    assert_eq!(done.report.files[0].unit_found.as_deref(), Some("unix_ms"));
    assert!(done.report.warnings.iter().any(|warning| warning.contains("unix_ms")));
}

#[test]
fn local_times_need_a_zone() {
    let log = "ts\n2025-10-26 12:00:00\n2025-03-30 02:30:00\n";
    let error = refusal(log, mapped("arrival=ts"));
    assert!(error.contains("line 2") && error.contains("--zone"), "{error}");
    let zoned = IngestOptions { zone: Some("Europe/Berlin".parse().unwrap()), ..mapped("arrival=ts") };
    let done = import(log, zoned);
    assert_eq!(done.rows[0].arrival_unix_ns, Some(1_761_476_400_000 * MS));
    assert_eq!(done.report.rejects[0].reason, RejectReason::SkippedLocalTime);
    assert_eq!(done.timeline.meta().zone.as_deref(), Some("naive, taken as Europe/Berlin"));
    assert!(done.report.warnings.iter().any(|warning| warning.contains("written to 1 s")));
}

#[test]
fn a_log_that_stamps_the_end_gets_its_starts_back() {
    let log = "done_unix_ms,took_s,tok\n1795536010000,10,1\n1795536005000,1.5,2\n1795536006000,,3\n";
    let done = import(log, mapped("end=done_unix_ms,e2e=took_s,input_tokens=tok"));
    assert_eq!(done.each(|row| row.arrival_unix_ns.unwrap() / MS - BASE_MS), [0, 3_500]);
    assert_eq!(done.rows[0].arrival_precision_ns, 1_000_000_000, "as coarse as the duration");
    assert!(done.rows.iter().all(|row| row.arrival_source == ArrivalSource::DerivedFromEnd));
    assert_eq!(done.report.rejects[0].reason, RejectReason::NoArrival);
    assert_eq!(done.report.arrival_meaning["derived_from_end"], 2);
}

#[test]
fn the_duration_follows_from_start_and_end() {
    let log = "a_unix_ms,b_unix_ms\n1795536000000,1795536001500\n1795536000000,1795535000000\n";
    let done = import(log, mapped("arrival=a_unix_ms,end=b_unix_ms"));
    assert_eq!(done.each(|row| row.prod_e2e_ns), [Some(1_500 * MS), None]);
    assert_eq!(done.report.dropped_values["end: not after the arrival"], 1);
}

#[test]
fn write_times_are_marked_as_such() {
    let done = import("t_unix_s\n1795536000\n", mapped("log_write=t_unix_s"));
    assert_eq!(done.rows[0].arrival_source, ArrivalSource::LogWrite);
    assert!(done.report.warnings[0].contains("log_write"), "{:?}", done.report.warnings);
}

#[test]
fn totals_without_their_parts_are_found_out_told_or_left() {
    let log = "t_s,i,c,o,r\n1,10,900,7,5\n2,20,0,7,9\n3,30,800,7,1\n";
    let map = "arrival=t_s,input_tokens=i,cached_tokens=c,output_tokens=o,reasoning_tokens=r";
    let done = import(log, mapped(map));
    assert_eq!(done.each(|row| row.input_tokens), [Some(910), Some(20), Some(830)]);
    assert_eq!(done.each(|row| row.output_tokens), [Some(12), Some(16), Some(8)]);
    assert_eq!(done.rows[0].input_tokens_source, Some(Source::Derived));
    assert_eq!(done.report.files[0].input_rule.rows_over, 2);
    assert_eq!(done.report.warnings.iter().filter(|warning| warning.contains("they were added")).count(), 2);
    let told = IngestOptions { token_rule: TokenRule::Inclusive, ..mapped(map) };
    let done = import(log, told);
    assert_eq!(done.each(|row| row.input_tokens), [Some(10), Some(20), Some(30)]);
    assert_eq!(done.each(|row| row.cached_tokens), [None, Some(0), None]);
    assert_eq!(done.report.dropped_values["parts: more than their total"], 3);
}

#[test]
fn delimiters_other_than_commas_are_seen() {
    for delimiter in ["\t", ";"] {
        let log = format!("arrival_s{delimiter}input_tokens\n0.5{delimiter}12\n");
        assert_eq!(import(&log, options()).rows[0].input_tokens, Some(12));
    }
}

#[test]
fn paths_tell_the_operation_and_words_tell_the_outcome() {
    let log = "t_s,path,status\n1,/v1/embeddings,ok\n2,/v1/messages?beta=1,error\n3,/v1/completions,499\n4,,canceled\n";
    let done = import(log, mapped("arrival=t_s,path=path,status=status"));
    let operations = [Operation::Embeddings, Operation::Messages, Operation::Completion, Operation::Chat];
    assert_eq!(done.each(|row| row.operation), operations);
    assert_eq!(
        done.each(|row| row.prod_error.as_deref().map(str::to_owned)),
        [None, Some("error".to_owned()), None, None]
    );
    assert_eq!(done.each(|row| row.client_gone), [None, None, Some(true), Some(true)]);
}

#[test]
fn several_inputs_make_one_timeline_in_the_order_of_arrival() {
    let inputs = || {
        vec![
            Input::reader("/logs/b/day.csv", "arrival_unix_ms,input_tokens\n1795536000002,2\n1795536000004,4\n".as_bytes()),
            Input::reader("/logs/a/day.csv", "{\"arrival_unix_ms\":1795536000001,\"input_tokens\":1}\n{\"arrival_unix_ms\":1795536000002,\"input_tokens\":3}".as_bytes()),
        ]
    };
    let done = try_import(inputs(), options()).unwrap();
    assert_eq!(done.each(|row| row.input_tokens.unwrap()), [1, 2, 3, 4], "ties in the order of the inputs");
    assert_eq!(&*done.rows[0].source_file, "/logs/a/day.csv", "two of one name are told apart");
    assert_eq!(done.report.files.iter().map(|file| file.rows_kept).collect::<Vec<_>>(), [2, 2]);
    let again = try_import(inputs(), options()).unwrap();
    assert_eq!(done.report.timeline_digest, again.report.timeline_digest);
}

#[test]
fn inputs_with_and_without_an_epoch_do_not_mix() {
    let inputs = vec![
        Input::reader("wall", "arrival_unix_ms\n1795536000002\n".as_bytes()),
        Input::reader("counted", "arrival_ms\n2\n".as_bytes()),
    ];
    let error = try_import(inputs, options()).map(|_| ()).unwrap_err().to_string();
    assert!(error.starts_with("counted counts") && error.contains("wall carries"), "{error}");
}

#[test]
fn options_that_contradict_the_input_are_refused() {
    let wrong = |format: &str| IngestOptions { format: Some(format.to_owned()), ..options() };
    assert!(refusal("a", wrong("azure")).contains("azure-llm-2023"));
    assert!(refusal("arrival_s\n1\n", wrong("azure-llm-2023")).contains("TIMESTAMP"));
    assert!(refusal("x,y\n1,2\n", wrong("csv")).contains("x, y"));
    let both = IngestOptions { format: Some("mooncake".to_owned()), ..mapped("arrival=a") };
    assert!(refusal("a", both).contains("map"));
    let blocks = refusal("t_s,h\n1,1 2\n", mapped("arrival=t_s,prefix_hashes=h"));
    assert!(blocks.contains("--block-tokens"), "{blocks}");
    assert!(try_import(vec![], options()).is_err());
}

#[test]
fn a_timeline_that_cannot_be_written_is_told_before_anything_is_read() {
    let inputs = text("arrival_s\n1\n");
    let error =
        tracewheel_ingest::ingest(inputs, options(), "/no/such/folder/t.parquet".as_ref()).unwrap_err();
    assert!(matches!(error, tracewheel_ingest::IngestError::Write { .. }));
    assert!(error.to_string().contains("/no/such/folder/t.parquet"));
}

#[test]
fn a_needed_column_that_stands_twice_is_refused_and_another_is_not() {
    let log = "ts,n,x,n,x\n1795536000,1,a,2,b\n";
    let told = refusal(log, mapped("arrival=ts:unix_s,input_tokens=n"));
    assert!(told.contains("two columns `n`, at positions 2 and 4"), "{told}");
    let log = "ts,n,x,x\n1795536000,1,a,b\n";
    assert_eq!(import(log, mapped("arrival=ts:unix_s,input_tokens=n")).rows[0].input_tokens, Some(1));
}

#[test]
fn errors_list_some_of_very_many_columns() {
    let names: Vec<String> = (0..500).map(|number| format!("column{number}")).collect();
    let log = format!("{}\n{}\n", names.join(","), vec!["1"; 500].join(","));
    for options in [options(), mapped("arrival=ts:unix_s")] {
        let told = refusal(&log, options);
        assert!(told.contains("column29") && !told.contains("column30,"), "{told}");
        assert!(told.contains("and 470 more"), "{told}");
    }
}

#[test]
fn a_first_line_over_the_limit_is_told_and_with_a_format_is_one_rejected_row() {
    let row = r#"{"ts":1795536000,"n":1}"#;
    let log = format!("{{\"ts\":1,\"x\":\"{}\"}}\n{row}\n", "x".repeat(300_000));
    let limited = |options| IngestOptions { max_row_bytes: 100_000, ..options };
    let told = refusal(&log, limited(options()));
    assert!(told.contains("the first line is longer") && told.contains("100000 bytes"), "{told}");
    assert!(told.contains("--format"), "{told}");
    let named =
        IngestOptions { format: Some("jsonl".into()), ..limited(mapped("arrival=ts:unix_s,input_tokens=n")) };
    let done = import(&log, named);
    assert_eq!((done.report.rows_kept, done.report.rows_rejected), (1, 1));
    assert_eq!(done.report.rejects[0].reason, RejectReason::RowTooLong);
}
