//! `tracewheel demo`: a production, its log, a naive bench, a replay and the verdict, by the code of the commands.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tracewheel_analysis::CompareOptions;
use tracewheel_analysis::comparison::Comparison;
use tracewheel_clock::RunClock;
use tracewheel_mock::{Mock, MockConfig};
use tracewheel_replay::{RunReport, StopLevel, StopSignal};

use crate::cli::{DemoArgs, IngestArgs, ReplayArgs};
use crate::command::{compare, ingest, replay};
use crate::exit::{Exit, Failure, Or};
use crate::output::Output;
use crate::signals;

/// Twenty seconds of a real Azure conversation trace; origin and licence stand in `fixtures/traces/README.md`.
const TRACE: &str = include_str!("../../../../fixtures/traces/azure2023_conv_20s.csv");

/// The endpoint, production and staging alike.
const ENDPOINT: &str = include_str!("../../../../fixtures/demo/production.toml");

/// Marks a folder as the demo's own, so that it may be emptied.
const MARKER: &str = "made-by-tracewheel-demo";

/// How the gateway's log is read: what the user would type after `--map`.
const GATEWAY_MAP: &str = "arrival=ts,request_id=request_id,attempt=retry_count,model=model,stream=stream,\
    status=status,input_tokens=prompt_tokens,output_tokens=completion_tokens,cached_tokens=cached_tokens,\
    ttft=ttft_ms:ms,e2e=duration_ms:ms";

/// Requests of the naive bench.
const BENCH_REQUESTS: u64 = 75;

/// What `demo --json` prints.
#[derive(Serialize)]
struct Shown {
    /// The bench against production.
    bench: Comparison,
    /// The replay against production.
    replay: Comparison,
    /// The bench's run.
    bench_run: PathBuf,
    /// The replay's run.
    replay_run: PathBuf,
    /// The production's timeline.
    production: PathBuf,
}

/// Runs the four acts and shows the table.
pub(crate) fn run(args: &DemoArgs, output: &Output) -> Result<Exit, Failure> {
    let stage = Stage::set(args, output)?;
    let production = stage.production()?;
    let staging = stage.mock(MockConfig { gateway_log: None, ..stage.endpoint.clone() })?;
    let bench = stage.bench(&production, &staging)?;
    let replayed = stage.replay(&production, &staging)?;
    staging.shutdown().or_exit(Exit::Output)?;
    let shown = Shown {
        bench: compare::compare(
            &bench.run_dir,
            &production,
            &CompareOptions { match_rows: false, ..CompareOptions::default() },
        )?,
        replay: compare::compare(&replayed.run_dir, &production, &CompareOptions::default())?,
        bench_run: bench.run_dir,
        replay_run: replayed.run_dir,
        production,
    };
    if args.json {
        output.document("1.0", &shown)?;
    } else {
        output.data(&tracewheel_report::demo_text(&shown.bench, &shown.replay, output.style()))?;
        output.data(&stage.closing_words(&shown))?;
    }
    Ok(Exit::Done)
}

/// The demo's folder, its endpoint and its way to say what it does.
struct Stage<'a> {
    folder: PathBuf,
    endpoint: MockConfig,
    stop: StopSignal,
    output: &'a Output,
}

impl<'a> Stage<'a> {
    fn set(args: &DemoArgs, output: &'a Output) -> Result<Self, Failure> {
        let folder = args.out.clone();
        empty(&folder)?;
        let endpoint: MockConfig =
            toml::from_str(ENDPOINT).or_exit_with(Exit::Internal, || "the demo's endpoint".to_owned())?;
        let stop = StopSignal::new();
        signals::stop_on_signals(&stop, |_| {})?;
        let stage = Self { folder, endpoint, stop, output };
        stage.write("azure2023_conv_20s.csv", TRACE)?;
        stage.write("endpoint.toml", ENDPOINT)?;
        Ok(stage)
    }

    /// (a) and (b): real arrivals drive the endpoint, the gateway logs, the log becomes a timeline.
    fn production(&self) -> Result<PathBuf, Failure> {
        self.say(
            "1. Production. The public traces hold no latencies, so this one is made here, and honestly:",
        );
        self.say(
            "   20 s of real Azure arrivals drive the built-in endpoint (queue, batching, cold prefix cache,",
        );
        self.say(
            "   a rate limit that throttles bursts); its clients retry as the OpenAI SDK does; its gateway",
        );
        self.say("   writes an ordinary JSON log.");
        let traffic = self.folder.join("traffic.parquet");
        self.ingest(IngestArgs {
            zone: Some("UTC".into()),
            ..self.ingest_args("azure2023_conv_20s.csv", &traffic)
        })?;
        let log = self.folder.join("gateway.jsonl");
        let mock = self.mock(MockConfig { gateway_log: Some(log), ..self.endpoint.clone() })?;
        let clients = ReplayArgs {
            output: Some(self.folder.join("production-clients")),
            ..self.replay_args(&traffic, &mock)
        };
        self.replay_as(&clients)?;
        mock.shutdown().or_exit(Exit::Output)?;
        self.say("2. The log is ingested like anyone's:");
        let production = self.folder.join("production.parquet");
        self.say(&format!(
            "   tracewheel ingest gateway.jsonl --fold-retries --map {GATEWAY_MAP} -o production.parquet"
        ));
        self.ingest(IngestArgs {
            map: vec![GATEWAY_MAP.to_owned()],
            fold_retries: true,
            ttft_kind: Some("token".into()),
            ..self.ingest_args("gateway.jsonl", &production)
        })?;
        Ok(production)
    }

