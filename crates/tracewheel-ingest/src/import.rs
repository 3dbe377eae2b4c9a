//! The way of an import: rows of all inputs into the sorter, and out of it by arrival into the timeline.
//!
//! Rows go on into the timeline while the logs are still read, on two assumptions: that no row will come which is
//! earlier than one that went on, and that what a file's rows say about their totals so far is what all of them will
//! say. Both are checked. Where one fails, the import starts over, with rows held back in temporary files until all is
//! read. Inputs that can be read once only (a pipe) are imported in that way from the start. See
//! `docs/design/import.md`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracewheel_timeline::{BlockBasis, TimelineMeta};

use crate::assemble::FileRules;
use crate::draft::{Draft, Place};
use crate::error::IngestError;
use crate::format::{self, Format, MissingColumns, RowReader};
use crate::identity::IdKey;
use crate::options::{IngestOptions, Input, TokenRule};
use crate::placing::{Placing, rejected_row};
use crate::reading::{Reading, Rejection, Spare, Step, Tally};
use crate::report::{
    CountRule, FileReport, IngestReport, PackedReport, RejectReason, RejectedRow, Restart, Sorting,
    SortingWay,
};
use crate::restart::{RestartWatch, Watched};
use crate::sort::{Key, Mode, Sorted, Sorter, TooLate};
use crate::source::Source;
use crate::source::unpack::Unpacking;
use crate::stamps::FileClock;
use crate::survey::warnings;

const HOUR_NS: i64 = 3_600_000_000_000;
const MINUTE_NS: i64 = 60_000_000_000;
/// Inputs that are read side by side, and rows of one before another has its turn.
const SIDE_BY_SIDE: usize = 64;
const ROWS_A_TURN: u64 = 256;

/// Why an attempt at an import ended.
enum Stop {
    /// An assumption of the streaming mode failed.
    StartOver,
    Failed(IngestError),
}

/// What the inputs have brought so far.
struct Import<'a> {
    options: &'a IngestOptions,
    key: &'a IdKey,
    /// Each input's name and its short name.
    names: &'a [String],
    labels: &'a [Arc<str>],
    sorter: Sorter,
    placing: Placing<'a>,
    rules: Vec<Rules>,
    /// Mapped columns that no row of any input has had, with the first such input.
    missing: Option<(String, MissingColumns)>,
}

/// How a file's totals are read.
#[derive(Debug, Default, Clone, Copy)]
struct Rules {
    /// By its rows so far.
    found: FileRules,
    /// By those that went on first.
    used: Option<FileRules>,
}

/// An input that is being read.
struct Opened<'a> {
    file: u32,
    format: &'static dyn Format,
    rows: Box<dyn RowReader>,
    reading: Reading<'a>,
    /// How far it was read, where it is an archive.
    unpacking: Option<Unpacking>,
    /// The row that an archive's damage cut off was told.
    cut_told: bool,
    watch: RestartWatch,
    counted: FileRows,
    ended: bool,
}

/// Rows of one file, counted as they come.
#[derive(Default)]
struct FileRows {
    kept: u64,
    rejected: u64,
    rejects: Vec<RejectedRow>,
    last_ns: Option<i64>,
    /// The latest arrival so far.
    latest_ns: Option<i64>,
    out_of_order: u64,
    hour_jumps: u64,
    restarts: u64,
    restarts_at: Vec<Restart>,
}

