//! The page that the table goes to: what is measured stands between two marks, the rest of it is written by hand.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use crate::rows::Line;

const BEGIN: &str = "<!-- measured: begin -->";
const END: &str = "<!-- measured: end -->";

/// The table, for a terminal and for the page alike.
pub(crate) fn table(lines: &[Line]) -> String {
    let mut text =
        String::from("| | goal | beside it, same run | measured | reached |\n|---|---|---|---|---|\n");
    for Line { what, goal, beside, measured, reached } in lines {
        let reached = match reached {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "–",
        };
        let _writing_text_works = writeln!(text, "| {what} | {goal} | {beside} | {measured} | {reached} |");
    }
    text
}

/// Puts the table and the machine into the page, between its marks.
pub(crate) fn write(path: &Path, lines: &[Line], rounds: usize, seconds: i64) -> io::Result<()> {
    let page = std::fs::read_to_string(path)?;
    let (Some(begin), Some(end)) = (page.find(BEGIN), page.find(END)) else {
        return Err(io::Error::other(format!("{}: the marks {BEGIN} and {END} are gone", path.display())));
    };
    let reached = lines.iter().filter(|line| line.reached == Some(true)).count();
    let judged = lines.iter().filter(|line| line.reached.is_some()).count();
    let measured = format!(
        "{BEGIN}\n{}\nMedians of {rounds}; the whole table took {} minutes. Goals reached: {reached} of {judged}.\n\n{}{END}",
        machine(),
        (seconds + 30) / 60,
        table(lines)
    );
    std::fs::write(path, format!("{}{measured}{}", &page[..begin], &page[end + END.len()..]))
}

/// What the figures were taken on.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu_info = read("/proc/cpuinfo");
    let value = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
    };
    let model = value(&cpu_info, "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = value(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
    let memory_gib = memory.split(' ').next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) >> 20;
    let kernel = read("/proc/sys/kernel/osrelease");
    let virtual_machine = if cpu_info.contains("hypervisor") { ", a virtual machine" } else { "" };
    let clock = read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let load = read("/proc/loadavg");
    format!(
        "Machine: {model}, {cores} cores{virtual_machine}, {memory_gib} GiB, Linux {}, clock source {}, load average at the end {}. Client, server and everything else share these cores.\n",
        kernel.trim(),
        clock.trim(),
        load.split(' ').next().unwrap_or("unknown")
    )
}
