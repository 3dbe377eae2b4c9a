use http::HeaderMap;
use proptest::prelude::*;
use tracewheel_timeline::vocab::Reason;

use super::*;

const MS: i64 = 1_000_000;
const SECOND: i64 = 1_000 * MS;

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())).collect()
}

fn failure(reason: Reason, retries: u32) -> Failure<'static> {
    Failure {
        reason,
        response: None,
        end_unix_ns: 0,
        retries,
        last_delay_ns: None,
        elapsed_ns: 0,
        streamed: true,
    }
}

fn answered(
    policy: &RetryPolicy,
    status: u16,
    retries: u32,
    pairs: &[(&'static str, &str)],
    body: &str,
) -> Verdict {
    let headers = headers(pairs);
    let reason = Reason::from_http_status(status).unwrap();
    let response = Some(Answer { status, headers: &headers, body: body.as_bytes() });
    policy.decide(Failure { response, ..failure(reason, retries) }, || 0.0)
}

fn status(policy: &RetryPolicy, code: u16, retries: u32, pairs: &[(&'static str, &str)]) -> Verdict {
    answered(policy, code, retries, pairs, "")
}

fn broken(policy: &RetryPolicy, reason: Reason) -> Verdict {
    policy.decide(failure(reason, 0), || 0.0)
}

/// The delay after a refused connection, by a given chance.
fn delay(policy: &RetryPolicy, retries: u32, last_delay_ns: Option<i64>, chance: f64) -> i64 {
    match policy.decide(Failure { last_delay_ns, ..failure(Reason::ConnectRefused, retries) }, || chance) {
        Verdict::Retry { delay_ns } => delay_ns,
        Verdict::Final => panic!("the policy repeats"),
    }
}

fn after(ns: i64) -> Verdict {
    Verdict::Retry { delay_ns: ns }
}

fn sdks() -> [RetryPolicy; 4] {
    ["openai-sdk", "openai-sdk-60s", "anthropic-sdk", "anthropic-sdk-60s"]
        .map(|name| RetryPolicy::preset(name).unwrap())
}

#[test]
fn every_preset_has_its_name_and_can_be_followed() {
    for (name, _) in RetryPolicy::PRESETS {
        let policy = RetryPolicy::preset(name).unwrap();
        assert_eq!(policy.name, name);
        assert_eq!(policy.check(), Ok(()), "{name}");
        let text = serde_json::to_string(&policy).unwrap();
        assert_eq!(serde_json::from_str::<RetryPolicy>(&text).unwrap(), policy);
    }
    assert_eq!(RetryPolicy::preset("aws"), None);
}

#[test]
fn the_sdks_repeat_408_409_429_and_500_up_twice_and_nothing_else() {
    for policy in sdks() {
        for code in [408, 409, 429, 500, 502, 503, 504, 529] {
            assert_eq!(status(&policy, code, 0, &[]), after(SECOND / 2), "{code}");
            assert_eq!(status(&policy, code, 1, &[]), after(SECOND), "{code}");
            assert_eq!(status(&policy, code, 2, &[]), Verdict::Final, "{code}");
        }
        for code in [400, 401, 403, 404, 413, 422] {
            assert_eq!(status(&policy, code, 0, &[]), Verdict::Final, "{code}");
        }
    }
}

#[test]
fn the_sdks_delays_are_those_of_their_formula() {
    // min(0.5 · 2^k, 8) · (1 − 0.25 · u), by hand.
    for policy in sdks() {
        let long = RetryPolicy { max_retries: 80, ..policy };
        for (retries, chance, ms) in
            [(0, 0.0, 500), (0, 0.5, 437), (0, 1.0, 375), (1, 0.4, 900), (3, 0.0, 4_000), (4, 0.0, 8_000)]
        {
            assert_eq!(delay(&long, retries, None, chance) / MS, ms, "{retries} {chance}");
        }
        assert_eq!(delay(&long, 70, None, 1.0), 6 * SECOND, "capped, without overflow");
    }
}

#[test]
fn googles_sdk_adds_up_to_a_second_and_obeys_no_server() {
    let policy = RetryPolicy::google_genai();
    for (retries, chance, ms) in [(0, 0.0, 1_000), (0, 0.25, 1_250), (1, 0.5, 2_500), (3, 0.75, 8_750)] {
        assert_eq!(delay(&policy, retries, None, chance) / MS, ms);
    }
    let long = RetryPolicy { max_retries: 80, ..policy.clone() };
    assert_eq!(delay(&long, 9, None, 0.9), 60 * SECOND);
    assert_eq!(status(&policy, 429, 0, &[("retry-after", "7")]), after(SECOND));
    assert_eq!(status(&policy, 400, 0, &[("x-should-retry", "true")]), Verdict::Final);
    for code in [408, 429, 500, 502, 503, 504] {
        assert_eq!(status(&policy, code, 3, &[]), after(8 * SECOND), "{code}");
        assert_eq!(status(&policy, code, 4, &[]), Verdict::Final, "{code}");
    }
    for code in [409, 501, 529] {
        assert_eq!(status(&policy, code, 0, &[]), Verdict::Final, "{code}");
    }
    assert_eq!(broken(&policy, Reason::ResetBeforeResponse), Verdict::Final);
    assert_eq!(broken(&policy, Reason::ResponseTimeout), after(SECOND));
}

#[test]
fn should_retry_overrides_the_status_in_both_directions() {
    let policy = RetryPolicy::openai_sdk();
    assert_eq!(status(&policy, 500, 0, &[("x-should-retry", "false")]), Verdict::Final);
    assert_eq!(status(&policy, 400, 0, &[("x-should-retry", "true")]), after(SECOND / 2));
    assert_eq!(
        status(&policy, 400, 2, &[("x-should-retry", "true")]),
        Verdict::Final,
        "the count still holds"
    );
    let both = [("x-should-retry", "true"), ("retry-after", "121")];
    assert_eq!(status(&policy, 429, 0, &both), Verdict::Final, "the server's wait is looked at first");
}

#[test]
fn broken_connections_and_time_outs_are_repeated_but_never_a_stream_that_had_begun() {
    let policy = RetryPolicy::openai_sdk();
    for reason in [
        Reason::ConnectRefused,
        Reason::ResetBeforeResponse,
        // The head was not there yet: the SDKs see one error of the connection.
        Reason::ResetInHeaders,
        Reason::HttpProtocol,
        Reason::ResponseTimeout,
        Reason::TotalTimeout,
        Reason::TlsClosed,
        // As the SDKs do, though it will hardly help.
        Reason::TlsUntrusted,
    ] {
        assert_eq!(broken(&policy, reason), after(SECOND / 2), "{reason}");
        assert_eq!(broken(&RetryPolicy::none(), reason), Verdict::Final, "{reason}");
    }
    for reason in [Reason::LimitExceeded, Reason::Internal] {
        assert_eq!(broken(&policy, reason), Verdict::Final, "{reason}");
    }
    let careful = RetryPolicy { on_reset_before_response: false, ..RetryPolicy::openai_sdk() };
    assert_eq!(broken(&careful, Reason::ResetBeforeResponse), Verdict::Final);
    let headers = HeaderMap::new();
    let response = Some(Answer { status: 200, headers: &headers, body: b"data: " });
    for reason in [Reason::TotalTimeout, Reason::ResetMidStream, Reason::StreamReset, Reason::HttpFraming] {
        let begun = Failure { response, ..failure(reason, 0) };
        assert_eq!(policy.decide(begun, || 0.0), Verdict::Final, "{reason}: its beginning was handed over");
        let plain = Failure { streamed: false, ..begun };
        assert_eq!(policy.decide(plain, || 0.0), after(SECOND / 2), "{reason}: nothing was");
    }
}

#[test]
fn the_servers_delay_is_read_in_the_sdks_order() {
    let policy = RetryPolicy::openai_sdk();
    let both = [("retry-after-ms", "1500"), ("retry-after", "7")];
    assert_eq!(status(&policy, 429, 0, &both), after(3 * SECOND / 2));
    assert_eq!(
        status(&policy, 429, 0, &[("retry-after-ms", "soon"), ("retry-after", "7")]),
        after(7 * SECOND)
    );
    assert_eq!(status(&policy, 429, 0, &[("retry-after", "0.25")]), after(SECOND / 4));
    assert_eq!(
        status(&policy, 429, 1, &[("retry-after", " 3 ")]),
        after(3 * SECOND),
        "no doubling, no jitter"
    );
    let date = [("retry-after", "Thu, 01 Jan 1970 00:00:09 GMT")];
    assert_eq!(status(&policy, 429, 0, &date), after(9 * SECOND));
}

#[test]
fn a_delay_of_nothing_or_of_the_past_falls_back_to_the_formula() {
    let policy = RetryPolicy::openai_sdk();
    for text in ["0", "-3", "soon", "nan", "inf", "Infinity"] {
        assert_eq!(status(&policy, 429, 0, &[("retry-after", text)]), after(SECOND / 2), "{text}");
    }
    let map = headers(&[("retry-after", "Thu, 01 Jan 1970 00:00:09 GMT")]);
    assert_eq!(server_delay_ns(&[ServerDelay::RetryAfter], &map, b"", 12 * SECOND), Some(-3 * SECOND));
    assert_eq!(server_delay_ns(&[ServerDelay::RetryAfterMs], &map, b"", 0), None, "a way that is not read");
}

#[test]
fn a_longer_delay_ends_the_request_or_is_ignored_or_obeyed_as_each_sdk_does() {
    let ask = |name, text| status(&RetryPolicy::preset(name).unwrap(), 429, 0, &[("retry-after", text)]);
    assert_eq!(ask("openai-sdk", "120"), after(120 * SECOND));
    assert_eq!(ask("openai-sdk", "121"), Verdict::Final);
    assert_eq!(ask("openai-sdk", "1e999"), Verdict::Final);
    for old in ["openai-sdk-60s", "anthropic-sdk-60s"] {
        assert_eq!(ask(old, "60"), after(60 * SECOND));
        assert_eq!(ask(old, "61"), after(SECOND / 2));
    }
    assert_eq!(ask("anthropic-sdk", "86400"), after(86_400 * SECOND));
    assert_eq!(ask("anthropic-sdk", "1e12"), after(4_294_967 * SECOND));
}

#[test]
fn googles_retry_info_is_read_from_an_errors_body() {
    let policy = RetryPolicy::exponential();
    let info = r#"{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"12.5s"}"#;
    let quota = r#"{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[]}"#;
    let plain = format!(r#"{{"error":{{"code":429,"details":[{quota},{info}]}}}}"#);
    assert_eq!(answered(&policy, 429, 0, &[], &plain), after(25 * SECOND / 2));
    assert_eq!(answered(&policy, 429, 0, &[], &format!("[{plain}]")), after(25 * SECOND / 2), "of a stream");
    assert_eq!(
        answered(&policy, 429, 0, &[("retry-after", "2")], &plain),
        after(2 * SECOND),
        "headers first"
    );
    for text in ["", "{", "[]", "null", r#"{"error":{}}"#, r#"{"error":{"details":[{"retryDelay":"1s"}]}}"#] {
        assert_eq!(answered(&policy, 429, 0, &[], text), after(0), "{text}");
    }
    assert_eq!(answered(&RetryPolicy::openai_sdk(), 429, 0, &[], &plain), after(SECOND / 2), "not looked at");
}

#[test]
fn no_retry_begins_after_the_total_time() {
    let policy = RetryPolicy { total_time_ns: Some(10 * SECOND), ..RetryPolicy::openai_sdk() };
    let at = |elapsed_ns| policy.decide(Failure { elapsed_ns, ..failure(Reason::ConnectRefused, 0) }, || 0.0);
    assert_eq!(at(9_500 * MS), after(SECOND / 2));
    assert_eq!(at(9_501 * MS), Verdict::Final);
}

#[test]
fn a_fixed_delay_never_grows_and_a_policy_of_no_kind_never_repeats() {
    let policy = RetryPolicy { max_retries: 9, ..RetryPolicy::fixed() };
    assert_eq!([0, 1, 8].map(|retries| delay(&policy, retries, None, 0.5)), [SECOND; 3]);
    let none = RetryPolicy { kind: RetryKind::None, ..RetryPolicy::openai_sdk() };
    assert_eq!(status(&none, 500, 0, &[]), Verdict::Final);
}

#[test]
fn jitters_are_read_and_written_the_same_and_others_refused() {
    for text in ["none", "full", "equal", "decorrelated", "shorten:0.25", "add:1000ms", "add:7ns"] {
        assert_eq!(text.parse::<Jitter>().unwrap().to_string(), text);
    }
    assert_eq!("add:1s".parse::<Jitter>(), Ok(Jitter::Add { up_to_ns: SECOND }));
    for text in ["", "Full", "shorten", "shorten:1.5", "shorten:nan", "add:-1s", "add:soon", "full:1"] {
        assert!(text.parse::<Jitter>().is_err(), "{text}");
    }
}

#[test]
fn a_policy_that_cannot_be_followed_is_refused_by_field() {
    let field = |policy: RetryPolicy| policy.check().unwrap_err().field;
    let base = RetryPolicy::openai_sdk;
    assert_eq!(field(RetryPolicy { max_retries: 1_001, ..base() }), "max_retries");
    assert_eq!(field(RetryPolicy { multiplier: 0.5, ..base() }), "multiplier");
    assert_eq!(field(RetryPolicy { multiplier: f64::NAN, ..base() }), "multiplier");
    assert_eq!(field(RetryPolicy { base_delay_ns: -1, ..base() }), "base_delay");
    assert_eq!(field(RetryPolicy { max_delay_ns: 1, ..base() }), "max_delay");
    assert_eq!(
        field(RetryPolicy { statuses: vec![StatusRange { from: 500, to: 400 }], ..base() }),
        "statuses"
    );
    assert_eq!(field(RetryPolicy { count_header: Some("a b".to_owned()), ..base() }), "count_header");
    for taken in ["content-length", "Authorization", "HOST", "x-goog-api-key"] {
        assert_eq!(
            field(RetryPolicy { count_header: Some(taken.to_owned()), ..base() }),
            "count_header",
            "{taken}"
        );
    }
    assert_eq!(RetryPolicy { count_header: Some("X-Retry-Count".to_owned()), ..base() }.check(), Ok(()));
}

#[test]
fn chance_is_the_same_for_the_same_seed_request_and_retry_and_is_spread_evenly() {
    assert_eq!(chance(7, 1, 0), chance(7, 1, 0));
    assert_ne!(chance(7, 1, 0), chance(7, 1, 1));
    assert_ne!(chance(7, 1, 0), chance(8, 1, 0));
    // Deciles of 20,000 draws: the largest distance from the uniform CDF stays below the 0.1 % point of Kolmogorov and
    // Smirnov's statistic, 1.95 / √n; the draws are fixed, so that this holds or does not, always.
    let mut draws: Vec<f64> = (0..20_000).map(|id| chance(3, id, 0)).collect();
    draws.sort_unstable_by(f64::total_cmp);
    let distance = draws.iter().enumerate().map(|(at, draw)| (draw - at as f64 / 20_000.0).abs());
    assert!(distance.fold(0.0, f64::max) < 1.95 / 20_000f64.sqrt());
}

fn jitters() -> impl Strategy<Value = Jitter> {
    prop_oneof![
        Just(Jitter::None),
        Just(Jitter::Full),
        Just(Jitter::Equal),
        Just(Jitter::Decorrelated),
        (0.0..=1.0).prop_map(|part| Jitter::Shorten { part }),
        (0..10 * SECOND).prop_map(|up_to_ns| Jitter::Add { up_to_ns }),
    ]
}

proptest! {
    /// The interval of each formula, written down a second time.
    #[test]
    fn every_wait_lies_where_its_formula_says(
        jitter in jitters(), fixed in any::<bool>(), base_ms in 0..5_000i64, room_ms in 0..60_000i64,
        retries in 0..40u32, last in proptest::option::of(0..200 * SECOND), u in 0.0..1.0f64,
    ) {
        let (base, cap) = (base_ms * MS, (base_ms + room_ms) * MS);
        let kind = if fixed { RetryKind::Fixed } else { RetryKind::Exponential };
        let policy = RetryPolicy {
            kind, jitter, base_delay_ns: base, max_delay_ns: cap, max_retries: 40, ..RetryPolicy::exponential()
        };
        let wait = delay(&policy, retries.min(39), last, u);
        let grown = if fixed { 1 } else { 1i128 << retries.min(39) };
        let d = (i128::from(base) * grown).min(i128::from(cap)) as f64;
        let (low, high) = match jitter {
            Jitter::None => (d, d),
            Jitter::Full => (0.0, d),
            Jitter::Equal => (d / 2.0, d),
            Jitter::Decorrelated => {
                let three = (3.0 * last.unwrap_or(base) as f64).max(base as f64);
                (base as f64, three.min(cap as f64))
            }
            Jitter::Shorten { part } => (d * (1.0 - part), d),
            Jitter::Add { up_to_ns } => (d, (d + up_to_ns as f64).min(cap as f64)),
        };
        prop_assert!((low - 1.0..=high + 1.0).contains(&(wait as f64)), "{wait} is not in [{low}, {high}]");
        // Without luck it is the lower end, or the upper one where luck shortens.
        let unlucky = delay(&policy, retries.min(39), last, 0.0) as f64;
        let end = if matches!(jitter, Jitter::Shorten { .. }) { high } else { low.min(high) };
        prop_assert!((unlucky - end).abs() <= 1.0, "{unlucky} is not {end}");
    }

    #[test]
    fn no_header_and_no_body_makes_the_reading_of_delays_panic(
        after in "[ -~]{0,40}", ms in "[ -~]{0,20}", body in proptest::collection::vec(any::<u8>(), 0..200),
        now in any::<i64>(),
    ) {
        let map: HeaderMap = [("retry-after", &after), ("retry-after-ms", &ms)]
            .into_iter()
            .filter_map(|(name, value)| Some((http::HeaderName::from_static(name), value.parse().ok()?)))
            .collect();
        let ways = ServerDelay::ALL.map(|(_, way)| way);
        let _any = server_delay_ns(&ways, &map, &body, now);
    }
}
