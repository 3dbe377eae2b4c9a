//! Looks at the rows of a timeline as they are written and fills in the report.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use tracewheel_timeline::stats::ClockRule;
use tracewheel_timeline::{ArrivalSource, ClockResolution, RequestRow};

use crate::report::{FileReport, IngestReport, PeakRate, Precision};

const SECOND_NS: i64 = 1_000_000_000;
/// Windows in which rates are counted; the report shows the finest that the precision allows.
const WINDOWS_NS: [i64; 3] = [SECOND_NS, 10 * SECOND_NS, 60 * SECOND_NS];
/// Different texts or gaps that are counted one by one.
const MOST_KINDS: usize = 10_000;
/// Lines of a "commonest" table.
const SHOWN: usize = 10;
/// Coarser stamps hide bursts.
const COARSE_NS: i64 = 100_000_000;

/// What the rows so far show.
#[derive(Debug)]
pub(crate) struct Survey {
    rows: u64,
    first_ns: Option<i64>,
    last_ns: i64,
    ties: u64,
    clock: ClockResolution,
    /// Rows by what their arrival means, in the order of [`ArrivalSource::ALL`].
    meanings: [u64; ArrivalSource::ALL.len()],
    precisions: BTreeMap<i64, u64>,
    /// The latest precision, and its rows that are not in `precisions` yet.
    precision: (i64, u64),
    peaks: [Bins; WINDOWS_NS.len()],
    models: Commonest,
    endpoints: Commonest,
    outcomes: Commonest,
    twins: Twins,
}

/// Finds rows that equal another one of the same arrival.
#[derive(Debug, Default)]
struct Twins {
    arrival_ns: Option<i64>,
    /// Hashes of the rows of this arrival: the first, and the others.
    first: u64,
    others: HashSet<u64>,
    found: u64,
}

/// A quick hash for comparing the few rows of one arrival.
#[derive(Debug, Default)]
struct QuickHash(u64);

/// Requests in windows counted from the first arrival: the present one and the fullest.
#[derive(Debug, Default, Clone, Copy)]
struct Bins {
    /// Where the present window ends, counted from the first arrival.
    end_ns: i64,
    here: u64,
    most: u64,
}

/// Counts of texts, of a bounded number of them.
#[derive(Debug, Default)]
struct Commonest(HashMap<Arc<str>, u64>);

impl Survey {
    pub(crate) fn new() -> Self {
        Self {
            rows: 0,
            first_ns: None,
            last_ns: 0,
            ties: 0,
            clock: ClockResolution::new(),
            meanings: [0; ArrivalSource::ALL.len()],
            precisions: BTreeMap::new(),
            precision: (0, 0),
            peaks: [Bins::default(); WINDOWS_NS.len()],
            models: Commonest::default(),
            endpoints: Commonest::default(),
            outcomes: Commonest::default(),
            twins: Twins::default(),
        }
    }

    /// Takes the next row, in the order of arrival.
    pub(crate) fn take(&mut self, row: &RequestRow, report: &mut IngestReport) {
        self.rows += 1;
        self.take_arrival(row.arrival_unix_ns.unwrap_or_default(), row.arrival_precision_ns);
        self.meanings[row.arrival_source as usize] += 1;
        let known = &mut report.known;
        for (count, is_known) in [
            (&mut known.input_tokens, row.input_tokens.is_some()),
            (&mut known.output_tokens, row.output_tokens.is_some()),
            (&mut known.cached_tokens, row.cached_tokens.is_some()),
            (&mut known.reasoning_tokens, row.reasoning_tokens.is_some()),
            (&mut known.session, row.session_hash.is_some()),
            (&mut known.prefix_hashes, row.prefix_hashes.is_some()),
            (&mut known.model, row.model.is_some()),
            (&mut known.ttft, row.prod_ttft_ns.is_some()),
            (&mut known.e2e, row.prod_e2e_ns.is_some()),
            (&mut known.outcome, row.prod_status.is_some() || row.prod_error.is_some()),
            (&mut known.body, row.body.is_some()),
        ] {
            *count += u64::from(is_known);
        }
        known.blocks += row.prefix_hashes.as_ref().map_or(0, |hashes| hashes.len() as u64);
        report.zero_input_tokens += u64::from(row.input_tokens == Some(0));
        report.zero_output_tokens += u64::from(row.output_tokens == Some(0));
        self.twins.take(row);
        report.gateway_cache_hits += u64::from(row.served_by_gateway_cache == Some(true));
        if let Some(rate) = row.sample_rate {
            report.sample_rate = Some(report.sample_rate.map_or(rate, |lowest| lowest.min(rate)));
        }
        self.models.count(row.model.as_ref());
        self.endpoints.count(row.path.as_ref().or(row.endpoint.as_ref()));
        let status = row.prod_status.map(|status| Arc::from(status.to_string()));
        self.outcomes.count(row.prod_error.as_ref().or(status.as_ref()));
    }

