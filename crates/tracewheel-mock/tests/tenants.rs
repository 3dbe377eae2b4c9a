//! Other tenants in virtual time, against what the model's formula says by hand.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use tracewheel_mock::{MockConfig, Outcome, SimulatedRequest, Simulation};

const MS: i64 = 1_000_000;
const SECOND: i64 = 1_000 * MS;
const HOUR: i64 = 3_600 * SECOND;

/// 10 ms a step, 1 ms a decoding sequence, 0.1 ms a prompt token; ten places. Others decode only: their prompts are of
/// one token and their answers so long that nobody leaves.
fn by_hand(tenants: &str) -> MockConfig {
    let text = format!(
        "[engine]\nmax_running = 10\nmax_batched_tokens = 1000\nstep_base_us = 10_000\n\
         decode_us_per_sequence = 1_000\nprefill_us_per_token = 100\n\
         [tenants]\nvariation = \"none\"\nprompt_tokens = 1\noutput_tokens = 1_000_000\n{tenants}"
    );
    MockConfig::from_toml(&text).unwrap()
}

fn run(config: &MockConfig, requests: &[SimulatedRequest]) -> Vec<Outcome> {
    Simulation::new(config).unwrap().run(requests)
}

/// First token, and the time from it to the last one, milliseconds.
fn times(outcome: &Outcome) -> (f64, f64) {
    let (first, all) = (outcome.ttft_ns.unwrap(), outcome.e2e_ns.unwrap());
    (first as f64 / 1e6, (all - first) as f64 / 1e6)
}

/// One request of 100 + 11 tokens under a load that stays.
fn alone_at(load: f64) -> (f64, f64) {
    let config = by_hand(&format!("load = [{load}]"));
    times(&run(&config, &[SimulatedRequest::new(0, 100, 11)])[0])
}

#[test]
fn tokens_are_slower_by_what_each_other_sequence_costs() {
    // Prefill: 10 + 10; ten more tokens of 10 + 1 each.
    assert_eq!(alone_at(0.0), (20.0, 110.0));
    // Two others: 1 ms each in every step.
    assert_eq!(alone_at(0.2), (22.0, 130.0));
    // Double load: twice as much more.
    assert_eq!(alone_at(0.4), (24.0, 150.0));
}

#[test]
fn an_arrival_waits_for_the_step_that_others_compute() {
    let config = by_hand("load = [0.2]");
    // Steps of 12 ms lie end to end: one that begins at 1,200 ends at 1,212.
    let first = |at_ms: i64| times(&run(&config, &[SimulatedRequest::new(at_ms * MS, 100, 1)])[0]).0;
    assert_eq!((first(1200), first(1201), first(1211)), (22.0, 33.0, 23.0));
}

#[test]
fn a_day_has_its_evening_peak() {
    let config = by_hand(
        "load = [{ at = \"04:00\", load = 0.1 }, { at = \"20:00\", load = 0.9 }]\nstart_at = \"20:00\"",
    );
    // One request each hour, from the peak on. At minutes that are whole multiples of the steps' sum nothing else
    // matters than the load: 9 others at 20:00, one at 04:00, five at noon.
    let requests: Vec<_> = (0..24).map(|hour| SimulatedRequest::new(hour * HOUR, 100, 11)).collect();
    let outcomes = run(&config, &requests);
    let decode: Vec<f64> = outcomes.iter().map(|outcome| times(outcome).1).collect();
    let others = |hours_after_peak: usize| (decode[hours_after_peak] - 110.0) / 10.0;
    assert_eq!((others(0), others(8), others(16)), (9.0, 1.0, 5.0));
    assert!(decode[..9].is_sorted_by(|a, b| a >= b) && decode[8..].is_sorted(), "{decode:?}");
}

#[test]
fn a_scaled_day_is_the_same_day_in_less_time() {
    let curve = "load = [{ at = \"00:00\", load = 0 }, { at = \"12:00\", load = 0.8 }]";
    let config = by_hand(&format!("{curve}\ntime_scale = 3600"));
    // An hour a second: the sixth second is six o'clock, four others.
    let (_, decode) = times(&run(&config, &[SimulatedRequest::new(6 * SECOND, 100, 2)])[0]);
    assert_eq!(decode, 15.0);
}

#[test]
fn beyond_all_places_requests_queue_behind_those_that_came_before() {
    // Fifteen wanted, ten places: five wait. An answer of 20 tokens: each step of ten frees half a place.
    let text = by_hand("load = [1.5]");
    let mut config =
        MockConfig { tenants: tracewheel_mock::TenantConfig { output_tokens: 20, ..text.tenants }, ..text };
    let first = run(&config, &[SimulatedRequest::new(0, 100, 1)])[0].clone();
    // Ten others decode: 20 ms a step. Every second step one leaves and the next of the five enters (one prompt token,
    // 0.1 ms, in the step after). They are in after ten steps. Two more, and the sixth place is ours; those steps take
    // 20 ms each and 0.1 ms for each of the five prompts. Then nine others and our prompt: 10 + 9 + 10.
    assert_eq!(first.ttft_ns, Some(12 * 20 * MS + 5 * MS / 10 + 29 * MS));
    // Double the surplus: ten wait, so 22 steps.
    config.tenants.load[0].load = 2.0;
    let second = run(&config, &[SimulatedRequest::new(0, 100, 1)])[0].clone();
    assert_eq!(second.ttft_ns, Some(22 * 20 * MS + 10 * MS / 10 + 29 * MS));
}

