//! How the help looks: which flags stand together in which order, and examples. A flag is declared in `cli.rs`; here it
//! gets its place, and a test says which one has none.

use clap::{Arg, ArgAction, Command, CommandFactory};

use super::Cli;
use crate::choice::choice;

/// Groups of flags in their order, by their ids.
type Groups = &'static [(&'static str, &'static [&'static str])];

const ROOT: &str = "\
{about-with-newline}
The three jobs:
  tracewheel ingest gateway.jsonl -o yesterday.parquet
      logs to a timeline: one Parquet file, a row a request
  tracewheel replay yesterday.parquet --target http://HOST:PORT \\
      --protocol openai-chat --model M
      the timeline to a run: every token's arrival, by the recorded schedule
  tracewheel compare runs/ID --with yesterday.parquet
      the run against what production recorded: a verdict and an exit code

No endpoint at hand? `tracewheel demo` shows all of it in a minute or two,
`tracewheel mock` is an endpoint. First steps: docs/getting-started.md

{usage-heading} {usage}

{all-args}
";

/// Stands at the end of every command.
const EVERYWHERE: Groups =
    &[("Output and logs", &["color", "progress", "log", "log_format", "log_file", "help", "version"])];

const INGEST: Groups = &[
    (
        "Reading",
        &["format", "map", "zone", "ttft_kind", "token_rule", "block_tokens", "fold_retries", "restarts"],
    ),
    ("Memory", &["memory", "temp_dir"]),
    ("Privacy", &["key_file"]),
    ("Result", &["output", "max_rejects", "rejects", "json"]),
];

const INSPECT: Groups = &[("Result", &["fidelity", "json"])];

const MOCK: Groups = &[
    ("Endpoint", &["listen", "config", "seed", "tls_cert", "tls_key"]),
    ("Instead of serving", &["print_config", "check", "describe"]),
    ("Result", &["gateway_log", "witness_log", "json"]),
];

const REPLAY: Groups = &[
    (
        "Target",
        &[
            "target",
            "protocol",
            "engine",
            "model",
            "api_key_env",
            "api_key_file",
            "ca_file",
            "tls_name",
            "http",
        ],
    ),
    (
        "What is replayed",
        &[
            "scenario",
            "from",
            "to",
            "limit",
            "thin",
            "warmup",
            "warmup_before",
            "leave_out",
            "speed",
            "seed",
            "unknown_tokens",
            "lengths",
            "tokenizer",
            "calibrate",
        ],
    ),
    (
        "How it is sent",
        &[
            "cache",
            "flush",
            "ignore_hook_failure",
            "prime",
            "prime_tokens",
            "prime_prefixes",
            "prime_at_once",
            "retry",
            "retry_with",
            "budget",
            "sessions",
            "after_failure",
            "thread_answers",
            "cancel",
            "timeout",
            "drain",
            "closed_loop",
            "connections",
            "connection_use",
            "spare_connections",
            "http2_streams",
            "workers",
            "test_stall_ms",
            "realtime",
            "pin",
        ],
    ),
    ("Result", &["output", "owner", "power_safe", "fidelity", "json"]),
];

const COMPARE: Groups = &[
    ("Comparison", &["baseline", "tolerance", "require_verdict", "fidelity", "force"]),
    ("Result", &["json"]),
];

const DOCTOR: Groups =
    &[("What is measured", &["rates", "require", "seconds", "realtime", "dir"]), ("Result", &["json"])];

const RECOVER: Groups = &[("Result", &["timeline", "json"])];

const DEMO: Groups = &[("Result", &["out", "json"])];

const MAN: Groups = &[("Result", &["out", "markdown"])];

/// The groups of each command.
const GROUPS: &[(&str, Groups)] = &[
    ("ingest", INGEST),
    ("inspect", INSPECT),
    ("mock", MOCK),
    ("replay", REPLAY),
    ("compare", COMPARE),
    ("recover", RECOVER),
    ("demo", DEMO),
    ("doctor", DOCTOR),
    ("man", MAN),
];

