//! Opening what the command line names, and saying what to do where it is something else.

use std::io::Read;
use std::path::Path;

use tracewheel_record::Run;
use tracewheel_timeline::{Timeline, TimelineError};

use crate::command::recover;
use crate::exit::{Exit, Failure};

/// The timeline at `path`.
///
/// # Errors
/// Usage; a log that was not ingested yet, is told apart from a file that is nothing we know.
pub(crate) fn timeline(path: &Path) -> Result<Timeline, Failure> {
    Timeline::open(path).map_err(|error| match error {
        TimelineError::NotParquet { .. } if looks_like_a_log(path) => {
            let log = path.display();
            let timeline = path.with_extension("parquet");
            Failure::usage(format!(
                "`{log}` is a log, not a timeline: ingest it first, as in `tracewheel ingest {log} -o {}`",
                timeline.display()
            ))
        }
        error => Failure::new(Exit::Usage, error),
    })
}

/// The run in `folder`, which `compare` was given beside `other`.
///
/// # Errors
/// Usage; when the two stand the wrong way round, this is said.
pub(crate) fn run_beside(folder: &Path, other: &Path) -> Result<Run, Failure> {
    if folder.is_file() && other.is_dir() {
        let (file, folder) = (folder.display(), other.display());
        return Err(Failure::usage(format!(
            "`{file}` is a file and no run: the run comes first, as in `tracewheel compare {folder} --with {file}`"
        )));
    }
    recover::open_closed(folder)
}

/// Whether a file begins like lines of text.
fn looks_like_a_log(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(4_096).read_to_end(&mut head));
    // The last character may have been cut off.
    let text = std::str::from_utf8(&head).map_or_else(|error| error.error_len().is_none(), |_| true);
    read.is_ok() && text && head.contains(&b'\n') && !head.contains(&0)
}
