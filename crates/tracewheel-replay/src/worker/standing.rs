//! The connections that stand ready, by how long they have: a pure data structure.

use std::collections::VecDeque;

use super::lifetime::{Kind, Lifetimes};

/// A connection that carries nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Resting {
    pub(super) slot: u32,
    /// Since when: its last answer's end, or when it stood.
    pub(super) since_ns: i64,
}

/// A connection taken into use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) slot: u32,
    /// Up to when it is known to be good.
    pub(super) good_until_ns: i64,
}

/// The connections that stand ready, oldest first, and one of each kind that is out of use and only watched.
#[derive(Debug, Default)]
pub(super) struct Standing {
    unused: VecDeque<Resting>,
    used: VecDeque<Resting>,
    witnesses: [Option<Resting>; 2],
}

impl Standing {
    fn list(&self, kind: Kind) -> &VecDeque<Resting> {
        match kind {
            Kind::Unused => &self.unused,
            Kind::Used => &self.used,
        }
    }

    fn list_mut(&mut self, kind: Kind) -> &mut VecDeque<Resting> {
        match kind {
            Kind::Unused => &mut self.unused,
            Kind::Used => &mut self.used,
        }
    }

    /// Connections that stand, witnesses left out.
    pub(super) fn len(&self) -> usize {
        self.unused.len() + self.used.len()
    }

    /// Connections that are only watched.
    pub(super) fn witnesses(&self) -> usize {
        self.witnesses.iter().flatten().count()
    }

    /// Adds one. Answers end nearly in order, so its place is near the end.
    pub(super) fn add(&mut self, kind: Kind, resting: Resting) {
        let list = self.list_mut(kind);
        let later = list.iter().rev().take_while(|other| other.since_ns > resting.since_ns).count();
        list.insert(list.len() - later, resting);
    }

    /// Takes one that will be good at `at_ns` (used last first: its buffers are warm), if there is one.
    pub(super) fn take(&mut self, at_ns: i64, lifetimes: &Lifetimes) -> Option<Taken> {
        [Kind::Used, Kind::Unused].into_iter().find_map(|kind| {
            let good_for_ns = lifetimes.good_for_ns(kind);
            let list = self.list_mut(kind);
            let youngest = list.back().copied()?;
            let good_until_ns = youngest.since_ns.saturating_add(good_for_ns);
            (good_until_ns >= at_ns).then(|| {
                list.pop_back();
                Taken { slot: youngest.slot, good_until_ns }
            })
        })
    }

    /// Whether [`Self::take`] would find one.
    pub(super) fn has_good(&self, at_ns: i64, lifetimes: &Lifetimes) -> bool {
        Kind::ALL.into_iter().any(|kind| {
            let since = self.list(kind).back().map(|youngest| youngest.since_ns);
            since.is_some_and(|since| since.saturating_add(lifetimes.good_for_ns(kind)) >= at_ns)
        })
    }

