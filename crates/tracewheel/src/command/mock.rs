//! `tracewheel mock`

use tracewheel_clock::RunClock;
use tracewheel_mock::{Mock, MockConfig, MockError, MockSummary};

use crate::cli::MockArgs;
use crate::exit::{Exit, Failure, Or};
use crate::files;
use crate::output::Output;
use crate::signals;

/// Serves until the first Ctrl-C or SIGTERM, or tells about the configuration.
pub(crate) fn run(args: &MockArgs, output: &Output) -> Result<Exit, Failure> {
    if args.print_config {
        output.data(MockConfig::commented_default())?;
        return Ok(Exit::Done);
    }
    let config = config(args)?;
    if args.describe && args.json {
        output.document("1.0", &config.description())?;
    } else if args.describe {
        output.data(&config.describe())?;
    } else if args.check {
        output.note("the configuration is good");
    } else {
        serve(config, args, output)?;
    }
    Ok(Exit::Done)
}

/// Tells a log by its first line.
type IsOwn = fn(&[u8]) -> bool;

fn serve(config: MockConfig, args: &MockArgs, output: &Output) -> Result<(), Failure> {
    let replaced = check_logs(&config, args)?;
    let scheme = if config.http.tls_cert.is_some() { "https" } else { "http" };
    let mock = Mock::bind(config, args.listen, RunClock::start()).map_err(|error| {
        let exit = match &error {
            MockError::Log(_) => Exit::Output,
            MockError::System { .. } => Exit::Internal,
            _ => Exit::Usage,
        };
        Failure::new(exit, error)
    })?;
    // Installed before anybody is told that it serves, so that whoever reads the line may stop it.
    let stopped = signals::stopped()?;
    let url = format!("{scheme}://{}", mock.local_addr());
    output.note(&format!("mock LLM endpoint on {url} (Ctrl-C ends it)"));
    // The line that scripts read.
    output.data(&url)?;
    replaced.iter().for_each(|line| output.note(line));
    stopped.wait();
    let summary = mock.shutdown().or_exit(Exit::Output)?;
    output.note(&told(&summary));
    Ok(())
}

fn config(args: &MockArgs) -> Result<MockConfig, Failure> {
    let mut config = match &args.config {
        None => MockConfig::default(),
        Some(path) => {
            let text = files::small_text(path, "the mock's configuration", files::CONFIG_BYTES)?;
            MockConfig::from_toml(&text)
                .or_exit_with(Exit::Usage, || format!("in the mock's configuration {}", path.display()))?
        }
    };
    if let Some(seed) = args.seed {
        config.seed = seed;
    }
    if args.gateway_log.is_some() {
        config.gateway_log.clone_from(&args.gateway_log);
    }
    if args.witness_log.is_some() {
        config.witness_log.clone_from(&args.witness_log);
    }
    if args.tls_cert.is_some() {
        config.http.tls_cert.clone_from(&args.tls_cert);
        config.http.tls_key.clone_from(&args.tls_key);
    }
    Ok(config)
}

/// Sees to it that the logs replace nothing but older logs of their own kind.
/// Gives a line for each that it will replace.
fn check_logs(config: &MockConfig, args: &MockArgs) -> Result<Vec<String>, Failure> {
    let mut replaced = Vec::new();
    let gateway = config
        .gateway_log
        .as_deref()
        .map(|path| ("gateway", path, tracewheel_mock::is_gateway_line as IsOwn));
    let witness = config
        .witness_log
        .as_deref()
        .map(|path| ("witness", path, tracewheel_mock::is_witness_line as IsOwn));
    if let (Some((_, gateway, _)), Some((_, witness, _))) = (gateway, witness)
        && files::is_same(gateway, witness)
    {
        return Err(Failure::usage(format!(
            "the gateway log and the witness log are both to be {}: give one of them another name",
            gateway.display()
        )));
    }
    for (name, path, is_own) in [gateway, witness].into_iter().flatten() {
        let shown = path.display();
        if args.config.as_deref().is_some_and(|config| files::is_same(config, path)) {
            return Err(Failure::usage(format!(
                "the {name} log would replace the configuration {shown}: give it another name"
            )));
        }
        match files::first_line(path)? {
            None => {}
            Some(line) if is_own(&line) => {
                replaced.push(format!("the older {name} log {shown} was replaced"))
            }
            Some(_) => {
                return Err(Failure::usage(format!(
                    "{shown} is no {name} log of a mock and is not replaced: give the log another name, or remove \
                     that file"
                )));
            }
        }
    }
    Ok(replaced)
}

/// What it did, on one line.
fn told(summary: &MockSummary) -> String {
    let listed = |counts: Vec<String>, none: &str| match counts.as_slice() {
        [] => none.to_owned(),
        counts => counts.join(", "),
    };
    let statuses = summary.statuses.iter().map(|(status, count)| match status {
        0 => format!("{count} without status"),
        status => format!("{count} × {status}"),
    });
    let faults = summary.faults.iter().map(|(name, count)| format!("{name} {count}"));
    let engine = &summary.engine;
    let cache = match engine.prompt_tokens {
        0 => "no prompt computed".to_owned(),
        all => format!("{:.1} % of prompt tokens cached", engine.cached_tokens as f64 * 100.0 / all as f64),
    };
    let mut line = format!(
        "served {} requests on {} connections: {}; {cache}; {} output tokens; faults: {}",
        summary.requests,
        summary.connections,
        listed(statuses.collect(), "no answer"),
        engine.output_tokens,
        listed(faults.collect(), "no rules"),
    );
    if summary.dropped_log_lines > 0 {
        line.push_str(&format!("; {} log lines were dropped", summary.dropped_log_lines));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_one_line() {
        let mut summary = MockSummary {
            requests: 7,
            connections: 2,
            statuses: [(0, 1), (200, 5), (429, 1)].into(),
            faults: vec![("reset".into(), 1), ("never".into(), 0)],
            ..MockSummary::default()
        };
        summary.engine.prompt_tokens = 1000;
        summary.engine.cached_tokens = 125;
        summary.engine.output_tokens = 50;
        assert_eq!(
            told(&summary),
            "served 7 requests on 2 connections: 1 without status, 5 × 200, 1 × 429; 12.5 % of prompt tokens cached; \
             50 output tokens; faults: reset 1, never 0"
        );
        let nothing = "served 0 requests on 0 connections: no answer; no prompt computed; 0 output tokens; faults: no rules";
        assert_eq!(told(&MockSummary::default()), nothing);
    }
}
