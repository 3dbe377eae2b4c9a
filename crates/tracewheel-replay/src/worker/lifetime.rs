//! How long the target keeps a connection, learned from what it does and says: a pure data structure.
//!
//! Two limits are common. A server closes a connection that was **idle** for so long, without a word; a request that is
//! written while that close is on its way is lost, and nobody can know whether the server saw it. And it closes a
//! connection with its *n*-th **answer**, which it mostly announces.
//!
//! Of the idle limit two things are known at any time. *Proof*: some connection was seen standing at an age, so the
//! limit lies above it. *Closes*: some connection was closed at an age, so the limit lies there. Until a close was seen
//! (or announced) a connection is trusted only up to an age that another one has outlived; afterwards up to the limit
//! less a margin. Connections that have carried nothing yet are learned apart: many servers count from the first answer.
//!
//! A single close may have had another reason (a restart, a proxy's reload). So a connection that is retired is kept
//! standing, unused, as a witness; where it outlives the limit, the limit was none and is forgotten.

use tracewheel_record::manifest::AnswersLimitFrom;

/// Up to this age nobody needs a proof: no server in use closes sooner.
const TRUSTED_NS: i64 = 1_000_000_000;
/// A close so soon after an answer (or after connecting) says nothing about idleness.
const NOT_IDLE_NS: i64 = 100_000_000;
/// Least distance that is kept from an age at which a connection was closed, or last seen standing.
const MIN_MARGIN_NS: i64 = 100_000_000;
/// Largest distance.
const MAX_MARGIN_NS: i64 = 2_000_000_000;
/// A limit on idleness that a server announces, at most: a day.
const MAX_ANNOUNCED_S: i64 = 86_400;

/// Whether a connection has carried an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It has not: its age counts from when it stood.
    Unused,
    /// It has: its age counts from its last answer's end.
    Used,
}

impl Kind {
    pub(super) const ALL: [Kind; 2] = [Kind::Unused, Kind::Used];

    pub(super) fn of(exchanges: u32) -> Self {
        if exchanges == 0 { Kind::Unused } else { Kind::Used }
    }
}

/// What is known of the limit on idleness of one kind of connections.
#[derive(Debug, Clone, Copy, Default)]
struct IdleLimit {
    /// Smallest age at which the server closed one.
    closed_ns: Option<i64>,
    /// What it says itself.
    announced_ns: Option<i64>,
    /// Greatest age at which one was seen standing.
    stood_ns: i64,
}

impl IdleLimit {
    fn limit_ns(&self) -> Option<i64> {
        match (self.closed_ns, self.announced_ns) {
            (Some(closed), Some(announced)) => Some(closed.min(announced)),
            (closed, announced) => closed.or(announced),
        }
    }
}

/// The distance kept from `age_ns`: an eighth of it, within bounds, and never more than half.
fn margin_ns(age_ns: i64) -> i64 {
    (age_ns / 8).clamp(MIN_MARGIN_NS, MAX_MARGIN_NS).min(age_ns / 2)
}

/// What the target says in a good answer's head about its connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// The connection ends with this answer.
    pub(super) closes: bool,
    /// `timeout` of `Keep-Alive`, in seconds.
    pub(super) timeout_s: Option<i64>,
    /// `max` of `Keep-Alive`: answers that the connection has left.
    pub(super) answers_left: Option<u32>,
}

/// How many answers a connection carries.
#[derive(Debug, Clone, Copy, Default)]
struct AnswersLimit {
    /// Smallest number of answers with which a close was announced.
    announced: Option<u32>,
    /// A close without a word came right after so many answers: once, it may be chance.
    suspected: Option<u32>,
    /// It came twice after the same number.
    silent: Option<u32>,
}

/// All that was learned about how long the target keeps a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Lifetimes {
    unused: IdleLimit,
    used: IdleLimit,
    answers: AnswersLimit,
}

impl Lifetimes {
    fn idle(&self, kind: Kind) -> &IdleLimit {
        match kind {
            Kind::Unused => &self.unused,
            Kind::Used => &self.used,
        }
    }

