//! The manifest: filled in as far as known before the first send, completed at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;

use serde_json::json;
use tracewheel_protocol::carrier;
use tracewheel_record::Manifest;
use tracewheel_record::manifest::{
    BudgetSection, CacheSection, ClockSection, ConnectionSection, DistributionSection, EndedBy,
    MachineSection, OutcomeSection, PercentilesNs, PlanSection, PolicySection, PrimeOutcome, PrimeSection,
    PromptsSection, ProtocolSection, RouteSection, ScenarioSection, TargetSection, TlsSection,
    TokenizerSection, VantageSection, WindowSection,
};
use tracewheel_tokens::Vocabulary;
use tracewheel_workload::{CacheMode, HistorySurvey, MAX_HISTORY_BLOCKS, Plan, PlanSurvey, Share, Sizes};

use crate::client_budget::ClientBudget;
use crate::config::{ReplayConfig, SECOND_NS, SessionMode};
use crate::histogram::{Histogram, distribution, quantiles};
use crate::machine;
use crate::realtime::{Class, SchedulingSeen};
use crate::recorder::{Primed, Totals};
use crate::report::Quantiles;
use crate::route::Route;
use crate::routing::{BoundRoute, Routing};
use crate::run::{Conducted, Destination, Taken};
use crate::shared::{Abort, Shared, TlsSeen};
use crate::stop::StopLevel;

/// Everything that is known before the first send.
pub(crate) struct Known<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) config: &'a ReplayConfig,
    pub(crate) routing: &'a Routing,
    /// What each route takes.
    pub(crate) taken: &'a [Taken],
    /// The servers, one at least.
    pub(crate) destinations: &'a [Destination],
    pub(crate) nonce: u64,
    pub(crate) vocabulary: Option<&'a Vocabulary>,
    pub(crate) workers: u32,
}

