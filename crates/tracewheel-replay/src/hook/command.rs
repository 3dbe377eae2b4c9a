//! One command, within a time limit, that a stop ends.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tracewheel_clock::{Clock, RunClock, blocking};

use super::call::NoAnswer;

/// Most that is kept of what a command prints.
const MAX_OUTPUT_BYTES: usize = 64 << 10;
/// Time between two looks at a command.
const NAP_NS: i64 = 10_000_000;
/// What its output may take to come after its end.
const OUTPUT_GRACE_NS: i64 = 200_000_000;

/// How a command ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) code: i32,
    pub(super) output: String,
}

/// Runs a command to its end, without a shell and without input. It is killed with all that it started in its process
/// group when the time is over or `stopped` says so.
pub(super) fn run(
    argv: &[String],
    clock: &RunClock,
    until_ns: i64,
    stopped: &dyn Fn() -> bool,
) -> Result<Ended, NoAnswer> {
    let Some((program, args)) = argv.split_first() else {
        return Err(NoAnswer::Senseless("its command is empty".to_owned()));
    };
    let child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn();
    let mut child =
        child.map_err(|error| NoAnswer::Senseless(format!("{program:?} cannot be started: {error}")))?;
    let output = Arc::new(Mutex::new(Vec::new()));
    let readers = [
        child.stdout.take().map(|pipe| collect(pipe, &output)),
        child.stderr.take().map(|pipe| collect(pipe, &output)),
    ];
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(error) => return Err(NoAnswer::Failed(format!("it cannot be waited for: {error}"))),
        }
        if stopped() {
            kill(&mut child);
            return Err(NoAnswer::Stopped);
        }
        if clock.now().0 >= until_ns {
            kill(&mut child);
            return Err(NoAnswer::Failed("it did not end in time and was killed".to_owned()));
        }
        blocking::sleep(NAP_NS);
    };
    // What it left running may hold the pipes open: that is not waited for.
    let patient_until_ns = clock.now().0 + OUTPUT_GRACE_NS;
    while readers.iter().flatten().any(|reader| !reader.is_finished()) && clock.now().0 < patient_until_ns {
        blocking::sleep(NAP_NS);
    }
    let output = output.lock().unwrap_or_else(PoisonError::into_inner);
    let code = status.code().unwrap_or_else(|| -status.signal().unwrap_or(1));
    Ok(Ended { code, output: String::from_utf8_lossy(&output).into_owned() })
}

/// Reads a pipe to its end and keeps its beginning.
fn collect(mut pipe: impl Read + Send + 'static, into: &Arc<Mutex<Vec<u8>>>) -> std::thread::JoinHandle<()> {
    let into = Arc::clone(into);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = pipe.read(&mut buffer) {
            let mut kept = into.lock().unwrap_or_else(PoisonError::into_inner);
            let room = MAX_OUTPUT_BYTES.saturating_sub(kept.len());
            kept.extend_from_slice(&buffer[..read.min(room)]);
        }
    })
}

fn kill(child: &mut Child) {
    let group = Pid::from_raw(child.id().cast_signed());
    // It may have ended just now.
    let _gone = killpg(group, Signal::SIGKILL);
    let _status = child.wait();
}
