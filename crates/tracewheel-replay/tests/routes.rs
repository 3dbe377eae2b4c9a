//! A mixed timeline by a table of routes: who takes what, with which model, key and headers, and what is refused.

#![allow(clippy::unwrap_used)] // In a test an unwrap is an assertion.

#[path = "support/bench.rs"]
mod bench;
#[path = "support/server.rs"]
mod server;

use std::collections::{BTreeMap, BTreeSet};

use bench::{Bench, Finished, MS};
use server::{Heard, Reply, Server};
use tracewheel_replay::{
    ApiKey, CacheMode, CallHeaders, Criteria, Engine, Flush, FlushEngine, Hook, HookAction, HookPoint,
    Pattern, PromptOptions, ProtocolOptions, ReplayConfig, ReplayError, RetryPolicy, Route, Secret,
    StopSignal,
};
use tracewheel_timeline::{BodyState, Operation, RequestRow};
use tracewheel_workload::{History, PlanOptions, Window};

fn answering() -> Server {
    Server::start(|heard| match heard.head.contains("/embeddings") {
        true => Reply::Status(
            200,
            "",
            r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5]}],"usage":{"prompt_tokens":9,"total_tokens":9}}"#,
        ),
        false => Reply::Stream { chunks: 2, gap_us: 0 },
    })
}

fn route(name: &str, target: String) -> Route {
    Route { name: name.to_owned(), target, provider: "openai-chat".to_owned(), ..Route::default() }
}

fn models(patterns: &[&str]) -> Criteria {
    Criteria { models: patterns.iter().map(|text| Pattern::new(*text)).collect(), ..Criteria::default() }
}

fn keys(names: &[&str]) -> Vec<ApiKey> {
    let key = |name: &&str| ApiKey {
        from: format!("env:{name}"),
        secret: Secret::new(format!("secret-of-{name}")),
    };
    names.iter().map(key).collect()
}

fn table(routes: Vec<Route>) -> ReplayConfig {
    ReplayConfig { routes, ..ReplayConfig::default() }
}

/// What the server heard of the request of a row.
fn heard_of(finished: &Finished, bench: &Bench, server: &Server, row: u64) -> Vec<Heard> {
    let id = finished.id(bench, row);
    server.heard().into_iter().filter(|heard| heard.id == id).collect()
}

fn asked_model(heard: &Heard) -> String {
    serde_json::from_str::<serde_json::Value>(&heard.body).unwrap()["model"].as_str().unwrap().to_owned()
}

fn refused(bench: &Bench, config: &ReplayConfig) -> String {
    let error = bench.try_run(config, &StopSignal::new()).err().expect("it is refused");
    assert!(matches!(error, ReplayError::Config { .. }), "{error}");
    error.to_string()
}

/// Rows of two tenants, three chat models and embeddings.
fn mixed(number: usize, row: &mut RequestRow) {
    row.tenant_hash = Some(if number.is_multiple_of(4) { 7 } else { 8 });
    match number % 3 {
        0 => row.model = Some("big".into()),
        1 => row.model = Some(format!("small-{number}").into()),
        _ => {
            (row.operation, row.stream) = (Operation::Embeddings, Some(false));
            row.model = Some("embed".into());
        }
    }
}

