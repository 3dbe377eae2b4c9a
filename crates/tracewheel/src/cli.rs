//! The command line: one struct a command, flags only; what they do stands in `command/`, how the help looks in
//! `cli/help.rs`.

mod help;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use tracewheel_record::manifest::FidelityBounds;

use crate::scenario::{Budget, HookEntry, Protocol, Retry, RouteEntry};
use crate::time::parse_ns;

pub(crate) use help::command;

/// Replay recorded production traffic against an LLM endpoint and compare the latency with what production saw.
#[derive(Debug, Parser)]
#[command(name = "tracewheel", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) logs: LogArgs,
}

/// How every command talks to a person.
#[derive(Args, Clone, Debug)]
pub(crate) struct OutputArgs {
    /// Colour of tables and messages.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: String,
    /// Progress of long work, on stderr.
    #[arg(long, global = true, value_name = "HOW", default_value = "auto")]
    pub(crate) progress: String,
}

/// Structured logs.
#[derive(Args, Clone, Debug)]
pub(crate) struct LogArgs {
    /// Which log events to show: `info`, or `warn,tracewheel_replay=debug`; without it the variable `TRACEWHEEL_LOG`,
    /// else `warn`.
    #[arg(long, global = true, value_name = "FILTER")]
    pub(crate) log: Option<String>,
    /// How log events look.
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: String,
    /// Append log events to a file instead of stderr.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Turn production logs into a timeline (one Parquet file).
    Ingest(IngestArgs),
    /// Describe the traffic of a timeline, or sum up a run.
    Inspect(InspectArgs),
    /// Serve an LLM endpoint: queue, batching, prefix cache, limits.
    Mock(MockArgs),
    /// Replay a timeline against a target and record every token's arrival.
    Replay(Box<ReplayArgs>),
    /// Compare a run with what production recorded, or with another run.
    Compare(CompareArgs),
    /// Close the run of a killed process and say what is missing.
    Recover(RecoverArgs),
    /// Show the whole way in a minute: log, naive bench, replay.
    Demo(DemoArgs),
    /// Measure which rates this machine can replay and how exactly.
    Doctor(DoctorArgs),
    /// Print the completion script of a shell.
    Completions(CompletionsArgs),
    /// Write the man pages.
    Man(ManArgs),
}

impl Command {
    /// The files and folders that the command line names, to read or to write.
    pub(crate) fn paths(&self) -> Vec<&Path> {
        let (named, maybe): (Vec<&PathBuf>, Vec<&Option<PathBuf>>) = match self {
            Self::Ingest(args) => {
                let named = args.inputs.iter().chain([&args.output]).collect();
                (named, vec![&args.rejects, &args.key_file, &args.temp_dir])
            }
            Self::Inspect(args) => (vec![&args.input], vec![]),
            Self::Mock(args) => {
                let of_tls = [&args.tls_cert, &args.tls_key];
                let others = [&args.config, &args.gateway_log, &args.witness_log];
                (vec![], others.into_iter().chain(of_tls).collect())
            }
            Self::Replay(args) => (
                vec![],
                vec![&args.timeline, &args.scenario, &args.api_key_file, &args.ca_file, &args.output],
            ),
            Self::Compare(args) => (vec![&args.run, &args.baseline], vec![]),
            Self::Recover(args) => (vec![&args.run], vec![&args.timeline]),
            Self::Demo(args) => (vec![&args.out], vec![]),
            Self::Doctor(args) => (vec![&args.dir], vec![]),
            Self::Completions(_) => (vec![], vec![]),
            Self::Man(args) => (vec![], vec![&args.out]),
        };
        named.into_iter().chain(maybe.into_iter().flatten()).map(PathBuf::as_path).collect()
    }
}