    /// (c): what a bench does.
    fn bench(&self, production: &Path, staging: &Mock) -> Result<RunReport, Failure> {
        self.say("3. A naive bench asks an endpoint of the same kind: one request at a time, warm cache.");
        self.replay_as(&ReplayArgs {
            closed_loop: Some(1),
            cache: Some("warm".into()),
            retry: Some("none".into()),
            limit: Some(BENCH_REQUESTS),
            ..self.replay_args(production, staging)
        })
    }

    /// (d): what tracewheel does.
    fn replay(&self, production: &Path, staging: &Mock) -> Result<RunReport, Failure> {
        self.say(
            "4. tracewheel replays the ingested timeline: recorded arrivals, retries inside the latency.",
        );
        self.replay_as(&self.replay_args(production, staging))
    }

    fn ingest_args(&self, log: &str, timeline: &Path) -> IngestArgs {
        IngestArgs {
            inputs: vec![self.folder.join(log)],
            output: timeline.to_owned(),
            format: None,
            map: Vec::new(),
            zone: None,
            ttft_kind: None,
            token_rule: "auto".into(),
            block_tokens: None,
            rejects: None,
            restarts: "auto".to_owned(),
            fold_retries: false,
            max_rejects: 0,
            memory: 256 << 20,
            temp_dir: None,
            key_file: Some(self.folder.join("key")),
            json: false,
        }
    }

    fn ingest(&self, args: IngestArgs) -> Result<(), Failure> {
        let report = ingest::import(&args, self.output)?;
        if report.over_reject_limit {
            return Err(Failure::new(
                Exit::Internal,
                anyhow::anyhow!(
                    "{} rows of {} were rejected",
                    report.rows_rejected,
                    args.inputs[0].display()
                ),
            ));
        }
        Ok(())
    }

    fn replay_args(&self, timeline: &Path, mock: &Mock) -> ReplayArgs {
        ReplayArgs {
            timeline: Some(timeline.to_owned()),
            target: Some(format!("http://{}", mock.local_addr())),
            protocol: Some("openai-chat".into()),
            model: Some("demo-model".into()),
            retry: Some("openai-sdk".into()),
            // A request that was refused to the end has no answer in the log to take a length from.
            unknown_tokens: Some("fill:1000,200".into()),
            output: Some(self.folder.join("runs")),
            ..ReplayArgs::default()
        }
    }

    fn replay_as(&self, args: &ReplayArgs) -> Result<RunReport, Failure> {
        let report = replay::replay(args, &self.stop, self.output)?;
        if report.stopped != StopLevel::Running {
            return Err(Failure::new(Exit::Interrupted, anyhow::anyhow!("the demo was interrupted")));
        }
        Ok(report)
    }

    fn mock(&self, config: MockConfig) -> Result<Mock, Failure> {
        let anywhere = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        Mock::bind(config, anywhere, RunClock::start()).or_exit(Exit::Internal)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.folder.join(name);
        fs::write(&path, text).or_exit_with(Exit::Output, || format!("cannot write {}", path.display()))
    }

    fn say(&self, line: &str) {
        self.output.note(line);
    }

    fn closing_words(&self, shown: &Shown) -> String {
        let folder = self.folder.display();
        format!(
            "Everything is in {folder}/: the trace, the gateway's log, both timelines, the runs. Look further with\n  \
             tracewheel inspect {folder}/production.parquet\n  \
             tracewheel compare {} --with {}\n",
            shown.replay_run.display(),
            shown.production.display(),
        )
    }
}

/// Makes `folder` an empty folder of the demo's.
fn empty(folder: &Path) -> Result<(), Failure> {
    let what = || format!("cannot prepare the folder {}", folder.display());
    let taken = fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    if taken && !folder.join(MARKER).exists() {
        return Err(Failure::usage(format!(
            "{} is not empty and not the demo's: give --out another",
            folder.display()
        )));
    }
    if taken {
        fs::remove_dir_all(folder).or_exit_with(Exit::Output, what)?;
    }
    fs::create_dir_all(folder).or_exit_with(Exit::Output, what)?;
    fs::write(folder.join(MARKER), "").or_exit_with(Exit::Output, what)
}
