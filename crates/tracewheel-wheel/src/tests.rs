//! The wheel against a sorted list (design invariant 5), and its own invariants after every step.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// The sorted list: what the wheel must equal.
#[derive(Default)]
struct Sorted {
    entries: BTreeMap<(i64, u64), u64>,
}

impl Sorted {
    fn next_deadline(&self) -> Option<i64> {
        self.entries.keys().next().map(|&(deadline_ns, _)| deadline_ns)
    }

    fn pop_due(&mut self, now_ns: i64) -> Option<(i64, u64)> {
        let (&(deadline_ns, _), _) = self.entries.first_key_value()?;
        if deadline_ns > now_ns {
            return None;
        }
        self.entries.pop_first().map(|((deadline_ns, _), value)| (deadline_ns, value))
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Insert at this distance from the latest `now`.
    InsertFromNow(i64),
    InsertAt(i64),
    /// As the latest insertion's deadline, plus a little: ties and shared ticks.
    InsertLike(i64),
    /// Cancel the entry inserted so many insertions ago, whether it is still there or not.
    Cancel(usize),
    AskNext,
    /// Move `now` and pop up to so many.
    Advance(i64, usize),
    JumpTo(i64),
}

fn distance() -> impl Strategy<Value = i64> {
    prop_oneof![
        -100_000i64..100_000,
        0i64..5_000_000,
        0i64..10_000_000_000,
        -10_000_000_000i64..1_000_000_000_000_000,
        (0u32..62, -2i64..3).prop_map(|(bits, near)| (1i64 << bits) + near),
    ]
}

fn deadline() -> impl Strategy<Value = i64> {
    prop_oneof![
        any::<i64>(),
        (0i64..70_000).prop_map(|near| i64::MAX - near),
        (0i64..70_000).prop_map(|near| i64::MIN + near),
        -70_000i64..70_000,
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => distance().prop_map(Step::InsertFromNow),
        2 => deadline().prop_map(Step::InsertAt),
        4 => (-40_000i64..40_000).prop_map(Step::InsertLike),
        2 => Just(Step::InsertLike(0)),
        4 => (0usize..40).prop_map(Step::Cancel),
        3 => Just(Step::AskNext),
        6 => (distance(), 0usize..50).prop_map(|(ns, most)| Step::Advance(ns, most)),
        1 => deadline().prop_map(Step::JumpTo),
    ]
}

/// A wheel and a sorted list that are told the same.
struct Both {
    wheel: Wheel<u64>,
    sorted: Sorted,
    keys: Vec<(Key, i64)>,
    now_ns: i64,
}

impl Both {
    fn new(start_ns: i64) -> Self {
        Self { wheel: Wheel::new(start_ns), sorted: Sorted::default(), keys: Vec::new(), now_ns: start_ns }
    }

    fn insert(&mut self, deadline_ns: i64) {
        let value = self.keys.len() as u64;
        let key = self.wheel.insert(deadline_ns, value);
        assert_eq!(self.wheel.get(key), Some(&value));
        self.sorted.entries.insert((deadline_ns, value), value);
        self.keys.push((key, deadline_ns));
    }

    fn cancel(&mut self, ago: usize) {
        let Some(nth) = self.keys.len().checked_sub(ago + 1) else { return };
        let (key, deadline_ns) = self.keys[nth];
        let expected = self.sorted.entries.remove(&(deadline_ns, nth as u64));
        assert_eq!(self.wheel.get(key).copied(), expected);
        assert_eq!(self.wheel.cancel(key), expected);
        assert_eq!(self.wheel.cancel(key), None, "a key dies with its entry");
    }

    fn pop(&mut self, most: usize) {
        for _ in 0..most {
            let popped = self.wheel.pop_due(self.now_ns);
            assert_eq!(popped, self.sorted.pop_due(self.now_ns));
            if popped.is_none() {
                break;
            }
        }
    }

