//! The scenario file: what `replay` would be told by flags, kept beside the code that it tests.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};

use crate::cli::ReplayArgs;
use crate::exit::{Exit, Failure, Or};
use crate::time::parse_ns;

/// The file that is taken when `--scenario` is not given.
pub(crate) const DEFAULT_NAME: &str = "tracewheel.toml";

/// The only version there is.
const VERSION: u32 = 1;

/// A scenario file; unknown keys are refused.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    version: u32,
    owner: Option<String>,
    timeline: Option<PathBuf>,
    runs: Option<PathBuf>,
    seed: Option<u64>,
    #[serde(default)]
    target: Target,
    #[serde(default)]
    window: Window,
    #[serde(default)]
    replay: Replay,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    url: Option<String>,
    protocol: Option<String>,
    model: Option<String>,
    api_key_env: Option<String>,
    api_key_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    tls_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Window {
    #[serde(default, deserialize_with = "duration_ns")]
    from: Option<i64>,
    #[serde(default, deserialize_with = "duration_ns")]
    to: Option<i64>,
    limit: Option<u64>,
    #[serde(default, deserialize_with = "number_or_text")]
    thin: Option<String>,
    #[serde(default, deserialize_with = "duration_ns")]
    warmup: Option<i64>,
    #[serde(default)]
    warmup_before: bool,
    #[serde(default)]
    leave_out: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Replay {
    #[serde(default, deserialize_with = "number_or_text")]
    speed: Option<String>,
    retry: Option<String>,
    cache: Option<String>,
    closed_loop: Option<u32>,
    #[serde(default, deserialize_with = "duration_ns")]
    timeout: Option<i64>,
    unknown_tokens: Option<String>,
    lengths: Option<String>,
    connections: Option<u32>,
    workers: Option<u16>,
}

fn duration_ns<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| parse_ns(&text).map_err(serde::de::Error::custom)).transpose()
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

/// The flags completed from the scenario file, if there is one, and the file's text for the manifest.
///
/// # Errors
/// Usage, when the file cannot be read or holds anything that is not known.
pub(crate) fn complete(args: ReplayArgs) -> Result<(ReplayArgs, Option<String>), Failure> {
    let Some(path) = chosen(args.scenario.as_deref()) else { return Ok((args, None)) };
    let text = std::fs::read_to_string(&path)
        .or_exit_with(Exit::Usage, || format!("cannot read the scenario {}", path.display()))?;
    let scenario: Scenario =
        toml::from_str(&text).or_exit_with(Exit::Usage, || format!("in the scenario {}", path.display()))?;
    if scenario.version != VERSION {
        return Err(Failure::usage(format!(
            "the scenario {} has version {}, this tracewheel reads version {VERSION}",
            path.display(),
            scenario.version
        )));
    }
    Ok((overlay(args, scenario, path.parent().unwrap_or(Path::new(""))), Some(text)))
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
    let key_by_flag = args.api_key_env.is_some() || args.api_key_file.is_some();
    ReplayArgs {
        timeline: args.timeline.or(file.timeline.map(beside)),
        scenario: args.scenario,
        target: args.target.or(file.target.url),
        protocol: args.protocol.or(file.target.protocol),
        model: args.model.or(file.target.model),
        api_key_env: args.api_key_env.or(file.target.api_key_env.filter(|_| !key_by_flag)),
        api_key_file: args.api_key_file.or(file.target.api_key_file.filter(|_| !key_by_flag).map(beside)),
        ca_file: args.ca_file.or(file.target.ca_file.map(beside)),
        tls_name: args.tls_name.or(file.target.tls_name),
        from: args.from.or(file.window.from),
        to: args.to.or(file.window.to),
        speed: args.speed.or(file.replay.speed),
        limit: args.limit.or(file.window.limit),
        thin: args.thin.or(file.window.thin),
        warmup: args.warmup.or(file.window.warmup),
        warmup_before: args.warmup_before || file.window.warmup_before,
        leave_out: if args.leave_out.is_empty() { file.window.leave_out } else { args.leave_out },
        seed: args.seed.or(file.seed),
        retry: args.retry.or(file.replay.retry),
        cache: args.cache.or(file.replay.cache),
        closed_loop: args.closed_loop.or(file.replay.closed_loop),
        timeout: args.timeout.or(file.replay.timeout),
        unknown_tokens: args.unknown_tokens.or(file.replay.unknown_tokens),
        lengths: args.lengths.or(file.replay.lengths),
        connections: args.connections.or(file.replay.connections),
        workers: args.workers.or(file.replay.workers),
        owner: args.owner.or(file.owner),
        output: args.output.or(file.runs.map(beside)),
        json: args.json,
    }
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
}
