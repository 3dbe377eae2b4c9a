//! The names inside a run's directory.
//!
//! ```text
//! manifest.json
//! requests/part-SHARD-N.parquet       likewise attempts/, health/, server/
//! journal/SHARD.TABLE-N.arrows        rows that are not in a part yet, and releases
//! journal/SHARD.TABLE-N.part          a part being written; of no meaning to a reader
//! journal/SHARD.departures-SENDER      the latest releases of a sending thread
//! journal/SHARD.lock                  locked while the shard's writer lives; holds its process id
//! ```
//! Segment `N` of a table's journal holds the same rows as part `N`: where the part is there, the segment is not
//! read. A part gets its name only when it is whole and durable, and the segment is removed after that; so at every
//! instant each row is read exactly once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use uuid::Uuid;
use uuid::fmt::Hyphenated;

use crate::error::{RecordError, Result};

/// Name of the manifest.
pub(crate) const MANIFEST: &str = "manifest.json";
/// Name of the journal's directory.
pub(crate) const JOURNAL: &str = "journal";
/// What the name of a lock file ends in.
const LOCK: &str = ".lock";
/// What the name of a part that is being written ends in.
const UNFINISHED: &str = ".part";
/// What stands between shard and sender in the name of a departure log.
const DEPARTURES: &str = ".departures-";

/// Which rows of a table: the shard that wrote them, and the number of the part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot {
    /// The writer.
    pub(crate) shard: u32,
    /// The number, from 0.
    pub(crate) number: u32,
}

/// Where the rows of a slot are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a finished part.
    Part,
    /// In the journal.
    Journal,
}

impl Slot {
    pub(crate) fn next(self) -> Self {
        Self { number: self.number + 1, ..self }
    }

    /// The finished part.
    pub(crate) fn part(self, run: &Path, table: &str) -> PathBuf {
        run.join(table).join(self.part_name())
    }

    /// The name of the finished part.
    pub(crate) fn part_name(self) -> String {
        format!("part-{}-{}.parquet", self.shard, self.number)
    }

    /// The part while it is written.
    pub(crate) fn unfinished_part(self, run: &Path, table: &str) -> PathBuf {
        run.join(JOURNAL).join(format!("{}.{table}-{}.part", self.shard, self.number))
    }

    /// The journal segment.
    pub(crate) fn segment(self, run: &Path, table: &str) -> PathBuf {
        run.join(JOURNAL).join(format!("{}.{table}-{}.arrows", self.shard, self.number))
    }
}

/// The slots of a table in their order, with the place to read each from.
pub(crate) fn slots(run: &Path, table: &str) -> Result<BTreeMap<Slot, Place>> {
    // The journal first: a segment that is rolled in between is then found as a part.
    let mut slots = BTreeMap::new();
    for name in names(&run.join(JOURNAL))? {
        if let Some(slot) = parse_segment(&name, table) {
            slots.insert(slot, Place::Journal);
        }
    }
    for name in names(&run.join(table))? {
        if let Some(slot) = parse_part(&name) {
            slots.insert(slot, Place::Part);
        }
    }
    Ok(slots)
}

/// The slots of a table's journal segments in their order, whether or not a part holds the same rows.
pub(crate) fn segments(run: &Path, table: &str) -> Result<BTreeSet<Slot>> {
    Ok(names(&run.join(JOURNAL))?.iter().filter_map(|name| parse_segment(name, table)).collect())
}

/// The finished parts of a table in their order.
pub(crate) fn parts(run: &Path, table: &str) -> Result<BTreeSet<Slot>> {
    Ok(names(&run.join(table))?.iter().filter_map(|name| parse_part(name)).collect())
}

/// The slots whose parts were being written, whether or not anything came of them.
pub(crate) fn unfinished(run: &Path, table: &str) -> Result<BTreeSet<Slot>> {
    let slots = |name: &String| parse_segment(&format!("{}.arrows", name.strip_suffix(UNFINISHED)?), table);
    Ok(names(&run.join(JOURNAL))?.iter().filter_map(slots).collect())
}

/// The senders whose departure logs are there, by shard.
pub(crate) fn senders(run: &Path) -> Result<BTreeSet<(u32, u32)>> {
    let sender = |name: &String| {
        let (shard, sender) = name.split_once(DEPARTURES)?;
        Some((shard.parse().ok()?, sender.parse().ok()?))
    };
    Ok(names(&run.join(JOURNAL))?.iter().filter_map(sender).collect())
}

/// Whether a folder is what a writer leaves that died before its manifest was there, which is before the first send:
/// nothing but empty directories and locks, and without even those a folder that is named as runs are. Not so where
/// there is a manifest.
pub(crate) fn is_stillborn(run: &Path, tables: &[&str]) -> Result<bool> {
    if run.join(MANIFEST).exists() {
        return Ok(false);
    }
    let not_a_run = || RecordError::NotARun { path: run.to_owned() };
    if !run.is_dir() {
        return Err(not_a_run());
    }
    let (mut begun, mut foreign) = (has_name_of_a_run(run), false);
    for folder in names(run)? {
        let path = run.join(&folder);
        let is_journal = folder == JOURNAL;
        if !path.is_dir() || !(is_journal || tables.contains(&folder.as_str())) {
            foreign |= path != run.join(MANIFEST).with_extension("tmp");
            continue;
        }
        begun = true;
        for name in names(&path)? {
            if if is_journal { is_of_journal(&name) } else { parse_part(&name).is_some() } {
                return Err(RecordError::ManifestLost { path: run.to_owned() });
            }
            foreign |= !(is_journal && name.ends_with(LOCK));
        }
    }
    if foreign || !begun { Err(not_a_run()) } else { Ok(true) }
}

