//! The client's own budgets: a request passes them once, in order, when it would be armed for its first attempt.
//!
//! What must wait for a rate gets its time at once and sits in the wheel. What must wait for one in flight to end stands in
//! a line. In both cases it holds no connection.

use std::collections::VecDeque;

use tracewheel_clock::Clock;
use tracewheel_timeline::vocab::Reason;

use crate::client_budget::{ClientBudget, Meters};
use crate::shared::Halt;

use super::Worker;

/// The budgets as one worker keeps them.
#[derive(Debug)]
pub(super) struct Gate {
    budget: ClientBudget,
    meters: Meters,
    /// Those that wait for another to end, in order.
    line: VecDeque<u32>,
    /// Requests that passed and have not ended.
    inside: u32,
}

impl Gate {
    pub(super) fn new(budget: ClientBudget) -> Self {
        Gate { budget, meters: Meters::new(&budget), line: VecDeque::new(), inside: 0 }
    }

    /// Requests that stand in the line.
    pub(super) fn waiting(&self) -> usize {
        self.line.len()
    }

    /// Nobody passes any more.
    pub(super) fn close(&mut self) {
        self.line.clear();
    }

    fn is_full(&self) -> bool {
        self.budget.in_flight.is_some_and(|most| self.inside >= most)
    }
}

impl Worker {
    /// Whether the flight has yet to pass the budgets.
    pub(super) fn stands_before_gate(&mut self, number: u32) -> bool {
        let flight = self.flights.get(number);
        self.gate.budget.is_on() && !flight.passed_gate && flight.is_planned()
    }

    /// Lets a flight pass the budgets, or stand in line; it is armed later. False where it has passed already.
    pub(super) fn held_at_gate(&mut self, number: u32) -> bool {
        if !self.stands_before_gate(number) {
            return false;
        }
        self.gate.line.push_back(number);
        self.open_gate(i64::MIN);
        true
    }

    /// A request that had passed has ended.
    pub(super) fn leave_gate(&mut self) {
        self.gate.inside -= 1;
        let now = self.shared.clock.now().0;
        self.open_gate(now);
    }

    /// Lets through whoever may pass; places in flight came free at `free_ns`.
    fn open_gate(&mut self, free_ns: i64) {
        while self.halt == Halt::Running && !self.gate.is_full() {
            let Some(number) = self.gate.line.pop_front() else { return };
            let flight = self.flights.get(number);
            let due_ns = flight.record.due_ns;
            let tokens = flight.tokens;
            let at_ns = self.gate.meters.earliest_ns(due_ns.max(free_ns), tokens);
            let wait_ns = at_ns - due_ns;
            if self.gate.budget.max_wait_ns.is_some_and(|most| wait_ns > most) {
                self.pass_over(number, Reason::BudgetExceeded);
                continue;
            }
            self.gate.meters.take(at_ns, tokens);
            self.gate.inside += 1;
            flight.passed_gate = true;
            flight.record.budget_wait_ns = wait_ns;
            flight.due_ns = at_ns;
            self.schedule(number);
        }
    }
}
