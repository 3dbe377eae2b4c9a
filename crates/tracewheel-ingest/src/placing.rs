//! The last stretch of an import: rows by arrival, each completed by its place and written.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracewheel_timeline::{TimelineError, TimelineMeta, TimelineSummary, TimelineWriter};

use crate::assemble::{Assembler, FileRules};
use crate::draft::{Entry, Place};
use crate::error::IngestError;
use crate::gauge::ImportGauge;
use crate::options::IngestOptions;
use crate::rejects::{RejectList, WholeList};
use crate::report::{IngestReport, RejectReason, RejectedRow};
use crate::stop::ImportStop;
use crate::survey::Survey;

/// Where sorted rows go.
pub(crate) struct Placing<'a> {
    writer: TimelineWriter,
    path: PathBuf,
    labels: &'a [Arc<str>],
    assembler: Assembler,
    survey: Survey,
    position: u64,
    pub(crate) report: IngestReport,
    /// The first duplicates, and how many each file has.
    duplicates: Vec<RejectedRow>,
    duplicates_of: Vec<u64>,
    listed: usize,
    /// Takes every rejected row.
    rejects: Option<RejectList>,
    gauge: Arc<ImportGauge>,
    stop: Arc<ImportStop>,
}

impl<'a> Placing<'a> {
    /// Begins the timeline at `path`.
    pub(crate) fn begin(
        path: &Path,
        labels: &'a [Arc<str>],
        options: &IngestOptions,
    ) -> Result<Self, IngestError> {
        let writer = TimelineWriter::create(path, TimelineMeta::default()).map_err(write_error(path))?;
        Ok(Self {
            writer,
            path: path.to_owned(),
            labels,
            assembler: Assembler::new(options.fold_retries),
            survey: Survey::new(),
            position: 0,
            report: IngestReport::default(),
            duplicates: Vec::new(),
            duplicates_of: vec![0; labels.len()],
            listed: options.listed_rejects,
            rejects: options.rejects_to.as_deref().map(RejectList::create).transpose()?,
            gauge: Arc::clone(&options.gauge),
            stop: Arc::clone(&options.stop),
        })
    }

    /// Takes the next row by arrival; `rules` are those of its file.
    pub(crate) fn take(&mut self, entry: &mut Entry, rules: FileRules) -> Result<(), IngestError> {
        self.stop.check()?;
        if !self.assembler.place(entry, rules, self.position) {
            return self.drop_duplicate(entry);
        }
        self.position = self.writer.push(&entry.row).map_err(write_error(&self.path))? + 1;
        self.gauge.set_written(self.position);
        self.survey.take(&entry.row, &mut self.report);
        Ok(())
    }

    /// Writes a rejected row to the list of all of them, where there is one.
    pub(crate) fn list_reject(&mut self, row: &RejectedRow) -> Result<(), IngestError> {
        self.rejects.as_mut().map_or(Ok(()), |list| list.push(row))
    }

    fn drop_duplicate(&mut self, entry: &Entry) -> Result<(), IngestError> {
        let file = entry.file as usize;
        self.duplicates_of[file] += 1;
        if self.duplicates.len() < self.listed || self.rejects.is_some() {
            let place = Place { line: entry.line, offset: entry.row.source_offset };
            let row = rejected_row(&self.labels[file], place, RejectReason::Duplicate, None);
            self.list_reject(&row)?;
            if self.duplicates.len() < self.listed {
                self.duplicates.push(row);
            }
        }
        Ok(())
    }

    /// The report of all rows; the inputs' own parts are in it already.
    pub(crate) fn report(&mut self) -> IngestReport {
        let mut report = std::mem::take(&mut self.report);
        std::mem::replace(&mut self.survey, Survey::new()).finish(&mut report);
        std::mem::replace(&mut self.assembler, Assembler::new(false)).finish(&mut report);
        let duplicates: u64 = self.duplicates_of.iter().sum();
        if duplicates > 0 {
            report.rejected_by_reason.insert(RejectReason::Duplicate, duplicates);
            report.rows_rejected += duplicates;
        }
        for (file, duplicates) in report.files.iter_mut().zip(&self.duplicates_of) {
            file.rows_kept -= duplicates;
            file.rows_rejected += duplicates;
        }
        let room = self.listed.saturating_sub(report.rejects.len());
        report.rejects.extend(self.duplicates.drain(..).take(room));
        report
    }

    /// Writes the metadata and puts the timeline into its place, and the list of rejected rows.
    pub(crate) fn finish(mut self, meta: TimelineMeta) -> Result<TimelineSummary, IngestError> {
        self.stop.commit()?;
        let rejects = self.rejects.map(RejectList::finish).transpose()?;
        *self.writer.meta_mut() = meta;
        let summary = self.writer.finish().map_err(write_error(&self.path))?;
        rejects.map_or(Ok(()), WholeList::publish)?;
        Ok(summary)
    }
}

pub(crate) fn rejected_row(
    label: &str,
    place: Place,
    reason: RejectReason,
    column: Option<String>,
) -> RejectedRow {
    RejectedRow { file: label.to_owned(), line: place.line, offset: place.offset, reason, column }
}

fn write_error(path: &Path) -> impl Fn(TimelineError) -> IngestError {
    move |source| IngestError::Write { path: path.to_owned(), source: Box::new(source) }
}
