//! The way of an import: each input in turn into the sorter, then the sorted rows into the timeline.

use std::path::Path;
use std::sync::Arc;

use tracewheel_timeline::{BlockBasis, TimelineError, TimelineMeta, TimelineWriter};

use crate::assemble::{Assembler, FileRules};
use crate::draft::{Entry, Place};
use crate::error::IngestError;
use crate::format::{self, Format, MissingColumns, RowReader};
use crate::identity::IdKey;
use crate::options::{IngestOptions, Input, TokenRule};
use crate::reading::{Reading, Rejection, Step, Tally};
use crate::report::{CountRule, FileReport, IngestReport, RejectReason, RejectedRow};
use crate::sort::{MemorySorter, RowSorter};
use crate::source::Source;
use crate::stamps::FileClock;
use crate::survey::{Survey, warnings};

const HOUR_NS: i64 = 3_600_000_000_000;
const MINUTE_NS: i64 = 60_000_000_000;

/// What the inputs have brought so far.
struct Import<'a> {
    options: &'a IngestOptions,
    key: IdKey,
    /// Each input's short name.
    labels: Vec<Arc<str>>,
    sorter: Box<dyn RowSorter>,
    rules: Vec<FileRules>,
    /// Mapped columns that no row of any input has had, with the first such input.
    missing: Option<(String, MissingColumns)>,
    report: IngestReport,
}

/// Rows of one file, counted as they come.
#[derive(Default)]
struct FileRows {
    kept: u64,
    rejected: u64,
    last_ns: Option<i64>,
    out_of_order: u64,
    hour_jumps: u64,
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
    // First, so that a place which cannot be written is told before hours of reading.
    let writer = TimelineWriter::create(out, TimelineMeta::default()).map_err(write_error(out))?;
    let mut import = Import {
        options,
        key: IdKey::new(&options.hash_key),
        labels: labels(&inputs),
        sorter: Box::new(MemorySorter::default()),
        rules: Vec::new(),
        missing: None,
        report: IngestReport::default(),
    };
    for input in inputs {
        import.read(input)?;
    }
    import.check_columns()?;
    import.write(writer, out)
}