    fn idle_mut(&mut self, kind: Kind) -> &mut IdleLimit {
        match kind {
            Kind::Unused => &mut self.unused,
            Kind::Used => &mut self.used,
        }
    }

    /// The age up to which a connection is known to be good.
    pub(super) fn good_for_ns(&self, kind: Kind) -> i64 {
        let idle = self.idle(kind);
        match idle.limit_ns() {
            Some(limit) => (limit - margin_ns(limit)).max(0),
            None => (idle.stood_ns - margin_ns(idle.stood_ns)).max(TRUSTED_NS),
        }
    }

    /// The age at which a connection is taken out of use, once the limit is known.
    pub(super) fn retire_after_ns(&self, kind: Kind) -> Option<i64> {
        self.idle(kind).limit_ns().map(|_| self.good_for_ns(kind))
    }

    /// The limit on idleness that was seen or announced.
    pub(super) fn idle_limit_ns(&self, kind: Kind) -> Option<i64> {
        self.idle(kind).limit_ns()
    }

    /// Number of answers after which the target ends a connection, and how that is known.
    pub(super) fn answers_limit(&self) -> Option<(u32, AnswersLimitFrom)> {
        let silent = self.answers.silent.map(|answers| (answers, AnswersLimitFrom::Seen));
        silent.or_else(|| self.answers.announced.map(|answers| (answers, AnswersLimitFrom::Announced)))
    }

    /// Whether a connection has carried as many answers as the target lets it, without saying so.
    pub(super) fn is_spent(&self, answers: u32) -> bool {
        self.answers.silent.is_some_and(|limit| answers >= limit)
    }

    /// A connection stands idle at this age. Where that is well beyond the limit that closes taught, they taught wrong.
    pub(super) fn stands(&mut self, kind: Kind, age_ns: i64) {
        let idle = self.idle_mut(kind);
        idle.stood_ns = idle.stood_ns.max(age_ns);
        if idle.closed_ns.is_some_and(|closed| age_ns > closed + margin_ns(closed)) {
            idle.closed_ns = None;
        }
    }

    /// The server closed an idle connection at this age, after so many answers.
    pub(super) fn closed(&mut self, age_ns: i64, answers: u32) {
        if age_ns < NOT_IDLE_NS {
            if answers > 0 {
                self.closed_behind_an_answer(answers);
            }
            return;
        }
        let idle = self.idle_mut(Kind::of(answers));
        let closed = idle.closed_ns.map_or(age_ns, |known| known.min(age_ns));
        (idle.closed_ns, idle.stood_ns) = (Some(closed), idle.stood_ns.min(closed));
    }

    fn closed_behind_an_answer(&mut self, answers: u32) {
        let limit = &mut self.answers;
        match limit.suspected {
            Some(suspected) if suspected == answers => limit.silent = Some(answers),
            _ => limit.suspected = Some(answers),
        }
    }