pub(crate) fn run(
    inputs: Vec<Input>,
    options: &IngestOptions,
    out: &Path,
) -> Result<IngestReport, IngestError> {
    if inputs.is_empty() {
        return Err(IngestError::NoInput);
    }
    if inputs.iter().any(|input| input.is_file(out)) {
        return Err(IngestError::Options(
            "the timeline would replace one of its own logs: give it another name",
        ));
    }
    if options.rejects_to.as_deref().is_some_and(|path| inputs.iter().any(|input| input.is_file(path))) {
        return Err(IngestError::Options(
            "the list of rejected rows would replace one of the logs: give it another name",
        ));
    }
    if options.block_tokens == Some(0) {
        return Err(IngestError::Options(
            "a block of 0 tokens holds nothing: --block-tokens takes 1 or more",
        ));
    }
    let names: Vec<String> = inputs.iter().map(|input| input.name.clone()).collect();
    let labels = labels(&inputs);
    let again: Option<Vec<Input>> = inputs.iter().map(Input::again).collect();
    let key = IdKey::new(&options.hash_key);
    let attempt = |inputs, mode| {
        let folder = options.temp_folder.clone().unwrap_or_else(|| folder_of(out));
        let memory_bytes = usize::try_from(options.memory_bytes).unwrap_or(usize::MAX);
        let import = Import {
            options,
            key: &key,
            names: &names,
            labels: &labels,
            sorter: Sorter::new(mode, memory_bytes, &folder),
            // First, so that a place which cannot be written is told before hours of reading.
            placing: Placing::begin(out, &labels, options)?,
            rules: vec![Rules::default(); labels.len()],
            missing: None,
        };
        import.run(inputs)
    };
    let streaming = if again.is_some() { Mode::Streaming } else { Mode::Spilling };
    match (attempt(inputs, streaming), again) {
        (Ok(report), _) => Ok(report),
        (Err(Stop::Failed(error)), _) => Err(error),
        (Err(Stop::StartOver), again) => {
            tracing::info!("rows were further out of order than memory holds: the import starts over");
            options.gauge.reset();
            match attempt(again.unwrap_or_default(), Mode::Spilling) {
                Ok(mut report) => {
                    report.sorting.get_or_insert_default().started_over = true;
                    Ok(report)
                }
                Err(Stop::Failed(error)) => Err(error),
                Err(Stop::StartOver) => unreachable!("nothing goes on before everything was read"),
            }
        }
    }
}

impl<'a> Import<'a> {
    fn run(mut self, inputs: Vec<Input>) -> Result<IngestReport, Stop> {
        let mut inputs = (0_u32..).zip(inputs);
        loop {
            let some = inputs.by_ref().take(SIDE_BY_SIDE);
            let some = some.map(|(file, input)| self.open(file, input)).collect::<Result<Vec<_>, _>>()?;
            if some.is_empty() {
                break;
            }
            self.read(some)?;
        }
        self.check_columns()?;
        self.write()
    }

