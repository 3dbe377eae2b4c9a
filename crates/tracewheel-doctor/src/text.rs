//! Findings in words and tables, for a person.

use std::fmt::Write as _;

use tracewheel_analysis::fidelity::FidelityVerdict;

use crate::{Findings, Rate, Spread};

impl Findings {
    /// The findings for a person, at most 110 columns wide.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.write_machine(&mut text);
        self.write_measured(&mut text);
        self.write_rates(&mut text);
        self.write_advice(&mut text);
        text
    }

    fn write_machine(&self, text: &mut String) {
        let (machine, limits) = (&self.machine, &self.limits);
        let cores = limits.cores.map_or("unknown".to_owned(), |cores| cores.to_string());
        let quota = limits.quota_cores.map_or("none".to_owned(), |quota| format!("{quota:.2} cores"));
        let gib = |bytes: Option<u64>| {
            bytes.map_or("unknown".to_owned(), |bytes| {
                format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)
            })
        };
        let kind = if limits.virtual_machine == Some(true) { ", a virtual machine" } else { "" };
        line(text, "machine", &format!("{}{kind}", machine.cpu.as_deref().unwrap_or("unknown processor")));
        line(text, "cores", &format!("{cores}; quota {quota}"));
        line(
            text,
            "busy before",
            &format!(
                "load {}, tasks waited for a core {} of the time",
                limits.load_1_minute.map_or("unknown".to_owned(), |load| format!("{load:.2}")),
                limits.cpu_pressure_percent.map_or("unknown".to_owned(), |share| format!("{share:.0} %"))
            ),
        );
        let granted =
            limits.memory_bytes.map_or(String::new(), |bytes| format!(", {} granted", gib(Some(bytes))));
        line(text, "memory", &format!("{} available{granted}", gib(limits.available_bytes)));
        line(
            text,
            "kernel",
            &format!(
                "{} {}, clock {} read in {} ns, wall time within {} ns",
                machine.os.as_deref().unwrap_or("unknown"),
                machine.kernel.as_deref().unwrap_or(""),
                machine.clock_source.as_deref().unwrap_or("unknown"),
                self.loopback.clock_read_ns,
                self.loopback.clock_bracket_ns
            ),
        );
        let realtime = match limits.realtime {
            Some(true) => "allowed",
            Some(false) => "not allowed",
            None => "unknown",
        };
        line(text, "real-time class", realtime);
        let count = |value: Option<u64>| value.map_or("unknown".to_owned(), |value| value.to_string());
        line(
            text,
            "connections",
            &format!(
                "{} streams at once to one address ({} open files, {} ports); {} fresh a second",
                count(limits.streams_at_once),
                count(limits.open_files_hard),
                count(limits.local_ports),
                count(limits.fresh_connections_per_second)
            ),
        );
    }

    fn write_measured(&self, text: &mut String) {
        let _ = writeln!(text, "\n{:<46}{:>10}{:>10}{:>10}", "microseconds", "p50", "p99", "max");
        for wait in &self.waits {
            row(text, &format!("wakes late: {}", wait.method), &wait.lateness);
        }
        row(text, "round trip over the loopback", &self.loopback.round_trip);
        row(text, "write call of a small request", &self.loopback.write_call);
        if self.loopback.kernel_stamps {
            row(text, "reader behind the kernel's stamp", &self.loopback.kernel_lag);
        } else {
            let _ = writeln!(text, "{:<46}{:>10}", "reader behind the kernel's stamp", "no stamps");
        }
        row(text, "a megabyte onto the disk", &self.disk.megabyte);
        let free = self
            .disk
            .free_bytes
            .map_or("unknown".to_owned(), |bytes| format!("{:.1} GB", bytes as f64 / 1e9));
        let _ = writeln!(
            text,
            "{}: {:.0} MB/s, {free} free",
            self.disk.dir.display(),
            self.disk.synced_bytes_per_second as f64 / 1e6
        );
    }

    fn write_rates(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "\n{:>10}{:>10}{:>14}{:>10}{:>10}{:>12}{:>8}{:>9}  verdict",
            "requests/s", "sent/s", "late p50, µs", "p99", "max", "bound p99", "cores", "steal %"
        );
        for rate in &self.rates {
            let figure = |value: Option<f64>, digits: usize| {
                value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
            };
            let _ = writeln!(
                text,
                "{:>10}{:>10}{:>14}{:>10}{:>10}{:>12}{:>8}{:>9}  {}",
                rate.per_second,
                figure(rate.achieved_per_second, 1),
                us(rate.lateness.p50_ns),
                us(rate.lateness.p99_ns),
                us(rate.lateness.max_ns),
                us(Some(rate.bound_ns)),
                figure(rate.cpu_cores, 2),
                figure(rate.steal_percent, 1),
                judged(rate)
            );
        }
        let last = self.rates.iter().find(|rate| Some(rate.per_second) == self.keeps_per_second);
        let _ = match (last, self.rates.first()) {
            (Some(rate), _) => writeln!(
                text,
                "\nThis machine keeps {} requests a second: half leave within {} µs of their time, 99 of 100 within {}.",
                rate.per_second,
                us(rate.lateness.p50_ns),
                us(rate.lateness.p99_ns)
            ),
            (None, Some(lowest)) => {
                writeln!(text, "\nThis machine did not keep {} requests a second.", lowest.per_second)
            }
            (None, None) => writeln!(text, "\nNo rate was tried."),
        };
    }

    fn write_advice(&self, text: &mut String) {
        if self.advice.is_empty() {
            let _ = writeln!(text, "Nothing to change.");
        }
        for advice in &self.advice {
            let _ = writeln!(text, "\n- {}\n  {}", advice.found, advice.remedy);
        }
    }
}

fn line(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "{name:<17}{value}");
}

fn row(text: &mut String, name: &str, spread: &Spread) {
    let _ = writeln!(
        text,
        "{name:<46}{:>10}{:>10}{:>10}",
        us(spread.p50_ns),
        us(spread.p99_ns),
        us(spread.max_ns)
    );
}

/// The verdict, and what held requests up most.
fn judged(rate: &Rate) -> String {
    let verdict = rate.verdict.map_or("none", FidelityVerdict::as_str);
    match rate.causes.first() {
        Some(cause) => format!("{verdict}: {}", cause.cause.as_str()),
        None => verdict.to_owned(),
    }
}

/// Microseconds, with a digit behind the point where there are fewer than 100.
fn us(ns: Option<i64>) -> String {
    match ns {
        None => "-".to_owned(),
        Some(ns) if ns.abs() < 100_000 => format!("{:.1}", ns as f64 / 1e3),
        Some(ns) => format!("{:.0}", ns as f64 / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_keep_a_digit_while_they_are_few() {
        let texts = [None, Some(1_250), Some(99_949), Some(100_000), Some(1_234_567)].map(us);
        assert_eq!(texts, ["-", "1.2", "99.9", "100", "1235"]);
    }
}
