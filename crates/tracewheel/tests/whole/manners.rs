//! How the program talks: progress, colour, logs, completions, man pages, errors with their remedy.

use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use nix::pty::{Winsize, openpty};

use crate::harness::{Place, QUICK, text};

/// Runs the binary with a terminal of so many columns as stderr; exit code, stdout, and what came to the terminal.
fn on_a_terminal(place: &Place, columns: u16, args: &[&str]) -> (Option<i32>, String, String) {
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(Some(&size), None).unwrap();
    let (master, slave): (OwnedFd, OwnedFd) = (pty.master, pty.slave);
    let mut command = place.command(args);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(slave)
        .env("TERM", "xterm")
        .env_remove("NO_COLOR");
    let child = command.spawn().unwrap();
    // The command holds a copy of the terminal's other end, which would keep it open.
    drop(command);
    let shown = std::thread::spawn(move || {
        let (mut shown, mut buffer) = (Vec::new(), [0_u8; 4096]);
        let mut master = fs::File::from(master);
        // Linux ends a terminal that nobody holds any more with an error.
        while let Ok(read @ 1..) = master.read(&mut buffer) {
            shown.extend_from_slice(&buffer[..read]);
        }
        shown
    });
    let output = child.wait_with_output().unwrap();
    (output.status.code(), text(&output.stdout), text(&shown.join().unwrap()))
}

/// What stands on a terminal after all of `bytes`: lines, with carriage returns and erasures carried out.
fn standing(bytes: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for piece in bytes.replace("\r\n", "\n").split_inclusive('\n') {
        let last = piece.trim_end_matches('\n').rsplit("\r\u{1b}[2K").next().unwrap();
        if piece.contains("\r\u{1b}[2K") {
            *lines.last_mut().unwrap() = last.to_owned();
        } else {
            lines.last_mut().unwrap().push_str(last);
        }
        if piece.ends_with('\n') {
            lines.push(String::new());
        }
    }
    lines
}

fn replay<'a>(target: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let base = ["replay", "t.parquet", "--target", target, "--protocol", "openai-chat", "--model", "m"];
    [&base[..], more].concat()
}

#[test]
fn on_a_terminal_progress_comes_as_one_line_that_fits_and_is_gone_at_the_end() {
    let place = Place::new();
    place.small_timeline(30);
    let mock = place.mock(QUICK);
    let (code, _, shown) = on_a_terminal(&place, 44, &replay(&mock.url, &[]));
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("\r\u{1b}[2K") && shown.contains("/30 sent"), "{shown}");
    for drawn in shown.split("\r\u{1b}[2K").skip(1) {
        let line = drawn.lines().next().unwrap_or_default();
        assert!(line.chars().count() < 44 || drawn.contains("next:"), "too wide: {line}");
    }
    let left = standing(&shown).join("\n");
    assert!(!left.contains(" sent") && left.contains("next: tracewheel compare"), "{left}");
}

#[test]
fn logs_stand_above_the_progress_line_and_none_is_lost() {
    let place = Place::new();
    place.small_timeline(20);
    let mock = place.mock(QUICK);
    let args = [&["--color", "never", "--log", "info"][..], &replay(&mock.url, &[])].concat();
    let (_, _, shown) = on_a_terminal(&place, 70, &args);
    let left = standing(&shown).join("\n");
    assert!(
        left.contains("replay starts") && left.contains("replay closed") && !left.contains(" sent"),
        "{left}"
    );
}

#[test]
fn without_a_terminal_nothing_of_the_progress_reaches_a_pipe_unless_asked_for() {
    let place = Place::new();
    place.small_timeline(20);
    let mock = place.mock(QUICK);
    let quiet = place.run(&replay(&mock.url, &[]));
    assert!(!text(&quiet.stderr).contains("sent") && !text(&quiet.stderr).contains('\u{1b}'));
    let plain = place.run(&replay(&mock.url, &["--progress", "plain:100ms"]));
    let told = text(&plain.stderr);
    assert!(told.contains("progress: ") && told.contains("/20 sent") && !told.contains('\u{1b}'), "{told}");
    assert!(!text(&plain.stdout).contains("progress:"));
    let (_, _, shown) = on_a_terminal(&place, 80, &replay(&mock.url, &["--progress", "never"]));
    assert!(!shown.contains(" sent"), "{shown}");
    assert!(place.fails(2, &replay(&mock.url, &["--progress", "plain:soon"])).contains("soon"));
}