impl Known<'_> {
    /// The manifest as it is written before the first send.
    pub(crate) fn opening(&self) -> Manifest {
        let config = self.config;
        Manifest {
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            owner: config.owner.clone(),
            plan: self.plan_section(),
            target: self.target(),
            vantage: VantageSection { hostname: machine::hostname(), ..VantageSection::default() },
            protocol: ProtocolSection {
                // Known once a connection stands.
                http: None,
                provider: Some(self.providers()),
                operations: self.operations(),
            },
            tls: self.destinations.iter().find_map(|one| {
                let (roots, client) = one.roots.clone().zip(one.target.tls.as_ref())?;
                Some(TlsSection { name: Some(client.name()), roots: Some(roots), ..TlsSection::default() })
            }),
            policy: self.policy(),
            cache: CacheSection {
                mode: Some(config.cache.to_string()),
                primed: Some(primes(self.plan, config.cache)),
                nonce_by: Some("prompt".to_owned()),
                prime: self.prime(),
                hooks: config.hooks.iter().map(|hook| format!("{} {}", hook.at, hook.name)).collect(),
                ..CacheSection::default()
            },
            prompts: self.prompts(),
            machine: MachineSection {
                scheduling_asked: config.realtime.then(|| Class::Realtime.as_str().to_owned()),
                pinned_cores: config.pin.clone(),
                ..machine::describe(self.workers)
            },
            clock: ClockSection::default(),
            scenario: self.scenario(),
            fidelity: Some(config.fidelity),
            warnings: self.warnings(),
            other: self.left_out(),
            ..Manifest::default()
        }
    }

    /// The routes by which something is sent, with what they take.
    fn used(&self) -> impl Iterator<Item = (&BoundRoute, &Taken)> {
        self.routing.routes().iter().zip(self.taken).filter(|(_, taken)| taken.anything())
    }

    /// The protocols that are spoken.
    fn providers(&self) -> String {
        let mut names: Vec<&str> = self.used().map(|(route, _)| route.provider.name()).collect();
        if names.is_empty() {
            names.extend(self.routing.routes().first().map(|route| route.provider.name()));
        }
        let distinct: BTreeSet<&str> = names.drain(..).collect();
        distinct.into_iter().collect::<Vec<_>>().join(", ")
    }

    /// What the protocols that carry the plan's operations ask for.
    fn operations(&self) -> Vec<String> {
        let carriers = self.used().flat_map(|(route, taken)| {
            taken.operations.iter().filter_map(|found| carrier(route.provider, found.operation))
        });
        let names: BTreeSet<&str> = carriers.map(|carrier| carrier.operation().as_str()).collect();
        names.into_iter().map(str::to_owned).collect()
    }

    fn survey(&self) -> &PlanSurvey {
        self.plan.survey()
    }

    fn plan_section(&self) -> PlanSection {
        let header = self.plan.header();
        let options = &header.options;
        let (from, to) = self.survey().trace_unix_ns.unzip();
        let span_ns = header.measured_span_ns();
        PlanSection {
            requests: header.requests,
            timeline: Some(self.config.run_name.clone()),
            timeline_digest: header.timeline_digest.clone(),
            seed: options.seed,
            nonce: Some(self.nonce),
            speed: Some(options.speed.as_f64()),
            mode: Some(match self.config.closed_loop {
                Some(at_once) => format!("closed:{at_once}"),
                None if self.config.sessions.thread => "open:after-previous:threaded".to_owned(),
                None if self.config.sessions.mode == SessionMode::AfterPrevious => {
                    "open:after-previous".to_owned()
                }
                None => "open".to_owned(),
            }),
            window: WindowSection {
                from_unix_ns: from,
                to_unix_ns: to,
                from_offset_ns: options.window.map(|window| window.from_ns),
                to_offset_ns: options.window.and_then(|window| window.to_ns),
                zone: None,
            },
            span_ns: Some(span_ns),
            offered_per_second: per_second(header.requests_measured(), span_ns),
            block_tokens: header.block_tokens,
            amplification: options.thin.map(Share::as_f64),
        }
    }

    fn target(&self) -> TargetSection {
        let first = &self.destinations[0];
        let mut models = BTreeSet::new();
        for (route, taken) in self.used() {
            match &route.model {
                Some(model) => models.extend([model.clone()]),
                None => models.extend(taken.models.iter().cloned()),
            }
        }
        let addresses =
            self.destinations.iter().flat_map(|one| one.addresses.iter().map(SocketAddr::to_string));
        TargetSection {
            url: first.endpoint.url(),
            resolve_ns: self.destinations.iter().map(|one| one.resolve_ns).max(),
            resolved_addresses: addresses.collect(),
            models_asked: models.into_iter().collect(),
            routes: self.routes(),
            ..TargetSection::default()
        }
    }

    /// The scenario's table; empty where it has none.
    fn routes(&self) -> Vec<RouteSection> {
        let lines = self.config.routes.iter().zip(self.routing.routes()).zip(self.taken);
        let section = |((route, bound), taken): ((&Route, &BoundRoute), &Taken)| {
            let from: Vec<&str> = route.keys.iter().map(|key| key.from.as_str()).collect();
            RouteSection {
                name: Some(route.name.clone()),
                matches: route.takes.to_string(),
                url: bound.endpoint.url(),
                provider: Some(route.provider.clone()),
                model: route.model.clone(),
                key_from: Some(from.join(", ")).filter(|from| !from.is_empty()),
                requests: Some(taken.requests),
            }
        };
        lines.map(section).collect()
    }

    fn policy(&self) -> PolicySection {
        let config = self.config;
        PolicySection {
            retry: Some(config.retry.name.clone()),
            retry_resolved: serde_json::to_value(&config.retry).ok(),
            budgets: budgets(&config.budget),
            connections: ConnectionSection {
                mode: Some(config.connection_use.as_str().to_owned()),
                opened_ahead: None,
                limit: config.max_connections,
                spares: config.spare_connections,
                idle_limit_ns: None,
                request_timeout_ns: Some(config.request_timeout_ns),
                connect_timeout_ns: Some(config.connect_timeout_ns),
            },
        }
    }

    /// What is sent ahead, as far as it is known now.
    fn prime(&self) -> Option<PrimeSection> {
        let header = self.plan.header();
        let Some((history, survey)) = header.options.history.zip(header.history) else {
            let own = PrimeSection { of: Some("prompts".to_owned()), ..PrimeSection::default() };
            return primes(self.plan, self.config.cache).then_some(own);
        };
        Some(PrimeSection {
            of: Some("history".to_owned()),
            look_back_ns: Some(survey.look_back_ns),
            cache_tokens: history.cache_tokens,
            prefixes: Some(if history.reused_only { "reused" } else { "live" }.to_owned()),
            requests: Some(survey.requests),
            input_tokens: Some(survey.input_tokens),
            distinct_tokens: Some(survey.distinct_tokens),
        })
    }

    fn prompts(&self) -> PromptsSection {
        let survey = self.survey();
        let recorded = survey.recorded_bodies;
        let origin = match recorded {
            0 => "synthesised",
            all if all == self.plan.header().requests => "recorded",
            _ => "mixed",
        };
        PromptsSection {
            digest: Some(survey.sizes_digest.clone()),
            origin: Some(origin.to_owned()),
            input_tokens: Some(sizes(&survey.input_tokens)),
            output_tokens: Some(sizes(&survey.output_tokens)),
            tokenizer: self.vocabulary.map(|vocabulary| TokenizerSection {
                file: self.config.prompts.tokenizer.as_deref().and_then(file_name),
                kind: Some(vocabulary.kind().as_str().to_owned()),
                digest: Some(vocabulary.digest().to_owned()),
                words: u32::try_from(vocabulary.maker().words().len()).ok(),
            }),
            calibration: None,
        }
    }

    fn scenario(&self) -> ScenarioSection {
        let text = self.config.scenario.clone();
        ScenarioSection { version: text.as_ref().map(|_| "1".to_owned()), text }
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.idle_routes();
        if let Some(at_once) = self.config.closed_loop {
            warnings.push(format!(
                "closed loop of {at_once}: requests waited for each other, so the recorded arrivals were not kept"
            ));
        }
        if let Some(ns) = self.config.test_stall_ns {
            warnings.push(format!(
                "a test: the sending thread was held up for {} ms before each release",
                ns as f64 / 1e6
            ));
        }
        if self.config.test_whole_bodies {
            warnings.push("a test: requests were written in one go".to_owned());
        }
        if let Some(history) = self.plan.header().history {
            warnings.extend(history_warnings(&history));
            if self.destinations.len() > 1 && history.requests > 0 {
                warnings.push(
                    "prime: the rows before the window are taken to have shared one cache: a prefix that several routes used is sent \
                     ahead to the one that used it last"
                        .to_owned(),
                );
            }
        }
        if self.survey().recorded_bodies > 0 && self.config.cache != CacheMode::Natural {
            warnings
                .push("recorded bodies are sent as they are: the cache mode does not reach them".to_owned());
        }
        warnings
    }

    /// Routes of the table that take nothing: perhaps misspelt, perhaps behind one that takes all.
    fn idle_routes(&self) -> Vec<String> {
        let idle = self.config.routes.iter().zip(self.taken).filter(|(_, taken)| !taken.anything());
        let told = |(route, _): (&Route, &Taken)| {
            format!("the route {:?} ({}) takes no request of the plan", route.name, route.takes)
        };
        idle.map(told).collect()
    }

    /// What the options made of the window's rows, as far as they were used.
    fn left_out(&self) -> BTreeMap<String, serde_json::Value> {
        let header = self.plan.header();
        let mut other: BTreeMap<String, serde_json::Value> = [
            ("rows_left_out", header.rows_unknown_tokens),
            ("rows_of_operations_left_out", header.rows_left_out),
            ("requests_filled", header.requests_filled),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| (name.to_owned(), json!(count)))
        .collect();
        if let Some(thinned) = &header.thinned {
            other.insert("thinned".to_owned(), json!(thinned));
        }
        if let Some(warmup) = header.options.warmup.filter(|_| header.warmup_ns > 0) {
            let told = json!({
                "duration_ns": header.warmup_ns,
                "requests": header.requests_warmup,
                "before_window": warmup.before_window,
            });
            other.insert("warmup".to_owned(), told);
        }
        other
    }
}

