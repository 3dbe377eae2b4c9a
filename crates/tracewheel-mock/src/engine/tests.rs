use std::collections::BTreeMap;
use std::num::NonZeroU32;

use proptest::prelude::*;

use super::*;
use crate::config::{LoadPoint, TenantConfig, Variation};

const MS: i64 = 1_000_000;

/// 10 ms a step, 1 ms a decoding sequence, 0.1 ms a prompt token; two at a time, 100 tokens a step, no cache.
fn by_hand() -> MockConfig {
    let mut config = MockConfig::default();
    config.engine.max_running = 2;
    config.engine.max_batched_tokens = 100;
    config.engine.step_base_us = 10_000;
    config.engine.decode_us_per_sequence = 1_000;
    config.engine.prefill_us_per_token = 100;
    config.cache.enabled = false;
    config
}

fn request(ticket: u64, prompt_tokens: u32, output_tokens: u32) -> EngineRequest {
    let blocks = (0..prompt_tokens / 16).map(u64::from).collect();
    let output_cap = output_tokens;
    EngineRequest { ticket: Ticket(ticket), key: 1, prompt_tokens, blocks, output_tokens, output_cap }
}

fn run(config: &MockConfig, arrivals: &[(i64, EngineRequest)]) -> (Engine, Vec<Emission>) {
    let mut engine = Engine::new(config);
    let mut out = Vec::new();
    for (at_ns, request) in arrivals {
        engine.advance(RunNs(at_ns - 1), &mut out);
        engine.submit(RunNs(*at_ns), request.clone()).unwrap();
    }
    drain(&mut engine, &mut out);
    (engine, out)
}

fn drain(engine: &mut Engine, out: &mut Vec<Emission>) {
    while let Some(at) = engine.next_event() {
        engine.advance(at, out);
    }
}

/// Times of a request's tokens, microseconds.
fn token_us(out: &[Emission], ticket: u64) -> Vec<i64> {
    out.iter()
        .filter(|e| e.ticket == Ticket(ticket) && matches!(e.kind, EmissionKind::Token { .. }))
        .map(|e| e.at.0 / 1000)
        .collect()
}

fn admitted(out: &[Emission], ticket: u64) -> Option<(i64, u32)> {
    out.iter().find_map(|e| match e.kind {
        EmissionKind::Admitted { cached_tokens } if e.ticket == Ticket(ticket) => {
            Some((e.at.0, cached_tokens))
        }
        _ => None,
    })
}

#[test]
fn one_request_alone_pays_prefill_once_and_a_step_a_token() {
    let (_, out) = run(&by_hand(), &[(5 * MS, request(1, 50, 3))]);
    // Arrives at 5. Prefill step: 10 + 50 × 0.1 = 15. Decode steps: 10 + 1 = 11 each.
    assert_eq!(admitted(&out, 1), Some((5 * MS, 0)));
    assert_eq!(token_us(&out, 1), [20_000, 31_000, 42_000]);
}

#[test]
fn queue_prefill_chunks_and_decode_share_steps() {
    let arrivals = [(0, request(1, 50, 3)), (5 * MS, request(2, 150, 2)), (6 * MS, request(3, 10, 1))];
    let (engine, out) = run(&by_hand(), &arrivals);
    // Step 1, 0 to 15: prefill of 1 (50 tokens).
    // Step 2: 1 decodes, 99 tokens are left for the first chunk of 2: 10 + 1 + 9.9 = 20.9, to 35.9.
    // Step 3: 1 decodes, the other 51 of 2: 10 + 1 + 5.1 = 16.1, to 52.0. 1 is done; 3 waits, as two were running.
    // Step 4: 2 decodes, 3 prefills 10: 10 + 1 + 1 = 12, to 64.0. Both are done.
    assert_eq!(token_us(&out, 1), [15_000, 35_900, 52_000]);
    assert_eq!(token_us(&out, 2), [52_000, 64_000]);
    assert_eq!(token_us(&out, 3), [64_000]);
    assert_eq!(admitted(&out, 2), Some((15 * MS, 0)));
    assert_eq!(admitted(&out, 3), Some((52 * MS, 0)));
    let counters = engine.counters();
    assert_eq!((counters.accepted, counters.finished, counters.output_tokens, counters.steps), (3, 3, 6, 4));
    assert_eq!((engine.running(), engine.waiting(), engine.next_event()), (0, 0, None));
}

