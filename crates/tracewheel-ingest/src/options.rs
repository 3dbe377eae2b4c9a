//! What a caller chooses: inputs and rules. All of it but the key is written into the timeline's metadata.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Serialize, Serializer};
use tracewheel_timeline::TtftKind;

use crate::column_map::ColumnMap;
use crate::gauge::ImportGauge;
use crate::stop::ImportStop;
use crate::zone::Zone;

/// One log to read.
pub struct Input {
    pub(crate) name: String,
    pub(crate) from: From,
}

/// Where an input's bytes come from.
pub(crate) enum From {
    Path(PathBuf),
    Stdin,
    Reader(Box<dyn Read + Send>),
}

/// Whether the log's token counts contain their parts: cached and cache-written tokens in the input, reasoning in the
/// output. The timeline's counts always do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenRule {
    /// Found from each file: parts that exceed their whole in more than 1 % of the rows say that it excludes them.
    #[default]
    Auto,
    /// Totals contain their parts already.
    Inclusive,
    /// Totals exclude their parts: they are added.
    Exclusive,
}

/// What is done where the times of a file start again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RestartRule {
    /// Join where a log's own count starts again from its beginning, since its parts are recordings one after the
    /// other; keep wall times, since several logs of one clock may stand in one file.
    #[default]
    Auto,
    /// Times stay as they are written.
    Keep,
    /// Each part follows the one before it, without a pause, since none is recorded.
    Join,
}

/// How an import is done.
#[derive(Clone, Serialize)]
pub struct IngestOptions {
    /// The format's name; found from the content when `None`.
    pub format: Option<String>,
    /// Which column is which, for the generic formats.
    #[serde(serialize_with = "as_text")]
    pub map: Option<ColumnMap>,
    /// The zone of times that carry none. Without it such a time stops the import, except in a published data set whose
    /// zone is known.
    #[serde(serialize_with = "as_text")]
    pub zone: Option<Zone>,
    /// Which moment the log's time to first token ends at; unknown when `None`.
    pub ttft_kind: Option<TtftKind>,
    /// Tokens a block of `prefix_hashes`. `None` takes the format's own (Mooncake: 512).
    pub block_tokens: Option<u32>,
    /// Whether the log's token totals contain their parts.
    pub token_rule: TokenRule,
    /// Whether logged retries are tied to their first attempt (`retry_of_row`). They are counted in any case.
    pub fold_retries: bool,
    /// What is done where the times of a file start again.
    pub restarts: RestartRule,
    /// How many rejected rows are acceptable; any number when `None`. More are reported, not refused.
    pub max_rejects: Option<u64>,
    /// How many rejected rows are listed with their position. All are counted.
    pub listed_rejects: usize,
    /// A file that takes every rejected row as a line of JSON. An older list there is replaced, another file never.
    #[serde(skip)]
    pub rejects_to: Option<PathBuf>,
    /// Longest row, in bytes; a longer one is rejected.
    pub max_row_bytes: usize,
    /// Bytes that rows may take while they wait for those that arrived before them. The rest of an import takes up to
    /// some 250 MB besides. It does not show in the timeline.
    #[serde(skip)]
    pub memory_bytes: u64,
    /// Where rows wait that find no room in memory; the timeline's own folder when `None`.
    #[serde(skip)]
    pub temp_folder: Option<PathBuf>,
    /// Tells how far the import is, while it runs.
    #[serde(skip)]
    pub gauge: Arc<ImportGauge>,
    /// Stops the import, while it runs.
    #[serde(skip)]
    pub stop: Arc<ImportStop>,
    /// Secret behind the hashes of ids and blocks. Only its fingerprint is written anywhere.
    #[serde(skip)]
    pub hash_key: Vec<u8>,
    /// Version of the tool, for the metadata.
    pub tool_version: String,
}

impl Input {
    /// The file at `path`.
    pub fn path(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self { name: path.display().to_string(), from: From::Path(path) }
    }

    /// Standard input.
    pub fn stdin() -> Self {
        Self { name: "-".to_owned(), from: From::Stdin }
    }

    /// Standard input for `-`, else the file of that name.
    pub fn from_argument(argument: &Path) -> Self {
        if argument.as_os_str() == "-" { Self::stdin() } else { Self::path(argument) }
    }

    /// Whether this is the file at `path`, by whatever name.
    pub(crate) fn is_file(&self, path: &Path) -> bool {
        match &self.from {
            From::Path(own) => {
                own.canonicalize().is_ok_and(|own| path.canonicalize().is_ok_and(|path| own == path))
            }
            From::Stdin | From::Reader(_) => false,
        }
    }

    /// The same input once more, where it can be read a second time: a file, not a pipe.
    pub(crate) fn again(&self) -> Option<Self> {
        match &self.from {
            From::Path(path) if path.is_file() => {
                Some(Self { name: self.name.clone(), from: From::Path(path.clone()) })
            }
            From::Path(_) | From::Stdin | From::Reader(_) => None,
        }
    }

    /// Any stream, under a name of the caller's.
    pub fn reader(name: impl Into<String>, reader: impl Read + Send + 'static) -> Self {
        Self { name: name.into(), from: From::Reader(Box::new(reader)) }
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").field("name", &self.name).finish_non_exhaustive()
    }
}

impl IngestOptions {
    /// The defaults, with the secret behind the hashes.
    pub fn new(hash_key: impl Into<Vec<u8>>) -> Self {
        Self {
            format: None,
            map: None,
            zone: None,
            ttft_kind: None,
            block_tokens: None,
            token_rule: TokenRule::Auto,
            fold_retries: false,
            restarts: RestartRule::Auto,
            max_rejects: None,
            listed_rejects: 100,
            rejects_to: None,
            max_row_bytes: 16 << 20,
            memory_bytes: 256 << 20,
            temp_folder: None,
            gauge: Arc::default(),
            stop: Arc::default(),
            hash_key: hash_key.into(),
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

impl fmt::Debug for IngestOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

fn as_text<T: fmt::Display, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}