    fn open(&self, file: u32, input: Input) -> Result<Opened<'a>, IngestError> {
        let source = Source::open(input, self.options.max_row_bytes, &self.options.gauge)?;
        let format = format::choose(&source, self.options)?;
        let unpacking = source.unpacking();
        tracing::info!(
            file = %self.names[file as usize], format = format.name(), packed = unpacking.is_some(), "log opened"
        );
        let mut reading = Reading {
            file: &self.names[file as usize],
            options: self.options,
            key: self.key,
            block_tokens: self.options.block_tokens.or(format.block_tokens()),
            clock: FileClock::new(self.options.zone.clone()),
            tally: Tally::default(),
            spare: Spare::default(),
        };
        let rows = format.open(source, &mut reading)?;
        Ok(Opened {
            file,
            format,
            rows,
            reading,
            unpacking,
            cut_told: false,
            watch: RestartWatch::new(self.options.restarts),
            counted: FileRows::default(),
            ended: false,
        })
    }

    /// Reads inputs side by side, always the one that lags behind: logs of several servers are merged as they are read.
    fn read(&mut self, mut inputs: Vec<Opened<'a>>) -> Result<(), Stop> {
        loop {
            let open = inputs.iter_mut().filter(|input| !input.ended);
            let Some(input) = open.min_by_key(|input| input.counted.latest_ns) else { break };
            if self.read_some(input)? {
                for input in &inputs {
                    self.rules[input.file as usize].found = input.rules();
                }
                self.make_room()?;
            }
        }
        inputs.into_iter().try_for_each(|input| self.close(input))
    }

    /// Reads on for a turn; true where memory is full.
    fn read_some(&mut self, input: &mut Opened<'a>) -> Result<bool, Stop> {
        self.options.stop.check()?;
        let label = &self.labels[input.file as usize];
        let mut ready = Vec::new();
        for _ in 0..ROWS_A_TURN {
            match input.next()? {
                None => {
                    input.ended = true;
                    input.finish_watch(&mut ready);
                    return self.keep(input, &mut ready);
                }
                Some((_, Ok((arrival_ns, mut draft)))) => {
                    draft.row.source_file = Arc::clone(label);
                    let has_epoch = input.reading.clock.has_epoch.unwrap_or(true);
                    input.watch.take(Watched { arrival_ns, draft }, has_epoch, &mut ready);
                    if self.keep(input, &mut ready)? {
                        return Ok(true);
                    }
                }
                Some((place, Err((reason, column)))) => {
                    let row = rejected_row(label, place, reason, column);
                    self.placing.list_reject(&row)?;
                    input.counted.reject(row, self.options.listed_rejects);
                    *self.placing.report.rejected_by_reason.entry(reason).or_default() += 1;
                }
            }
        }
        Ok(false)
    }

    /// Hands on rows whose place is known; true where memory is full.
    fn keep(&mut self, input: &mut Opened<'a>, ready: &mut Vec<Watched>) -> Result<bool, Stop> {
        let mut full = false;
        for Watched { arrival_ns, draft } in ready.drain(..) {
            let key = Key { arrival_ns, file: input.file, number: input.counted.kept };
            input.counted.keep(arrival_ns);
            full |= self.sorter.push(key, draft.place.line, draft.attempt, &draft.row)?;
            input.reading.spare.put(draft);
        }
        Ok(full)
    }

    fn make_room(&mut self) -> Result<(), Stop> {
        let Self { sorter, placing, rules, .. } = self;
        sorter.make_room(&mut |entry| {
            let rules = &mut rules[entry.file as usize];
            let used = *rules.used.get_or_insert(rules.found);
            Ok::<(), Stop>(placing.take(entry, used)?)
        })
    }

    /// Joins a file's findings to those of the files before it.
    fn close(&mut self, input: Opened<'a>) -> Result<(), Stop> {
        let file = input.file as usize;
        let report = input.report(&self.labels[file]);
        tracing::info!(
            file = %self.names[file], bytes = report.bytes, rows_kept = report.rows_kept, rows_rejected = report.rows_rejected,
            out_of_order = report.out_of_order, "log read"
        );
        let rules = &mut self.rules[file];
        rules.found = input.rules();
        if rules.used.is_some_and(|used| used != rules.found) {
            return Err(Stop::StartOver);
        }
        // Only a map that someone wrote can be wrong about a column.
        let missing = self.options.map.as_ref().and_then(|_| input.rows.missing());
        let Opened { reading: Reading { tally, block_tokens, .. }, counted, .. } = input;
        self.add_missing(file, missing);
        let all = &mut self.placing.report;
        all.rows_rejected += counted.rejected;
        let room = self.options.listed_rejects.saturating_sub(all.rejects.len());
        all.rejects.extend(counted.rejects.into_iter().take(room));
        Ok(add_file(all, report, &tally, block_tokens)?)
    }

    /// Keeps those columns that the rows of this input have not had either.
    fn add_missing(&mut self, file: usize, here: Option<MissingColumns>) {
        match (&mut self.missing, here) {
            (Some((_, before)), Some(here)) => before.columns.retain(|column| here.columns.contains(column)),
            (missing @ None, Some(here)) => *missing = Some((self.names[file].clone(), here)),
            (_, None) => {}
        }
    }

    fn check_columns(&self) -> Result<(), IngestError> {
        let Some((file, missing)) = &self.missing else { return Ok(()) };
        match missing.columns.first() {
            Some((field, column)) => Err(IngestError::NoSuchColumn {
                file: file.clone(),
                column: column.clone(),
                field: field.clone(),
                available: missing.available.clone(),
            }),
            None => Ok(()),
        }
    }

    fn write(self) -> Result<IngestReport, Stop> {
        let Self { options, key, sorter, mut placing, rules, .. } = self;
        let sorted = sorter.finish(&mut |entry| {
            let rules = rules[entry.file as usize];
            Ok::<(), Stop>(placing.take(entry, rules.used.unwrap_or(rules.found))?)
        })?;
        let mut report = placing.report();
        report.ttft_kind = options.ttft_kind;
        report.conclude(options.max_rejects);
        report.warnings = warnings(&report);
        let summary = placing.finish(meta(options, key, &report))?;
        tracing::info!(
            rows_kept = report.rows_kept,
            rows_rejected = report.rows_rejected,
            "timeline written"
        );
        report.sorting = Some(sorting(sorted));
        report.timeline_digest = Some(summary.digest);
        Ok(report)
    }
}