#[test]
fn arrivals_of_one_instant_share_the_first_step() {
    let (_, out) = run(&by_hand(), &[(0, request(1, 10, 1)), (0, request(2, 20, 1))]);
    // 10 + 30 × 0.1 = 13.
    assert_eq!(token_us(&out, 1), [13_000]);
    assert_eq!(token_us(&out, 2), [13_000]);
}

#[test]
fn an_arrival_during_a_step_waits_for_its_end() {
    let (_, out) = run(&by_hand(), &[(0, request(1, 10, 1)), (1, request(2, 20, 1))]);
    // 10 + 1 = 11; then 10 + 2 = 12 more.
    assert_eq!(token_us(&out, 1), [11_000]);
    assert_eq!(token_us(&out, 2), [23_000]);
}

#[test]
fn the_intake_delays_and_keeps_order() {
    let mut config = by_hand();
    config.engine.intake_us = 7_000;
    let (_, out) = run(&config, &[(0, request(1, 10, 1)), (MS, request(2, 10, 1))]);
    // Ready at 7 and 8: the first step runs from 7 to 18, the second from 18 to 29.
    assert_eq!(token_us(&out, 1), [18_000]);
    assert_eq!(token_us(&out, 2), [29_000]);
    assert_eq!(admitted(&out, 1), Some((7 * MS, 0)));
}

#[test]
fn cached_tokens_cost_nothing_and_are_told() {
    let mut config = by_hand();
    config.cache.enabled = true;
    let (engine, out) = run(&config, &[(0, request(1, 40, 1)), (100 * MS, request(2, 40, 1))]);
    assert_eq!(admitted(&out, 1), Some((0, 0)));
    // 40 tokens are two full blocks and 8 more: 32 are found, 8 computed: 10 + 0.8.
    assert_eq!(admitted(&out, 2), Some((100 * MS, 32)));
    assert_eq!(token_us(&out, 2), [110_800]);
    assert_eq!((engine.counters().prompt_tokens, engine.counters().cached_tokens), (80, 32));
}

#[test]
fn blocks_enter_at_admission_so_two_of_one_step_share() {
    let mut config = by_hand();
    config.cache.enabled = true;
    let (_, out) = run(&config, &[(0, request(1, 40, 1)), (0, request(2, 40, 1))]);
    assert_eq!(admitted(&out, 2), Some((0, 32)));
    // 10 + (40 + 8) × 0.1.
    assert_eq!(token_us(&out, 2), [14_800]);
}

#[test]
fn a_reset_empties_the_cache_but_not_under_load() {
    let mut config = by_hand();
    config.cache.enabled = true;
    let mut engine = Engine::new(&config);
    let mut out = Vec::new();
    engine.submit(RunNs(0), request(1, 40, 2)).unwrap();
    assert!(!engine.reset_prefix_cache());
    drain(&mut engine, &mut out);
    assert_eq!(engine.cache_blocks().0, 2);
    assert!(engine.reset_prefix_cache());
    assert_eq!(engine.cache_blocks().0, 0);
}

#[test]
fn token_room_holds_the_queue_back() {
    let mut config = by_hand();
    config.engine.kv_tokens = Some(100);
    // 60 + 2 and 30 + 20 do not fit together.
    let (_, out) = run(&config, &[(0, request(1, 60, 2)), (0, request(2, 30, 20))]);
    // 1: 10 + 6 = 16, then 11 alone. Only then is 2 admitted.
    assert_eq!(token_us(&out, 1), [16_000, 27_000]);
    assert_eq!(admitted(&out, 2), Some((27 * MS, 0)));
}

#[test]
fn a_request_beyond_all_token_room_runs_alone() {
    let mut config = by_hand();
    config.engine.kv_tokens = Some(10);
    let (_, out) = run(&config, &[(0, request(1, 60, 1)), (0, request(2, 60, 1))]);
    assert_eq!(token_us(&out, 1), [16_000]);
    assert_eq!(token_us(&out, 2), [32_000]);
}