/// Whether a folder's name begins as the ids of runs do, with a UUID.
fn has_name_of_a_run(run: &Path) -> bool {
    // Not the path as it was given, which may be a dot.
    let path = run.canonicalize().unwrap_or_default();
    let uuid = path.file_name().and_then(|name| name.to_str()?.get(..Hyphenated::LENGTH));
    uuid.is_some_and(|uuid| Uuid::try_parse(uuid).is_ok())
}

fn is_of_journal(name: &str) -> bool {
    name.ends_with(".arrows") || name.ends_with(UNFINISHED) || name.contains(DEPARTURES)
}

/// Notes this process in the locks that it took, for the message to whoever finds them taken.
pub(crate) fn own(run: &Path) -> Result<()> {
    let journal = run.join(JOURNAL);
    for name in names(&journal)?.iter().filter(|name| name.ends_with(LOCK)) {
        // A disk that is full costs no more than the number in a message.
        let _ = fs::write(journal.join(name), format!("{}\n", std::process::id()));
    }
    Ok(())
}

/// The departure log of a sending thread.
pub(crate) fn departures(run: &Path, shard: u32, sender: u32) -> PathBuf {
    run.join(JOURNAL).join(format!("{shard}{DEPARTURES}{sender}"))
}

/// The departure logs of all sending threads.
pub(crate) fn departure_logs(run: &Path) -> Result<Vec<PathBuf>> {
    let journal = run.join(JOURNAL);
    let names = names(&journal)?;
    Ok(names.iter().filter(|name| name.contains(DEPARTURES)).map(|name| journal.join(name)).collect())
}

/// Takes the lock of a shard; the system gives it back when this process ends, however that happens. So a lock is never
/// stale: the file may stay behind, the lock does not.
pub(crate) fn lock(run: &Path, shard: u32) -> Result<File> {
    let path = run.join(JOURNAL).join(format!("{shard}{LOCK}"));
    let mut file = File::create(&path).map_err(|source| RecordError::io("create", &path, source))?;
    if !try_lock(&file, &path)? {
        return Err(RecordError::InUse { path: run.to_owned(), process: owner(run) });
    }
    // Only for the message to whoever finds it taken.
    writeln!(file, "{}", std::process::id()).map_err(|source| RecordError::io("write", &path, source))?;
    Ok(file)
}

/// The process that took the lock of a run's first shard, as it noted itself.
pub(crate) fn owner(run: &Path) -> Option<u32> {
    let text = fs::read_to_string(run.join(JOURNAL).join(format!("0{LOCK}"))).ok()?;
    text.trim().parse().ok()
}

/// Takes the locks of all shards; `None` where one is taken, because its writer lives.
pub(crate) fn take_locks(run: &Path) -> Result<Option<Vec<File>>> {
    let journal = run.join(JOURNAL);
    let mut locks = Vec::new();
    for name in names(&journal)?.iter().filter(|name| name.ends_with(LOCK)) {
        let path = journal.join(name);
        match File::open(&path) {
            // The writer has closed the run since.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(RecordError::io("open", &path, source)),
            Ok(file) if try_lock(&file, &path)? => locks.push(file),
            Ok(_) => return Ok(None),
        }
    }
    Ok(Some(locks))
}

fn try_lock(file: &File, path: &Path) -> Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(source)) => Err(RecordError::io("lock", path, source)),
    }
}

/// The names in a directory; none where there is no such directory.
pub(crate) fn names(dir: &Path) -> Result<Vec<String>> {
    let failed = |source| RecordError::io("list", dir, source);
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        // A name that is not text is none of ours.
        names.extend(entry.map_err(failed)?.file_name().into_string());
    }
    Ok(names)
}

fn parse_part(name: &str) -> Option<Slot> {
    let (shard, number) = name.strip_prefix("part-")?.strip_suffix(".parquet")?.split_once('-')?;
    Some(Slot { shard: shard.parse().ok()?, number: number.parse().ok()? })
}

fn parse_segment(name: &str, table: &str) -> Option<Slot> {
    let (shard, rest) = name.strip_suffix(".arrows")?.split_once('.')?;
    let number = rest.strip_prefix(table)?.strip_prefix('-')?;
    Some(Slot { shard: shard.parse().ok()?, number: number.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_the_way_back_and_foreign_ones_are_passed_over() {
        let slot = Slot { shard: 7, number: 12 };
        let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(parse_part(&name(slot.part(Path::new("r"), "requests"))), Some(slot));
        assert_eq!(parse_segment(&name(slot.segment(Path::new("r"), "requests")), "requests"), Some(slot));
        assert_eq!(parse_segment(&name(slot.segment(Path::new("r"), "requests")), "attempts"), None);
        for foreign in ["part-7.parquet", "part-a-1.parquet", "part-1-1.parquet.tmp", "7.requests.arrows", ""]
        {
            assert_eq!(parse_part(foreign), None, "{foreign}");
            assert_eq!(parse_segment(foreign, "requests"), None, "{foreign}");
        }
    }

    #[test]
    fn a_part_takes_the_place_of_its_segment() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("health")).unwrap();
        fs::create_dir_all(dir.path().join(JOURNAL)).unwrap();
        let slot = |number| Slot { shard: 0, number };
        fs::write(slot(0).part(dir.path(), "health"), "").unwrap();
        for number in 0..2 {
            fs::write(slot(number).segment(dir.path(), "health"), "").unwrap();
        }
        fs::write(slot(1).unfinished_part(dir.path(), "health"), "").unwrap();
        let found: Vec<_> = slots(dir.path(), "health").unwrap().into_iter().collect();
        assert_eq!(found, [(slot(0), Place::Part), (slot(1), Place::Journal)]);
        assert!(slots(dir.path(), "server").unwrap().is_empty());
    }
}
