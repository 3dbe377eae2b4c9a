//! What a process costs: it runs below a small one that waits for it and asks the kernel.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::resource::{UsageWho, getrusage};
use tracewheel_clock::{Clock, RunClock};

/// What one process took, from its start to its end.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cost {
    pub(crate) cpu_ns: i64,
    /// The most memory that was resident at once.
    pub(crate) peak_bytes: i64,
    pub(crate) wall_ns: i64,
    pub(crate) exit_code: i64,
}

/// Runs `command` to its end. Its output goes to `folder`.
pub(crate) fn of(command: &[String], folder: &Path) -> io::Result<Cost> {
    let report = folder.join("cost");
    let mut guard = Command::new(std::env::current_exe()?);
    guard.args(["--role", "guard", "--log"]).arg(&report).arg("--").args(command);
    guard.stdin(Stdio::null());
    guard.stdout(std::fs::File::create(folder.join("client.out"))?);
    guard.stderr(std::fs::File::create(folder.join("client.err"))?);
    guard.status()?;
    let text = std::fs::read_to_string(&report)?;
    std::fs::remove_file(&report)?;
    let numbers: Vec<i64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [cpu_ns, peak_bytes, wall_ns, exit_code] => Ok(Cost { cpu_ns, peak_bytes, wall_ns, exit_code }),
        _ => Err(io::Error::other(format!("no cost in {text:?}"))),
    }
}

/// The small process: one child, then what the kernel says of all children there were.
pub(crate) fn guard(command: &[String], report: &Path) -> io::Result<()> {
    let [program, arguments @ ..] = command else { return Err(io::Error::other("no command")) };
    let clock = RunClock::start();
    let status = Command::new(program).args(arguments).status()?;
    let wall_ns = clock.now().0;
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let ns = |at: nix::sys::time::TimeVal| at.tv_sec() * 1_000_000_000 + at.tv_usec() * 1_000;
    let cpu_ns = ns(usage.user_time()) + ns(usage.system_time());
    let peak_bytes = usage.max_rss() * 1024;
    let exit_code = status.code().unwrap_or(-1);
    std::fs::write(report, format!("{cpu_ns} {peak_bytes} {wall_ns} {exit_code}\n"))
}
