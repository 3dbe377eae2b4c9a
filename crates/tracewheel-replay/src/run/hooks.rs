//! What is called beside a run, at its points.

use std::sync::Arc;

use tracewheel_clock::blocking;
use tracewheel_record::manifest::HookSection;

use crate::hook::{HookPoint, perform};
use crate::recorder::one_line;
use crate::shared::{Abort, Halt};
use crate::{ReplayError, StopLevel};

use super::conductor::{Conductor, NAP_NS};

impl Conductor<'_, '_, '_> {
    /// Does what the hooks of a point say, one after the other, in a thread of their own. One that fails before the plan's
    /// first request ends the run, unless that is to be ignored. After the run they act however it ended.
    pub(super) fn hooks(&mut self, at: HookPoint, worker_died: &dyn Fn() -> bool) {
        for hook in self.config.hooks.iter().filter(|hook| hook.at == at) {
            let ending = at != HookPoint::AfterRun && self.shared.halt() > Halt::Running;
            if ending || self.stop.level() == StopLevel::Cut {
                return;
            }
            tracing::info!(hook = %hook.name, %at, "hook");
            let (shared, stop, checked) = (Arc::clone(&self.shared), self.stop.clone(), self.checked);
            let elsewhere = self.elsewhere();
            let thread = self.scope.spawn(move || {
                elsewhere();
                let least = if at == HookPoint::AfterRun { StopLevel::Drain } else { StopLevel::Running };
                let stopped =
                    || stop.level() > least || (at != HookPoint::AfterRun && shared.halt() > Halt::Running);
                perform(hook, &checked.hook_stage(&shared.clock, &stopped))
            });
            while !thread.is_finished() {
                self.look(worker_died);
                blocking::sleep(NAP_NS);
            }
            let Ok(section) = thread.join() else {
                let problem = "it panicked".to_owned();
                self.progress.error.get_or_insert(ReplayError::Internal { thread: "hook", problem });
                self.shared.abort(Abort::ThreadDied);
                return;
            };
            self.note_hook(at, section);
        }
    }

    fn note_hook(&mut self, at: HookPoint, section: HookSection) {
        tracing::info!(
            hook = %section.name,
            outcome = %section.outcome,
            tries = section.tries,
            status = section.status,
            "hook ended"
        );
        if section.outcome == "failed" && at != HookPoint::AfterRun && !self.config.ignore_hook_failure {
            self.progress.hook_failure = Some(hook_failure_text(&section));
            self.shared.abort(Abort::HookFailed);
        }
        self.progress.hooks.push(section);
    }
}

/// What a hook that ended the run could not do, with the remedy.
fn hook_failure_text(hook: &HookSection) -> String {
    let why = hook.why.as_deref().unwrap_or("it failed");
    let answer = hook.answer.as_deref().map(|answer| format!("; it said: {}", one_line(answer)));
    let tries = if hook.tries > 1 { format!(", after {} tries", hook.tries) } else { String::new() };
    format!(
        "the hook {} ({}) failed {}{tries}: {why}{}; nothing of the plan was sent. Mend it, or go on in any case with \
         --ignore-hook-failure",
        hook.name,
        hook.called.join(", "),
        hook.at,
        answer.unwrap_or_default()
    )
}