    fn ask_next(&mut self) {
        assert_eq!(self.wheel.next_deadline(), self.sorted.next_deadline());
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::InsertFromNow(ns) => self.insert(self.now_ns.saturating_add(ns)),
            Step::InsertAt(deadline_ns) => self.insert(deadline_ns),
            Step::InsertLike(ns) => {
                let like_ns = self.keys.last().map_or(self.now_ns, |&(_, deadline_ns)| deadline_ns);
                self.insert(like_ns.saturating_add(ns));
            }
            Step::Cancel(ago) => self.cancel(ago),
            Step::AskNext => self.ask_next(),
            Step::Advance(ns, most) => {
                self.now_ns = self.now_ns.saturating_add(ns);
                self.pop(most);
            }
            Step::JumpTo(now_ns) => {
                self.now_ns = now_ns;
                self.pop(3);
            }
        }
        assert_eq!(self.wheel.len(), self.sorted.entries.len());
        assert_eq!(self.wheel.is_empty(), self.sorted.entries.is_empty());
        check(&self.wheel);
    }

    fn drain(&mut self) {
        self.now_ns = i64::MAX;
        self.ask_next();
        self.pop(usize::MAX);
        assert!(self.wheel.is_empty());
        assert_eq!(self.wheel.next_deadline(), None);
        assert_eq!(self.wheel.pop_due(i64::MAX), None);
        check(&self.wheel);
    }
}

/// What the crate's page claims about where entries lie.
fn check(wheel: &Wheel<u64>) {
    let mut entries = 0;
    for (position, spot) in wheel.front.entries().iter().enumerate() {
        assert!(tick_of(spot.deadline_ns) <= wheel.hand, "the front is not beyond the hand");
        let place = wheel.slab.place_at(spot.index);
        assert_eq!((place.home, place.position as usize), (Home::Front, position));
        entries += 1;
    }
    for (slot, occupied, spots) in wheel.levels.all() {
        assert_eq!(occupied, !spots.is_empty());
        for (position, spot) in spots.iter().enumerate() {
            let tick = tick_of(spot.deadline_ns);
            assert!(tick > wheel.hand, "a slot's entries are beyond the hand");
            assert_eq!(levels::Slot::of(wheel.hand, tick), slot, "an entry lies where the hand says");
            assert!(slot.first_tick(wheel.hand) <= tick && slot.first_tick(wheel.hand) > wheel.hand);
            let place = wheel.slab.place_at(spot.index);
            assert_eq!((place.home, place.position as usize), (Home::Slot(slot), position));
            entries += 1;
        }
    }
    assert_eq!(entries, wheel.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 400 } else { 4_000 }))]

    #[test]
    fn it_equals_a_sorted_list_for_any_sequence_of_steps(
        start_ns in deadline(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut both = Both::new(start_ns);
        for step in &steps {
            both.take(step);
        }
        both.drain();
    }

    #[test]
    fn it_equals_a_sorted_list_when_slots_are_crowded(
        spread_ns in prop_oneof![Just(1i64), 1i64..100_000, 1i64..100_000_000, 1i64..1_000_000_000_000],
        parts in prop::collection::vec(0.0f64..1.0, 100..400),
        cancels in prop::collection::vec(0usize..400, 0..200),
    ) {
        let mut both = Both::new(0);
        for part in &parts {
            both.insert((spread_ns as f64 * part) as i64 + 1_000_000);
        }
        for ago in cancels {
            both.cancel(ago);
            both.ask_next();
        }
        check(&both.wheel);
        for tenth in 0..=10 {
            both.now_ns = 1_000_000 + spread_ns / 10 * tenth;
            both.pop(usize::MAX);
            both.ask_next();
            both.insert(both.now_ns + spread_ns / 3);
            check(&both.wheel);
        }
        both.drain();
    }
}

#[test]
fn ticks_keep_the_order_of_deadlines_at_the_ends_and_around_zero() {
    let deadlines =
        [i64::MIN, i64::MIN + 32_768, -32_768, -1, 0, 32_767, 32_768, i64::MAX - 32_768, i64::MAX];
    assert!(deadlines.windows(2).all(|pair| tick_of(pair[0]) <= tick_of(pair[1])));
    assert_eq!(tick_of(i64::MIN), 0);
    assert_eq!(tick_of(i64::MAX), (1 << 49) - 1);
    assert_eq!(tick_of(0), tick_of(32_767));
    assert_eq!(tick_of(0), tick_of(-1) + 1);
}