    fn take_arrival(&mut self, arrival_ns: i64, precision_ns: i64) {
        if precision_ns != self.precision.0 {
            self.add_precision();
            self.precision = (precision_ns, 0);
        }
        self.precision.1 += 1;
        self.clock.push(arrival_ns, precision_ns);
        self.ties += u64::from(self.rows > 1 && arrival_ns == self.last_ns);
        self.last_ns = arrival_ns;
        let first_ns = *self.first_ns.get_or_insert(arrival_ns);
        for (bins, window_ns) in self.peaks.iter_mut().zip(WINDOWS_NS) {
            bins.take(arrival_ns.saturating_sub(first_ns), window_ns);
        }
    }

    fn add_precision(&mut self) {
        let (precision_ns, rows) = self.precision;
        if rows > 0 {
            *self.precisions.entry(precision_ns).or_default() += rows;
        }
    }

    /// Writes what was seen into the report.
    pub(crate) fn finish(mut self, report: &mut IngestReport) {
        self.add_precision();
        let meanings = ArrivalSource::ALL.iter().zip(self.meanings).filter(|(_, rows)| *rows > 0);
        report.arrival_meaning = meanings.map(|(meaning, rows)| (meaning.as_str(), rows)).collect();
        report.rows_kept = self.rows;
        report.first_arrival_ns = self.first_ns;
        report.last_arrival_ns = self.first_ns.map(|_| self.last_ns);
        report.span_ns = self.first_ns.map_or(0, |first_ns| self.last_ns - first_ns);
        report.precision = self.precision();
        report.peak = self.peak(&report.precision);
        report.models = self.models.shown();
        report.endpoints = self.endpoints.shown();
        report.outcomes = self.outcomes.shown();
        report.identical_rows = self.twins.found;
    }

    fn precision(&mut self) -> Precision {
        let commonest = self.precisions.iter().max_by_key(|(_, rows)| **rows);
        let found = std::mem::take(&mut self.clock).finish();
        Precision {
            finest_ns: self.precisions.keys().next().copied().unwrap_or_default(),
            coarsest_ns: self.precisions.keys().next_back().copied().unwrap_or_default(),
            commonest_ns: commonest.map(|(ns, _)| *ns).unwrap_or_default(),
            found_ns: found.map(|found| found.resolution_ns),
            found_by: found.map(|found| found.rule),
            ties: self.ties,
        }
    }

    fn peak(&self, precision: &Precision) -> PeakRate {
        let tick_ns = precision.found_ns.unwrap_or_default().max(precision.commonest_ns);
        let fine_enough = |window_ns: &i64| tick_ns <= COARSE_NS || tick_ns.saturating_mul(3) <= *window_ns;
        let at = WINDOWS_NS.iter().position(fine_enough).unwrap_or(WINDOWS_NS.len() - 1);
        let requests = self.peaks[at].most;
        PeakRate {
            window_ns: WINDOWS_NS[at],
            requests,
            per_second: requests as f64 / (WINDOWS_NS[at] / SECOND_NS) as f64,
        }
    }
}

impl Twins {
    fn take(&mut self, row: &RequestRow) {
        let hash = likeness(row);
        if self.arrival_ns == row.arrival_unix_ns {
            let known = hash == self.first || !self.others.insert(hash);
            self.found += u64::from(known);
        } else {
            (self.arrival_ns, self.first) = (row.arrival_unix_ns, hash);
            self.others.clear();
        }
    }
}

