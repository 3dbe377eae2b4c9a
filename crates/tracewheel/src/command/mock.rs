//! `tracewheel mock`

use tracewheel_clock::RunClock;
use tracewheel_mock::{Mock, MockConfig, MockError};

use crate::cli::MockArgs;
use crate::exit::{Exit, Failure, Or};
use crate::output::Output;
use crate::signals;

/// Serves until the first Ctrl-C.
pub(crate) fn run(args: &MockArgs, output: &Output) -> Result<Exit, Failure> {
    let config = config(args)?;
    if args.describe {
        if args.json {
            output.json(&config)?;
        } else {
            output.data(&config.describe())?;
        }
        return Ok(Exit::Done);
    }
    let mock = Mock::bind(config, args.listen, RunClock::start()).map_err(|error| {
        let exit = match &error {
            MockError::Log(_) => Exit::Output,
            MockError::System { .. } => Exit::Internal,
            _ => Exit::Usage,
        };
        Failure::new(exit, error)
    })?;
    output.note(&format!("mock LLM endpoint on http://{} (Ctrl-C ends it)", mock.local_addr()));
    signals::wait()?;
    mock.shutdown().or_exit(Exit::Output)?;
    Ok(Exit::Done)
}

fn config(args: &MockArgs) -> Result<MockConfig, Failure> {
    let mut config = match &args.config {
        None => MockConfig::default(),
        Some(path) => {
            let text = std::fs::read_to_string(path).or_exit_with(Exit::Usage, || {
                format!("cannot read the mock's configuration {}", path.display())
            })?;
            toml::from_str(&text)
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
    Ok(config)
}
