//! The worker's loop: what is done in which order, and what it rests on.

use std::future::poll_fn;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::task::{Context, Poll};

use tokio::sync::mpsc::error::TryRecvError;
use tracewheel_clock::{Clock, RunNs};

use crate::shared::{Abort, Halt};

use super::{Answer, Chore, Command, Pace, Worker};

/// Pieces of work of one kind in one turn, before the reactor is asked again.
pub(super) const WORK_A_TURN: u32 = 64;
/// How long work may be held back by releases that follow each other closely.
const MAX_HELD_NS: i64 = 300_000;
/// Pieces of work that are then done all the same.
const OWED_PIECES: u32 = 16;
/// Flights ahead below which the worker asks to be woken by its inbox; above, it looks at it when it is awake anyway.
const HUNGRY: usize = 64;

impl Worker {
    /// Carries out commands until there are no more.
    pub(super) async fn obey(mut self, answers: SyncSender<Answer>) -> io::Result<()> {
        while let Some(command) = self.next_command().await? {
            let answer = match command {
                Command::Look => continue,
                Command::Warm { target, connections, as_room } => {
                    self.warm(target, connections, as_room).await?
                }
                Command::Phase { inbox, budget, pace, start_ns } => {
                    (self.inbox, self.budget) = (Some(inbox), budget);
                    (self.pace, self.start_ns) = (pace, start_ns);
                    self.drive(|worker| {
                        worker.inbox.is_none() && worker.arrived.is_none() && worker.flights.len() == 0
                    })
                    .await?;
                    Answer::PhaseDone
                }
            };
            if answers.send(answer).is_err() {
                break;
            }
        }
        self.pools.iter_mut().for_each(|pool| pool.slots.close_idle());
        self.account_for_connections();
        self.gauge();
        Ok(())
    }

    async fn warm(&mut self, pool: usize, connections: u32, as_room: bool) -> io::Result<Answer> {
        self.pools[pool].connect_failure = None;
        let before = self.pools[pool].slots.open();
        let mut wanted = connections;
        if as_room && !self.pools[pool].slots.knows_lanes() {
            // The first one tells how many requests a connection carries.
            self.open_ahead(pool, 1).await?;
            wanted -= 1;
        }
        let slots = &self.pools[pool].slots;
        if as_room {
            let each = u32::try_from(slots.lanes_each()).unwrap_or(u32::MAX);
            let stands = slots.carriers() > 0;
            wanted = if stands { connections.div_ceil(each) - 1 } else { wanted.div_ceil(each) };
        }
        self.open_ahead(pool, wanted).await?;
        let open = self.pools[pool].slots.open();
        let open = u32::try_from(open.saturating_sub(before)).unwrap_or(u32::MAX);
        Ok(Answer::Warmed { open, failure: self.pools[pool].connect_failure.take() })
    }

    async fn open_ahead(&mut self, pool: usize, connections: u32) -> io::Result<()> {
        for _ in 0..connections {
            if self.may_connect() && self.pools[pool].connect_failure.is_none() {
                self.connect(pool, None);
            }
        }
        // After a stop there is nothing to connect for.
        self.drive(|worker| worker.connecting() == 0 || worker.halt > Halt::Running).await
    }

    /// Keeps kept connections watched until a command comes.
    async fn next_command(&mut self) -> io::Result<Option<Command>> {
        loop {
            self.turn();
            match self.rest().await? {
                Rested::Work => {}
                Rested::Command(command) => return Ok(command),
            }
        }
    }

    /// Works until `done`.
    async fn drive(&mut self, done: impl Fn(&Worker) -> bool) -> io::Result<()> {
        loop {
            self.turn();
            if done(self) {
                return Ok(());
            }
            match self.rest().await? {
                Rested::Work | Rested::Command(Some(Command::Look)) => {}
                Rested::Command(None) => self.shared.abort(Abort::ThreadDied),
                Rested::Command(Some(other)) => {
                    debug_assert!(false, "{other:?} was given before the last command was answered");
                }
            }
        }
    }

    /// One turn: releases first, then whatever has room before the next one.
    fn turn(&mut self) {
        self.follow_halt();
        self.release_due();
        self.take_in();
        self.hear();
        self.do_chores();
        self.poll_woken();
        self.gauge();
        self.watch_priority();
    }

    fn release_due(&mut self) {
        while let Some((_, flight)) = self.sends.pop_due(self.shared.clock.now().0) {
            self.flights.get(flight).alarms.send = None;
            self.release(flight);
        }
    }

    /// Whether another piece of work may be begun: not when the next release is so close that it could become late,
    /// unless work was held back too long already. At rates at which there is always a release close by, reading would
    /// otherwise never get its turn.
    pub(super) fn may_work(&mut self) -> bool {
        if self.owed_pieces > 0 {
            self.owed_pieces -= 1;
            // What has become due meanwhile leaves between two pieces: it is late by one of them, not by all.
            self.release_due();
            return true;
        }
        let Some(at) = self.sends.next_deadline() else { return true };
        let now = self.shared.clock.now();
        if at.saturating_sub(now.0) > self.precise.margin_ns() {
            self.held_since_ns = None;
            return true;
        }
        let since = *self.held_since_ns.get_or_insert(now.0);
        if now.0 - since < MAX_HELD_NS {
            return false;
        }
        (self.held_since_ns, self.owed_pieces) = (None, OWED_PIECES);
        true
    }

