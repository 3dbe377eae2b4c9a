//! The golden run of version 1.0: written once, read for ever.

use std::path::PathBuf;

use serde_json::json;
use tracewheel_timeline::vocab::{
    AttemptStatus, EventKind, Operation, Phase, Protocol, Reason, RequestStatus, Source,
};

use super::*;
use crate::manifest::*;
use crate::rows::{EXTRA_COPY, EventRow, ReadStampRow, Strata};

fn golden_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/golden/run-v1.0")
}

fn distribution() -> DistributionSection {
    DistributionSection { count: 3, mean: 20.0, min: 10, p50: 20, p90: 30, p99: 30, max: 30 }
}

fn percentiles() -> PercentilesNs {
    PercentilesNs { count: 3, p50_ns: 9_000, p90_ns: 21_000, p99_ns: 21_000, p999_ns: 21_000, max_ns: 21_000 }
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// Every field filled.
pub(super) fn manifest() -> Manifest {
    Manifest {
        version: "1.0".to_owned(),
        id: "run-v1.0".to_owned(),
        state: RunState::Open,
        tool_version: "0.1.0".to_owned(),
        created_unix_ns: 1_790_000_000_000_000_000,
        closed_unix_ns: None,
        owner: text("team-latency"),
        plan: plan(),
        target: target(),
        vantage: VantageSection {
            name: text("eu-central"),
            hostname: text("bench-1"),
            round_trip_min_ns: Some(150_000),
            round_trip_p50_ns: Some(180_000),
            round_trip_samples: Some(20),
        },
        protocol: ProtocolSection {
            http: text("h1"),
            provider: text("openai-chat"),
            operations: vec!["chat".to_owned()],
        },
        tls: Some(TlsSection {
            version: text("TLSv1.3"),
            cipher_suite: text("TLS13_AES_256_GCM_SHA384"),
            alpn: text("http/1.1"),
            resumption: Some(false),
            verified: Some(true),
            name: text("api.example"),
            roots: text("/etc/ssl/certs/ca-certificates.crt (140 certificates)"),
            certificate_subject: text("CN=api.example"),
            certificate_issuer: text("CN=Example CA"),
            certificate_not_after: text("2030-01-31T00:00:00Z"),
            certificate_sha256: text("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"),
            handshakes_full: Some(1),
            handshakes_resumed: Some(0),
        }),
        policy: policy(),
        cache: cache(),
        hooks: vec![hook()],
        prompts: PromptsSection {
            digest: text("0123456789abcdef"),
            origin: text("synthesised"),
            input_tokens: Some(distribution()),
            output_tokens: Some(distribution()),
            tokenizer: Some(TokenizerSection {
                file: text("tokenizer.json"),
                kind: text("tokenizer.json"),
                digest: text("blake3:00"),
                words: Some(2048),
            }),
            calibration: Some(CalibrationSection {
                overhead_tokens: Some(11),
                tokens_per_word: Some(1.0),
                probes: vec![(32, 43), (1056, 1067)],
            }),
        },
        machine: machine(),
        clock: ClockSection {
            start_unix_ns: 1_790_000_000_000_000_000,
            start_bracket_ns: Some(80),
            bracket_max_ns: Some(900),
            steps: Some(0),
            drift_ns: Some(-1_200),
        },
        scenario: ScenarioSection {
            version: text("1.0"),
            text: text("[target]\nurl = \"http://127.0.0.1:8000\"\n"),
        },
        fidelity: Some(FidelityBounds::default()),
        warnings: vec!["the kernel gave no stamps for 1 read".to_owned()],
        outcome: Some(outcome()),
        other: Default::default(),
    }
}

fn cache() -> CacheSection {
    CacheSection {
        mode: text("natural"),
        primed: Some(true),
        planned_share: Some(0.25),
        measured_share: Some(0.2),
        reported_by: Some(2),
        nonce_by: text("prompt"),
        prime: Some(PrimeSection {
            of: text("history"),
            look_back_ns: Some(300_000_000_000),
            cache_tokens: Some(1_000_000),
            prefixes: text("live"),
            requests: Some(1),
            input_tokens: Some(1_024),
            distinct_tokens: Some(1_024),
        }),
        hooks: vec!["before-prime vllm".to_owned()],
    }
}

fn hook() -> HookSection {
    HookSection {
        at: "before-prime".to_owned(),
        name: "vllm".to_owned(),
        called: vec!["POST https://api.example/reset_prefix_cache".to_owned()],
        outcome: "done".to_owned(),
        tries: 2,
        status: Some(200),
        answer: text("{\"success\":true}"),
        why: text("the first answer said that requests still held blocks"),
        started_ns: 1_000,
        took_ns: 2_000,
    }
}

fn outcome() -> OutcomeSection {
    OutcomeSection {
        ended_by: EndedBy::Plan,
        ended_ns: Some(3_000_000_000),
        counts: Counts::default(),
        extra: Counts::default(),
        reasons: Default::default(),
        attempts: 0,
        parts: Default::default(),
        achieved_per_second: Some(1.0),
        lateness: Some(percentiles()),
        gate_drift: Some(percentiles()),
        in_flight: Some(distribution()),
        connections: Some(ConnectionOutcome {
            opened: 12,
            moved: 1,
            connected_at_send: 0,
            spares_used: 1,
            closed_idle: 2,
            retired: 3,
            idle_limit_ns: Some(5_000_000_000),
            idle_limit_unused_ns: Some(5_000_000_000),
            retire_after_ns: Some(4_375_000_000),
            answers_limit: Some(100),
            answers_limit_from: Some(AnswersLimitFrom::Announced),
            streams: Some(100),
            window_waits: 2,
            window_wait_max_ns: Some(1_000_000),
        }),
        prime: Some(PrimeOutcome {
            ok: 1,
            failed: 0,
            input_tokens: 1_024,
            cached_tokens: Some(0),
            output_tokens: 1,
            took_ns: 500_000_000,
        }),
        threading: Some(ThreadingOutcome {
            turns: 3,
            answers: 4,
            as_planned: [("no_answer".to_owned(), 1)].into(),
            recorded_tokens: 300,
            live_tokens: 280,
        }),
    }
}

fn machine() -> MachineSection {
    MachineSection {
        cpu: text("Example CPU"),
        cores: Some(2),
        memory_bytes: Some(8 << 30),
        os: text("Linux"),
        kernel: text("6.12.0"),
        clock_source: text("tsc"),
        scheduling_class: text("other"),
        scheduling_asked: text("fifo"),
        scheduling_refused: None,
        scheduling_step_downs: Some(1),
        scheduling_changes: vec![SchedulingChange {
            at_ns: 2_000_000_000,
            worker: 0,
            class: "other".to_owned(),
            why: "cpu".to_owned(),
        }],
        pinned_cores: vec![1],
        timer_slack_ns: Some(1),
        workers: Some(1),
        kernel_stamps: Some(true),
    }
}

fn plan() -> PlanSection {
    PlanSection {
        requests: 5,
        timeline: text("orders.parquet"),
        timeline_digest: "ab".repeat(32),
        seed: 42,
        nonce: Some(0x0123_4567_89ab_cdef),
        speed: Some(1.0),
        mode: text("open"),
        window: WindowSection {
            from_unix_ns: Some(1_780_000_000_000_000_000),
            to_unix_ns: Some(1_780_000_003_000_000_000),
            from_offset_ns: Some(0),
            to_offset_ns: Some(3_000_000_000),
            zone: text("Europe/Berlin"),
        },
        span_ns: Some(3_000_000_000),
        offered_per_second: Some(1.0),
        block_tokens: Some(16),
        amplification: Some(1.0),
    }
}

fn target() -> TargetSection {
    TargetSection {
        url: "http://127.0.0.1:8000/v1".to_owned(),
        resolve_ns: Some(1_500_000),
        resolved_addresses: vec!["127.0.0.1:8000".to_owned()],
        server_header: text("example"),
        models_asked: vec!["small".to_owned()],
        models_served: vec!["small-2026".to_owned()],
        system_fingerprints: vec!["fp_1".to_owned()],
        routes: vec![RouteSection {
            name: text("small"),
            matches: "model = small".to_owned(),
            url: "http://127.0.0.1:8000/v1".to_owned(),
            provider: text("openai-chat"),
            model: text("small"),
            key_from: text("env:EXAMPLE_KEY"),
            requests: Some(5),
        }],
    }
}

fn policy() -> PolicySection {
    PolicySection {
        retry: text("openai-sdk"),
        retry_resolved: Some(json!({"retries": 2})),
        budgets: vec![BudgetSection {
            of: "requests".to_owned(),
            scope: text("route small"),
            amount: 100,
            window_ns: 1_000_000_000,
        }],
        connections: ConnectionSection {
            mode: text("reuse"),
            opened_ahead: Some(4),
            limit: Some(64),
            spares: Some(4),
            idle_limit_ns: Some(30_000_000_000),
            request_timeout_ns: Some(600_000_000_000),
            connect_timeout_ns: Some(5_000_000_000),
        },
    }
}

fn strata(turn: u32) -> Strata {
    Strata {
        operation: Some(Operation::Chat),
        method: Some("POST".into()),
        path: Some("/v1/chat/completions".into()),
        endpoint: Some("gateway".into()),
        model: Some("small".into()),
        model_served: Some("small-2026".into()),
        provider: Some("example".into()),
        route: Some("default".into()),
        stream: Some(true),
        session_hash: Some(u64::MAX),
        turn: Some(turn),
        tenant_hash: Some(17),
        user_hash: None,
        tags: Some([("team".into(), "search".into())].into()),
    }
}

fn request(row: u64, status: RequestStatus, reason: Option<Reason>) -> RequestRecord {
    let due_ns = 1_000_000_000 * row as i64;
    let (attempts, ok) = (u16::from(status != RequestStatus::Unsent), status == RequestStatus::Ok);
    RequestRecord {
        row,
        planned_ns: due_ns,
        due_ns,
        trace_unix_ns: Some(1_780_000_000_000_000_000 + due_ns),
        status,
        reason,
        attempts,
        final_attempt: attempts,
        predicted_cached_tokens: Some(16),
        cached_tokens: ok.then_some(16),
        cached_tokens_source: ok.then_some(Source::Reported),
        input_tokens: ok.then_some(64),
        input_tokens_source: ok.then_some(Source::Reported),
        output_tokens: ok.then_some(2),
        output_tokens_source: ok.then_some(Source::Derived),
        first_output_ns: ok.then_some(due_ns + 5_000_000),
        first_visible_ns: ok.then_some(due_ns + 5_000_000),
        last_output_ns: ok.then_some(due_ns + 7_000_000),
        end_ns: (attempts > 0).then_some(due_ns + 8_000_000),
        strata: strata(row as u32),
        ..RequestRecord::default()
    }
}

fn attempt(row: u64, status: AttemptStatus, reason: Option<Reason>) -> AttemptRecord {
    let due_ns = 1_000_000_000 * row as i64;
    let read = |after: i64, kernel: bool| ReadStampRow {
        user_ns: due_ns + after + 30_000,
        kernel_ns: kernel.then_some(due_ns + after),
        bytes: 120,
    };
    let event = |read, kind, tokens| EventRow { read, kind, tokens, bytes: 40, choice: 0 };
    let ok = status == AttemptStatus::Ok;
    AttemptRecord {
        row,
        due_ns,
        released_ns: Some(due_ns + 4_000),
        first_write_ns: Some(due_ns + 9_000),
        last_write_ns: Some(due_ns + 11_000),
        headers_ns: Some(due_ns + 4_000_000),
        first_byte_ns: Some(due_ns + 4_900_000),
        end_ns: Some(due_ns + 8_000_000),
        connection: Some(1),
        connection_reused: Some(true),
        protocol: Some(Protocol::H1),
        status,
        reason,
        http_status: Some(if ok { 200 } else { 429 }),
        retry_after_ns: (!ok).then_some(500_000_000),
        reads: if ok { vec![read(5_000_000, true), read(7_000_000, false)] } else { Vec::new() },
        events: if ok {
            vec![
                event(0, EventKind::Structure, None),
                event(0, EventKind::Text, Some(1)),
                event(1, EventKind::Text, Some(1)),
                event(1, EventKind::Usage, None),
                event(1, EventKind::Terminal, None),
            ]
        } else {
            Vec::new()
        },
        usage_input_tokens: ok.then_some(64),
        usage_cached_tokens: ok.then_some(16),
        usage_output_tokens: ok.then_some(2),
        server_ms: Some(4),
        request_id: Some("req_1".into()),
        system_fingerprint: ok.then(|| "fp_1".into()),
        rate_limit_requests_remaining: Some(99),
        rate_limit_requests_reset_ns: Some(6_000_000_000),
        error_body: (!ok).then(|| "{\"error\": {\"message\": \"slow down\"}}".into()),
        ..AttemptRecord::default()
    }
}

fn entries() -> Vec<Entry> {
    let prime =
        RequestRecord { copy: EXTRA_COPY, phase: Phase::Prime, ..request(0, RequestStatus::Ok, None) };
    let limited = Some(Reason::RateLimited);
    let health = HealthRecord {
        second: 0,
        at_ns: 1_000_000_000,
        released: Some(1),
        lateness_p99_ns: Some(9_000),
        clock_offset_ns: Some(1_790_000_000_000_000_000),
        clock_bracket_ns: Some(80),
        clock_stepped: Some(false),
        ..HealthRecord::default()
    };
    vec![
        Entry::Attempt(AttemptRecord { copy: EXTRA_COPY, ..attempt(0, AttemptStatus::Ok, None) }),
        Entry::Request(prime),
        Entry::Attempt(attempt(0, AttemptStatus::Ok, None)),
        Entry::Request(request(0, RequestStatus::Ok, None)),
        Entry::Health(health),
        Entry::Server(ServerRecord {
            at_ns: 1_000_000_000,
            source: Some("http://127.0.0.1:8000/metrics".into()),
            name: "example_requests_running".into(),
            labels: Some("model=\"small\"".into()),
            value: 1.5,
        }),
        Entry::Attempt(attempt(1, AttemptStatus::Failed, limited)),
        Entry::Request(request(1, RequestStatus::Failed, limited)),
        Entry::Attempt(attempt(2, AttemptStatus::Cancelled, Some(Reason::CancelledAsRecorded))),
        Entry::Request(request(2, RequestStatus::Cancelled, Some(Reason::CancelledAsRecorded))),
        Entry::Attempt(attempt(3, AttemptStatus::Interrupted, Some(Reason::InterruptedByUser))),
        Entry::Request(request(3, RequestStatus::Interrupted, Some(Reason::InterruptedByUser))),
        Entry::Request(request(4, RequestStatus::Unsent, Some(Reason::StoppedByUser))),
    ]
}

#[test]
#[ignore = "writes the golden run anew: only for a new version of the format"]
fn write_the_golden_run() {
    let dir = golden_dir();
    let runs_dir = dir.parent().unwrap();
    assert!(!dir.exists(), "{} is there: a golden run is never overwritten", dir.display());
    let mut writer =
        RunWriter::begin(runs_dir, manifest(), WriterOptions::default(), Arc::new(FileSystem)).unwrap();
    entries().iter().for_each(|entry| record(&mut writer, entry).unwrap());
    let clock = clock();
    clock.advance_by(4_000_000_000);
    writer.finish(&manifest(), &clock).unwrap();
}

#[test]
fn the_golden_run_of_version_1_0_is_read_as_it_was_written() {
    let run = Run::open(&golden_dir()).unwrap();
    assert!(run.is_closed());
    assert_eq!(Content::read(&run).unwrap(), Content::of(&entries()));
    let mut expected = manifest();
    expected.state = RunState::Closed;
    expected.closed_unix_ns = Some(1_790_000_004_000_000_000);
    let outcome = expected.outcome.as_mut().unwrap();
    outcome.counts =
        Counts { ok: 1, failed: 1, cancelled: 1, interrupted: 1, unsent: 1, unsent_without_row: 0 };
    outcome.extra = Counts { ok: 1, ..Counts::default() };
    outcome.attempts = 5;
    let reasons = ["cancelled_as_recorded", "interrupted_by_user", "rate_limited", "stopped_by_user"];
    outcome.reasons = reasons.map(|reason| (reason.to_owned(), 1)).into();
    without_later_fields(&mut expected);
    assert_eq!(run.manifest(), &expected);
    let exchanges = run.exchanges().unwrap().map(Result::unwrap);
    assert!(exchanges.into_iter().all(|(request, attempts)| attempts.len() == usize::from(request.attempts)));
    assert_eq!(run.timeline_view().unwrap().count(), 5);
}

/// Takes out what a manifest may hold since, and the golden one was written without.
fn without_later_fields(manifest: &mut Manifest) {
    manifest.target.resolve_ns = None;
    for route in &mut manifest.target.routes {
        (route.name, route.requests) = (None, None);
    }
    (manifest.prompts.tokenizer, manifest.prompts.calibration) = (None, None);
    manifest.policy.connections.spares = None;
    manifest.machine.scheduling_asked = None;
    manifest.machine.scheduling_step_downs = None;
    manifest.machine.scheduling_changes.clear();
    manifest.machine.pinned_cores.clear();
    manifest.outcome.as_mut().unwrap().connections = None;
    manifest.outcome.as_mut().unwrap().prime = None;
    manifest.outcome.as_mut().unwrap().threading = None;
    manifest.cache.prime = None;
    manifest.cache.hooks.clear();
    manifest.hooks.clear();
    manifest.fidelity = None;
    if let Some(tls) = &mut manifest.tls {
        *tls = TlsSection {
            version: tls.version.take(),
            cipher_suite: tls.cipher_suite.take(),
            alpn: tls.alpn.take(),
            resumption: tls.resumption,
            verified: tls.verified,
            ..TlsSection::default()
        };
    }
}