#[test]
fn json_goes_to_stdout_and_the_rest_to_stderr_wherever_a_table_is_shown() {
    let place = Place::new();
    place.small_timeline(3);
    let mock = place.mock(QUICK);
    let ingested = place.json(0, &["ingest", "trace.csv", "-o", "t.parquet", "--json", "--log", "trace"]);
    assert_eq!(ingested["rows_kept"], 3);
    let run = place.json(0, &replay(&mock.url, &["--json", "--log", "trace", "--progress", "always"]));
    let run = run["run_dir"].as_str().unwrap();
    for args in [
        &["inspect", "t.parquet", "--json"][..],
        &["inspect", run, "--json"],
        &["compare", run, "--with", "t.parquet", "--json"],
    ] {
        assert!(place.json(0, args).is_object(), "{args:?}");
    }
    assert_eq!(place.json(0, &["mock", "--describe", "--json", "--seed", "7"])["config"]["seed"], 7);
}

#[test]
fn colour_follows_the_flag_and_then_the_environment() {
    let place = Place::new();
    place.small_timeline(5);
    let coloured = |args: &[&str], variable: Option<(&str, &str)>| {
        let mut command = place.command(args);
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").envs(variable).stdin(Stdio::null());
        text(&command.output().unwrap().stdout).contains('\u{1b}')
    };
    let inspect = ["inspect", "t.parquet"];
    let flag = |when| [&inspect[..], &["--color", when]].concat();
    assert!(!coloured(&inspect, None), "a pipe gets no colour");
    assert!(coloured(&flag("always"), Some(("NO_COLOR", "1"))), "the flag wins");
    assert!(coloured(&inspect, Some(("CLICOLOR_FORCE", "1"))));
    assert!(!coloured(&flag("never"), Some(("CLICOLOR_FORCE", "1"))));
    assert!(coloured(&["--color", "always", "--help"], None) && !coloured(&["--help"], None));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let place = Place::new();
    place.small_timeline(50);
    for args in [&["inspect", "t.parquet"][..], &["replay", "--help"], &["completions", "bash"], &["man"]] {
        let mut child = place
            .command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()), "{args:?}");
    }
}

#[test]
fn help_and_version_that_cannot_be_written_end_with_the_code_for_output() {
    let place = Place::new();
    for args in [&["--help"][..], &["--version"], &["replay", "--help"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = place.command(args).stdin(Stdio::null()).stdout(full).output().unwrap();
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(40), "{args:?}: {err}");
        assert!(err.contains("cannot write to stdout"), "{err}");
    }
}

#[test]
fn logs_are_filtered_formatted_and_sent_where_they_are_asked_for() {
    let place = Place::new();
    place.small_timeline(3);
    let ingest = ["ingest", "trace.csv", "-o", "t.parquet"];
    assert!(!text(&place.run(&ingest).stderr).contains("log opened"), "info is not shown by default");
    let json = [&ingest[..], &["--log", "info", "--log-format", "json"]].concat();
    let told = text(&place.run(&json).stderr);
    let opened: serde_json::Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
    assert_eq!(
        (opened["message"].as_str(), opened["format"].as_str()),
        (Some("log opened"), Some("azure-llm-2023"))
    );
    let to_file = [&ingest[..], &["--log", "tracewheel_ingest=info", "--log-file", "log.txt"]].concat();
    assert!(!text(&place.run(&to_file).stderr).contains("log opened"));
    assert!(fs::read_to_string(place.path("log.txt")).unwrap().contains("timeline written"));
    let mut by_variable = place.command(&ingest);
    by_variable.env("TRACEWHEEL_LOG", "info").stdin(Stdio::null());
    assert!(text(&by_variable.output().unwrap().stderr).contains("log opened"));
    let told = place.fails(2, &[&["--log", "inof"][..], &ingest].concat());
    assert!(told.contains("did you mean `info`?") && told.contains("warn,tracewheel_replay=debug"), "{told}");
    place.fails(40, &[&["--log-file", "nowhere/log.txt"][..], &ingest].concat());
}