/// Examples below the help of each command.
const EXAMPLES: &[(&str, &str)] = &[
    (
        "ingest",
        "\
Examples:
  # a published trace: the format is found from its content
  tracewheel ingest AzureLLMInferenceTrace_conv.csv -o day.parquet

  # a gateway's packed JSON lines: say which column is what
  tracewheel ingest gateway-*.jsonl.gz -o day.parquet --ttft-kind first_chunk \\
      --map 'arrival=ts,input_tokens=usage.prompt_tokens,ttft=ttft_ms'

Formats, fields and units: docs/formats.md",
    ),
    (
        "inspect",
        "\
Examples:
  tracewheel inspect yesterday.parquet
  tracewheel inspect runs/ID --json",
    ),
    (
        "mock",
        "\
Examples:
  tracewheel mock --listen 127.0.0.1:8000 --gateway-log gateway.jsonl

  # rates, limits, other tenants and faults of your own
  tracewheel mock --print-config > mock.toml
  tracewheel mock --config mock.toml --describe

The model and its configuration: docs/mock.md",
    ),
    (
        "replay",
        "\
Examples:
  tracewheel replay day.parquet --target http://127.0.0.1:8000 \\
      --protocol openai-chat --model m

  # ten minutes of it, with the retries of the OpenAI SDK, from a cold cache
  tracewheel replay day.parquet --target http://127.0.0.1:8000 \\
      --protocol openai-chat --model m \\
      --from 2h --to 2h10m --retry openai-sdk --cache cold

  # everything from a scenario file, faster than recorded
  tracewheel replay --scenario staging.toml --speed 2

Scenario files: docs/scenario.md",
    ),
    (
        "compare",
        "\
Examples:
  tracewheel compare runs/ID --with yesterday.parquet
  tracewheel compare runs/NEW --with runs/OLD --tolerance 0.05 --require-verdict

Definitions and verdicts: docs/reference/metrics.md
Exit codes: docs/reference/exit-codes.md",
    ),
    (
        "recover",
        "\
Examples:
  tracewheel recover runs/ID
  tracewheel recover runs/ID --timeline yesterday.parquet --json

What survives what: docs/reference/run.md",
    ),
    (
        "demo",
        "\
Examples:
  tracewheel demo --out demo-out",
    ),
    (
        "doctor",
        "\
Examples:
  tracewheel doctor
  tracewheel doctor --rates 400,800 --seconds 30 --dir runs --json

What each figure says: docs/doctor.md",
    ),
    (
        "completions",
        "\
Examples:
  # bash: for the next shells of this user
  mkdir -p ~/.local/share/bash-completion/completions
  tracewheel completions bash > ~/.local/share/bash-completion/completions/tracewheel

  # zsh: a folder of $fpath
  tracewheel completions zsh > ~/.zfunc/_tracewheel

  # fish
  tracewheel completions fish > ~/.config/fish/completions/tracewheel.fish",
    ),
    (
        "man",
        "\
Examples:
  tracewheel man --out ~/.local/share/man/man1
  tracewheel man | man -l -",
    ),
];

/// The whole command line, as it is parsed, shown, completed and written into man pages.
pub(crate) fn command() -> Command {
    let mut root = Cli::command().help_template(ROOT).disable_help_flag(true).disable_version_flag(true);
    root = root
        .arg(Arg::new("help").short('h').long("help").action(ArgAction::Help).global(true).help("Print help"))
        .arg(
            Arg::new("version")
                .short('V')
                .long("version")
                .action(ArgAction::Version)
                .help("Print the version"),
        );
    root = arranged(root, "", EVERYWHERE);
    for (name, groups) in GROUPS {
        root = root.mut_subcommand(name, |command| arranged(command, name, groups));
    }
    for (name, examples) in EXAMPLES {
        root = root.mut_subcommand(name, |command| command.after_help(*examples));
    }
    root
}

/// Gives each flag its group, its order and the values that it takes.
fn arranged(mut command: Command, name: &str, groups: Groups) -> Command {
    let mut order = if groups == EVERYWHERE { 900 } else { 0 };
    for (heading, ids) in groups {
        for id in *ids {
            order += 1;
            command = command.mut_arg(id, |arg| {
                let arg = arg.help_heading(*heading).display_order(order);
                match choice(name, id) {
                    Some(choice) => arg.value_parser(choice),
                    None => arg,
                }
            });
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_has_its_place_in_the_help() {
        let mut root = command();
        root.build();
        for command in root.get_subcommands().filter(|command| command.get_name() != "help") {
            for arg in command.get_arguments().filter(|arg| !arg.is_positional()) {
                let (command, flag) = (command.get_name(), arg.get_id());
                assert!(
                    arg.get_help_heading().is_some(),
                    "{command}: {flag} stands in no group of cli/help.rs"
                );
            }
            let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(examples.contains("tracewheel "), "{} has no example", command.get_name());
        }
    }

    #[test]
    fn the_first_help_and_all_examples_fit_into_80_columns() {
        let mut root = command().term_width(80);
        let help = root.render_help().to_string();
        let examples =
            EXAMPLES.iter().map(|(_, examples)| *examples).filter(|text| !text.contains("bash-completion"));
        for line in help.lines().chain(examples.flat_map(str::lines)) {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(help.lines().count() <= 48, "the first help has {} lines", help.lines().count());
    }
}