/// `tracewheel ingest`
#[derive(Args, Debug)]
pub(crate) struct IngestArgs {
    /// Log files, plain or packed with gzip or zstd; `-` is standard input.
    #[arg(required = true, value_name = "INPUT")]
    pub(crate) inputs: Vec<PathBuf>,
    /// The timeline to write.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// The format; found from the content when not given.
    #[arg(long, value_name = "NAME")]
    pub(crate) format: Option<String>,
    /// Timeline fields and the columns that hold them: `arrival=ts,input_tokens=prompt_len,ttft=ttft_ms`.
    /// A unit may follow: `ttft=first:ms`.
    #[arg(long, value_name = "FIELD=COLUMN,...", value_delimiter = ',')]
    pub(crate) map: Vec<String>,
    /// Zone of wall times that carry none: `UTC`, an offset like `+02:00`, or a name like `Europe/Berlin`.
    #[arg(long, value_name = "ZONE", allow_hyphen_values = true)]
    pub(crate) zone: Option<String>,
    /// What the logged TTFT ends at.
    #[arg(long, value_name = "KIND")]
    pub(crate) ttft_kind: Option<String>,
    /// Whether logged token totals contain their parts (cached, reasoning).
    #[arg(long, value_name = "RULE", default_value = "auto")]
    pub(crate) token_rule: String,
    /// Tokens of a prefix block, where the format does not say.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) block_tokens: Option<u32>,
    /// Mark logged retries as attempts of the request that they repeat.
    #[arg(long)]
    pub(crate) fold_retries: bool,
    /// Exit with code 20 when more rows than this are rejected.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) max_rejects: u64,
    /// Memory for rows that wait for earlier ones: MiB, or with a suffix (`64K`, `512M`, `2G`). What finds no room is
    /// sorted in a temporary file.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = memory_bytes)]
    pub(crate) memory: u64,
    /// Folder of that temporary file; without it the folder of the timeline.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) temp_dir: Option<PathBuf>,
    /// Write every rejected row to this file, a line of JSON each: its place and what is wrong, no content.
    #[arg(long, value_name = "FILE")]
    pub(crate) rejects: Option<PathBuf>,
    /// What to do where the times of a file start again.
    #[arg(long, value_name = "RULE", default_value = "auto")]
    pub(crate) restarts: String,
    /// File with the secret key for hashing ids, made when missing; without it the user's own key file
    /// (`tracewheel/key` in the configuration folder).
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Print the import report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Bytes from `N` (MiB) or `N` with `K`, `M` or `G` behind it.
fn memory_bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.trim().trim_end_matches("iB").trim_end_matches('B') {
        number if number.ends_with(['K', 'k']) => (&number[..number.len() - 1], 10),
        number if number.ends_with(['M', 'm']) => (&number[..number.len() - 1], 20),
        number if number.ends_with(['G', 'g']) => (&number[..number.len() - 1], 30),
        number => (number, 20),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    match bytes.filter(|bytes| *bytes > 0) {
        Some(bytes) => Ok(bytes),
        None => Err("not a size: write MiB, or a number with K, M or G behind it (512M)".to_owned()),
    }
}

/// `tracewheel inspect`
#[derive(Args, Debug)]
pub(crate) struct InspectArgs {
    /// A timeline, or the folder of a run.
    #[arg(value_name = "TIMELINE|RUN")]
    pub(crate) input: PathBuf,
    /// Bounds of the verdict on the sending, as `lateness_ceiling=20ms,unfaithful_factor=5`; what is not named stays as the run says.
    #[arg(long, value_name = "BOUND=VALUE,...", value_delimiter = ',')]
    pub(crate) fidelity: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tracewheel mock`
#[derive(Args, Debug)]
pub(crate) struct MockArgs {
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8000")]
    pub(crate) listen: SocketAddr,
    /// The model and its limits as TOML; see `docs/mock.md`.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Seed of everything random in the model; overrides the file.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) seed: Option<u64>,
    /// Write an access log, one JSON line an attempt, as a gateway would.
    #[arg(long, value_name = "FILE")]
    pub(crate) gateway_log: Option<PathBuf>,
    /// Write the witness log: kernel arrival stamps and the write time of every chunk.
    #[arg(long, value_name = "FILE")]
    pub(crate) witness_log: Option<PathBuf>,
    /// Serve HTTPS with this PEM certificate, HTTP/2 or HTTP/1.1 by ALPN.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// PEM file of the certificate's key.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Print the model in words, with the figures that follow from it, and exit.
    #[arg(long)]
    pub(crate) describe: bool,
    /// With `--describe`: print the whole configuration and the figures as JSON.
    #[arg(long, requires = "describe")]
    pub(crate) json: bool,
    /// Check the configuration and exit: code 2 if it can't be.
    #[arg(long, conflicts_with = "describe")]
    pub(crate) check: bool,
    /// Print the default configuration, every key explained, and exit.
    #[arg(long, conflicts_with_all = ["describe", "check", "config"])]
    pub(crate) print_config: bool,
}

/// `tracewheel replay`
#[derive(Args, Debug, Default)]
pub(crate) struct ReplayArgs {
    /// The timeline; may stand in the scenario instead.
    #[arg(value_name = "TIMELINE")]
    pub(crate) timeline: Option<PathBuf>,
    /// Scenario file; flags override it. `tracewheel.toml` in this folder is taken when it is there.
    #[arg(long, value_name = "FILE")]
    pub(crate) scenario: Option<PathBuf>,
    /// Where to send, for example `http://127.0.0.1:8000` or `https://api.example`. Needed, here or in the scenario.
    #[arg(long, value_name = "URL")]
    pub(crate) target: Option<String>,
    /// Wire protocol. Needed, here or in the scenario.
    #[arg(long, value_name = "NAME")]
    pub(crate) protocol: Option<String>,
    /// Model to ask for.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// Who answers, where that decides what can be asked for: sends what this engine knows, and no more.
    #[arg(long, value_name = "NAME")]
    pub(crate) engine: Option<String>,
    /// The section `[protocol]` of the scenario.
    #[arg(skip)]
    pub(crate) protocol_section: Protocol,
    /// The `[[routes]]` of the scenario.
    #[arg(skip)]
    pub(crate) routes: Vec<RouteEntry>,
    /// The key of the timeline's ids, for routes that name tenants; the scenario says it.
    #[arg(skip)]
    pub(crate) id_key_file: Option<PathBuf>,
    /// Environment variable that holds the API key.
    #[arg(long, value_name = "NAME", conflicts_with = "api_key_file")]
    pub(crate) api_key_env: Option<String>,
    /// File that holds the API key.
    #[arg(long, value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// PEM file of the certificates that an https target is trusted by, instead of the system's; a self-signed server's own
    /// certificate may stand there. Without it `SSL_CERT_FILE` is taken, then the system's.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Name that the target's certificate must be for, where it is not the target's host.
    #[arg(long, value_name = "NAME")]
    pub(crate) tls_name: Option<String>,
    /// Which HTTP to speak. Default `auto`.
    #[arg(long, value_name = "VERSION")]
    pub(crate) http: Option<String>,
    /// Start of the window, as an offset from the first request, for example `5m`.
    #[arg(long, value_name = "OFFSET", value_parser = parse_ns, allow_hyphen_values = true)]
    pub(crate) from: Option<i64>,
    /// End of the window (not included).
    #[arg(long, value_name = "OFFSET", value_parser = parse_ns, allow_hyphen_values = true)]
    pub(crate) to: Option<i64>,
    /// Divide every arrival offset by this: 2, 0.5, 1/3. Default 1.
    #[arg(long, value_name = "FACTOR", allow_hyphen_values = true)]
    pub(crate) speed: Option<String>,
    /// At most this many requests.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) limit: Option<u64>,
    /// Keep about this share of the traffic, in whole sessions (rows without a session one by one), drawn by the seed:
    /// 0.25 or 25%. Arrivals stay where they are.
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    pub(crate) thin: Option<String>,
    /// Send the requests of the first stretch on schedule and leave them out of every statistic: 30s.
    #[arg(long, value_name = "DURATION", value_parser = parse_ns, allow_hyphen_values = true)]
    pub(crate) warmup: Option<i64>,
    /// Take the warm-up from the rows before `--from`, so that nothing of the window is lost.
    #[arg(long)]
    pub(crate) warmup_before: bool,
    /// Operations not to send, for example `embeddings,http`.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) leave_out: Vec<String>,
    /// Seed of prompts, thinning and back-off jitter. Default 0.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) seed: Option<u64>,
    /// Tokenizer of the target's model (`tokenizer.json` or `.tiktoken`), for prompts of exactly the recorded lengths.
    #[arg(long, value_name = "FILE")]
    pub(crate) tokenizer: Option<PathBuf>,
    /// Send two prompts ahead, and fit the lengths of the others to what the target counts.
    #[arg(long)]
    pub(crate) calibrate: bool,
    /// Retry policy. Default `none`.
    #[arg(long, value_name = "NAME")]
    pub(crate) retry: Option<String>,
    /// What differs from that policy, as `max_retries=4,jitter=full,statuses=429+503`: the keys of `[retry]` in a scenario.
    #[arg(long, value_name = "KEY=VALUE,...", value_delimiter = ',')]
    pub(crate) retry_with: Vec<String>,
    /// The `[retry]` of the scenario.
    #[arg(skip)]
    pub(crate) retry_of_scenario: Retry,
    /// Limits that the client keeps by itself, as `requests_per_minute=600,in_flight=8`: the keys of `[budget]` in a
    /// scenario. Off by default.
    #[arg(long, value_name = "KEY=VALUE,...", value_delimiter = ',')]
    pub(crate) budget: Vec<String>,
    /// The `[budget]` of the scenario.
    #[arg(skip)]
    pub(crate) budget_of_scenario: Budget,
    /// When a turn of a session leaves. Default `independent`.
    #[arg(long, value_name = "MODE")]
    pub(crate) sessions: Option<String>,
    /// With `--sessions after-previous`: what follows a turn that failed. Default `stop`.
    #[arg(long, value_name = "RULE")]
    pub(crate) after_failure: Option<String>,
    /// With `--sessions after-previous`: put the live answer into the next turn's body, in the place of the recorded one.
    #[arg(long)]
    pub(crate) thread_answers: bool,
    /// Whether requests that production's client left are left likewise. Default `never`.
    #[arg(long, value_name = "WHEN")]
    pub(crate) cancel: Option<String>,
    /// State of the target's prompt cache. Default `natural`.
    #[arg(long, value_name = "MODE")]
    pub(crate) cache: Option<String>,
    /// Empty the target's prefix cache before anything is sent, as this engine does it, and read from its answer whether it
    /// did. The scenario's `[[hooks]]` can do more.
    #[arg(long, value_name = "ENGINE")]
    pub(crate) flush: Vec<String>,
    /// Hooks of the scenario.
    #[arg(skip)]
    pub(crate) hooks: Vec<HookEntry>,
    /// Send the plan although a hook failed, and say so in the run's warnings.
    #[arg(long)]
    pub(crate) ignore_hook_failure: bool,
    /// Fill the cache ahead with the prefixes that were live before the window: those used in this stretch before it
    /// (`10m`), or `all` of them.
    #[arg(long, value_name = "LOOK_BACK")]
    pub(crate) prime: Option<String>,
    /// Of these, only as many tokens as the cache held: the blocks used last.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) prime_tokens: Option<u64>,
    /// Which of the prefixes are sent. Default `live`.
    #[arg(long, value_name = "WORD")]
    pub(crate) prime_prefixes: Option<String>,
    /// Requests at once while the cache is filled. Default 4.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) prime_at_once: Option<u32>,
    /// Ignore the arrival times and keep N requests in flight, as naive benches do; labelled in every output.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) closed_loop: Option<u32>,
    /// Give up on a request after this long. Default 600s.
    #[arg(long, value_name = "DURATION", value_parser = parse_ns, allow_hyphen_values = true)]
    pub(crate) timeout: Option<i64>,
    /// After the first Ctrl-C or SIGTERM, wait this long for requests in flight. Default 20s.
    #[arg(long, value_name = "DURATION", value_parser = parse_ns, allow_hyphen_values = true)]
    pub(crate) drain: Option<i64>,
    /// What to do with rows that have no token counts. Default `refuse`.
    #[arg(long, value_name = "RULE")]
    pub(crate) unknown_tokens: Option<String>,
    /// How the recorded answer lengths are asked for. Default `exact`.
    #[arg(long, value_name = "RULE")]
    pub(crate) lengths: Option<String>,
    /// Most connections to hold open.
    #[arg(long, visible_alias = "max-connections", value_name = "N", allow_negative_numbers = true)]
    pub(crate) connections: Option<u32>,
    /// Whether a connection carries one request after another. Default `reuse`.
    #[arg(long, value_name = "WORD")]
    pub(crate) connection_use: Option<String>,
    /// Connections kept ready beyond those that the next requests need. Default: by the recent peak, 2 to 32.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) spare_connections: Option<u32>,
    /// HTTP/2: most requests at once on one connection; the target may allow fewer. Default 100.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) http2_streams: Option<u32>,
    /// Sending threads.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) workers: Option<u16>,
    /// Hold the sending thread up for so many milliseconds before each release: for tests of the verdict on the sending.
    #[arg(long, value_name = "MS", hide = true)]
    pub(crate) test_stall_ms: Option<u32>,
    /// Bounds of the verdict on the sending, as `lateness_ceiling=20ms,unfaithful_factor=5`; what is not named stays as the scenario or the defaults say.
    #[arg(long, value_name = "BOUND=VALUE,...", value_delimiter = ',')]
    pub(crate) fidelity: Vec<String>,
    /// The bounds of the scenario.
    #[arg(skip)]
    pub(crate) fidelity_of_scenario: Option<FidelityBounds>,
    /// Ask for a real-time scheduling class for the sending threads. Refused, the replay goes on without and says so.
    #[arg(long)]
    pub(crate) realtime: bool,
    /// Cores to bind the sending threads to, such as `2,3`; everything else of the replay uses the other cores.
    #[arg(long, value_name = "CORE,...", value_delimiter = ',')]
    pub(crate) pin: Vec<u32>,
    /// Who answers for this run; goes into the manifest.
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// Folder for runs. Default `runs`.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Wait for the disk each second, so that even a power cut loses no more than the last second.
    #[arg(long)]
    pub(crate) power_safe: bool,
    /// Rows of a part; the scenario says it.
    #[arg(skip)]
    pub(crate) part_rows: Option<u32>,
    /// Bytes of a part; the scenario says it.
    #[arg(skip)]
    pub(crate) part_bytes: Option<u64>,
    /// Print the run's summary as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

impl ReplayArgs {
    /// All hooks: those of flags, then those of the scenario.
    pub(crate) fn hook_entries(&self) -> Vec<HookEntry> {
        self.flush.iter().map(|engine| HookEntry::flush(engine)).chain(self.hooks.iter().cloned()).collect()
    }
}

/// `tracewheel recover`
#[derive(Args, Debug)]
pub(crate) struct RecoverArgs {
    /// The folder of the run.
    #[arg(value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// The run's timeline, to fill in what the interrupted requests belong to (model, session, tags). Found by itself
    /// where it still lies where the replay read it.
    #[arg(long, value_name = "FILE")]
    pub(crate) timeline: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tracewheel compare`
#[derive(Args, Debug)]
pub(crate) struct CompareArgs {
    /// The run.
    #[arg(value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// What to compare with: a timeline with recorded latencies, or another run.
    #[arg(long = "with", value_name = "TIMELINE|RUN")]
    pub(crate) baseline: PathBuf,
    /// Relative difference that counts as equal.
    #[arg(long, value_name = "FRACTION", default_value_t = 0.1, allow_negative_numbers = true)]
    pub(crate) tolerance: f64,
    /// Exit with code 12 when the data cannot give a verdict.
    #[arg(long)]
    pub(crate) require_verdict: bool,
    /// Compare although a run is unfaithful to its schedule, which is refused otherwise; every table then says so.
    #[arg(long)]
    pub(crate) force: bool,
    /// Bounds of the verdict on the sending, as `lateness_ceiling=20ms,unfaithful_factor=5`; what is not named stays as the run says.
    #[arg(long, value_name = "BOUND=VALUE,...", value_delimiter = ',')]
    pub(crate) fidelity: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tracewheel demo`
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Folder for everything that the demo leaves.
    #[arg(long, value_name = "DIR", default_value = "demo-out")]
    pub(crate) out: PathBuf,
    /// Print the three-way table as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tracewheel doctor`
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Rates to try with a whole replay each, requests a second.
    #[arg(
        long,
        value_name = "RATE,...",
        value_delimiter = ',',
        default_values_t = [50, 200, 1000, 5000],
        value_parser = clap::value_parser!(u32).range(1..=100_000)
    )]
    pub(crate) rates: Vec<u32>,
    /// A rate to try too; exit with code 31 where it is not kept.
    #[arg(long, value_name = "RATE", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) require: Option<u32>,
    /// Seconds for each rate.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub(crate) seconds: u32,
    /// Ask for a real-time class for the sending threads while rates are tried, as `replay --realtime` does.
    #[arg(long)]
    pub(crate) realtime: bool,
    /// Folder whose disk is measured: where runs will be written.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tracewheel completions`
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_name = "SHELL", value_enum)]
    pub(crate) shell: Shell,
}

/// `tracewheel man`
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Folder for the pages, one for each command. Without it the main page is printed.
    #[arg(long, value_name = "DIR", conflicts_with = "markdown")]
    pub(crate) out: Option<PathBuf>,
    /// Print the whole command line as one page of Markdown.
    #[arg(long)]
    pub(crate) markdown: bool,
}
