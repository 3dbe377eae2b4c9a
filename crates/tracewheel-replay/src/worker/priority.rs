//! The sending thread's scheduling class and core: asked for at its start, given back when others would starve.

use std::sync::atomic::Ordering;

use tracewheel_clock::{Clock, thread_cpu_ns};
use tracewheel_record::manifest::SchedulingChange;

use crate::realtime::{Class, KEPT_CHANGES, Watch, Why};

use super::{Setup, Worker};

/// Rendered requests below which prefetch counts as behind, while it still has some to render.
const FEW_RENDERED: usize = 16;

/// What the thread obtained.
#[derive(Debug)]
pub(super) struct Priority {
    number: u32,
    /// `None` without the class.
    watch: Option<Watch>,
}

impl Priority {
    /// Binds the calling thread to its core and asks for the class, as far as the run wants either.
    pub(super) fn obtain(setup: &Setup) -> Self {
        let bound = setup.cores.as_ref().map_or(Ok(()), |cores| cores.bind_sender(setup.number as usize));
        let obtained = setup.realtime.then(|| Class::Realtime.take());
        setup.shared.note_scheduling(|seen| {
            seen.unpinned = seen.unpinned.take().or(bound.err());
            match &obtained {
                Some(Ok(())) => seen.obtained += 1,
                Some(Err(refused)) => seen.refused = Some(refused.clone()),
                None => {}
            }
        });
        let now = setup.shared.clock.now().0;
        let watch = obtained.and_then(Result::ok).and(thread_cpu_ns()).map(|cpu| Watch::new(now, cpu));
        Priority { number: setup.number, watch }
    }
}

impl Worker {
    /// Looks at the thread's own CPU time once a window, and changes the class where that is called for.
    pub(super) fn watch_priority(&mut self) {
        let Some(watch) = &mut self.priority.watch else { return };
        let now = self.shared.clock.now().0;
        if !watch.is_due(now) {
            return;
        }
        let Some(cpu) = thread_cpu_ns() else { return };
        let waiting = self.shared.gauges.recorder_messages.load(Ordering::Relaxed);
        let rendered = self.flights.len().saturating_sub(self.under_way);
        let starved = self.inbox.as_ref().is_some_and(|inbox| inbox.is_empty()) && rendered < FEW_RENDERED;
        let behind = waiting > self.outbox.quarter() || starved;
        let Some((class, why)) = watch.look(now, cpu, behind) else { return };
        let taken = class.take();
        if taken.is_err() {
            watch.refused();
        }
        self.note_change(now, class, why, taken.err());
    }

    fn note_change(&self, at_ns: i64, class: Class, why: Why, refused: Option<String>) {
        self.shared.note_scheduling(|seen| {
            if let Some(refused) = refused {
                seen.refused = Some(refused);
                return;
            }
            seen.step_downs += u64::from(class == Class::Normal);
            if seen.changes.len() < KEPT_CHANGES {
                seen.changes.push(SchedulingChange {
                    at_ns,
                    worker: self.priority.number,
                    class: class.as_str().to_owned(),
                    why: why.as_str().to_owned(),
                });
            }
        });
    }
}