#[test]
fn a_full_queue_refuses() {
    let mut config = by_hand();
    config.engine.queue_limit = 1;
    let mut engine = Engine::new(&config);
    let mut out = Vec::new();
    engine.submit(RunNs(0), request(1, 10, 1)).unwrap();
    engine.advance(RunNs(0), &mut out);
    engine.submit(RunNs(1), request(2, 10, 1)).unwrap();
    assert_eq!(engine.submit(RunNs(2), request(3, 10, 1)), Err(Refusal::QueueFull));
    drain(&mut engine, &mut out);
    assert_eq!((token_us(&out, 2).len(), token_us(&out, 3).len()), (1, 0));
    assert_eq!(engine.counters().queue_full, 1);
}

#[test]
fn a_cancelled_request_frees_its_place_at_the_next_step() {
    let mut engine = Engine::new(&by_hand());
    let mut out = Vec::new();
    for ticket in 1..=4 {
        engine.submit(RunNs(0), request(ticket, 10, 100)).unwrap();
    }
    engine.advance(RunNs(13 * MS), &mut out);
    // 10 + 20 × 0.1 = 12: the first two have a token, the second step runs until 12 + 12 = 24.
    engine.cancel(Ticket(1));
    engine.cancel(Ticket(3));
    engine.cancel(Ticket(77));
    engine.advance(RunNs(24 * MS), &mut out);
    assert_eq!(token_us(&out, 1), [12_000]);
    assert_eq!(token_us(&out, 2), [12_000, 24_000]);
    assert_eq!(admitted(&out, 4), Some((24 * MS, 0)));
    assert_eq!((engine.running(), engine.waiting(), engine.counters().cancelled), (2, 0, 2));
}

#[test]
fn a_budget_refuses_with_floor_and_spread() {
    let mut config = by_hand();
    config.limits.requests_per_minute = NonZeroU32::new(600);
    config.limits.request_burst = NonZeroU32::new(1);
    config.limits.retry_after_floor_ms = 500;
    config.limits.retry_after_spread_ms = 1000;
    let mut engine = Engine::new(&config);
    engine.submit(RunNs(0), request(1, 10, 1)).unwrap();
    let waits: Vec<i64> = (0..50)
        .map(|n| match engine.submit(RunNs(n), request(2, 10, 1)) {
            Err(Refusal::RateLimited(RateLimited { budget: Budget::Requests, retry_after_ns: Some(ns) })) => {
                ns
            }
            other => panic!("{other:?}"),
        })
        .collect();
    // The next cell is 100 ms away, so the floor holds.
    assert!(waits.iter().all(|ns| (500 * MS..=1500 * MS).contains(ns)), "{waits:?}");
    assert!(waits.iter().any(|ns| *ns < 800 * MS) && waits.iter().any(|ns| *ns > 1200 * MS));
    assert_eq!(engine.counters().rate_limited, 50);
}

#[test]
fn times_that_lie_in_the_past_count_as_now() {
    let mut engine = Engine::new(&by_hand());
    let mut out = Vec::new();
    engine.advance(RunNs(50 * MS), &mut out);
    engine.submit(RunNs(20 * MS), request(1, 10, 1)).unwrap();
    drain(&mut engine, &mut out);
    assert_eq!(token_us(&out, 1), [61_000]);
}

#[derive(Debug, Clone)]
struct Arrival {
    at_ns: i64,
    prompt_tokens: u32,
    output_tokens: u32,
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let one = (0_i64..60_000, 0_u32..300, 1_u32..30).prop_map(|(gap_us, prompt_tokens, output_tokens)| {
        Arrival { at_ns: gap_us * 1000, prompt_tokens, output_tokens }
    });
    prop::collection::vec(one, 1..40).prop_map(|mut all| {
        let mut at_ns = 0;
        for arrival in &mut all {
            at_ns += arrival.at_ns;
            arrival.at_ns = at_ns;
        }
        all
    })
}

#[test]
fn others_whose_requests_never_fit_hold_nobody_up() {
    let mut config = by_hand();
    config.engine.kv_tokens = Some(100);
    config.tenants.load = vec![LoadPoint { at: None, load: 2.0 }];
    (config.tenants.prompt_tokens, config.tenants.output_tokens) = (90, 11);
    let (_, out) = run(&config, &[(5, request(0, 20, 3))]);
    assert_eq!(token_us(&out, 0).len(), 3);
}