/// What a history could not bring back.
fn history_warnings(history: &HistorySurvey) -> Vec<String> {
    let mut warnings = Vec::new();
    let rows = history.rows;
    if history.rows_without_hashes > 0 {
        warnings.push(format!(
            "prime: {} of {rows} rows before the window have no prefix hashes, and what they left in the cache is unknown",
            history.rows_without_hashes
        ));
    }
    if history.rows_with_bodies > 0 {
        warnings.push(format!(
            "prime: {} of {rows} rows before the window have recorded bodies, which are not sent ahead",
            history.rows_with_bodies
        ));
    }
    if history.beyond_memory {
        warnings.push(format!(
            "prime: more than {MAX_HISTORY_BLOCKS} blocks were live before the window; only those used last are sent ahead"
        ));
    }
    warnings
}

fn file_name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_string_lossy().into_owned())
}

fn sizes(sizes: &Sizes) -> DistributionSection {
    distribution(&sizes.histogram, sizes.sum)
}

/// Whether prompts are sent ahead of the measured phase.
pub(crate) fn primes(plan: &Plan, mode: CacheMode) -> bool {
    match mode {
        CacheMode::Natural => plan.header().history.is_some_and(|history| history.requests > 0),
        CacheMode::Cold => false,
        CacheMode::Warm => true,
        CacheMode::Mix { warm_ppm } => warm_ppm > 0,
    }
}