/// A hash of all that a log may tell about a request, but for its place. The last block stands for all blocks, since
/// its hash contains those before it.
fn likeness(row: &RequestRow) -> u64 {
    let mut hash = QuickHash::default();
    let wide = |count: Option<u32>| count.map(u64::from);
    let narrow = |count: Option<u16>| count.map(u64::from);
    let time = |ns: Option<i64>| ns.map(i64::cast_unsigned);
    let numbers = [
        row.source_id_hash,
        row.session_hash,
        row.tenant_hash,
        row.user_hash,
        wide(row.input_tokens),
        wide(row.output_tokens),
        wide(row.cached_tokens),
        wide(row.cache_write_tokens),
        wide(row.reasoning_tokens),
        narrow(row.prod_status),
        narrow(row.images),
        narrow(row.tools),
        time(row.prod_ttft_ns),
        time(row.prod_e2e_ns),
        time(row.cancel_after_ns),
        row.stream.map(u64::from),
        row.prefix_hashes.as_ref().map(|hashes| hashes.len() as u64),
        row.prefix_hashes.as_ref().and_then(|hashes| hashes.last().copied()),
    ];
    // What is unknown costs nothing: which numbers are known shows in their places.
    for (place, number) in (0_u64..).zip(numbers) {
        if let Some(number) = number {
            hash.write_u64(number ^ place << 56);
        }
    }
    let texts = [&row.model, &row.prod_error, &row.path, &row.endpoint, &row.params];
    for (place, text) in (0_u64..).zip(texts) {
        if let Some(text) = text {
            (place, text).hash(&mut hash);
        }
    }
    if let Some(tags) = &row.tags {
        tags.hash(&mut hash);
    }
    if let Some(headers) = &row.request_headers {
        headers.hash(&mut hash);
    }
    hash.finish()
}

impl Hasher for QuickHash {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    /// Lengths.
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Bins {
    /// Takes the next arrival, counted from the first.
    fn take(&mut self, since_ns: i64, window_ns: i64) {
        if since_ns >= self.end_ns {
            self.end_ns = (since_ns / window_ns).saturating_add(1).saturating_mul(window_ns);
            self.here = 0;
        }
        self.here += 1;
        self.most = self.most.max(self.here);
    }
}

impl Commonest {
    fn count(&mut self, text: Option<&Arc<str>>) {
        let Some(text) = text else { return };
        if let Some(count) = self.0.get_mut(text) {
            *count += 1;
        } else if self.0.len() < MOST_KINDS {
            self.0.insert(Arc::clone(text), 1);
        }
    }

