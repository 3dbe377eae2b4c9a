//! Outcomes of virtual clients.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use tracewheel_mock::{MockConfig, Outcome, SimulatedRequest, Simulation};

const MS: i64 = 1_000_000;

fn run(text: &str, requests: &[SimulatedRequest]) -> Vec<Outcome> {
    Simulation::new(&MockConfig::from_toml(text).unwrap()).unwrap().run(requests)
}

fn ask(at_ms: i64) -> SimulatedRequest {
    SimulatedRequest::new(at_ms * MS, 1000, 3)
}

#[test]
fn outcomes_come_in_the_order_of_the_requests_whatever_their_arrivals() {
    let outcomes = run("", &[ask(5_000), ask(0)]);
    // 12 + 60, then twice 12.1.
    let whole = Outcome {
        status: Some(200),
        ttft_ns: Some(72 * MS),
        e2e_ns: Some(96_200_000),
        output_tokens: 3,
        ..Outcome::default()
    };
    assert_eq!(outcomes, [whole.clone(), whole]);
}

#[test]
fn arrivals_of_one_instant_share_a_step() {
    let outcomes = run("", &[ask(0), ask(0)]);
    assert!(outcomes.iter().all(|outcome| outcome.ttft_ns == Some((12 + 120) * MS)), "{outcomes:?}");
}

#[test]
fn budgets_refuse_with_their_wait() {
    let text = "[limits]\nrequests_per_minute = 60\nrequest_burst = 1";
    let outcomes = run(text, &[ask(0), ask(250), ask(1000)]);
    let statuses: Vec<_> = outcomes.iter().map(|outcome| outcome.status).collect();
    assert_eq!(statuses, [Some(200), Some(429), Some(200)]);
    assert_eq!((outcomes[1].retry_after_ns, outcomes[1].ttft_ns), (Some(750 * MS), None));
}

#[test]
fn requests_under_way_are_limited_by_key() {
    let text = "[limits]\nmax_in_flight = 1\nper_key = true";
    let other = SimulatedRequest { key: 1, ..ask(2) };
    let statuses: Vec<_> = run(text, &[ask(0), ask(1), other, ask(1000)]).iter().map(|o| o.status).collect();
    assert_eq!(statuses, [Some(200), Some(429), Some(200), Some(200)]);
}

#[test]
fn faults_show_as_their_clients_would_see_them() {
    let text = "
        [[fault]]
        name = 'cut'
        kind = 'reset'
        after_chunks = 2
        to_ms = 10
        [[fault]]
        name = 'gone'
        kind = 'close'
        to_ms = 1010
        [[fault]]
        name = 'busy'
        kind = 'status'
        status = 529
        retry_after_ms = 40
        to_ms = 2010
    ";
    let outcomes = run(text, &[ask(0), ask(1000), ask(2000), ask(3000)]);
    let cut = Outcome {
        status: Some(200),
        ttft_ns: Some(72 * MS),
        output_tokens: 2,
        fault: Some("cut".into()),
        ..Outcome::default()
    };
    assert_eq!(outcomes[0], cut);
    assert_eq!(outcomes[1], Outcome { fault: Some("gone".into()), ..Outcome::default() });
    let busy = Outcome {
        status: Some(529),
        retry_after_ns: Some(40 * MS),
        fault: Some("busy".into()),
        ..Outcome::default()
    };
    assert_eq!(outcomes[2], busy);
    assert_eq!((outcomes[3].status, outcomes[3].e2e_ns), (Some(200), Some(96_200_000)));
}

#[test]
fn a_repeated_prompt_is_cached() {
    let ask = |at_ms: i64| SimulatedRequest { blocks: (1..=62).collect(), ..ask(at_ms) };
    let outcomes = run("", &[ask(0), ask(1000)]);
    // 62 blocks of 16; eight tokens are computed: 12 + 0.48.
    assert_eq!((outcomes[1].cached_tokens, outcomes[1].ttft_ns), (992, Some(12_480_000)));
}