#[test]
fn the_first_route_that_takes_a_request_says_where_it_goes_for_which_model_with_which_key_and_headers() {
    let server = answering();
    let offsets: Vec<i64> = (0..12).map(|number| number * MS).collect();
    let bench = Bench::new(&offsets, mixed);
    let at = |name: &str| format!("{}/{name}", server.url());
    let vip = Route {
        takes: Criteria { tenant_hashes: vec![7], operations: vec![Operation::Chat], ..Criteria::default() },
        model: Some("vip-model".to_owned()),
        keys: keys(&["VIP"]),
        ..route("vip", at("vip"))
    };
    let small = Route {
        takes: models(&["small-*"]),
        headers: vec![("x-team".to_owned(), "latency".to_owned())],
        secret_headers: vec![("x-pass".to_owned(), Secret::new("word"))],
        ..route("small", at("small"))
    };
    let embeddings = Route {
        takes: Criteria { operations: vec![Operation::Embeddings], ..Criteria::default() },
        provider: "openai-embeddings".to_owned(),
        keys: keys(&["EMBED"]),
        ..route("embeddings", at("embed"))
    };
    let idle = Route { takes: models(&["big-*"]), ..route("idle", "http://127.0.0.1:1".to_owned()) };
    let rest = route("rest", at("rest"));
    let finished = bench.run(&table(vec![vip, small, embeddings, idle, rest]));
    assert_eq!(finished.report.counts.ok, 12);
    let mut counted = BTreeMap::new();
    for request in &finished.requests {
        let heard = heard_of(&finished, &bench, &server, request.row);
        let [heard] = heard.as_slice() else { panic!("row {} was heard {} times", request.row, heard.len()) };
        let number = request.row as usize;
        let recorded = request.strata.model.as_deref().unwrap();
        let (name, path, model, key) = match (number % 3, number % 4) {
            (0 | 1, 0) => ("vip", "/vip/v1/chat/completions", "vip-model", Some("Bearer secret-of-VIP")),
            (1, _) => ("small", "/small/v1/chat/completions", recorded, None),
            (2, _) => ("embeddings", "/embed/v1/embeddings", "embed", Some("Bearer secret-of-EMBED")),
            _ => ("rest", "/rest/v1/chat/completions", "big", None),
        };
        assert!(heard.head.starts_with(&format!("POST {path} HTTP/1.1")), "row {number}: {}", heard.head);
        assert_eq!(
            (asked_model(heard).as_str(), heard.header("authorization")),
            (model, key),
            "row {number}"
        );
        let own = (name == "small").then_some(("latency", "word"));
        assert_eq!(heard.header("x-team").zip(heard.header("x-pass")), own, "row {number}");
        assert_eq!(request.sent_route.as_deref(), Some(name), "row {number}");
        *counted.entry(name).or_insert(0) += 1;
    }
    let manifest = finished.run.manifest();
    let told = |at: usize| {
        let route = &manifest.target.routes[at];
        (
            route.name.as_deref().unwrap(),
            route.matches.as_str(),
            route.key_from.as_deref(),
            route.requests.unwrap(),
        )
    };
    assert_eq!(told(0), ("vip", "operations = chat; tenant_hashes = 7", Some("env:VIP"), counted["vip"]));
    assert_eq!(told(1), ("small", "models = small-*", None, counted["small"]));
    assert_eq!(told(3), ("idle", "models = big-*", None, 0));
    assert_eq!(told(4), ("rest", "all", None, counted["rest"]));
    assert_eq!(manifest.protocol.provider.as_deref(), Some("openai-chat, openai-embeddings"));
    assert!(manifest.target.models_asked.contains(&"vip-model".to_owned()));
    let idle: Vec<_> = manifest.warnings.iter().filter(|told| told.contains("takes no request")).collect();
    assert!(idle.len() == 1 && idle[0].contains("\"idle\""), "{idle:?}");
    let text = serde_json::to_string(manifest).unwrap();
    assert!(!text.contains("secret-of") && !text.contains("\"word\""));
}

#[test]
fn requests_reach_the_server_of_their_route_on_one_schedule() {
    let (big, small) = (answering(), answering());
    let offsets: Vec<i64> = (0..30).map(|number| number * 2 * MS).collect();
    let bench = Bench::new(&offsets, |number, row| {
        row.model = Some(["big", "small", "small"][number % 3].into());
    });
    let finished = bench.run(&ReplayConfig {
        workers: Some(2),
        ..table(vec![
            Route { takes: models(&["big"]), ..route("big", big.url()) },
            route("small", small.url()),
        ])
    });
    assert_eq!(finished.report.counts.ok, 30);
    for row in 0..30 {
        let (own, other) = if row % 3 == 0 { (&big, &small) } else { (&small, &big) };
        assert_eq!(heard_of(&finished, &bench, own, row).len(), 1, "row {row}");
        assert!(heard_of(&finished, &bench, other, row).is_empty(), "row {row}");
        let heard = &heard_of(&finished, &bench, own, row)[0];
        assert_eq!(heard.header("host"), Some(own.addr.to_string().as_str()), "row {row}");
    }
    let target = &finished.run.manifest().target;
    assert_eq!(target.url, big.url());
    assert_eq!(target.resolved_addresses, [big.addr.to_string(), small.addr.to_string()]);
}