    fn shown(self) -> Vec<(String, u64)> {
        let mut all: Vec<(String, u64)> =
            self.0.into_iter().map(|(text, count)| (text.to_string(), count)).collect();
        all.sort_by(|(text, count), (other, others)| others.cmp(count).then_with(|| text.cmp(other)));
        all.truncate(SHOWN);
        all
    }
}

/// What a reader of any later result must know.
pub(crate) fn warnings(report: &IngestReport) -> Vec<String> {
    let mut warnings = Vec::new();
    if report.rows_kept == 0 {
        warnings.push("no row was kept: the timeline is empty".to_owned());
    }
    time_warnings(report, &mut warnings);
    report.files.iter().for_each(|file| file_warnings(file, &mut warnings));
    load_warnings(report, &mut warnings);
    warnings
}

fn time_warnings(report: &IngestReport, warnings: &mut Vec<String>) {
    let precision = &report.precision;
    let seconds = |ns: i64| ns as f64 / SECOND_NS as f64;
    for (meaning, rows) in report.arrival_meaning.iter().filter(|(meaning, _)| **meaning != "start") {
        warnings.push(format!("{rows} of {} arrivals are no recorded starts ({meaning})", report.rows_kept));
    }
    let found_ns =
        precision.found_ns.filter(|_| precision.found_by == Some(ClockRule::Step)).unwrap_or_default();
    if found_ns > COARSE_NS && found_ns > precision.commonest_ns {
        warnings.push(format!(
            "arrivals move in steps of {} s with {} ties: shorter gaps and bursts cannot be seen",
            seconds(found_ns),
            precision.ties
        ));
    } else if precision.commonest_ns > COARSE_NS {
        warnings.push(format!(
            "arrivals are written to {} s: shorter gaps and bursts cannot be seen",
            seconds(precision.commonest_ns)
        ));
    }
    if report.known.ttft > 0 && report.ttft_kind.is_none() {
        warnings.push(
            "it is not said which moment the log's time to first output ends at: give --ttft-kind, so that the same \
             moment of a replay is compared"
                .to_owned(),
        );
    }
}

fn file_warnings(file: &FileReport, warnings: &mut Vec<String>) {
    let name = &file.file;
    if let Some((packing, bytes, damage)) =
        file.packed.as_ref().and_then(|packed| Some((packed.packing, packed.bytes, packed.damage.as_ref()?)))
    {
        warnings.push(format!(
            "{name}: the {packing} archive is damaged at byte {bytes}: {damage}; the rows before it are kept, what \
             follows is lost"
        ));
    }
    restart_warning(file, warnings);
    named_warning(file, warnings);
    if file.mixed_times {
        let forms: Vec<String> =
            file.time_forms.iter().map(|(form, times)| format!("{form}: {times}")).collect();
        warnings.push(format!(
            "{name}: times are written in several ways, each was read as it is written ({})",
            forms.join("; ")
        ));
    }
    if file.hour_jumps > 0 {
        let jumps = file.hour_jumps;
        warnings.push(format!("{name}: {jumps} steps of about an hour between neighbours: check the zone"));
    }
    if file.ambiguous_times > 0 {
        let times = file.ambiguous_times;
        warnings.push(format!(
            "{name}: {times} local times occur twice in their zone: the order of rows decided"
        ));
    }
    for (rule, parts, total) in
        [(file.input_rule, "cached", "input"), (file.output_rule, "reasoning", "output")]
    {
        if rule.exclusive && !rule.told {
            let rows = rule.rows_over;
            warnings.push(format!(
                "{name}: {parts} tokens exceed the {total} in {rows} rows, so it excludes them: they were added"
            ));
        }
    }
    if let Some(unit) = &file.unit_found {
        warnings.push(format!("{name}: times have no unit; {unit} was taken by their size"));
    }
}

fn named_warning(file: &FileReport, warnings: &mut Vec<String>) {
    let (name, taken) = (&file.file, file.map_guessed.join(","));
    if !taken.is_empty() {
        warnings
            .push(format!("{name}: columns were taken by their common names ({taken}): --map settles it"));
    }
    if !file.map_left.is_empty() {
        let whole = file.map.iter().chain(&file.map_left).map(String::as_str).collect::<Vec<_>>().join(",");
        let left = file.map_left.join(",");
        warnings.push(format!(
            "{name}: columns without a unit were passed over ({left}, units guessed): --map '{whole}' takes them"
        ));
    }
}

fn restart_warning(file: &FileReport, warnings: &mut Vec<String>) {
    let Some(first) = file.restarts_at.first() else { return };
    let (name, places) = (&file.file, file.restarts);
    let (line, offset) = (first.line, first.offset);
    let back = (first.from_ns - first.to_ns) as f64 / SECOND_NS as f64;
    let what = if first.joined {
        "each part was laid behind the one before it, without a pause (--restarts keep leaves times as they are)"
    } else {
        "several logs in one file, or a clock that was set back: times were left as they are \
         (--restarts join lays the parts one after the other)"
    };
    let places = if places == 1 { "in 1 place".to_owned() } else { format!("in {places} places") };
    warnings.push(format!(
        "{name}: times start again {places}, first at line {line} (byte {offset}), {back} s back: {what}"
    ));
}

fn load_warnings(report: &IngestReport, warnings: &mut Vec<String>) {
    if report.identical_rows > 0 {
        let rows = report.identical_rows;
        warnings.push(format!(
            "{rows} rows equal another row of the same arrival in everything: without a request id no one can tell \
             copies from twins, so they are kept"
        ));
    }
    let zeros = report.zero_input_tokens + report.zero_output_tokens;
    if zeros > 0 {
        let (input, output) = (report.zero_input_tokens, report.zero_output_tokens);
        warnings.push(match (input, output) {
            (input, 0) => format!("0 tokens are recorded as input of {input} rows"),
            (0, output) => format!("0 tokens are recorded as output of {output} rows"),
            (input, output) => {
                format!("0 tokens are recorded as input of {input} rows and as output of {output}")
            }
        });
    }
    let retries = report.retries.marked + report.retries.after_failure;
    if retries > 0 && !report.retries.folded {
        warnings.push(format!(
            "{retries} rows look like retries and were not folded: a replay that retries by itself sends them twice"
        ));
    }
    if report.retries.unmatched > 0 {
        let rows = report.retries.unmatched;
        let forgotten = if report.retries.forgotten > 0 { " any more" } else { "" };
        warnings.push(format!("{rows} rows are marked as retries of requests that are not known{forgotten}"));
    }
    if report.sessions_forgotten > 0 && report.sessions_computed {
        let sessions = report.sessions_forgotten;
        warnings.push(format!(
            "{sessions} sessions were forgotten, as more than 458,752 others were active after them: one that came \
             back begins with turn 0 again"
        ));
    }
    if report.gateway_cache_hits > 0 {
        let hits = report.gateway_cache_hits;
        warnings.push(format!("{hits} rows were answered from a gateway's cache: the model never saw them"));
    }
    if let Some(rate) = report.sample_rate.filter(|rate| *rate < 1.0) {
        warnings.push(format!(
            "the log is sampled (lowest rate {rate}): its load is a lower bound and its gaps are too long"
        ));
    }
    for (what, rows) in &report.dropped_values {
        warnings.push(format!("{rows} values were left out, {what}"));
    }
    if report.over_reject_limit {
        let rejected = report.rows_rejected;
        warnings.push(format!("{rejected} of {} rows were rejected, more than allowed", report.rows_read));
    }
}