/// Nobody, or others in any measure, up to far more than there is room for.
fn tenants() -> impl Strategy<Value = TenantConfig> {
    let shape = (0.0_f64..4.0, 1_u32..200, 1_u32..40, 1_u32..2000, prop::bool::ANY);
    prop::option::of(shape).prop_map(|shape| {
        let Some((load, prompt_tokens, output_tokens, variation_ms, poisson)) = shape else {
            return TenantConfig::default();
        };
        let variation = if poisson { Variation::Poisson } else { Variation::None };
        let load = vec![LoadPoint { at: None, load }];
        TenantConfig {
            load,
            prompt_tokens,
            output_tokens,
            variation,
            variation_ms,
            ..TenantConfig::default()
        }
    })
}

fn numbered(all: &[Arrival]) -> Vec<(i64, EngineRequest)> {
    all.iter().zip(0..).map(|(a, n)| (a.at_ns, request(n, a.prompt_tokens, a.output_tokens))).collect()
}

proptest! {
    #[test]
    fn every_request_gets_exactly_its_tokens_in_order(
        all in arrivals(),
        max_running in 1_u32..6,
        spare in 0_u32..200,
        kv in prop::option::of(100_u32..2000),
        jitter in 0_u32..50,
        others in tenants(),
    ) {
        let most_places = i64::from(max_running);
        let mut config = by_hand();
        config.cache.enabled = true;
        config.engine.max_running = max_running;
        config.engine.max_batched_tokens = max_running + spare;
        config.engine.kv_tokens = kv;
        config.engine.jitter_percent = jitter;
        config.tenants = others;
        let (engine, out) = run(&config, &numbered(&all));
        prop_assert!(out.is_sorted_by_key(|e| e.at));
        let mut next: BTreeMap<u64, u32> = BTreeMap::new();
        let mut in_batch = 0_i64;
        for e in &out {
            let wanted = all[e.ticket.0 as usize].output_tokens;
            match e.kind {
                EmissionKind::Admitted { cached_tokens } => {
                    in_batch += 1;
                    prop_assert!(next.insert(e.ticket.0, 0).is_none());
                    prop_assert!(cached_tokens < all[e.ticket.0 as usize].prompt_tokens.max(1));
                    prop_assert!(e.at.0 >= all[e.ticket.0 as usize].at_ns);
                }
                EmissionKind::Token { index, last } => {
                    let expected = next.get_mut(&e.ticket.0).expect("admitted first");
                    prop_assert_eq!(index, *expected);
                    *expected += 1;
                    prop_assert_eq!(last, *expected == wanted);
                    in_batch -= i64::from(last);
                }
            }
            prop_assert!(in_batch <= most_places);
        }
        prop_assert_eq!(next.len(), all.len());
        prop_assert_eq!(engine.counters().finished as usize, all.len());
        prop_assert_eq!(engine.kv_in_use, 0);
    }

    #[test]
    fn it_does_not_matter_in_what_strides_time_is_advanced(
        all in arrivals(),
        stride_us in 1_i64..40_000,
        others in tenants(),
    ) {
        let mut config = by_hand();
        config.tenants = others;
        config.engine.jitter_percent = 20;
        let (_, by_events) = run(&config, &numbered(&all));
        let mut engine = Engine::new(&config);
        let mut out = Vec::new();
        let mut coming = numbered(&all).into_iter().peekable();
        let mut now = 0;
        while coming.peek().is_some() || engine.next_event().is_some() {
            now += stride_us * 1000;
            while let Some((at, request)) = coming.next_if(|(at, _)| *at <= now) {
                engine.advance(RunNs(at - 1), &mut out);
                engine.submit(RunNs(at), request).unwrap();
            }
            engine.advance(RunNs(now), &mut out);
        }
        prop_assert_eq!(out, by_events);
    }

    #[test]
    fn the_seed_decides_the_run(all in arrivals(), seed: u64) {
        let mut config = by_hand();
        config.engine.jitter_percent = 20;
        config.seed = seed;
        let first = run(&config, &numbered(&all)).1;
        prop_assert_eq!(&first, &run(&config, &numbered(&all)).1);
        config.seed = seed ^ 1;
        prop_assert_ne!(&first, &run(&config, &numbered(&all)).1);
    }
}