    /// Counts those that will be good, for times that ascend from call to call.
    pub(super) fn count_good<'a>(&'a self, lifetimes: &Lifetimes) -> impl FnMut(i64) -> usize + 'a {
        let mut counts = Kind::ALL.map(|kind| (self.list(kind), lifetimes.good_for_ns(kind), 0));
        move |at_ns| {
            let mut good = 0;
            for (list, good_for_ns, stale) in &mut counts {
                while list.get(*stale).is_some_and(|one| one.since_ns.saturating_add(*good_for_ns) < at_ns) {
                    *stale += 1;
                }
                good += list.len() - *stale;
            }
            good
        }
    }

    /// Tells `lifetimes` how old the oldest of each kind is at `now_ns`.
    pub(super) fn testify(&self, now_ns: i64, lifetimes: &mut Lifetimes) {
        for kind in Kind::ALL {
            let oldest = self.witnesses[kind as usize].or(self.list(kind).front().copied());
            if let Some(oldest) = oldest {
                lifetimes.stands(kind, now_ns - oldest.since_ns);
            }
        }
    }

    /// Takes those out that have come too near to the limit: slots to be closed. One of each kind stays as a witness,
    /// where `room` says that one more connection may stay open.
    pub(super) fn retire(&mut self, now_ns: i64, lifetimes: &Lifetimes, room: bool, into: &mut Vec<u32>) {
        for kind in Kind::ALL {
            let Some(after_ns) = lifetimes.retire_after_ns(kind) else {
                // The limit was forgotten: nothing is wrong with the one that outlived it.
                if let Some(witness) = self.witnesses[kind as usize].take() {
                    self.add(kind, witness);
                }
                continue;
            };
            while let Some(oldest) = self.list(kind).front().copied()
                && oldest.since_ns.saturating_add(after_ns) <= now_ns
            {
                self.list_mut(kind).pop_front();
                let witness = &mut self.witnesses[kind as usize];
                if room && witness.is_none() {
                    *witness = Some(oldest);
                } else {
                    into.push(oldest.slot);
                }
            }
        }
    }

    /// When the next one is to be retired.
    pub(super) fn next_retirement_ns(&self, lifetimes: &Lifetimes) -> Option<i64> {
        let next = |kind| {
            let oldest = self.list(kind).front()?;
            Some(oldest.since_ns.saturating_add(lifetimes.retire_after_ns(kind)?))
        };
        Kind::ALL.into_iter().filter_map(next).min()
    }

    /// Takes out one that is of least use, to make room for another: a witness, else the oldest that will not be good
    /// at `at_ns`.
    pub(super) fn give_way(&mut self, at_ns: i64, lifetimes: &Lifetimes) -> Option<u32> {
        if let Some(witness) = self.witnesses.iter_mut().find_map(Option::take) {
            return Some(witness.slot);
        }
        Kind::ALL.into_iter().find_map(|kind| {
            let good_for_ns = lifetimes.good_for_ns(kind);
            let list = self.list_mut(kind);
            let oldest = list.front()?;
            (oldest.since_ns.saturating_add(good_for_ns) < at_ns)
                .then(|| list.pop_front().map(|oldest| oldest.slot))
                .flatten()
        })
    }

    /// Takes out the one in this slot; since when it stood.
    pub(super) fn remove(&mut self, slot: u32) -> Option<i64> {
        for witness in &mut self.witnesses {
            if let Some(found) = witness.take_if(|witness| witness.slot == slot) {
                return Some(found.since_ns);
            }
        }
        Kind::ALL.into_iter().find_map(|kind| {
            let list = self.list_mut(kind);
            let at = list.iter().position(|resting| resting.slot == slot)?;
            list.remove(at).map(|resting| resting.since_ns)
        })
    }

    /// Takes all out.
    pub(super) fn drain(&mut self) -> Vec<u32> {
        let Standing { unused, used, witnesses } = std::mem::take(self);
        unused.into_iter().chain(used).chain(witnesses.into_iter().flatten()).map(|one| one.slot).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    fn standing(used: &[(u32, i64)]) -> Standing {
        let mut standing = Standing::default();
        used.iter().for_each(|&(slot, since_ns)| standing.add(Kind::Used, Resting { slot, since_ns }));
        standing
    }

    #[test]
    fn the_one_used_last_is_taken_first_and_none_that_is_too_old() {
        let lifetimes = Lifetimes::default();
        let mut standing = standing(&[(3, 300), (1, 100), (2, 200)]);
        standing.add(Kind::Unused, Resting { slot: 9, since_ns: 250 });
        assert_eq!(standing.take(S + 300, &lifetimes), Some(Taken { slot: 3, good_until_ns: S + 300 }));
        assert_eq!(standing.take(S + 201, &lifetimes).unwrap().slot, 9, "the next of its kind is too old");
        assert!(!standing.has_good(S + 201, &lifetimes) && standing.has_good(S + 200, &lifetimes));
        assert_eq!(standing.take(S + 201, &lifetimes), None);
        assert_eq!(standing.len(), 2);
    }

    #[test]
    fn those_that_will_be_good_are_counted_for_each_time() {
        let lifetimes = Lifetimes::default();
        let standing = standing(&[(1, 100), (2, 200), (3, 300)]);
        let mut good = standing.count_good(&lifetimes);
        assert_eq!([S, S + 100, S + 101, S + 300, S + 301].map(&mut good), [3, 3, 2, 1, 0]);
    }

    #[test]
    fn retired_ones_are_closed_but_for_one_witness_which_returns_when_the_limit_is_forgotten() {
        let mut lifetimes = Lifetimes::default();
        lifetimes.closed(5 * S, 1);
        let mut standing = standing(&[(1, 0), (2, 1), (3, S)]);
        assert_eq!(standing.next_retirement_ns(&lifetimes), Some(4_375_000_000));
        let mut closed = Vec::new();
        standing.retire(4_375_000_001, &lifetimes, true, &mut closed);
        assert_eq!((closed, standing.len(), standing.witnesses()), (vec![2], 1, 1));
        standing.testify(7 * S, &mut lifetimes);
        assert_eq!(lifetimes.retire_after_ns(Kind::Used), None);
        standing.retire(7 * S, &lifetimes, true, &mut Vec::new());
        assert_eq!((standing.len(), standing.witnesses()), (2, 0));
        assert_eq!(standing.drain(), [1, 3]);
    }

    #[test]
    fn at_the_limit_of_connections_a_witness_gives_way_then_what_is_too_old_and_nothing_that_is_good() {
        let mut lifetimes = Lifetimes::default();
        lifetimes.closed(5 * S, 1);
        let mut standing = standing(&[(1, 0), (2, S), (3, 5 * S)]);
        standing.retire(4_375_000_000, &lifetimes, true, &mut Vec::new());
        assert_eq!(standing.give_way(5 * S, &lifetimes), Some(1));
        assert_eq!(standing.give_way(6 * S, &lifetimes), Some(2));
        assert_eq!(standing.give_way(6 * S, &lifetimes), None);
        assert_eq!(standing.remove(3), Some(5 * S));
        assert_eq!(standing.remove(3), None);
    }
}
