//! Connections that carry many exchanges at once (HTTP/2). Each of their lanes has a slot of its own and is used as a whole
//! HTTP/1.1 connection is; the connection itself lies in a slot besides and is polled there: it is the one reader.

use std::task::Poll;

use tracewheel_transport::{H2Connection, H2Lane, Lane};

use super::{Life, SlotEvent, Slots};
use crate::ready::SlotWaker;

/// The connection that a lane belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Of {
    slot: u32,
    /// Its number within the run: slots are used again.
    number: u32,
}

/// One connection's lanes.
#[derive(Debug)]
struct Carrier {
    of: Of,
    /// Slots of lanes that carry nothing.
    idle: Vec<u32>,
    /// Lanes that carry a request.
    busy: u32,
}

/// All connections that have lanes: a pure data structure.
#[derive(Debug, Default)]
pub(super) struct Carriers {
    open: Vec<Carrier>,
    /// Slots that are lanes.
    lanes: usize,
    idle: usize,
    /// Lanes of the latest connection; 1 where a connection is a lane; `None` before it is known.
    each: Option<usize>,
}

impl Carriers {
    /// With what is known ahead of any connection of how many requests one carries.
    pub(super) fn before_any(each: Option<usize>) -> Self {
        Carriers { each, ..Carriers::default() }
    }

    /// Slots that are lanes and no connections.
    pub(super) fn lanes(&self) -> usize {
        self.lanes
    }

    /// Lanes that carry nothing.
    pub(super) fn idle(&self) -> usize {
        self.idle
    }

    /// Connections that have lanes.
    pub(super) fn connections(&self) -> usize {
        self.open.len()
    }

    /// Connections that carry nothing.
    pub(super) fn unused(&self) -> usize {
        self.open.iter().filter(|carrier| carrier.busy == 0).count()
    }

    /// Requests at once that one connection carries, as far as is known.
    pub(super) fn each(&self) -> Option<usize> {
        self.each
    }

    pub(super) fn note_each(&mut self, each: usize) {
        self.each = Some(each.max(1));
    }

    fn get(&mut self, of: Of) -> Option<&mut Carrier> {
        self.open.iter_mut().find(|carrier| carrier.of == of)
    }

    /// Takes a lane of the connection that carries least.
    pub(super) fn take(&mut self) -> Option<u32> {
        let with_lane = self.open.iter_mut().filter(|carrier| !carrier.idle.is_empty());
        let carrier = with_lane.min_by_key(|carrier| carrier.busy)?;
        carrier.busy += 1;
        self.idle -= 1;
        carrier.idle.pop()
    }

    /// A lane that was taken carries nothing any more: it lies ready again, if its connection does.
    fn give_back(&mut self, of: Of, lane: u32) -> bool {
        let Some(carrier) = self.get(of) else { return false };
        carrier.busy -= 1;
        carrier.idle.push(lane);
        self.idle += 1;
        true
    }

    /// A lane that was taken is gone.
    fn gone(&mut self, of: Of) {
        if let Some(carrier) = self.get(of) {
            carrier.busy -= 1;
        }
    }

    fn add_lane(&mut self, of: Of, lane: u32) {
        if let Some(carrier) = self.get(of) {
            carrier.idle.push(lane);
            self.idle += 1;
        }
    }

    /// Takes a connection out of use; its idle lanes.
    fn remove(&mut self, of: Of) -> Vec<u32> {
        let Some(at) = self.open.iter().position(|carrier| carrier.of == of) else { return Vec::new() };
        let idle = self.open.swap_remove(at).idle;
        self.idle -= idle.len();
        idle
    }
}

impl Slots {
    /// Requests at once that a connection carries, as far as is known: 1 with HTTP/1.1.
    pub(crate) fn lanes_each(&self) -> usize {
        self.carriers.each().unwrap_or(1)
    }

    /// Whether it is known how many requests a connection carries.
    pub(crate) fn knows_lanes(&self) -> bool {
        self.carriers.each().is_some()
    }

    /// Connections that carry many requests each.
    pub(crate) fn carriers(&self) -> usize {
        self.carriers.connections()
    }

    /// Puts a connection that stands into its slot, with its lanes.
    pub(super) fn settle_carrier(&mut self, slot: u32, connection: H2Connection) {
        let of = Of { slot, number: self.slots[slot as usize].number };
        self.carriers.note_each(connection.limit() as usize);
        self.carriers.open.push(Carrier { of, idle: Vec::new(), busy: 0 });
        self.add_lanes(of, &connection);
        self.slots[slot as usize].life = Life::Carrier(Box::new(connection));
        // So that it is watched in this slot's name.
        self.woken.push_back(slot);
    }

    /// Hands out the lanes that the connection has now; whether there were any.
    fn add_lanes(&mut self, of: Of, connection: &H2Connection) -> bool {
        let mut added = false;
        while let Some(lane) = connection.new_lane() {
            let slot = self.lane_slot(lane, of);
            self.carriers.add_lane(of, slot);
            added = true;
        }
        added
    }

    fn lane_slot(&mut self, lane: H2Lane, of: Of) -> u32 {
        self.carriers.lanes += 1;
        let life = Life::Idle(Lane::H2(lane));
        match self.free.pop() {
            Some(slot) => {
                let place = &mut self.slots[slot as usize];
                (place.life, place.number, place.of) = (life, of.number, Some(of));
                slot
            }
            None => {
                let slot =
                    u32::try_from(self.slots.len()).expect("lanes are bounded by option and connections");
                let waker = SlotWaker::new(slot, &self.ready);
                self.slots.push(super::Slot { waker, life, number: of.number, since_ns: 0, of: Some(of) });
                slot
            }
        }
    }

