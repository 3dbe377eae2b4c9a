//! Before the run: two prompts of known words, from which follows how the target counts.

use tracewheel_clock::{Clock, blocking};
use tracewheel_record::manifest::CalibrationSection;
use tracewheel_workload::{Calibration, PROBE_WORDS};

use super::conductor::{Conductor, NAP_NS};
use crate::config::SECOND_NS;
use crate::shared::Halt;

/// From the end of the probes to the recorder's word on them, at most.
const HEARD_WITHIN_NS: i64 = 5 * SECOND_NS;

/// What the probes led to.
#[derive(Debug, Clone, Default)]
pub(super) struct Calibrated {
    /// What prompts are rendered by.
    pub(super) calibration: Calibration,
    /// For the manifest; `None` where nothing was asked for or came of it.
    pub(super) section: Option<CalibrationSection>,
    /// Why nothing came of it.
    pub(super) problem: Option<String>,
}

impl Calibrated {
    /// What follows from the probes that the target counted.
    fn of(counted: Vec<(u32, u32)>) -> Self {
        let problem = |why: &str| Calibrated {
            problem: Some(format!("prompts are not calibrated, one word counts as one token: {why}")),
            ..Calibrated::default()
        };
        let [a, b] = counted.as_slice() else {
            return problem("not both of the prompts sent ahead brought a count of input tokens");
        };
        let Some(calibration) = Calibration::through(*a, *b) else {
            return problem(&format!(
                "the target counted {} tokens for {} words and {} for {}",
                a.1, a.0, b.1, b.0
            ));
        };
        let section = CalibrationSection {
            overhead_tokens: Some(calibration.overhead_tokens),
            tokens_per_word: Some(calibration.tokens_per_word),
            probes: counted,
        };
        Calibrated { calibration, section: Some(section), problem: None }
    }
}

impl Conductor<'_, '_, '_> {
    /// Sends the probes, where that is asked for, and waits for what the target makes of them.
    pub(super) fn calibrate(&mut self, worker_died: &dyn Fn() -> bool) {
        if !self.config.prompts.calibrate || self.shared.halt() > Halt::Running {
            return;
        }
        let probes = match self.plan.probes() {
            // Every body is a recorded one: there is nothing to fit.
            Ok(probes) if probes.is_empty() => return,
            Ok(probes) => probes,
            Err(source) => return self.note_prefetch(Ok(Err(source))),
        };
        tracing::info!(words = ?PROBE_WORDS, "calibrate phase: prompts of known lengths are sent ahead");
        let sent = probes.len();
        let (inboxes, outlets) = self.inboxes();
        let prefetch = self.prefetch(inboxes);
        let thread = self.scope.spawn(move || prefetch.calibrate(probes));
        self.start(outlets, Some(1), self.shared.clock.now().0);
        self.await_workers(worker_died, |answer| matches!(answer, crate::worker::Answer::PhaseDone));
        self.note_prefetch(thread.join().map(Ok));
        let give_up_ns = self.shared.clock.now().0 + HEARD_WITHIN_NS;
        while self.shared.probes().ended < sent
            && self.shared.halt() == Halt::Running
            && self.shared.clock.now().0 < give_up_ns
        {
            self.look(worker_died);
            blocking::sleep(NAP_NS);
        }
        let calibrated = Calibrated::of(self.shared.probes().counted);
        tracing::info!(calibration = ?calibrated.calibration, problem = calibrated.problem, "calibrated");
        self.progress.calibrated = calibrated;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_counts_make_a_calibration_and_anything_else_is_told() {
        let good = Calibrated::of(vec![(32, 43), (1056, 1067)]);
        assert_eq!(good.calibration, Calibration { overhead_tokens: 11, tokens_per_word: 1.0 });
        assert_eq!(good.section.unwrap().probes, [(32, 43), (1056, 1067)]);
        for (counted, told) in [
            (vec![], "not both"),
            (vec![(32, 43)], "not both"),
            (vec![(32, 43), (1056, 43)], "counted 43 tokens for 32 words and 43 for 1056"),
        ] {
            let bad = Calibrated::of(counted);
            assert_eq!((bad.calibration, bad.section), (Calibration::default(), None));
            assert!(bad.problem.unwrap().contains(told));
        }
    }
}