#[test]
fn equal_deadlines_leave_in_the_order_of_insertion() {
    let mut wheel = Wheel::new(0);
    for n in 0..1_000 {
        wheel.insert(1_000_000_000, n);
    }
    let order: Vec<i32> = std::iter::from_fn(|| wheel.pop_due(1_000_000_000)).map(|(_, n)| n).collect();
    assert_eq!(order, (0..1_000).collect::<Vec<_>>());
}

#[test]
fn deadlines_of_one_tick_leave_in_the_order_of_their_nanoseconds() {
    let mut wheel = Wheel::new(0);
    for n in (0..1_000i64).rev() {
        wheel.insert(10_000_000 + n, n);
    }
    assert_eq!(wheel.pop_due(9_999_999), None);
    for n in 0..1_000 {
        assert_eq!(wheel.next_deadline(), Some(10_000_000 + n));
        assert_eq!(wheel.pop_due(10_000_000 + n), Some((10_000_000 + n, n)));
        assert_eq!(wheel.pop_due(10_000_000 + n), None, "nothing a nanosecond early");
    }
}

#[test]
fn past_deadlines_are_due_at_once_and_still_in_order() {
    let mut wheel = Wheel::new(1_000_000_000);
    wheel.insert(999, "second");
    wheel.insert(-5, "first");
    wheel.insert(1_000_000_000, "third");
    assert_eq!(wheel.next_deadline(), Some(-5));
    let order: Vec<_> = std::iter::from_fn(|| wheel.pop_due(1_000_000_000)).map(|(_, name)| name).collect();
    assert_eq!(order, ["first", "second", "third"]);
}

#[test]
fn the_ends_of_the_scale_are_deadlines_like_any_other() {
    for start_ns in [i64::MIN, -1, 0, i64::MAX] {
        let mut both = Both::new(start_ns);
        for deadline_ns in [i64::MAX, i64::MIN, 0, i64::MAX, i64::MIN, -1, i64::MAX - 1, i64::MIN + 1] {
            both.insert(deadline_ns);
            both.ask_next();
            check(&both.wheel);
        }
        both.drain();
    }
}

#[test]
fn a_huge_jump_pops_everything_between_in_order() {
    let mut wheel = Wheel::new(0);
    for bits in (0..62).rev() {
        wheel.insert(1i64 << bits, bits);
    }
    let order: Vec<i32> = std::iter::from_fn(|| wheel.pop_due(i64::MAX)).map(|(_, bits)| bits).collect();
    assert_eq!(order, (0..62).collect::<Vec<_>>());
}

#[test]
fn asking_for_a_far_deadline_does_not_disturb_an_earlier_insertion() {
    let mut both = Both::new(0);
    for n in 0..1_000 {
        both.insert(3_600_000_000_000 + n % 7);
    }
    both.ask_next();
    both.insert(5);
    both.insert(1_000_000);
    both.ask_next();
    both.now_ns = 1_000_000;
    both.pop(usize::MAX);
    assert_eq!(both.wheel.len(), 1_000);
    both.drain();
}

#[test]
fn a_key_never_names_the_entry_that_took_its_place() {
    let mut wheel = Wheel::new(0);
    let first = wheel.insert(10, 'a');
    assert_eq!(wheel.cancel(first), Some('a'));
    let second = wheel.insert(10, 'b');
    assert_ne!(first, second);
    assert_eq!(wheel.get(first), None);
    assert_eq!(wheel.cancel(first), None);
    assert_eq!(wheel.pop_due(10), Some((10, 'b')));
    assert_eq!(wheel.cancel(second), None);
}

#[test]
fn a_steady_stream_uses_its_places_again() {
    let mut wheel = Wheel::new(0);
    for n in 0..100_000i64 {
        let timeout = wheel.insert(n * 1_000 + 30_000_000_000, n);
        wheel.insert(n * 1_000 + 5_000_000, n);
        while wheel.pop_due(n * 1_000).is_some() {}
        assert!(wheel.cancel(timeout).is_some());
    }
    assert!(wheel.slab.len() <= 5_001);
    assert!(wheel.slab.places() <= 5_003);
}
