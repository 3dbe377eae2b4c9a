//! The departure log: which attempts left, known to the system before their first byte does.
//!
//! The recorder's journal gets its rows each second. A release that a killed process had not journaled yet would pass
//! for a request that was never sent, although the target served it. So the sending thread itself notes each release
//! with one small write, which survives the death of the process, before it writes to the socket.
//!
//! The file is a ring of fixed slots: everything older than the recorder's last flush stands in the journal too, so
//! only the latest releases matter. A slot never lies across two pages and carries a checksum; one that is damaged is
//! passed over and named.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tracewheel_timeline::vocab::Phase;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{RecordError, Result};
use crate::layout;
use crate::rows::ReleaseRecord;

const SLOT_BYTES: usize = 64;
/// Ends the content of every slot: names the format.
const MARK: [u8; 8] = *b"twdept1\n";
const GATED: u8 = 1;
const RECORDED_ARRIVAL: u8 = 2;

/// The departure log of one sending thread; see [`RunWriter::departures`](crate::RunWriter::departures).
#[derive(Debug)]
pub struct DepartureLog {
    file: File,
    path: PathBuf,
    slots: u64,
    next: u64,
}

impl DepartureLog {
    pub(crate) fn create(run: &Path, shard: u32, sender: u32, slots: u64) -> Result<Self> {
        let path = layout::departures(run, shard, sender);
        let file = File::create(&path).map_err(|source| RecordError::io("create", &path, source))?;
        Ok(Self { file, path, slots: slots.max(1), next: 0 })
    }

    /// Notes a release; to be called before the attempt's first byte is written. One small write to the system's
    /// memory: it does not wait for the disk.
    ///
    /// # Errors
    /// [`RecordError::Full`] and [`RecordError::Io`] name the path; the attempt must not leave then.
    pub fn note(&mut self, release: &ReleaseRecord) -> Result<()> {
        let at = self.next % self.slots * SLOT_BYTES as u64;
        self.next += 1;
        let written = self.file.write_all_at(&encode(release), at);
        written.map_err(|source| RecordError::io("write", &self.path, source))
    }
}

/// What a run's departure logs tell.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    /// The releases, in no order. Those whose requests have ended may be among them.
    pub(crate) releases: Vec<ReleaseRecord>,
    /// Slots that cannot be read, by file and place.
    pub(crate) damage: Vec<String>,
}

/// Reads the departure logs of a run.
pub(crate) fn read(run: &Path) -> Result<Departures> {
    let mut departures = Departures::default();
    for path in layout::departure_logs(run)? {
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            // The run has been closed since.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => return Err(RecordError::io("read", &path, source)),
        };
        let (mut broken, mut first) = (0, 0);
        for (at, slot) in bytes.chunks(SLOT_BYTES).enumerate() {
            match decode(slot) {
                Some(release) => departures.releases.push(release),
                None => {
                    first = if broken == 0 { at } else { first };
                    broken += 1;
                }
            }
        }
        if broken > 0 {
            let (slots, from) = (bytes.len().div_ceil(SLOT_BYTES), first * SLOT_BYTES);
            departures.damage.push(format!(
                "{broken} of the {slots} releases in {} are damaged, from byte {from} on",
                path.display()
            ));
        }
    }
    Ok(departures)
}

fn encode(release: &ReleaseRecord) -> [u8; SLOT_BYTES] {
    let phase = Phase::ALL.iter().position(|phase| *phase == release.phase).unwrap_or(0) as u8;
    let flags = if release.gated { GATED } else { 0 }
        | if release.trace_unix_ns.is_some() { RECORDED_ARRIVAL } else { 0 };
    let mut slot = [0; SLOT_BYTES];
    slot[..8].copy_from_slice(&release.row.to_le_bytes());
    slot[8..12].copy_from_slice(&release.copy.to_le_bytes());
    slot[12..14].copy_from_slice(&release.attempt.to_le_bytes());
    (slot[14], slot[15]) = (phase, flags);
    slot[16..24].copy_from_slice(&release.planned_ns.to_le_bytes());
    slot[24..32].copy_from_slice(&release.due_ns.to_le_bytes());
    slot[32..40].copy_from_slice(&release.released_ns.to_le_bytes());
    slot[40..48].copy_from_slice(&release.trace_unix_ns.unwrap_or(0).to_le_bytes());
    slot[48..56].copy_from_slice(&MARK);
    let checksum = xxh3_64(&slot[..56]);
    slot[56..].copy_from_slice(&checksum.to_le_bytes());
    slot
}

fn decode(slot: &[u8]) -> Option<ReleaseRecord> {
    let number = |at: usize| slot[at..at + 8].try_into().map(u64::from_le_bytes).ok();
    if slot.len() != SLOT_BYTES || slot[48..56] != MARK || number(56)? != xxh3_64(&slot[..56]) {
        return None;
    }
    let time = |at| number(at).map(u64::cast_signed);
    Some(ReleaseRecord {
        row: number(0)?,
        copy: u32::from_le_bytes(slot[8..12].try_into().ok()?),
        attempt: u16::from_le_bytes(slot[12..14].try_into().ok()?),
        phase: *Phase::ALL.get(usize::from(slot[14]))?,
        gated: slot[15] & GATED != 0,
        planned_ns: time(16)?,
        due_ns: time(24)?,
        released_ns: time(32)?,
        trace_unix_ns: time(40).filter(|_| slot[15] & RECORDED_ARRIVAL != 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(row: u64) -> ReleaseRecord {
        ReleaseRecord {
            row,
            copy: 3,
            attempt: 2,
            phase: Phase::ALL[row as usize % Phase::ALL.len()],
            planned_ns: -5,
            due_ns: 7,
            gated: row % 2 == 1,
            trace_unix_ns: row.is_multiple_of(3).then_some(row as i64 - 9),
            released_ns: i64::MAX,
        }
    }

    #[test]
    fn a_release_survives_its_slot_and_a_broken_slot_is_passed_over() {
        for row in [0, 1, 2, 3, 4, 5, u64::from(u32::MAX)] {
            let slot = encode(&release(row));
            assert_eq!(decode(&slot), Some(release(row)));
            for byte in 0..SLOT_BYTES {
                let mut broken = slot;
                broken[byte] ^= 1;
                assert_eq!(decode(&broken), None, "byte {byte}");
            }
        }
        assert_eq!(decode(&[0; SLOT_BYTES]), None);
    }

    #[test]
    fn the_log_keeps_the_latest_releases_of_each_sender() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(layout::JOURNAL)).unwrap();
        let mut log = DepartureLog::create(dir.path(), 0, 1, 4).unwrap();
        (0..6).for_each(|row| log.note(&release(row)).unwrap());
        let mut other = DepartureLog::create(dir.path(), 0, 0, 4).unwrap();
        other.note(&release(9)).unwrap();
        let mut rows: Vec<u64> =
            read(dir.path()).unwrap().releases.iter().map(|release| release.row).collect();
        rows.sort_unstable();
        assert_eq!(rows, [2, 3, 4, 5, 9]);
    }
}