impl Opened<'_> {
    /// The next row with its place; `None` at the end.
    fn next(&mut self) -> Result<Option<(Place, Outcome)>, IngestError> {
        let step = match self.rows.next(&mut self.reading) {
            Err(IngestError::Read { .. }) if self.is_damaged() => return Ok(self.cut_row()),
            step => step?,
        };
        if !matches!(step, Step::End) {
            self.reading.options.gauge.add_row();
        }
        Ok(match step {
            Step::End => None,
            Step::Rejected(Rejection { place, reason, column }) => Some((place, Err((reason, column)))),
            Step::Row(mut draft) => {
                let place = draft.place;
                let settled = draft.settle(self.reading.block_tokens, &mut self.reading.tally);
                Some((place, settled.map(|arrival_ns| (arrival_ns, draft)).map_err(|reason| (reason, None))))
            }
        })
    }

    fn is_damaged(&self) -> bool {
        self.unpacking.as_ref().is_some_and(|unpacking| unpacking.progress().damage.is_some())
    }

    /// The row that was begun when a damaged archive ended, told once. Some of it is missing.
    fn cut_row(&mut self) -> Option<(Place, Outcome)> {
        let (lines, offset) = self.rows.consumed();
        let text_bytes = self.unpacking.as_ref()?.progress().text_bytes;
        let told = std::mem::replace(&mut self.cut_told, true);
        let place = Place { line: lines + 1, offset };
        (!told && text_bytes > offset).then_some((place, Err((RejectReason::CutOff, None))))
    }

    fn finish_watch(&mut self, ready: &mut Vec<Watched>) {
        let has_epoch = self.reading.clock.has_epoch.unwrap_or(true);
        (self.counted.restarts, self.counted.restarts_at) = self.watch.finish(has_epoch, ready);
    }

    fn rules(&self) -> FileRules {
        let (tally, rule) = (&self.reading.tally, self.reading.options.token_rule);
        FileRules {
            input_exclusive: judged(tally.input_parts, rule).exclusive,
            output_exclusive: judged(tally.output_parts, rule).exclusive,
        }
    }

    fn report(&self, label: &str) -> FileReport {
        let (lines, bytes) = self.rows.consumed();
        let (clock, tally, counted) = (&self.reading.clock, &self.reading.tally, &self.counted);
        let named = tally.named.clone().unwrap_or_default();
        FileReport {
            file: label.to_owned(),
            format: self.format.name(),
            format_found: self.reading.options.format.is_none(),
            map: self.rows.map().filter(|_| self.format.takes_map()).map(ToString::to_string),
            map_guessed: named.taken,
            map_left: named.left,
            packed: self.unpacking.as_ref().map(packed_report),
            bytes,
            lines,
            blank_lines: tally.blank_lines,
            repeated_headers: tally.repeated_headers,
            rows_read: counted.kept + counted.rejected,
            rows_kept: counted.kept,
            rows_rejected: counted.rejected,
            out_of_order: counted.out_of_order,
            restarts: counted.restarts,
            restarts_at: counted.restarts_at.clone(),
            hour_jumps: if clock.naive_times > 0 { counted.hour_jumps } else { 0 },
            zone_rule: clock.rules.iter().cloned().collect(),
            ambiguous_times: clock.ambiguous_times,
            time_forms: clock.forms.counts(),
            mixed_times: clock.forms.are_mixed(),
            unit_found: units_found(clock),
            has_epoch: clock.has_epoch.unwrap_or(true),
            input_rule: judged(tally.input_parts, self.reading.options.token_rule),
            output_rule: judged(tally.output_parts, self.reading.options.token_rule),
        }
    }
}

impl FileRows {
    fn keep(&mut self, arrival_ns: i64) {
        self.kept += 1;
        self.latest_ns = self.latest_ns.max(Some(arrival_ns));
        if let Some(last_ns) = self.last_ns.replace(arrival_ns) {
            let step_ns = arrival_ns.saturating_sub(last_ns);
            self.out_of_order += u64::from(step_ns < 0);
            self.hour_jumps +=
                u64::from(step_ns.saturating_abs().abs_diff(HOUR_NS) <= MINUTE_NS.unsigned_abs());
        }
    }

    fn reject(&mut self, row: RejectedRow, listed: usize) {
        self.rejected += 1;
        if self.rejects.len() < listed {
            self.rejects.push(row);
        }
    }
}

impl IngestReport {
    /// Sums up what the files and the rejections say.
    fn conclude(&mut self, max_rejects: Option<u64>) {
        self.rows_read = self.files.iter().map(|file| file.rows_read).sum();
        self.has_epoch = self.files.iter().find(|file| file.rows_kept > 0).is_none_or(|file| file.has_epoch);
        let nothing_kept = self.rows_kept == 0 && self.rows_rejected > 0;
        // How many rows a damaged archive has lost is not known: it is over any limit.
        let damaged = self.damaged().next().is_some();
        self.over_reject_limit =
            nothing_kept || damaged || max_rejects.is_some_and(|most| self.rows_rejected > most);
    }
}