    fn take_in(&mut self) {
        if let Some(request) = self.arrived.take() {
            self.admit(request);
        }
        for _ in 0..WORK_A_TURN {
            if !self.may_work() {
                return;
            }
            let Some(inbox) = &mut self.inbox else { return };
            match inbox.try_recv() {
                Ok(request) => self.admit(request),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => self.inbox = None,
            }
        }
    }

    fn do_chores(&mut self) {
        for _ in 0..WORK_A_TURN {
            if !self.may_work() {
                return;
            }
            match self.chores.pop_due(self.shared.clock.now().0) {
                Some((_, chore)) => self.do_chore(chore),
                None => return,
            }
        }
    }

    fn do_chore(&mut self, chore: Chore) {
        match chore {
            Chore::Arm(flight) => {
                self.flights.get(flight).alarms.arm = None;
                if !self.held_at_gate(flight) {
                    self.arm(flight);
                }
            }
            Chore::Write(flight) => self.write(flight),
            Chore::Timeout(flight) => {
                self.flights.get(flight).alarms.timeout = None;
                self.time_out(flight);
            }
            Chore::Cancel(flight) => {
                self.flights.get(flight).alarms.cancel = None;
                self.cancel(flight);
            }
            Chore::ConnectTimeout { pool, slot, number } => self.connect_timed_out(pool, slot, number),
            Chore::Tend => self.tend(),
        }
    }

    fn poll_woken(&mut self) {
        for _ in 0..WORK_A_TURN {
            if !self.may_work() {
                return;
            }
            let Some((pool, slot)) = self.next_woken() else { return };
            let event = self.pools[pool].slots.poll(slot);
            self.handle(pool, slot, event);
        }
    }

    /// The next connection that was woken; the pools take turns.
    fn next_woken(&mut self) -> Option<(usize, u32)> {
        let pools = self.pools.len();
        let found = (0..pools).find_map(|ahead| {
            let pool = (self.next_pool + ahead) % pools;
            Some((pool, self.pools[pool].slots.next_woken()?))
        });
        self.next_pool = found.map_or(0, |(pool, _)| pool + 1);
        found
    }

    /// Waits until there is something to do, and lets the reactor look at the sockets meanwhile.
    async fn rest(&mut self) -> io::Result<Rested> {
        let mut yielded = false;
        poll_fn(|cx| self.poll_rest(cx, &mut yielded)).await
    }

    fn poll_rest(&mut self, cx: &mut Context<'_>, yielded: &mut bool) -> Poll<io::Result<Rested>> {
        self.pools.iter().for_each(|pool| pool.slots.set_parent(cx));
        if let Some(at) = self.sends.next_deadline()
            && let Poll::Ready(waited) = self.precise.poll_until(cx, RunNs(at))
        {
            return Poll::Ready(waited.map(|_| Rested::Work));
        }
        if let Poll::Ready(command) = self.commands.poll_recv(cx) {
            return Poll::Ready(Ok(Rested::Command(command)));
        }
        let more_to_do = self.pools.iter_mut().any(|pool| pool.slots.any_woken())
            || self.inbox.as_ref().is_some_and(|inbox| !inbox.is_empty())
            || self.sessions.hears();
        if more_to_do {
            if *yielded {
                return Poll::Ready(Ok(Rested::Work));
            }
            // The reactor gets a look at the sockets, without waiting, before the work goes on.
            *yielded = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(at) = self.chores.next_deadline()
            && let Poll::Ready(waited) = self.lax.poll_until(cx, RunNs(at))
        {
            return Poll::Ready(waited.map(|_| Rested::Work));
        }
        if self.sessions.poll_hear(cx).is_ready() {
            return Poll::Ready(Ok(Rested::Work));
        }
        let ahead = self.flights.len().saturating_sub(self.under_way + self.held_back());
        if let Some(inbox) = &mut self.inbox
            && ahead < HUNGRY
            && let Poll::Ready(request) = inbox.poll_recv(cx)
        {
            match request {
                Some(request) => self.arrived = Some(request),
                None => self.inbox = None,
            }
            return Poll::Ready(Ok(Rested::Work));
        }
        // Whoever polls next has waited in the reactor: it need not look once more before the work.
        *yielded = true;
        Poll::Pending
    }

    /// Acts on a stop that went further since the last turn.
    fn follow_halt(&mut self) {
        let halt = self.shared.halt();
        if halt <= self.halt {
            return;
        }
        self.halt = halt;
        self.gate.close();
        self.sessions.close();
        for number in self.flights.numbers() {
            if !self.flights.get(number).begun {
                self.drop_unsent(number);
            } else if halt >= Halt::DrainLimit {
                self.interrupt(number);
            }
        }
        debug_assert!(self.line.is_empty() || self.pace != Pace::Open);
    }

    /// Flights that wait for another one to end: nothing wakes the worker for them.
    fn held_back(&self) -> usize {
        self.gate.waiting() + self.sessions.waiting()
    }

    fn gauge(&mut self) {
        let gauges = &self.shared.gauges;
        let connections = self.open() as i64;
        if connections != self.gauged.connections {
            gauges.connections_open.fetch_add(connections - self.gauged.connections, Ordering::Relaxed);
            self.gauged.connections = connections;
        }
        let entries = (self.sends.len() + self.chores.len()) as i64;
        if entries != self.gauged.wheel_entries {
            gauges.wheel_entries.fetch_add(entries - self.gauged.wheel_entries, Ordering::Relaxed);
            self.gauged.wheel_entries = entries;
        }
    }
}

/// Why a rest ended.
enum Rested {
    /// Something is to be done.
    Work,
    /// A command came; `None` when no more will.
    Command(Option<Command>),
}