    /// A good answer came, the n-th of its connection, and its head said this.
    pub(super) fn answered(&mut self, answers: u32, said: Said) {
        let limit = &mut self.answers;
        if said.closes {
            limit.announced = Some(limit.announced.map_or(answers, |known| known.min(answers)));
        } else if let Some(left) = said.answers_left {
            limit.announced = Some(answers.saturating_add(left));
        } else if limit.announced.is_some_and(|known| answers >= known) {
            // It goes on: the announcement was about that one connection.
            limit.announced = None;
        }
        if let Some(seconds) = said.timeout_s {
            self.used.announced_ns = Some(seconds.clamp(0, MAX_ANNOUNCED_S) * 1_000_000_000);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: i64 = 1_000_000_000;

    #[test]
    fn nothing_is_trusted_beyond_what_another_connection_has_outlived() {
        let mut lifetimes = Lifetimes::default();
        assert_eq!(lifetimes.good_for_ns(Kind::Used), S);
        lifetimes.stands(Kind::Used, 8 * S);
        assert_eq!(lifetimes.good_for_ns(Kind::Used), 7 * S);
        assert_eq!(lifetimes.good_for_ns(Kind::Unused), S, "many servers count from the first answer");
        assert_eq!(lifetimes.retire_after_ns(Kind::Used), None, "what may be good is kept");
    }

    #[test]
    fn connections_are_retired_ahead_of_the_age_at_which_one_was_closed() {
        let mut lifetimes = Lifetimes::default();
        lifetimes.stands(Kind::Used, 4_900_000_000);
        lifetimes.closed(5 * S, 3);
        assert_eq!(lifetimes.idle_limit_ns(Kind::Used), Some(5 * S));
        assert_eq!(lifetimes.retire_after_ns(Kind::Used), Some(4_375_000_000));
        lifetimes.closed(5_100_000_000, 1);
        assert_eq!(lifetimes.idle_limit_ns(Kind::Used), Some(5 * S), "the smallest counts");
        assert_eq!(lifetimes.retire_after_ns(Kind::Unused), None);
        lifetimes.closed(2 * S, 0);
        assert_eq!(lifetimes.retire_after_ns(Kind::Unused), Some(1_750_000_000));
    }

    #[test]
    fn a_limit_that_a_connection_outlives_was_none() {
        let mut lifetimes = Lifetimes::default();
        lifetimes.closed(2 * S, 1);
        lifetimes.stands(Kind::Used, 2 * S + 200_000_000);
        assert!(lifetimes.retire_after_ns(Kind::Used).is_some(), "within the margin nothing is certain");
        lifetimes.stands(Kind::Used, 4 * S);
        assert_eq!(lifetimes.idle_limit_ns(Kind::Used), None);
        assert_eq!(lifetimes.good_for_ns(Kind::Used), 4 * S - S / 2);
    }

    #[test]
    fn an_announced_limit_holds_before_anything_was_closed() {
        let mut lifetimes = Lifetimes::default();
        let said = Said { timeout_s: Some(5), answers_left: Some(99), closes: false };
        lifetimes.answered(1, said);
        assert_eq!(lifetimes.retire_after_ns(Kind::Used), Some(4_375_000_000));
        assert_eq!(lifetimes.answers_limit(), Some((100, AnswersLimitFrom::Announced)));
        lifetimes.stands(Kind::Used, 60 * S);
        assert_eq!(lifetimes.idle_limit_ns(Kind::Used), Some(5 * S), "the server's word stays its word");
        lifetimes.answered(2, Said { timeout_s: Some(0), ..Said::default() });
        assert_eq!(lifetimes.good_for_ns(Kind::Used), 0, "such a connection is not used again");
    }

    #[test]
    fn the_answers_that_a_connection_carries_are_learned_from_announced_and_from_silent_closes() {
        let mut lifetimes = Lifetimes::default();
        lifetimes.answered(100, Said { closes: true, ..Said::default() });
        assert_eq!(lifetimes.answers_limit(), Some((100, AnswersLimitFrom::Announced)));
        assert!(!lifetimes.is_spent(100), "announced closes need no care");
        lifetimes.answered(101, Said::default());
        assert_eq!(lifetimes.answers_limit(), None, "another connection went on");
        lifetimes.closed(1_000_000, 7);
        assert!(!lifetimes.is_spent(7), "once may be chance");
        lifetimes.closed(1_000_000, 7);
        assert!(lifetimes.is_spent(7) && !lifetimes.is_spent(6));
        assert_eq!(lifetimes.answers_limit(), Some((7, AnswersLimitFrom::Seen)));
        assert_eq!(lifetimes.idle_limit_ns(Kind::Used), None, "a close behind an answer is no idle limit");
    }

    proptest! {
        /// Against a server with one idle limit, whatever is seen of it, a trusted connection is one that it keeps.
        #[test]
        fn what_is_trusted_lies_below_any_limit_of_the_server(
            limit in TRUSTED_NS + MIN_MARGIN_NS..100 * S,
            ages in prop::collection::vec(0_i64..120 * S, 0..50),
        ) {
            let mut lifetimes = Lifetimes::default();
            for age in ages {
                if age < limit {
                    lifetimes.stands(Kind::Used, age);
                } else {
                    // Seen late, but not later than the margin allows for.
                    lifetimes.closed(limit + age % (margin_ns(limit) / 2), 1);
                }
                prop_assert!(lifetimes.good_for_ns(Kind::Used) < limit);
            }
        }
    }
}