#[test]
fn the_usual_mistakes_are_told_with_what_to_do() {
    let place = Place::new();
    place.small_timeline(2);
    let mock = place.mock(QUICK);
    let report = place.json(0, &replay(&mock.url, &["--json"]));
    let run = report["run_dir"].as_str().unwrap();
    for (args, part) in [
        (&["replai"][..], "'replay'"),
        (&["trace.csv"], "ingest trace.csv -o yesterday.parquet"),
        (
            &["replay", "trace.csv", "--target", &mock.url, "--protocol", "openai-chat"],
            "ingest trace.csv -o trace.parquet",
        ),
        (&["inspect", "trace.csv"], "ingest it first"),
        (&["compare", run, "--with", "trace.csv"], "ingest it first"),
        (&["compare", "t.parquet", "--with", run], "--with t.parquet"),
        (&["replay", run, "--target", &mock.url, "--protocol", "openai-chat"], "`compare` and `inspect`"),
        (&["replay", "t.parquet", "--target", &mock.url], "openai-completions"),
        (&["replay", "t.parquet", "--protocol", "openai-caht"], "did you mean `openai-chat`?"),
        (&["replay", "t.parquet", "--cache", "mixed:3"], "natural, cold, warm or mix:SHARE"),
        (&["ingest", "trace.csv", "-o", "x.parquet", "--format", "moncake"], "did you mean `mooncake`?"),
        (&["ingest", "trace.csv", "-o", "x.parquet", "--ttft-kind", "tokens"], "did you mean `token`?"),
        (&["--color", "alwys", "inspect", "t.parquet"], "did you mean `always`?"),
        (&["ingest", "t.parquet", "-o", "x.parquet"], "Parquet"),
    ] {
        let told = place.fails(2, args);
        assert!(told.contains(part), "{args:?}: {told}");
    }
}

#[test]
fn the_first_help_shows_the_three_jobs_and_the_place_of_the_documents() {
    let place = Place::new();
    let told = place.fails(2, &[]);
    for part in ["tracewheel ingest", "tracewheel replay", "tracewheel compare", "docs/getting-started.md"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let help = place.expect(0, &["help", "replay"]);
    let headings =
        ["Target:", "What is replayed:", "How it is sent:", "Result:", "Output and logs:", "Examples:"];
    let places: Vec<_> = headings.iter().map(|heading| help.find(heading).expect(heading)).collect();
    assert!(places.is_sorted(), "{help}");
}

/// Whether a program can be run here.
fn there_is(program: &str) -> bool {
    let found =
        Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        println!("skipped: no {program} here");
    }
    found
}

#[test]
fn bash_takes_the_completion_script_and_completes_commands_flags_and_values() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        place.write(shell, &place.expect(0, &["completions", shell]));
    }
    if !there_is("bash") {
        return;
    }
    let complete = |words: &str| {
        let count = words.split(' ').count();
        let script = format!(
            "source ./bash; COMP_WORDS=({words} ''); COMP_CWORD={count}; {last}; \
             $(complete -p tracewheel | sed 's/.*-F \\([^ ]*\\).*/\\1/') tracewheel \"$cur\" \"$prev\"; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            last = "cur=''; prev=\"${COMP_WORDS[COMP_CWORD-1]}\""
        );
        let output = Command::new("bash")
            .current_dir(place.path(""))
            .args(["--norc", "-c", &script])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(complete("tracewheel").contains(&"replay".to_owned()));
    assert!(complete("tracewheel replay").contains(&"--cache".to_owned()));
    assert_eq!(
        complete("tracewheel replay --protocol"),
        [
            "openai-chat",
            "openai-completions",
            "openai-responses",
            "openai-embeddings",
            "azure-openai",
            "azure-embeddings",
            "anthropic-messages",
            "gemini",
            "gemini-embeddings",
            "tgi-generate",
            "ollama-chat",
            "ollama-generate",
            "http"
        ]
    );
}

#[test]
fn every_command_has_a_man_page_that_groff_reads_without_a_warning() {
    let place = Place::new();
    place.expect(0, &["man", "--out", "man1"]);
    let pages: Vec<_> =
        fs::read_dir(place.path("man1")).unwrap().map(|entry| entry.unwrap().path()).collect();
    for name in ["tracewheel.1", "tracewheel-replay.1", "tracewheel-ingest.1", "tracewheel-completions.1"] {
        assert!(place.path("man1").join(name).exists(), "{name}");
    }
    let replay = fs::read_to_string(place.path("man1/tracewheel-replay.1")).unwrap();
    assert!(replay.contains(".SH EXAMPLES\n.nf\n") && replay.contains(".SH TARGET"), "{replay}");
    if !there_is("groff") {
        return;
    }
    for page in pages {
        let output = Command::new("groff").args(["-man", "-Tutf8", "-ww", "-z"]).arg(&page).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{page:?}: {}", text(&output.stderr));
    }
}
