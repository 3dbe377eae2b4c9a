//! The product: the release binary in a process of its own, and what its run says beside what the witness saw.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use tracewheel_record::{AttemptRecord, ReadStampRow, Run};
use tracewheel_workload::request_id;

use crate::cost::{self, Cost};
use crate::figures::Spread;
use crate::witness::Seen;

/// Where everything of one measurement lies, and what is measured.
#[derive(Debug, Clone)]
pub(crate) struct Lab {
    pub(crate) binary: PathBuf,
    pub(crate) folder: PathBuf,
    /// What `replay --help` says: which flags there are.
    pub(crate) help: String,
    pub(crate) quick: bool,
    pub(crate) full_day: bool,
}

impl Lab {
    /// The same with fewer repetitions, for a first look.
    pub(crate) fn count(&self, count: usize) -> usize {
        if self.quick { count / 5 } else { count }
    }

    pub(crate) fn trace(&self) -> PathBuf {
        self.folder.join("trace.parquet")
    }
}

/// A replay that ended.
pub(crate) struct Replayed {
    pub(crate) cost: Cost,
    pub(crate) run: Run,
}

/// Replays the lab's trace against `target`. `before` stands before the program, as `chrt` does.
pub(crate) fn replay(lab: &Lab, target: &str, before: &[&str], flags: &[&str]) -> io::Result<Replayed> {
    let runs = lab.folder.join("runs");
    let _none_yet = std::fs::remove_dir_all(&runs);
    let mut command: Vec<String> = before.iter().map(|word| (*word).to_owned()).collect();
    let trace = lab.trace();
    for word in [lab.binary.as_path(), Path::new("replay"), &trace] {
        command.push(word.display().to_string());
    }
    for word in ["--target", target, "--protocol", "openai-chat", "--model", "m", "--progress", "never"] {
        command.push(word.to_owned());
    }
    command.extend(["--json".to_owned(), "-o".to_owned(), runs.display().to_string()]);
    command.extend(flags.iter().map(|flag| (*flag).to_owned()));
    let cost = cost::of(&command, &lab.folder)?;
    let dir = std::fs::read_dir(&runs)?.next().ok_or_else(|| said(lab))??.path();
    let run = Run::open(&dir).map_err(io::Error::other)?;
    let counts = run.manifest().outcome.as_ref().map(|outcome| outcome.counts).ok_or_else(|| said(lab))?;
    if counts.ok != run.manifest().plan.requests {
        return Err(io::Error::other(format!("not every request ended well: {counts:?}; {}", said(lab))));
    }
    Ok(Replayed { cost, run })
}

fn said(lab: &Lab) -> io::Error {
    let text = std::fs::read_to_string(lab.folder.join("client.err")).unwrap_or_default();
    io::Error::other(format!("the replay failed: {text}"))
}

/// Send errors of a run: arrival at the witness − planned offset, in planned order; nanoseconds.
pub(crate) fn send_errors(run: &Run, seen: &[Seen], offsets: &[i64]) -> io::Result<Vec<i64>> {
    let arrivals: HashMap<u64, i64> = seen.iter().map(|seen| (seen.id, seen.arrived_ns)).collect();
    let digest = &run.manifest().plan.timeline_digest;
    if arrivals.len() != seen.len() {
        return Err(io::Error::other("a request arrived twice"));
    }
    (0u64..)
        .zip(offsets)
        .map(|(row, offset)| {
            let arrived = arrivals.get(&request_id(digest, row, 0));
            arrived.map(|at| at - offset).ok_or_else(|| io::Error::other(format!("row {row} never arrived")))
        })
        .collect()
}

/// The witness knows when a chunk left within the time that its write took. One that took longer, because the witness was
/// stopped in it, says nothing to the microsecond, and what begins or ends with it is not judged.
const SURE_NS: i64 = 50_000;

/// How far what was recorded lies from what the witness did; nanoseconds.
pub(crate) struct StampErrors {
    /// (First output event − first byte written) − (first chunk's write − the request's arrival).
    pub(crate) ttft: Spread,
    /// Recorded gap − the server's gap.
    pub(crate) gaps: Spread,
    /// Share of the gaps between events that came with one read.
    pub(crate) merged: f64,
    /// Share of the chunks of which the witness is not sure when it wrote them.
    pub(crate) unsure: f64,
}

pub(crate) fn stamp_errors(run: &Run, seen: &[Seen]) -> io::Result<StampErrors> {
    let by_id: HashMap<u64, &Seen> = seen.iter().map(|seen| (seen.id, seen)).collect();
    let digest = &run.manifest().plan.timeline_digest;
    let (mut ttft, mut gaps, mut merged) = (Vec::new(), Vec::new(), 0);
    let (mut chunks, mut all_unsure, mut all_gaps) = (0, 0, 0);
    for attempt in run.attempts().map_err(io::Error::other)? {
        let attempt = attempt.map_err(io::Error::other)?;
        let Some(seen) = by_id.get(&request_id(digest, attempt.row, attempt.copy)) else { continue };
        let outputs: Vec<(u32, i64)> = outputs(&attempt);
        if outputs.len() != seen.written_ns.len() || outputs.len() != seen.taken_ns.len() {
            let counts = format!("{} of {} chunks", outputs.len(), seen.written_ns.len());
            return Err(io::Error::other(format!("row {} has {counts}", attempt.row)));
        }
        let (Some((_, first)), Some(written)) = (outputs.first(), attempt.first_write_ns) else { continue };
        let both = seen.written_ns.iter().zip(&seen.taken_ns);
        let unsure: Vec<bool> = both.map(|(before, after)| after - before > SURE_NS).collect();
        (chunks, all_unsure) = (chunks + unsure.len(), all_unsure + unsure.iter().filter(|is| **is).count());
        if !unsure[0] {
            ttft.push(((first - written) - (seen.written_ns[0] - seen.arrived_ns)).abs());
        }
        let pairs = outputs.windows(2).zip(seen.written_ns.windows(2)).zip(unsure.windows(2));
        for ((ours, theirs), unsure) in pairs {
            merged += usize::from(ours[0].0 == ours[1].0);
            all_gaps += 1;
            if unsure == [false, false] {
                gaps.push(((ours[1].1 - ours[0].1) - (theirs[1] - theirs[0])).abs());
            }
        }
    }
    let share = |part: usize, of: usize| part as f64 / of.max(1) as f64;
    let (merged, unsure) = (share(merged, all_gaps), share(all_unsure, chunks));
    Ok(StampErrors { ttft: Spread::of(ttft), gaps: Spread::of(gaps), merged, unsure })
}

/// Read and time of each event with output.
fn outputs(attempt: &AttemptRecord) -> Vec<(u32, i64)> {
    let stamp = |read: &ReadStampRow| read.kernel_ns.unwrap_or(read.user_ns);
    let events = attempt.events.iter().filter(|event| event.kind.is_output());
    events.filter_map(|event| Some((event.read, stamp(attempt.reads.get(event.read as usize)?)))).collect()
}
