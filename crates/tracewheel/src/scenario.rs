//! The scenario file: what `replay` would be told by flags, kept beside the code that it tests.

mod clients;
mod hooks;
mod protocol;
mod retry;
mod routes;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use tracewheel_record::manifest::FidelityBounds;
use tracewheel_record::redact;
use tracewheel_replay::{ReplayConfig, provider};

use crate::choice::choice;
use crate::cli::ReplayArgs;
use crate::exit::{Exit, Failure, Or};
use crate::files;
use crate::time::parse_ns;

pub(crate) use clients::{Budget, Sessions};
pub(crate) use hooks::HookEntry;
pub(crate) use protocol::Protocol;
pub(crate) use retry::Retry;
pub(crate) use routes::RouteEntry;

/// The file that is taken when `--scenario` is not given.
pub(crate) const DEFAULT_NAME: &str = "tracewheel.toml";

/// Where runs go when neither flag nor file says.
pub(crate) const DEFAULT_RUNS: &str = "runs";

/// The only version there is.
const VERSION: u32 = 1;

/// A scenario file; unknown keys are refused.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    version: u32,
    owner: Option<String>,
    timeline: Option<PathBuf>,
    runs: Option<PathBuf>,
    seed: Option<u64>,
    id_key_file: Option<PathBuf>,
    #[serde(default)]
    target: Target,
    #[serde(default)]
    protocol: Protocol,
    #[serde(default)]
    window: Window,
    #[serde(default)]
    prime: Prime,
    #[serde(default)]
    replay: Replay,
    #[serde(default)]
    retry: Retry,
    #[serde(default)]
    budget: Budget,
    #[serde(default)]
    sessions: Sessions,
    #[serde(default)]
    prompts: Prompts,
    #[serde(default)]
    record: Record,
    #[serde(default)]
    fidelity: Fidelity,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    routes: Vec<RouteEntry>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    hooks: Vec<HookEntry>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Target {
    url: Option<String>,
    protocol: Option<String>,
    model: Option<String>,
    api_key_env: Option<String>,
    api_key_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    tls_name: Option<String>,
    http: Option<String>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Window {
    #[serde(default, deserialize_with = "duration_ns", serialize_with = "duration_text")]
    from: Option<i64>,
    #[serde(default, deserialize_with = "duration_ns", serialize_with = "duration_text")]
    to: Option<i64>,
    limit: Option<u64>,
    #[serde(default, deserialize_with = "number_or_text")]
    thin: Option<String>,
    #[serde(default, deserialize_with = "duration_ns", serialize_with = "duration_text")]
    warmup: Option<i64>,
    #[serde(default)]
    warmup_before: bool,
    #[serde(default)]
    leave_out: Vec<String>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Prime {
    look_back: Option<String>,
    cache_tokens: Option<u64>,
    prefixes: Option<String>,
    at_once: Option<u32>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Prompts {
    tokenizer: Option<PathBuf>,
    calibrate: Option<bool>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Record {
    power_safe: Option<bool>,
    part_rows: Option<u32>,
    part_bytes: Option<u64>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Fidelity {
    lateness_share: Option<f64>,
    #[serde(default, deserialize_with = "duration_ns", serialize_with = "duration_text")]
    lateness_floor: Option<i64>,
    #[serde(default, deserialize_with = "duration_ns", serialize_with = "duration_text")]
    lateness_ceiling: Option<i64>,
    gap_distance_share: Option<f64>,
    #[serde(default, deserialize_with = "duration_ns", serialize_with = "duration_text")]
    gap_distance_floor: Option<i64>,
    #[serde(default, deserialize_with = "duration_ns", serialize_with = "duration_text")]
    gap_distance_ceiling: Option<i64>,
    unfaithful_factor: Option<f64>,
    unsent_share: Option<f64>,
}

impl Fidelity {
    /// The usual bounds with what the file says.
    fn bounds(&self) -> FidelityBounds {
        let usual = FidelityBounds::default();
        FidelityBounds {
            lateness_share: self.lateness_share.unwrap_or(usual.lateness_share),
            lateness_floor_ns: self.lateness_floor.unwrap_or(usual.lateness_floor_ns),
            lateness_ceiling_ns: self.lateness_ceiling.unwrap_or(usual.lateness_ceiling_ns),
            gap_distance_share: self.gap_distance_share.unwrap_or(usual.gap_distance_share),
            gap_distance_floor_ns: self.gap_distance_floor.unwrap_or(usual.gap_distance_floor_ns),
            gap_distance_ceiling_ns: self.gap_distance_ceiling.unwrap_or(usual.gap_distance_ceiling_ns),
            unfaithful_factor: self.unfaithful_factor.unwrap_or(usual.unfaithful_factor),
            unsent_share: self.unsent_share.unwrap_or(usual.unsent_share),
        }
    }

    /// All of them, for a file in which every default is filled in.
    fn of(bounds: &FidelityBounds) -> Self {
        Self {
            lateness_share: Some(bounds.lateness_share),
            lateness_floor: Some(bounds.lateness_floor_ns),
            lateness_ceiling: Some(bounds.lateness_ceiling_ns),
            gap_distance_share: Some(bounds.gap_distance_share),
            gap_distance_floor: Some(bounds.gap_distance_floor_ns),
            gap_distance_ceiling: Some(bounds.gap_distance_ceiling_ns),
            unfaithful_factor: Some(bounds.unfaithful_factor),
            unsent_share: Some(bounds.unsent_share),
        }
    }
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Replay {
    #[serde(default, deserialize_with = "number_or_text")]
    speed: Option<String>,
    retry: Option<String>,
    cache: Option<String>,
    cancel: Option<String>,
    closed_loop: Option<u32>,
    #[serde(default, deserialize_with = "duration_ns", serialize_with = "duration_text")]
    timeout: Option<i64>,
    #[serde(default, deserialize_with = "duration_ns", serialize_with = "duration_text")]
    drain: Option<i64>,
    unknown_tokens: Option<String>,
    lengths: Option<String>,
    connections: Option<u32>,
    connection_use: Option<String>,
    spare_connections: Option<u32>,
    http2_streams: Option<u32>,
    workers: Option<u16>,
    realtime: Option<bool>,
    #[serde(default)]
    pin: Vec<u32>,
    ignore_hook_failure: Option<bool>,
}

fn duration_ns<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| parse_ns(&text).map_err(serde::de::Error::custom)).transpose()
}

/// In the largest unit that says it exactly.
fn duration_text<S: Serializer>(ns: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
    let Some(ns) = ns else { return serializer.serialize_none() };
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];
    let (size, unit) = units.into_iter().find(|(size, _)| ns % size == 0).unwrap_or((1, "ns"));
    serializer.collect_str(&format_args!("{}{unit}", ns / size))
}

/// A TOML number or text, as text: `speed = 2` and `speed = "1/3"` are both what people write.
fn number_or_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Some(match toml::Value::deserialize(deserializer)? {
        toml::Value::String(text) => text,
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Float(number) => number.to_string(),
        other => {
            return Err(serde::de::Error::custom(format!("a number was expected, not {}", other.type_str())));
        }
    }))
}

/// The flags completed from the scenario file, if there is one, and whether there is.
///
/// # Errors
/// Usage, when the file cannot be read or holds anything that is not known.
pub(crate) fn complete(args: ReplayArgs) -> Result<(ReplayArgs, bool), Failure> {
    let Some(path) = chosen(args.scenario.as_deref()) else { return Ok((args, false)) };
    let text = files::small_text(&path, "the scenario", files::CONFIG_BYTES)?;
    let scenario: Scenario =
        toml::from_str(&text).or_exit_with(Exit::Usage, || format!("in the scenario {}", path.display()))?;
    if scenario.version != VERSION {
        return Err(Failure::usage(format!(
            "the scenario {} has version {}, this tracewheel reads version {VERSION}",
            path.display(),
            scenario.version
        )));
    }
    let refused = |why| Failure::usage(format!("in the scenario {}: {why}", path.display()));
    checked(&scenario).map_err(refused)?;
    if let Some(flag) = routes::refused_flag(&args).filter(|_| !scenario.routes.is_empty()) {
        return Err(Failure::usage(format!(
            "{flag} is for one target, and the scenario {} sends requests by its [[routes]]: say it there, or name a scenario without \
             routes by --scenario",
            path.display()
        )));
    }
    let mut args = overlay(args, scenario, path.parent().unwrap_or(Path::new("")));
    args.routes = routes::resolved(&args).map_err(refused)?;
    Ok((args, true))
}

/// Words that a flag would have been refused for.
fn checked(file: &Scenario) -> Result<(), String> {
    let replay = &file.replay;
    for (section, key, value) in [
        ("target", "protocol", &file.target.protocol),
        ("target", "http", &file.target.http),
        ("replay", "retry", &replay.retry),
        ("replay", "cache", &replay.cache),
        ("replay", "cancel", &replay.cancel),
        ("prime", "prefixes", &file.prime.prefixes),
        ("replay", "unknown_tokens", &replay.unknown_tokens),
        ("replay", "lengths", &replay.lengths),
        ("replay", "connection_use", &replay.connection_use),
    ] {
        let flag = if section == "prime" { "prime_prefixes" } else { key };
        if let (Some(value), Some(choice)) = (value, choice("replay", flag)) {
            choice.check(value).map_err(|why| format!("[{section}] {key}: {why}"))?;
        }
    }
    if let (Some(_), Some(_)) = (&replay.retry, file.retry.policy()) {
        return Err("[retry] policy and [replay] retry are the same thing: keep one of the two".to_owned());
    }
    let named = file.retry.policy().or(replay.retry.as_deref()).unwrap_or("none");
    file.retry.resolve(named).map_err(|why| format!("[retry] {why}"))?;
    file.sessions.resolve().map_err(|why| format!("[sessions] {why}"))?;
    file.protocol.check()?;
    file.fidelity.bounds().check().map_err(|why| format!("[fidelity] {why}"))
}

fn chosen(named: Option<&Path>) -> Option<PathBuf> {
    match named {
        Some(path) => Some(path.to_owned()),
        None => Some(PathBuf::from(DEFAULT_NAME)).filter(|path| path.is_file()),
    }
}

/// Flags first; what they leave open comes from the file. Paths in the file start at the file's folder.
fn overlay(args: ReplayArgs, file: Scenario, folder: &Path) -> ReplayArgs {
    let beside = |path: PathBuf| folder.join(path);
    let policy_by_flag = args.retry.is_some();
    let key_by_flag = args.api_key_env.is_some() || args.api_key_file.is_some();
    ReplayArgs {
        timeline: args.timeline.or(file.timeline.map(beside)),
        scenario: args.scenario,
        target: args.target.or(file.target.url),
        protocol: args.protocol.or(file.target.protocol),
        model: args.model.or(file.target.model),
        engine: args.engine.or(file.protocol.engine.clone()),
        protocol_section: file.protocol,
        api_key_env: args.api_key_env.or(file.target.api_key_env.filter(|_| !key_by_flag)),
        api_key_file: args.api_key_file.or(file.target.api_key_file.filter(|_| !key_by_flag).map(beside)),
        ca_file: args.ca_file.or(file.target.ca_file.map(beside)),
        tls_name: args.tls_name.or(file.target.tls_name),
        http: args.http.or(file.target.http),
        from: args.from.or(file.window.from),
        to: args.to.or(file.window.to),
        speed: args.speed.or(file.replay.speed),
        limit: args.limit.or(file.window.limit),
        thin: args.thin.or(file.window.thin),
        warmup: args.warmup.or(file.window.warmup),
        warmup_before: args.warmup_before || file.window.warmup_before,
        leave_out: if args.leave_out.is_empty() { file.window.leave_out } else { args.leave_out },
        seed: args.seed.or(file.seed),
        retry: args.retry.or(file.replay.retry).or_else(|| file.retry.policy().map(str::to_owned)),
        retry_with: args.retry_with,
        // A policy named by flag is that policy, whatever the file makes of its own.
        retry_of_scenario: if policy_by_flag { Retry::default() } else { file.retry },
        budget: args.budget,
        budget_of_scenario: file.budget,
        sessions: args.sessions.or(file.sessions.mode),
        after_failure: args.after_failure.or(file.sessions.after_failure),
        thread_answers: args.thread_answers || file.sessions.thread.unwrap_or(false),
        cancel: args.cancel.or(file.replay.cancel),
        tokenizer: args.tokenizer.or(file.prompts.tokenizer.map(beside)),
        calibrate: args.calibrate || file.prompts.calibrate.unwrap_or(false),
        cache: args.cache.or(file.replay.cache),
        flush: args.flush,
        routes: file.routes.into_iter().map(|route| route.beside(folder)).collect(),
        id_key_file: file.id_key_file.map(beside),
        hooks: file.hooks,
        ignore_hook_failure: args.ignore_hook_failure || file.replay.ignore_hook_failure.unwrap_or(false),
        prime: args.prime.or(file.prime.look_back),
        prime_tokens: args.prime_tokens.or(file.prime.cache_tokens),
        prime_prefixes: args.prime_prefixes.or(file.prime.prefixes),
        prime_at_once: args.prime_at_once.or(file.prime.at_once),
        closed_loop: args.closed_loop.or(file.replay.closed_loop),
        timeout: args.timeout.or(file.replay.timeout),
        drain: args.drain.or(file.replay.drain),
        unknown_tokens: args.unknown_tokens.or(file.replay.unknown_tokens),
        lengths: args.lengths.or(file.replay.lengths),
        connections: args.connections.or(file.replay.connections),
        connection_use: args.connection_use.or(file.replay.connection_use),
        spare_connections: args.spare_connections.or(file.replay.spare_connections),
        http2_streams: args.http2_streams.or(file.replay.http2_streams),
        workers: args.workers.or(file.replay.workers),
        test_stall_ms: args.test_stall_ms,
        fidelity: args.fidelity,
        fidelity_of_scenario: Some(file.fidelity.bounds()),
        realtime: args.realtime || file.replay.realtime.unwrap_or(false),
        pin: if args.pin.is_empty() { file.replay.pin } else { args.pin },
        owner: args.owner.or(file.owner),
        output: args.output.or(file.runs.map(beside)),
        power_safe: args.power_safe || file.record.power_safe.unwrap_or(false),
        part_rows: args.part_rows.or(file.record.part_rows),
        part_bytes: args.part_bytes.or(file.record.part_bytes),
        json: args.json,
    }
}

/// What flags and file came to, with every default filled in, as a scenario file that `--scenario` takes: anywhere, so
/// its paths are absolute.
pub(crate) fn resolved(args: &ReplayArgs, config: &ReplayConfig) -> Option<String> {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let text =
        |given: &Option<String>, default: &str| Some(given.clone().unwrap_or_else(|| default.to_owned()));
    let scenario = Scenario {
        version: VERSION,
        owner: args.owner.clone(),
        timeline: args.timeline.as_deref().map(absolute),
        runs: Some(absolute(args.output.as_deref().unwrap_or(Path::new(DEFAULT_RUNS)))),
        seed: Some(args.seed.unwrap_or(0)),
        // What tenants' names were hashed to stands in the routes.
        id_key_file: None,
        target: if args.routes.is_empty() { target(args, config) } else { Target::default() },
        protocol: if args.routes.is_empty() {
            args.protocol_section.with_engine(args.engine.as_ref())
        } else {
            Protocol::default()
        },
        window: Window {
            from: args.from,
            to: args.to,
            limit: args.limit,
            thin: args.thin.clone(),
            warmup: args.warmup,
            warmup_before: args.warmup_before,
            leave_out: args.leave_out.clone(),
        },
        prime: Prime {
            look_back: args.prime.clone(),
            cache_tokens: args.prime_tokens,
            prefixes: args.prime_prefixes.clone(),
            at_once: Some(config.prime_concurrency),
        },
        replay: Replay {
            speed: text(&args.speed, "1"),
            retry: None,
            cache: text(&args.cache, "natural"),
            cancel: text(&args.cancel, "never"),
            closed_loop: args.closed_loop,
            timeout: Some(config.request_timeout_ns),
            drain: Some(config.stop_drain_ns),
            unknown_tokens: text(&args.unknown_tokens, "refuse"),
            lengths: match args.routes.is_empty() {
                true => Some(if forces_length(config) { "exact" } else { "cap" }.to_owned()),
                false => args.lengths.clone(),
            },
            connections: args.connections,
            connection_use: text(&args.connection_use, "reuse"),
            spare_connections: args.spare_connections,
            http2_streams: Some(config.http2_streams),
            workers: args.workers,
            realtime: Some(config.realtime),
            pin: args.pin.clone(),
            ignore_hook_failure: Some(config.ignore_hook_failure),
        },
        retry: Retry::of(&config.retry),
        budget: Budget::of(&config.budget),
        sessions: Sessions::of(&config.sessions),
        prompts: Prompts {
            tokenizer: args.tokenizer.as_deref().map(absolute),
            calibrate: Some(config.prompts.calibrate),
        },
        record: Record {
            power_safe: Some(config.record.power_safe),
            part_rows: Some(config.record.part_rows),
            part_bytes: Some(config.record.part_bytes),
        },
        fidelity: Fidelity::of(&config.fidelity),
        routes: routes::published(args, config),
        hooks: args.hook_entries().into_iter().map(HookEntry::published).collect(),
    };
    toml::to_string(&scenario).ok()
}

/// The one target of a scenario without routes.
fn target(args: &ReplayArgs, config: &ReplayConfig) -> Target {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Target {
        url: Some(redact::redact_url(&config.target)),
        protocol: Some(config.provider.clone()),
        model: args.model.clone(),
        api_key_env: args.api_key_env.clone(),
        api_key_file: args.api_key_file.as_deref().map(absolute),
        ca_file: args.ca_file.as_deref().map(absolute),
        tls_name: args.tls_name.clone(),
        http: Some(args.http.clone().unwrap_or_else(|| "auto".to_owned())),
    }
}

/// Whether answers are forced to their recorded length, by what was said or by what engine and protocol can do.
fn forces_length(config: &ReplayConfig) -> bool {
    let settled = provider(&config.provider).map(|provider| config.protocol.settle(provider));
    settled.and_then(Result::ok).is_some_and(|settled| settled.force_length)
}

/// The timeline that a resolved scenario names.
pub(crate) fn timeline_of(resolved: &str) -> Option<PathBuf> {
    toml::from_str::<Scenario>(resolved).ok()?.timeline
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(text: &str, mut args: ReplayArgs) -> Result<ReplayArgs, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scenario.toml");
        std::fs::write(&path, text).unwrap();
        args.scenario = Some(path);
        complete(args).map(|(args, _)| args).map_err(|failure| {
            assert_eq!(failure.exit, Exit::Usage);
            format!("{:#}", failure.error)
        })
    }

    #[test]
    fn flags_override_the_scenario_and_the_scenario_fills_the_rest() {
        let text = "version = 1\nseed = 7\n[target]\nurl = \"http://127.0.0.1:1\"\nmodel = \"m\"\n\
                    [window]\nfrom = \"5m\"\n[replay]\nspeed = 2.0\n";
        let flags = ReplayArgs { speed: Some("4".into()), ..ReplayArgs::default() };
        let args = completed(text, flags).unwrap();
        assert_eq!(
            (args.speed.as_deref(), args.seed, args.from),
            (Some("4"), Some(7), Some(300_000_000_000))
        );
        assert_eq!(args.target.as_deref(), Some("http://127.0.0.1:1"));
    }

    #[test]
    fn the_example_is_a_scenario() {
        let text = include_str!("../../../examples/tracewheel.toml");
        let uncommented = text.replace("\n# ", "\n");
        for text in [text, &uncommented.replace("Every key", "# Every key")] {
            let args = completed(text, ReplayArgs::default()).unwrap();
            assert_eq!((args.from, args.to), (Some(300_000_000_000), Some(600_000_000_000)));
        }
    }

    #[test]
    fn every_scenario_among_the_examples_is_one_and_says_what_it_shows() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let mut scenarios = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            // Configurations of the mock are read by its own tests.
            if !name.ends_with(".toml") || name.starts_with("mock-") {
                continue;
            }
            scenarios += 1;
            let text = std::fs::read_to_string(&path).unwrap();
            let args =
                completed(&text, ReplayArgs::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
            let says_where = args.target.is_some() && args.protocol.is_some();
            assert!(says_where || !args.routes.is_empty(), "{name}");
            assert!(
                text.starts_with("# Shows: ") || name == DEFAULT_NAME,
                "{name} does not say what it shows"
            );
        }
        assert!(scenarios >= 5, "the examples were not found");
    }

    /// The keys of a section, as the refusal of an unknown one lists them.
    fn keys(section: &str) -> Vec<String> {
        let text = format!("version = 1\n{section}\nno-such-key = 1\n");
        let error = toml::from_str::<Scenario>(&text).unwrap_err().to_string();
        let expected = error.split("expected ").nth(1).unwrap();
        expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn the_table_of_keys_on_the_page_is_the_code() {
        let page = include_str!("../../../docs/scenario.md");
        let section = page.split("## Keys").nth(1).unwrap().split("\n### ").next().unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        let on_page: std::collections::BTreeSet<String> = rows.map(str::to_owned).collect();
        let sections: Vec<String> = keys("").into_iter().filter(|key| !on_page.contains(key)).collect();
        let mut in_code: std::collections::BTreeSet<String> =
            keys("").into_iter().filter(|key| on_page.contains(key)).collect();
        for section in sections {
            let keys = keys(&format!("[{section}]"));
            in_code.extend(keys.into_iter().map(|key| format!("{section}.{key}")));
        }
        assert_eq!(on_page, in_code);
    }

    #[test]
    fn paths_in_the_scenario_start_at_its_folder() {
        let args = completed("version = 1\ntimeline = \"t.parquet\"\n", ReplayArgs::default()).unwrap();
        assert_eq!(args.timeline.unwrap(), args.scenario.unwrap().with_file_name("t.parquet"));
    }

    #[test]
    fn an_unknown_key_is_refused_and_named_with_its_line() {
        let error = completed("version = 1\n[replay]\nsped = 2.0\n", ReplayArgs::default()).unwrap_err();
        assert!(error.contains("sped") && error.contains("line 3"), "{error}");
    }

    #[test]
    fn a_wrong_word_is_refused_with_the_nearest_right_one() {
        let error =
            completed("version = 1\n[replay]\ncache = \"natral\"\n", ReplayArgs::default()).unwrap_err();
        assert!(error.contains("[replay] cache") && error.contains("did you mean `natural`?"), "{error}");
    }

    #[test]
    fn a_key_given_by_flag_silences_both_key_entries_of_the_scenario() {
        let text = "version = 1\n[target]\napi_key_file = \"key\"\n";
        let flags = ReplayArgs { api_key_env: Some("KEY".into()), ..ReplayArgs::default() };
        let args = completed(text, flags).unwrap();
        assert_eq!((args.api_key_env.as_deref(), args.api_key_file), (Some("KEY"), None));
    }

    #[test]
    fn another_version_is_refused_with_both_named() {
        let error = completed("version = 9\n", ReplayArgs::default()).unwrap_err();
        assert!(error.contains('9') && error.contains("version 1"), "{error}");
    }

    #[test]
    fn the_resolved_scenario_read_back_resolves_to_itself() {
        let text = include_str!("../../../examples/tracewheel.toml").replace("\n# ", "\n");
        let text = text.replace("Every key", "# Every key").replace("api_key_", "# api_key_");
        let args = completed(&text, ReplayArgs::default()).unwrap();
        let config = ReplayConfig {
            target: "http://127.0.0.1:8000".to_owned(),
            request_timeout_ns: 1_500_000_000,
            retry: tracewheel_replay::RetryPolicy::openai_sdk(),
            routes: args.routes.iter().map(|entry| entry.route().ok().unwrap()).collect(),
            ..ReplayConfig::default()
        };
        let first = resolved(&args, &config).unwrap();
        for line in
            ["policy = \"openai-sdk\"", "timeout = \"1500ms\"", "drain = \"20s\"", "power_safe = false"]
        {
            assert!(first.contains(line), "{first}");
        }
        let again = completed(&first, ReplayArgs::default()).unwrap();
        assert_eq!(resolved(&again, &config).unwrap(), first);
        assert_eq!(timeline_of(&first), args.timeline.map(|path| std::path::absolute(path).unwrap()));
    }

    #[test]
    fn the_resolved_scenario_of_routes_read_back_resolves_to_itself() {
        let text = "version = 1\n[target]\nurl = \"http://one\"\nprotocol = \"openai-chat\"\n\
            [protocol]\nengine = \"vllm\"\n[[routes]]\nname = \"small\"\nmodels = [\"s*\"]\ntenant_hashes = [7]\n\
            headers = { x-a = \"b\" }\nheaders_env = { authorization = \"PATH\" }\n[[routes]]\nurl = \"http://two\"\nprotocol = \"http\"\nbody = \"{}\"\n\
            [[hooks]]\npreset = \"vllm\"\nheaders_env = { x-token = \"PATH\" }\n";
        let resolved_by = |text: &str| {
            let args = completed(text, ReplayArgs::default()).unwrap();
            let routes = args.routes.iter().map(|entry| entry.route().ok().unwrap()).collect();
            resolved(&args, &ReplayConfig { routes, ..ReplayConfig::default() }).unwrap()
        };
        let first = resolved_by(text);
        for line in [
            "name = \"small\"",
            "name = \"2\"",
            "url = \"http://one\"",
            "lengths = \"exact\"",
            "lengths = \"cap\"",
        ] {
            assert!(first.contains(line), "{line}: {first}");
        }
        assert_eq!(resolved_by(&first), first);
        assert!(first.contains("authorization = \"env:PATH\""), "{first}");
        assert_eq!(redact::redact_text(&first), first, "a manifest holds it whole");
    }
}
