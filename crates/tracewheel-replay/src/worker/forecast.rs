//! How many connections the next requests will need, and from when on they must be made: a pure data structure.
//!
//! The look-ahead knows the due times. What is needed at a due time is a connection for each request that is due until
//! then, as if none that is in use came back before; a burst of a hundred requests within a millisecond needs a hundred.
//! Few missing connections are made well ahead, many as early as making them takes.

use std::collections::VecDeque;

/// Missing connections up to this many are made [`FEW_LEAD_NS`] ahead of the due time.
const FEW: usize = 32;
const FEW_LEAD_NS: i64 = 250_000_000;
/// Further ones so much ahead, and the time that it takes to make them.
const MANY_LEAD_NS: i64 = 25_000_000;
/// Nothing is made longer ahead than that: a connection without an answer ages too.
const MAX_LEAD_NS: i64 = 900_000_000;
/// Due times that one look goes through, at most.
const MAX_LOOKED_AT: usize = 4_096;

/// What making connections costs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    /// From the first packet until a request can be sent.
    pub(super) handshake_ns: i64,
    /// Time of the sending thread for each.
    pub(super) each_ns: i64,
    /// How long one that has carried nothing is good.
    pub(super) good_for_ns: i64,
}

impl Cost {
    /// How much ahead of the due time `missing` connections are begun.
    fn lead_ns(self, missing: usize) -> i64 {
        let lead = if missing <= FEW {
            FEW_LEAD_NS
        } else {
            MANY_LEAD_NS.saturating_add(self.each_ns.saturating_mul(missing as i64))
        };
        lead.saturating_add(2 * self.handshake_ns).min(MAX_LEAD_NS).min(self.good_for_ns / 4 * 3)
    }
}

/// What a look came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outlook {
    /// Connections to begin now.
    pub(super) missing: usize,
    /// When to look again, if nothing changes.
    pub(super) next_ns: i64,
}

/// Due times of requests that have no connection yet, ascending.
#[derive(Debug, Default)]
pub(super) struct Forecast {
    dues: VecDeque<i64>,
}

impl Forecast {
    /// A request will be due then. Planned ones come in order; retries go between them.
    pub(super) fn add(&mut self, due_ns: i64) {
        if self.dues.back().is_none_or(|last| *last <= due_ns) {
            self.dues.push_back(due_ns);
        } else {
            let at = self.dues.partition_point(|other| *other <= due_ns);
            self.dues.insert(at, due_ns);
        }
    }

    /// Forgets those that are due by `until_ns`: they have their connection, or look for it themselves.
    pub(super) fn pass(&mut self, until_ns: i64) {
        while self.dues.front().is_some_and(|due| *due <= until_ns) {
            self.dues.pop_front();
        }
    }

    /// When the next of them is due.
    pub(super) fn first_ns(&self) -> Option<i64> {
        self.dues.front().copied()
    }

    pub(super) fn clear(&mut self) {
        self.dues.clear();
    }

    /// What is to be made at `now_ns`. `good_at` counts the standing connections that will be good at a time (asked in
    /// ascending order), `making` are on their way, `spares` shall be there beyond the need.
    pub(super) fn look(
        &self,
        now_ns: i64,
        mut good_at: impl FnMut(i64) -> usize,
        making: usize,
        spares: usize,
        cost: Cost,
    ) -> Outlook {
        let mut outlook = Outlook { missing: 0, next_ns: i64::MAX };
        let first_lead_ns = cost.lead_ns(1);
        for (before, due_ns) in self.dues.iter().copied().take(MAX_LOOKED_AT).enumerate() {
            if due_ns.saturating_sub(MAX_LEAD_NS) > now_ns {
                outlook.next_ns = outlook.next_ns.min(due_ns.saturating_sub(MAX_LEAD_NS));
                break;
            }
            let ready = good_at(due_ns) + making;
            let needed = before + 1;
            // Spares stand by for what comes first; for a burst they are part of what is made for it anyway.
            let spare = if before == 0 { spares } else { 0 };
            let missing = (needed + spare).saturating_sub(ready);
            if missing <= outlook.missing {
                continue;
            }
            let lead_ns = if before == 0 { first_lead_ns } else { cost.lead_ns(missing) };
            let begin_ns = due_ns.saturating_sub(lead_ns);
            if begin_ns <= now_ns {
                outlook.missing = missing;
            } else {
                outlook.next_ns = outlook.next_ns.min(begin_ns);
            }
        }
        outlook
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;
    const PLAIN: Cost = Cost { handshake_ns: 100_000, each_ns: 100_000, good_for_ns: 1_000 * MS };

    fn forecast(dues: impl IntoIterator<Item = i64>) -> Forecast {
        let mut forecast = Forecast::default();
        dues.into_iter().for_each(|due| forecast.add(due));
        forecast
    }

    #[test]
    fn a_burst_has_its_connections_before_it_is_due_and_not_long_before() {
        let burst = forecast((0..200).map(|n| 10_000 * MS + n * 10_000));
        let early = burst.look(0, |_| 0, 0, 2, PLAIN);
        assert_eq!(early, Outlook { missing: 0, next_ns: 9_100 * MS });
        let first = burst.look(9_751 * MS, |_| 0, 0, 2, PLAIN);
        assert_eq!(first.missing, 32, "the first ones, a quarter of a second ahead");
        // 200 cost 20 ms, and 25 ms are kept beyond that.
        let all = burst.look(10_000 * MS - 40 * MS, |_| 10, 22, 2, PLAIN);
        assert_eq!(all.missing, 168, "what stands and what is being made counts");
    }

    #[test]
    fn nothing_is_made_for_what_the_standing_connections_can_carry() {
        let even = forecast((1..=500).map(|n| n * 10 * MS));
        let outlook = even.look(0, |_| 40, 0, 2, PLAIN);
        assert_eq!(outlook.missing, 0);
        assert!(outlook.next_ns > 0, "it is not looked at again at once");
    }

    #[test]
    fn connections_that_will_have_aged_by_then_do_not_count() {
        let one = forecast([200 * MS]);
        let good_at = |at: i64| usize::from(at < 150 * MS);
        assert_eq!(one.look(0, good_at, 0, 0, PLAIN).missing, 1);
    }

    #[test]
    fn spares_stand_by_only_while_something_comes() {
        assert_eq!(forecast([]).look(0, |_| 0, 0, 8, PLAIN), Outlook { missing: 0, next_ns: i64::MAX });
        assert_eq!(forecast([100 * MS]).look(0, |_| 0, 0, 8, PLAIN).missing, 9);
        assert_eq!(forecast([3_600_000 * MS]).look(0, |_| 0, 0, 8, PLAIN).missing, 0);
    }

    #[test]
    fn a_server_that_drops_unused_connections_early_gets_them_late() {
        let short = Cost { good_for_ns: 100 * MS, ..PLAIN };
        let one = forecast([1_000 * MS]);
        assert_eq!(one.look(924 * MS, |_| 0, 0, 0, short).missing, 0);
        assert_eq!(one.look(925 * MS, |_| 0, 0, 0, short).missing, 1);
    }

    #[test]
    fn retries_take_their_place_among_the_planned_and_what_has_passed_is_forgotten() {
        let mut forecast = forecast([10, 20, 40]);
        forecast.add(30);
        forecast.pass(20);
        assert_eq!(forecast.dues, [30, 40]);
    }
}