    /// Drives a connection and looks after its lanes.
    pub(super) fn poll_carrier(&mut self, slot: u32) -> SlotEvent {
        let place = &mut self.slots[slot as usize];
        let of = Of { slot, number: place.number };
        let waker = place.waker.begin_poll().clone();
        let Life::Carrier(connection) = &mut place.life else { return SlotEvent::Nothing };
        let over = connection.poll(&mut std::task::Context::from_waker(&waker));
        if over.is_pending() && !connection.is_closing() {
            let Life::Carrier(connection) = std::mem::replace(&mut place.life, Life::Free) else {
                unreachable!("it was one just now")
            };
            let changed = self.add_lanes(of, &connection);
            let limit = connection.limit() as usize;
            self.slots[slot as usize].life = Life::Carrier(connection);
            self.give_up_lanes_above(of, limit);
            return if changed { SlotEvent::Lanes } else { SlotEvent::Nothing };
        }
        self.close_lanes(of);
        match over {
            Poll::Pending => SlotEvent::Lanes,
            Poll::Ready(()) => {
                self.vacate(slot);
                SlotEvent::IdleClosed
            }
        }
    }

    /// The peer allows fewer than it did.
    fn give_up_lanes_above(&mut self, of: Of, limit: usize) {
        loop {
            let Some(carrier) = self.carriers.get(of) else { return };
            if carrier.idle.len() + carrier.busy as usize <= limit {
                return;
            }
            let Some(lane) = carrier.idle.pop() else { return };
            self.carriers.idle -= 1;
            self.vacate(lane);
        }
    }

    /// A connection takes nothing more: its idle lanes go, armed requests will find another.
    fn close_lanes(&mut self, of: Of) {
        for lane in self.carriers.remove(of) {
            self.vacate(lane);
        }
        for (slot, place) in (0u32..).zip(&self.slots) {
            if place.of == Some(of) && matches!(place.life, Life::Busy { released: false, .. }) {
                self.woken.push_back(slot);
            }
        }
    }

    /// Lets a lane lie ready again.
    pub(super) fn settle_lane(&mut self, slot: u32, lane: H2Lane) {
        let place = &mut self.slots[slot as usize];
        let Some(of) = place.of else { return self.vacate(slot) };
        place.life = Life::Idle(Lane::H2(lane));
        if !self.carriers.give_back(of, slot) {
            place.of = None;
            self.carriers.lanes -= 1;
            self.vacate(slot);
        }
    }

    /// Before a slot becomes free: if it was a lane, its connection is told.
    pub(super) fn leave_carrier(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize];
        let Some(of) = place.of.take() else { return };
        self.carriers.lanes -= 1;
        if place.counts_as_busy() {
            self.carriers.gone(of);
        }
    }

    /// Sends pings; how many connections were found to bring nothing any more.
    pub(crate) fn keep_alive(&mut self) -> usize {
        let lives = self.slots.iter().map(|place| &place.life);
        let carriers =
            lives.filter_map(|life| if let Life::Carrier(found) = life { Some(found) } else { None });
        carriers.filter(|connection| !connection.keep_alive()).count()
    }

    /// Closes the connections that carry nothing.
    pub(super) fn close_carriers(&mut self) {
        while self.close_one_carrier() {}
    }

    /// Closes a connection that carries nothing; false if there is none.
    pub(super) fn close_one_carrier(&mut self) -> bool {
        let unused = self.carriers.open.iter().find(|carrier| carrier.busy == 0).map(|carrier| carrier.of);
        let Some(of) = unused else { return false };
        self.close_lanes(of);
        self.vacate(of.slot);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(slot: u32) -> Of {
        Of { slot, number: slot + 100 }
    }

    fn with_lanes(lanes: &[(u32, &[u32])]) -> Carriers {
        let mut carriers = Carriers::default();
        for (slot, idle) in lanes {
            carriers.open.push(Carrier { of: of(*slot), idle: Vec::new(), busy: 0 });
            idle.iter().for_each(|lane| carriers.add_lane(of(*slot), *lane));
        }
        carriers
    }

    #[test]
    fn requests_spread_over_the_connections() {
        let mut carriers = with_lanes(&[(0, &[10, 11]), (1, &[20, 21, 22])]);
        let taken: Vec<_> = std::iter::from_fn(|| carriers.take()).collect();
        assert_eq!(taken, [11, 22, 10, 21, 20]);
        assert_eq!((carriers.idle(), carriers.take()), (0, None));
        assert!(carriers.give_back(of(1), 21));
        carriers.gone(of(0));
        assert_eq!((carriers.idle(), carriers.take()), (1, Some(21)));
    }

    #[test]
    fn a_connection_that_is_gone_takes_its_idle_lanes_along_and_no_other_is_asked_for_it() {
        let mut carriers = with_lanes(&[(0, &[10, 11]), (1, &[20])]);
        assert_eq!(carriers.take(), Some(11));
        assert_eq!(carriers.remove(of(0)), [10]);
        assert!(!carriers.give_back(of(0), 11));
        assert!(
            !carriers.give_back(Of { slot: 1, number: 5 }, 11),
            "the slot is used again, the number is not"
        );
        assert_eq!((carriers.idle(), carriers.connections()), (1, 1));
    }
}