#[test]
fn a_session_keeps_its_key_also_when_it_tries_again_and_others_take_the_keys_in_turn() {
    let server = Server::start(|heard| match heard.nth {
        1 if heard.body.len().is_multiple_of(2) => Reply::Status(503, "", "{}"),
        _ => Reply::Stream { chunks: 1, gap_us: 0 },
    });
    let offsets: Vec<i64> = (0..36).map(|number| number * MS).collect();
    let bench = Bench::new(&offsets, |number, row| {
        row.session_hash = (number % 2 == 0).then_some(1_000 + number as u64 % 10);
        row.input_tokens = Some(9 + number as u32 % 5);
    });
    let pool = Route { keys: keys(&["A", "B", "C"]), ..route("all", server.url()) };
    let retry = RetryPolicy { base_delay_ns: MS, max_delay_ns: MS, ..RetryPolicy::exponential() };
    let finished = bench.run(&ReplayConfig { retry, ..table(vec![pool]) });
    assert_eq!(finished.report.counts.ok, 36);
    assert!(finished.report.retries > 0, "some are sent again");
    let mut of_session: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    let mut in_turn = Vec::new();
    for row in 0..36 {
        let heard = heard_of(&finished, &bench, &server, row);
        let used: BTreeSet<String> =
            heard.iter().map(|heard| heard.header("authorization").unwrap().to_owned()).collect();
        assert_eq!(used.len(), 1, "row {row}: every attempt has the same key");
        match finished.request(row).strata.session_hash {
            Some(session) => of_session.entry(session).or_default().extend(used),
            None => in_turn.extend(used),
        }
    }
    assert!(of_session.len() == 5 && of_session.values().all(|keys| keys.len() == 1), "{of_session:?}");
    let distinct: BTreeSet<&String> = of_session.values().flatten().collect();
    assert_eq!(distinct.len(), 3, "five sessions with hashes in a row use all three keys");
    assert!(in_turn.windows(3).all(|three| three.iter().collect::<BTreeSet<_>>().len() == 3), "{in_turn:?}");
}

#[test]
fn what_no_route_takes_is_refused_before_anything_is_sent_with_a_route_that_would() {
    let server = answering();
    let offsets: Vec<i64> = (0..6).map(|number| number * MS).collect();
    let bench = Bench::new(&offsets, |number, row| {
        mixed(number, row);
        row.route = Some("eu".into());
    });
    let told = refused(&bench, &table(vec![Route { takes: models(&["big"]), ..route("big", server.url()) }]));
    for part in [
        "routes: no route takes 4 requests (1 chat of the model \"small-1\", 2 embeddings of the model \"embed\", ",
        "1 chat of the model \"small-4\")",
        "the first is row 1: operation chat, model \"small-1\", gateway route \"eu\", endpoint none, tenant hash 8",
        "Add [[routes]] with operations = [\"chat\"], models = [\"small-1\"] and its url",
        "`--leave-out chat`",
    ] {
        assert!(told.contains(part), "{part}\n{told}");
    }
    assert!(server.heard().is_empty() && !bench.runs().exists(), "nothing was sent and there is no run");
    let many = Bench::new(&offsets, |number, row| row.model = Some(format!("m{number}").into()));
    let told =
        refused(&many, &table(vec![Route { takes: models(&["none"]), ..route("none", server.url()) }]));
    assert!(told.contains("1 chat of the model \"m4\", 1 others)") && !told.contains("\"m5\""), "{told}");
}