/// A rate over the gaps between `count` things; `None` for fewer than two.
pub(crate) fn per_second(count: u64, span_ns: i64) -> Option<f64> {
    (count > 1 && span_ns > 0).then(|| (count - 1) as f64 / (span_ns as f64 / 1e9))
}

/// What is known at the end, put into the manifest.
pub(crate) fn complete(
    manifest: &mut Manifest,
    totals: &Totals,
    shared: &Shared,
    plan: &Plan,
    conducted: &Conducted,
) {
    let target = &mut manifest.target;
    target.server_header = Some(totals.servers.iter().cloned().collect::<Vec<_>>().join(", "))
        .filter(|servers| !servers.is_empty());
    target.models_served = totals.models_served.iter().cloned().collect();
    target.system_fingerprints = totals.fingerprints.iter().cloned().collect();
    if let Some(section) = &mut manifest.tls {
        complete_tls(section, &shared.tls());
    }
    manifest.protocol.http = shared.http().spoken(manifest.tls.is_some()).map(str::to_owned);
    let round_trips = shared.round_trips();
    let vantage = &mut manifest.vantage;
    vantage.round_trip_min_ns = round_trips.first().copied();
    vantage.round_trip_p50_ns = round_trips.get(round_trips.len().saturating_sub(1) / 2).copied();
    vantage.round_trip_samples = u32::try_from(round_trips.len()).ok();
    let seen = shared.connections();
    manifest.policy.connections.opened_ahead = Some(conducted.opened_ahead);
    manifest.policy.connections.idle_limit_ns = seen.retire_after_ns;
    let predicted = &conducted.predicted;
    manifest.cache.planned_share = predicted.share();
    if let Some(row) = predicted.forgets_from_row {
        manifest.warnings.push(format!(
            "the prompts hold more blocks than the prediction of cached tokens remembers: from row {row} on, \
             predicted_cached_tokens is a lower bound (what a cache of the {} blocks used last holds)",
            predicted.remembers_blocks
        ));
    }
    manifest.prompts.calibration.clone_from(&conducted.calibration);
    manifest.warnings.extend(conducted.uncalibrated.clone());
    if totals.cached_reported_by > 0 {
        manifest.cache.measured_share =
            Some(totals.cached_tokens as f64 / totals.cached_of_tokens.max(1) as f64);
    }
    manifest.cache.reported_by = Some(totals.cached_reported_by);
    manifest.machine.kernel_stamps = totals.kernel_stamps;
    complete_scheduling(&mut manifest.machine, shared.scheduling());
    let clock = &mut manifest.clock;
    (clock.bracket_max_ns, clock.steps, clock.drift_ns) =
        (totals.clock.bracket_max_ns, Some(totals.clock.steps), totals.clock.drift_ns());
    if let Some(start_ns) = shared.measure_start_ns() {
        let start_ns = start_ns.saturating_add(plan.header().warmup_ns);
        manifest.other.insert("measure_start_ns".to_owned(), json!(start_ns));
    }
    let stop = (conducted.stopped, conducted.stopped_ns);
    manifest.hooks.clone_from(&conducted.hooks);
    let prime = conducted.primed_in_ns.map(|took_ns| prime_outcome(&totals.primed, took_ns));
    let threading = shared.threading();
    manifest.outcome = Some(OutcomeSection { prime, threading, ..outcome(totals, shared, stop) });
}