impl Import<'_> {
    fn read(&mut self, input: Input) -> Result<(), IngestError> {
        let source = Source::open(input, self.options.max_row_bytes)?;
        let format = format::choose(&source, self.options)?;
        let name = source.name.clone();
        let mut reading = Reading {
            file: &name,
            options: self.options,
            key: &self.key,
            block_tokens: self.options.block_tokens.or(format.block_tokens()),
            clock: FileClock::new(self.options.zone.clone()),
            tally: Tally::default(),
        };
        let mut rows = format.open(source, &mut reading)?;
        let label = Arc::clone(&self.labels[self.rules.len()]);
        let file = u32::try_from(self.rules.len()).map_err(|_| IngestError::Options("too many inputs"))?;
        let mut counted = FileRows::default();
        while let Some((place, outcome)) = next_entry(&mut *rows, &mut reading, file)? {
            match outcome {
                Ok(mut entry) => {
                    counted.keep(entry.arrival_ns);
                    entry.row.source_file = Arc::clone(&label);
                    self.sorter.push(entry)?;
                }
                Err((reason, column)) => {
                    counted.rejected += 1;
                    let row = rejected_row(&label, place, reason, column);
                    self.report.reject(row, self.options.listed_rejects);
                }
            }
        }
        let report = file_report(&label, format, &*rows, &counted, &reading);
        let missing = rows.missing();
        let Reading { tally, block_tokens, .. } = reading;
        self.add_missing(&name, missing);
        self.add_file(report, &tally, block_tokens)
    }

    /// Keeps those columns that the rows of this input have not had either.
    fn add_missing(&mut self, name: &str, here: Option<MissingColumns>) {
        match (&mut self.missing, here) {
            (Some((_, before)), Some(here)) => before.columns.retain(|column| here.columns.contains(column)),
            (missing @ None, Some(here)) => *missing = Some((name.to_owned(), here)),
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

    /// Joins a file's findings to those of the files before it.
    fn add_file(
        &mut self,
        file: FileReport,
        tally: &Tally,
        block_tokens: Option<u32>,
    ) -> Result<(), IngestError> {
        let all = &mut self.report;
        let differs = |other: &&FileReport| other.rows_kept > 0 && other.has_epoch != file.has_epoch;
        if let Some(other) = all.files.iter().find(differs).filter(|_| file.rows_kept > 0) {
            let (epoch, relative) = if file.has_epoch { (&file, other) } else { (other, &file) };
            return Err(IngestError::MixedEpochs {
                relative: relative.file.clone(),
                epoch: epoch.file.clone(),
            });
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
        self.rules.push(FileRules {
            input_exclusive: file.input_rule.exclusive,
            output_exclusive: file.output_rule.exclusive,
        });
        all.files.push(file);
        Ok(())
    }

    fn write(mut self, mut writer: TimelineWriter, out: &Path) -> Result<IngestReport, IngestError> {
        let mut assembler = Assembler::new(std::mem::take(&mut self.rules), self.options.fold_retries);
        let mut survey = Survey::new();
        let sorter = std::mem::replace(&mut self.sorter, Box::new(MemorySorter::default()));
        let mut position = 0;
        for entry in sorter.sorted()? {
            let entry = entry?;
            let (file, place) = (entry.file, Place { line: entry.line, offset: entry.row.source_offset });
            match assembler.place(entry, position) {
                Some(entry) => {
                    position = writer.push(&entry.row).map_err(write_error(out))? + 1;
                    survey.take(&entry.row, &mut self.report);
                }
                None => self.reject_duplicate(file as usize, place),
            }
        }
        let Self { options, key, mut report, .. } = self;
        survey.finish(&mut report);
        assembler.finish(&mut report);
        report.ttft_kind = options.ttft_kind;
        report.conclude(options.max_rejects);
        report.warnings = warnings(&report);
        *writer.meta_mut() = meta(options, &key, &report);
        let summary = writer.finish().map_err(write_error(out))?;
        report.timeline_digest = Some(summary.digest);
        Ok(report)
    }

    fn reject_duplicate(&mut self, file: usize, place: Place) {
        let row = rejected_row(&self.labels[file], place, RejectReason::Duplicate, None);
        self.report.reject(row, self.options.listed_rejects);
        let file = &mut self.report.files[file];
        file.rows_kept -= 1;
        file.rows_rejected += 1;
    }
}

impl FileRows {
    fn keep(&mut self, arrival_ns: i64) {
        self.kept += 1;
        if let Some(last_ns) = self.last_ns.replace(arrival_ns) {
            let step_ns = arrival_ns.saturating_sub(last_ns);
            self.out_of_order += u64::from(step_ns < 0);
            self.hour_jumps +=
                u64::from(step_ns.saturating_abs().abs_diff(HOUR_NS) <= MINUTE_NS.unsigned_abs());
        }
    }
}

impl IngestReport {
    fn reject(&mut self, row: RejectedRow, listed: usize) {
        *self.rejected_by_reason.entry(row.reason).or_default() += 1;
        self.rows_rejected += 1;
        if self.rejects.len() < listed {
            self.rejects.push(row);
        }
    }

    /// Sums up what the files and the rejections say.
    fn conclude(&mut self, max_rejects: Option<u64>) {
        self.rows_read = self.files.iter().map(|file| file.rows_read).sum();
        self.has_epoch = self.files.iter().find(|file| file.rows_kept > 0).is_none_or(|file| file.has_epoch);
        let nothing_kept = self.rows_kept == 0 && self.rows_rejected > 0;
        self.over_reject_limit = nothing_kept || max_rejects.is_some_and(|most| self.rows_rejected > most);
    }
}

type Outcome = Result<Box<Entry>, (RejectReason, Option<String>)>;

/// The next row of a file with its place; `None` at the end.
fn next_entry(
    rows: &mut dyn RowReader,
    reading: &mut Reading<'_>,
    file: u32,
) -> Result<Option<(Place, Outcome)>, IngestError> {
    Ok(match rows.next(reading)? {
        Step::End => None,
        Step::Rejected(Rejection { place, reason, column }) => Some((place, Err((reason, column)))),
        Step::Row(draft) => {
            let place = draft.place;
            let settled = draft.settle(file, reading.block_tokens, &mut reading.tally);
            Some((place, settled.map_err(|reason| (reason, None))))
        }
    })
}

fn rejected_row(label: &str, place: Place, reason: RejectReason, column: Option<String>) -> RejectedRow {
    RejectedRow { file: label.to_owned(), line: place.line, offset: place.offset, reason, column }
}

fn file_report(
    label: &str,
    format: &dyn Format,
    rows: &dyn RowReader,
    counted: &FileRows,
    reading: &Reading<'_>,
) -> FileReport {
    let (lines, bytes) = rows.consumed();
    let (clock, tally) = (&reading.clock, &reading.tally);
    FileReport {
        file: label.to_owned(),
        format: format.name(),
        format_found: reading.options.format.is_none(),
        map: rows.map().filter(|_| format.takes_map()).map(ToString::to_string),
        bytes,
        lines,
        blank_lines: tally.blank_lines,
        rows_read: counted.kept + counted.rejected,
        rows_kept: counted.kept,
        rows_rejected: counted.rejected,
        out_of_order: counted.out_of_order,
        hour_jumps: if clock.naive_times > 0 { counted.hour_jumps } else { 0 },
        zone_rule: clock.rules.iter().cloned().collect(),
        ambiguous_times: clock.ambiguous_times,
        unit_found: clock.unit_found.map(|unit| unit.to_string()),
        has_epoch: clock.has_epoch.unwrap_or(true),
        input_rule: judged(tally.input_parts, reading.options.token_rule),
        output_rule: judged(tally.output_parts, reading.options.token_rule),
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

fn write_error(out: &Path) -> impl Fn(TimelineError) -> IngestError {
    move |source| IngestError::Write { path: out.to_owned(), source: Box::new(source) }
}