#[test]
fn each_route_is_checked_against_what_it_takes_and_the_refusal_names_it() {
    let server = answering();
    let offsets: Vec<i64> = (0..6).map(|number| number * MS).collect();
    let bench = Bench::new(&offsets, |number, row| {
        mixed(number, row);
        if number == 3 {
            row.model = None;
        }
    });
    let chats = || Criteria { operations: vec![Operation::Chat], ..Criteria::default() };
    let of = |change: &dyn Fn(&mut Route)| {
        let mut first = Route { takes: chats(), model: Some("m".to_owned()), ..route("chats", server.url()) };
        change(&mut first);
        table(vec![first, Route { provider: "openai-embeddings".to_owned(), ..route("rest", server.url()) }])
    };
    assert_eq!(bench.run(&of(&|_| {})).report.counts.ok, 6);
    for (change, parts) in [
        (
            &(|route: &mut Route| route.model = None) as &dyn Fn(&mut Route),
            ["route \"chats\"", "1 requests (first: row 3) have no recorded model"],
        ),
        (&|route| route.provider = "opanai".to_owned(), ["route \"chats\"", "\"opanai\" is not known"]),
        (
            &|route| route.provider = "openai-embeddings".to_owned(),
            ["(first: row 0) are of the operation chat", "another route before this one"],
        ),
        (
            &|route| route.protocol.api_version = Some("v1".to_owned()),
            ["api_version: route \"chats\"", "leave it out"],
        ),
        (&|route| route.target = "nowhere".to_owned(), ["target: route \"chats\"", "http://HOST:PORT"]),
        (&|route| route.tls_name = Some("x".to_owned()), ["tls_name", "is not https"]),
        (
            &|route| route.headers = vec![("Authorization".to_owned(), "x".to_owned())],
            ["route \"chats\"", "is set by tracewheel itself"],
        ),
        (
            &|route| route.headers = vec![("Connection".to_owned(), "close".to_owned())],
            ["route \"chats\"", "is of one connection, not of a request"],
        ),
        (
            &|route| route.secret_headers = vec![("host".to_owned(), Secret::new("x"))],
            ["headers_env", "\"host\" is set by"],
        ),
        (&|route| route.name = "rest".to_owned(), ["routes", "two have the name \"rest\""]),
    ] {
        let heard = server.heard().len();
        let told = refused(&bench, &of(change));
        assert!(parts.iter().all(|part| told.contains(part)), "{parts:?}\n{told}");
        assert_eq!(server.heard().len(), heard);
    }
    let told = refused(
        &bench,
        &ReplayConfig {
            target: server.url(),
            model: Some("m".to_owned()),
            provider: "anthropic-messages".to_owned(),
            ..ReplayConfig::default()
        },
    );
    assert!(told.contains("--leave-out embeddings") && told.contains("by a route of their own"), "{told}");
    let prompts = PromptOptions { calibrate: true, ..PromptOptions::default() };
    let told = refused(&bench, &ReplayConfig { prompts, ..of(&|_| {}) });
    assert!(told.contains("calibrate: 2 routes take requests"), "{told}");
}

/// A prompt of one block that all share, and a little of its own.
fn shared_prefix(number: usize, row: &mut RequestRow) {
    row.model = Some(if number.is_multiple_of(2) { "a" } else { "b" }.into());
    row.input_tokens = Some(20);
    row.prefix_hashes = Some(vec![99, 1_000 + number as u64]);
    row.prefix_block_tokens = Some(vec![16, 4]);
    row.body_state = BodyState::Absent;
}

#[test]
fn prefixes_are_predicted_apart_where_requests_find_different_caches() {
    let server = answering();
    let offsets: Vec<i64> = (0..6).map(|number| number * MS).collect();
    let bench = Bench::new(&offsets, shared_prefix);
    let predicted = |config: &ReplayConfig| {
        let finished = bench.run(config);
        (0..6).map(|row| finished.request(row).predicted_cached_tokens.unwrap()).collect::<Vec<_>>()
    };
    let one = ReplayConfig { target: server.url(), ..ReplayConfig::default() };
    assert_eq!(predicted(&one), [0, 16, 16, 16, 16, 16]);
    let apart =
        |second: Route| table(vec![Route { takes: models(&["a"]), ..route("a", server.url()) }, second]);
    assert_eq!(predicted(&apart(route("b", server.url()))), [0, 0, 16, 16, 16, 16], "another model");
    let same = Route { model: Some("a".to_owned()), ..route("b", server.url()) };
    assert_eq!(predicted(&apart(same.clone())), [0, 16, 16, 16, 16, 16], "the same model of the same server");
    let account = Route { keys: keys(&["B"]), ..same };
    assert_eq!(predicted(&apart(account)), [0, 0, 16, 16, 16, 16], "another account");
}

#[test]
fn a_prompt_that_two_routes_want_warm_is_sent_ahead_to_each() {
    let server = answering();
    let offsets: Vec<i64> = (0..4).map(|number| number * MS).collect();
    let bench = Bench::new(&offsets, |number, row| {
        shared_prefix(number, row);
        row.prefix_hashes = Some(vec![99, 100]);
    });
    let config = table(vec![
        Route { takes: models(&["a"]), ..route("a", format!("{}/a", server.url())) },
        route("b", format!("{}/b", server.url())),
    ]);
    let finished = bench.run(&ReplayConfig { cache: CacheMode::Warm, ..config });
    assert_eq!((finished.report.primed, finished.report.counts.ok), (2, 4));
    let primes =
        server.heard().into_iter().take(2).map(|heard| heard.head.contains(" /a/")).collect::<BTreeSet<_>>();
    assert_eq!(primes.len(), 2, "one of them went by either route");
}