#[test]
fn a_queue_that_others_fill_refuses() {
    let mut config = by_hand("load = [1.5]");
    config.engine.queue_limit = 5;
    assert_eq!(run(&config, &[SimulatedRequest::new(0, 100, 1)])[0].status, Some(503));
    config.engine.queue_limit = 6;
    config.tenants.output_tokens = 20;
    assert_eq!(run(&config, &[SimulatedRequest::new(0, 100, 1)])[0].status, Some(200));
}

#[test]
fn others_push_prompts_out_of_the_cache() {
    let mut config = by_hand("load = [0.2]");
    config.tenants.prompt_tokens = 160;
    config.tenants.output_tokens = 100;
    config.cache.capacity_blocks = 1000;
    let ask = |at_s: i64| SimulatedRequest {
        blocks: (0..62).collect(),
        ..SimulatedRequest::new(at_s * SECOND, 1000, 1)
    };
    let cached = |gap_s: i64| run(&config, &[ask(0), ask(gap_s)])[1].cached_tokens;
    // Two others, an answer of theirs each 100 steps of 12 ms: 2 / 1.2 s = 1.67 prompts a second of ten blocks, 16.7
    // blocks a second. 938 others' blocks have room beside ours: 56 s.
    assert_eq!((cached(10), cached(50)), (992, 992));
    assert_eq!(cached(70), 0, "70 s are 1,166 blocks");
    let half = cached(58);
    assert!(half > 0 && half < 992, "the end of the prompt goes first: {half}");
}

#[test]
fn others_prompts_take_their_share_of_steps() {
    // Answers of one token and prompts of 50: as many prompts a step as there are places.
    let mut config = by_hand("load = [0.4]");
    config.tenants.prompt_tokens = 50;
    config.tenants.output_tokens = 4;
    let outcome = run(&config, &[SimulatedRequest::new(0, 100, 41)])[0].clone();
    // Four others: each step one leaves and one enters with 50 tokens, 5 ms: 10 + 5 + 5 a step instead of 15.
    let (_, decode) = times(&outcome);
    assert!((decode / 40.0 - 20.0).abs() < 0.2, "{decode}");
}

#[test]
fn the_seed_decides_the_day_and_chance_keeps_its_mean() {
    let config = |seed: u64| {
        let config = by_hand("load = [0.3]\nvariation_ms = 200");
        let mut tenants = config.tenants.clone();
        tenants.variation = tracewheel_mock::Variation::Poisson;
        MockConfig { seed, tenants, ..config }
    };
    let requests: Vec<_> = (0..200).map(|n| SimulatedRequest::new(n * SECOND, 10, 2)).collect();
    let gaps = |seed: u64| -> Vec<f64> { run(&config(seed), &requests).iter().map(|o| times(o).1).collect() };
    assert_eq!(gaps(1), gaps(1));
    assert_ne!(gaps(1), gaps(2));
    let mean = gaps(1).iter().sum::<f64>() / 200.0;
    // 10 + 1 + 3 others of 1 ms.
    assert!((13.5..14.5).contains(&mean), "{mean}");
}

#[test]
fn everybody_is_served_whatever_the_load_and_the_room() {
    for (load, kv) in [(0.5, 2_000), (1.0, 2_000), (3.0, 500), (0.9, 100_000)] {
        let mut config = by_hand(&format!("load = [{load}]"));
        config.tenants.prompt_tokens = 300;
        config.tenants.output_tokens = 30;
        config.engine.kv_tokens = Some(kv);
        config.engine.max_batched_tokens = 64;
        let requests: Vec<_> = (0..60).map(|n| SimulatedRequest::new(n * 50 * MS, 200, 5)).collect();
        let outcomes = run(&config, &requests);
        assert!(outcomes.iter().all(|o| o.output_tokens == 5 && o.e2e_ns.is_some()), "{load} {kv}");
    }
}

#[test]
fn a_day_of_a_request_a_second_is_computed_step_by_step_of_its_own_requests_only() {
    let config = MockConfig::from_toml(
        "[tenants]\nload = [{ at = \"04:00\", load = 0.05 }, { at = \"20:00\", load = 1.1 }]",
    )
    .unwrap();
    // A request a minute; an engine that computed all steps of the day would do seven million.
    let requests: Vec<_> = (0..24 * 60).map(|n| SimulatedRequest::new(n * 60 * SECOND, 500, 20)).collect();
    let outcomes = run(&config, &requests);
    let ttft = |hour: usize| {
        let mut hour: Vec<i64> = outcomes[hour * 60..][..60].iter().map(|o| o.ttft_ns.unwrap()).collect();
        hour.sort_unstable();
        hour[30]
    };
    assert!(ttft(20) > 3 * ttft(4), "{} {}", ttft(20), ttft(4));
}