impl From<IngestError> for Stop {
    fn from(error: IngestError) -> Self {
        Self::Failed(error)
    }
}

impl From<TooLate> for Stop {
    fn from(_: TooLate) -> Self {
        Self::StartOver
    }
}

type Outcome = Result<(i64, Box<Draft>), (RejectReason, Option<String>)>;

fn add_file(
    all: &mut IngestReport,
    file: FileReport,
    tally: &Tally,
    block_tokens: Option<u32>,
) -> Result<(), IngestError> {
    let differs = |other: &&FileReport| other.rows_kept > 0 && other.has_epoch != file.has_epoch;
    if let Some(other) = all.files.iter().find(differs).filter(|_| file.rows_kept > 0) {
        let (epoch, relative) = if file.has_epoch { (&file, other) } else { (other, &file) };
        return Err(IngestError::MixedEpochs { relative: relative.file.clone(), epoch: epoch.file.clone() });
    }
    if tally.fixed_blocks {
        if all.block_tokens.is_some_and(|before| Some(before) != block_tokens) {
            return Err(IngestError::Options(
                "the inputs have prefix blocks of different lengths: import them one by one",
            ));
        }
        all.block_tokens = block_tokens;
    }
    for ((field, why), count) in &tally.dropped_values {
        *all.dropped_values.entry(format!("{field}: {why}")).or_default() += count;
    }
    all.files.push(file);
    Ok(())
}

fn sorting(sorted: Sorted) -> Sorting {
    let way = match sorted {
        Sorted { runs: 1.., .. } => SortingWay::Spilled,
        Sorted { went_on_early: true, .. } => SortingWay::Streamed,
        Sorted { .. } => SortingWay::Memory,
    };
    Sorting { way, started_over: false, runs: sorted.runs, spilled_bytes: sorted.spilled_bytes }
}

/// The folder that a file stands in.
fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn units_found(clock: &FileClock) -> Option<String> {
    let units: Vec<String> = clock.units_found.iter().map(ToString::to_string).collect();
    (!units.is_empty()).then(|| units.join(", "))
}

fn packed_report(unpacking: &Unpacking) -> PackedReport {
    let progress = unpacking.progress();
    PackedReport {
        packing: unpacking.packing.name(),
        bytes: progress.packed_bytes,
        members: progress.members,
        damage: progress.damage,
    }
}

/// Whether a file's totals exclude their parts: as told, else where more than 1 % of the rows with parts show it.
fn judged(counts: CountRule, rule: TokenRule) -> CountRule {
    let exclusive = match rule {
        TokenRule::Inclusive => false,
        TokenRule::Exclusive => true,
        TokenRule::Auto => counts.rows_over > 0 && counts.rows_over * 100 > counts.rows_with_parts,
    };
    CountRule { exclusive, told: rule != TokenRule::Auto, ..counts }
}

/// Short names of the inputs: the file's own, or the whole path where two are called the same.
fn labels(inputs: &[Input]) -> Vec<Arc<str>> {
    let short = |input: &Input| -> String {
        let name = Path::new(&input.name).file_name();
        name.map_or_else(|| input.name.clone(), |name| name.to_string_lossy().into_owned())
    };
    let all: Vec<String> = inputs.iter().map(short).collect();
    let label = |(input, name): (&Input, &String)| {
        let alone = all.iter().filter(|other| *other == name).count() == 1;
        Arc::from(if alone { name.as_str() } else { input.name.as_str() })
    };
    inputs.iter().zip(&all).map(label).collect()
}

fn meta(options: &IngestOptions, key: &IdKey, report: &IngestReport) -> TimelineMeta {
    let mut zones: Vec<&str> =
        report.files.iter().flat_map(|file| &file.zone_rule).map(String::as_str).collect();
    zones.sort_unstable();
    zones.dedup();
    let json = |value: Result<serde_json::Value, serde_json::Error>| value.unwrap_or_default();
    TimelineMeta {
        tool_version: options.tool_version.clone(),
        ingest_options: json(serde_json::to_value(options)),
        key_fingerprint: Some(key.fingerprint().to_owned()),
        block_tokens: report.block_tokens,
        block_basis: report.block_tokens.map(|_| BlockBasis::Tokens),
        clock_resolution_ns: report.precision.found_ns,
        has_epoch: report.has_epoch,
        zone: (!zones.is_empty()).then(|| zones.join("; ")),
        quality: json(serde_json::to_value(report)),
        ..TimelineMeta::default()
    }
}