#[test]
fn what_lived_before_the_window_goes_ahead_by_the_same_routes_and_is_refused_where_none_takes_it() {
    let server = answering();
    let bench = Bench::new(&[0, MS, 10 * MS, 11 * MS], |number, row| {
        shared_prefix(number, row);
        row.model = Some(["old", "new", "new", "new"][number].into());
    });
    let window = Some(Window { from_ns: 10 * MS, to_ns: None });
    let bench =
        bench.planned(PlanOptions { window, history: Some(History::default()), ..PlanOptions::default() });
    let new = Route { takes: models(&["new"]), ..route("new", format!("{}/new", server.url())) };
    let told = refused(&bench, &table(vec![new.clone()]));
    assert!(
        told.contains("no route takes 1 requests (1 chat of the model \"old\"); the first is row 0"),
        "{told}"
    );
    assert!(server.heard().is_empty());
    let finished = bench.run(&table(vec![new, route("rest", format!("{}/rest", server.url()))]));
    assert_eq!((finished.report.primed, finished.report.counts.ok), (2, 2));
    let heard = server.heard();
    let of_rest: Vec<_> = heard.iter().filter(|heard| heard.head.contains(" /rest/")).collect();
    assert!(of_rest.len() == 1 && asked_model(of_rest[0]) == "old", "{of_rest:?}");
    let routes = &finished.run.manifest().target.routes;
    assert_eq!((routes[0].requests, routes[1].requests), (Some(2), Some(0)));
    assert!(!finished.run.manifest().warnings.iter().any(|told| told.contains("takes no request")));
}

#[test]
fn a_flush_without_an_address_acts_on_each_target_of_that_engine_with_its_key() {
    let server = Server::start(|heard| match heard.head.contains("/reset_prefix_cache") {
        true => Reply::Status(200, "", "{\"success\":true}"),
        false => Reply::Stream { chunks: 1, gap_us: 0 },
    });
    let bench = Bench::new(&[0, MS, 2 * MS], |number, row| {
        row.model = Some(["a", "b", "c"][number].into());
    });
    let of = |name: &str, engine| Route {
        takes: models(&[name]),
        keys: keys(&[name]),
        protocol: ProtocolOptions { engine, ..ProtocolOptions::default() },
        ..route(name, format!("{}/{name}/v1", server.url()))
    };
    let flush = Flush {
        engine: FlushEngine::Vllm,
        url: None,
        instance: None,
        locations: Vec::new(),
        headers: CallHeaders::default(),
    };
    let hook = Hook {
        at: HookPoint::BeforePrime,
        name: "vllm".to_owned(),
        action: HookAction::Flush(flush),
        timeout_ns: 10_000 * MS,
        wait_ns: 10_000 * MS,
    };
    let routes =
        vec![of("a", Some(Engine::Vllm)), of("b", Some(Engine::Openai)), of("c", Some(Engine::Vllm))];
    let config = ReplayConfig { hooks: vec![hook.clone()], ..table(routes) };
    let finished = bench.run(&config);
    let called: Vec<_> = server
        .heard()
        .iter()
        .filter(|heard| heard.head.contains("reset_prefix_cache"))
        .map(|heard| {
            (heard.head.lines().next().unwrap().to_owned(), heard.header("authorization").map(str::to_owned))
        })
        .collect();
    let call = |name: &str| {
        (format!("POST /{name}/reset_prefix_cache HTTP/1.1"), Some(format!("Bearer secret-of-{name}")))
    };
    assert_eq!(called, [call("a"), call("c")]);
    let section = &finished.run.manifest().hooks[0];
    assert_eq!((section.outcome.as_str(), section.called.len()), ("done", 2), "{section:?}");
    let nobody = ReplayConfig {
        hooks: vec![hook],
        ..table(vec![of("a", Some(Engine::Openai)), of("b", None), of("c", None)])
    };
    let told = refused(&bench, &nobody);
    assert!(told.contains("no route names the engine vllm"), "{told}");
}