fn prime_outcome(primed: &Primed, took_ns: i64) -> PrimeOutcome {
    PrimeOutcome {
        ok: primed.ok,
        failed: primed.failed,
        input_tokens: primed.input_tokens,
        cached_tokens: primed.cached_tokens,
        output_tokens: primed.output_tokens,
        took_ns,
    }
}

fn complete_scheduling(machine: &mut MachineSection, seen: SchedulingSeen) {
    if machine.scheduling_asked.is_none() {
        return;
    }
    if machine.workers.is_some_and(|workers| seen.obtained == workers) {
        machine.scheduling_class = Some(Class::Realtime.as_str().to_owned());
    }
    machine.scheduling_refused = seen.refused;
    machine.scheduling_step_downs = Some(seen.step_downs);
    machine.scheduling_changes = seen.changes;
}

fn complete_tls(section: &mut TlsSection, seen: &TlsSeen) {
    (section.handshakes_full, section.handshakes_resumed) = (Some(seen.full), Some(seen.resumed));
    section.resumption = Some(seen.resumed > 0);
    let Some(facts) = &seen.facts else { return };
    section.verified = Some(true);
    section.version.clone_from(&facts.version);
    section.cipher_suite.clone_from(&facts.cipher_suite);
    section.alpn.clone_from(&facts.alpn);
    if let Some(certificate) = &facts.certificate {
        section.certificate_subject.clone_from(&certificate.subject);
        section.certificate_issuer.clone_from(&certificate.issuer);
        section.certificate_not_after.clone_from(&certificate.not_after);
        section.certificate_sha256 = Some(certificate.sha256.clone());
    }
}

fn outcome(
    totals: &Totals,
    shared: &Shared,
    (stopped, stopped_ns): (StopLevel, Option<i64>),
) -> OutcomeSection {
    let ended_by = match (shared.aborted(), stopped) {
        (Some(Abort::RecorderBehind | Abort::RecorderFailed), _) => EndedBy::Recorder,
        (Some(Abort::TargetFailing | Abort::HookFailed), _) => EndedBy::Failures,
        (Some(Abort::PlanUnreadable | Abort::ThreadDied), _) => EndedBy::Unknown,
        (None, StopLevel::Running) => EndedBy::Plan,
        (None, StopLevel::Drain) => EndedBy::Drained,
        (None, StopLevel::Cut) => EndedBy::Cut,
    };
    let released = totals.first_release_ns.zip(totals.last_release_ns);
    let late = quantiles(&totals.lateness);
    OutcomeSection {
        ended_by,
        // The window of a stopped run ends at the stop.
        ended_ns: stopped_ns.or(totals.last_release_ns),
        achieved_per_second: released
            .and_then(|(first, last)| per_second(totals.in_flight.count(), last - first)),
        lateness: percentiles(&totals.lateness, &late),
        gate_drift: None,
        in_flight: (totals.in_flight.count() > 0)
            .then(|| distribution(&totals.in_flight, totals.in_flight_sum)),
        connections: Some(shared.connections()),
        ..OutcomeSection::default()
    }
}

fn percentiles(histogram: &Histogram, quantiles: &Quantiles) -> Option<PercentilesNs> {
    Some(PercentilesNs {
        count: quantiles.count,
        p50_ns: quantiles.p50_ns?,
        p90_ns: quantiles.p90_ns?,
        p99_ns: quantiles.p99_ns?,
        p999_ns: histogram.quantile(0.999)?,
        max_ns: quantiles.max_ns?,
    })
}
/// What is limited, as the manifest tells it. A limit of requests in flight has no window.
fn budgets(budget: &ClientBudget) -> Vec<BudgetSection> {
    let minute = Some(60 * SECOND_NS);
    [
        ("requests", budget.requests_per_minute, minute),
        ("tokens", budget.tokens_per_minute, minute),
        ("in_flight", budget.in_flight.map(u64::from), None),
    ]
    .into_iter()
    .filter_map(|(of, amount, window_ns)| {
        Some(BudgetSection {
            of: of.to_owned(),
            scope: None,
            amount: amount?,
            window_ns: window_ns.unwrap_or(0),
        })
    })
    .collect()
}
