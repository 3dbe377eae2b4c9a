//! Which rule hits which request: counting and chance, without socket or clock.

use std::rc::Rc;

use crate::config::{Attempts, FaultKind, FaultRule, MockConfig};
use crate::engine::chance::{Chance, Draw};

/// What a rule may ask of a request.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'a> {
    /// Since the mock began to serve, milliseconds.
    pub(crate) since_start_ms: u64,
    pub(crate) path: &'a str,
    /// What only a model request has.
    pub(crate) ask: Option<AskFacts<'a>>,
    pub(crate) retry: bool,
    pub(crate) header: &'a dyn Fn(&str) -> Option<&'a [u8]>,
}

/// What a rule may ask of a model request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AskFacts<'a> {
    pub(crate) model: &'a str,
    pub(crate) input_tokens: u32,
    pub(crate) stream: bool,
}

/// The rules and how often each has matched.
#[derive(Debug)]
pub(crate) struct FaultPlan {
    rules: Vec<Counted>,
    chance: Chance,
}

#[derive(Debug)]
struct Counted {
    rule: Rc<FaultRule>,
    matched: u64,
    fired: u32,
    /// Took effect; what was picked may still be prevented, by a refusal say.
    effects: u64,
}

impl FaultPlan {
    pub(crate) fn new(config: &MockConfig) -> Self {
        let count =
            |rule: &FaultRule| Counted { rule: Rc::new(rule.clone()), matched: 0, fired: 0, effects: 0 };
        Self { rules: config.fault.iter().map(count).collect(), chance: Chance::new(config.seed) }
    }

    /// The first rule that hits a request, if one does.
    pub(crate) fn pick(&mut self, facts: &Facts<'_>) -> Option<Rc<FaultRule>> {
        self.first(|rule| !rule.kind.is_of_connections() && matches(rule, facts))
    }

    /// The first rule that hits a connection, if one does.
    pub(crate) fn pick_connection(&mut self, since_start_ms: u64) -> Option<Rc<FaultRule>> {
        self.first(|rule| {
            rule.kind.is_of_connections() && rule.kind != FaultKind::Refuse && in_window(rule, since_start_ms)
        })
    }

    /// A rule took effect.
    pub(crate) fn count(&mut self, rule: &FaultRule) {
        if let Some(counted) = self.rules.iter_mut().find(|counted| counted.rule.name == rule.name) {
            counted.effects += 1;
        }
    }

    /// How often each rule took effect, in the file's order.
    pub(crate) fn effects(&self) -> Vec<(String, u64)> {
        self.rules.iter().map(|counted| (counted.rule.name.clone(), counted.effects)).collect()
    }

    fn first(&mut self, hits: impl Fn(&FaultRule) -> bool) -> Option<Rc<FaultRule>> {
        let chance = self.chance;
        let mut rules = self.rules.iter_mut().enumerate();
        rules.find_map(|(index, counted)| {
            let hit = hits(&counted.rule) && counted.is_turn(chance, index as u64);
            hit.then(|| Rc::clone(&counted.rule))
        })
    }
}

impl Counted {
    /// Whether a request that passes all other matchers is hit.
    fn is_turn(&mut self, chance: Chance, index: u64) -> bool {
        if self.rule.times.is_some_and(|most| self.fired >= most.get()) {
            return false;
        }
        self.matched += 1;
        let every = self.rule.every.is_none_or(|every| self.matched.is_multiple_of(u64::from(every.get())));
        let lucky = |probability| chance.happens(Draw::Fault, self.matched ^ (index << 48), probability);
        let hit = every && self.rule.probability.is_none_or(lucky);
        self.fired += u32::from(hit);
        hit
    }
}

fn in_window(rule: &FaultRule, since_start_ms: u64) -> bool {
    rule.from_ms.is_none_or(|from| since_start_ms >= from) && rule.to_ms.is_none_or(|to| since_start_ms < to)
}

fn matches(rule: &FaultRule, facts: &Facts<'_>) -> bool {
    let of_ask = match &facts.ask {
        Some(ask) => {
            rule.min_input_tokens.is_none_or(|least| ask.input_tokens >= least)
                && rule.max_input_tokens.is_none_or(|most| ask.input_tokens <= most)
                && rule.model.as_ref().is_none_or(|model| model == ask.model)
                && rule.stream.is_none_or(|stream| stream == ask.stream)
                && (ask.stream || !rule.needs_stream())
        }
        // Other routes only when they are named, and only by rules that ask nothing they do not have.
        None => {
            rule.path.is_some()
                && rule.min_input_tokens.is_none()
                && rule.max_input_tokens.is_none()
                && rule.model.is_none()
                && rule.stream != Some(true)
                && !rule.needs_stream()
        }
    };
    of_ask
        && in_window(rule, facts.since_start_ms)
        && rule.path.as_ref().is_none_or(|path| path == facts.path)
        && rule.attempts.is_none_or(|attempts| (attempts == Attempts::Retries) == facts.retry)
        && rule.header.as_ref().is_none_or(|wanted| {
            (facts.header)(&wanted.name)
                .is_some_and(|value| wanted.value.as_ref().is_none_or(|text| text.as_bytes() == value))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::HeaderMatch;

    const CHAT: &str = "/v1/chat/completions";

    fn plan(rules: Vec<FaultRule>) -> FaultPlan {
        FaultPlan::new(&MockConfig { fault: rules, ..MockConfig::default() })
    }

    fn rule(name: &str, change: impl FnOnce(&mut FaultRule)) -> FaultRule {
        let mut rule = FaultRule::new(name, FaultKind::Reset);
        change(&mut rule);
        rule
    }

    fn facts() -> Facts<'static> {
        let ask = AskFacts { model: "m", input_tokens: 100, stream: true };
        Facts { since_start_ms: 50, path: CHAT, ask: Some(ask), retry: false, header: &|_| None }
    }

    /// Names of the rules that hit so many equal requests.
    fn hits(plan: &mut FaultPlan, requests: u32) -> Vec<String> {
        (0..requests).map(|_| plan.pick(&facts()).map_or("-".to_owned(), |rule| rule.name.clone())).collect()
    }

    #[test]
    fn the_first_matching_rule_fires_and_later_ones_count_what_it_left() {
        let every = |n: u32| move |rule: &mut FaultRule| rule.every = std::num::NonZeroU32::new(n);
        let mut plan = plan(vec![rule("third", every(3)), rule("second", every(2))]);
        // Of the requests 1 2 4 5 7 8 that the first rule leaves, the second one takes every other.
        assert_eq!(
            hits(&mut plan, 9),
            ["-", "second", "third", "-", "second", "third", "-", "second", "third"]
        );
    }

    #[test]
    fn a_rule_fires_at_most_so_often() {
        let mut plan = plan(vec![rule("once", |rule| rule.times = std::num::NonZeroU32::new(1))]);
        assert_eq!(hits(&mut plan, 3), ["once", "-", "-"]);
    }

    #[test]
    fn chance_follows_the_seed() {
        let of = |seed: u64| {
            let fault = vec![rule("often", |rule| rule.probability = Some(0.3))];
            hits(&mut FaultPlan::new(&MockConfig { seed, fault, ..MockConfig::default() }), 1000)
        };
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        let count = of(1).iter().filter(|name| *name == "often").count();
        assert!((250..350).contains(&count), "{count}");
    }

    #[test]
    fn every_matcher_can_say_no() {
        let hit = |change: fn(&mut FaultRule)| plan(vec![rule("r", change)]).pick(&facts()).is_some();
        assert!(hit(|_| {}));
        assert!(hit(|r| r.from_ms = Some(50)) && !hit(|r| r.from_ms = Some(51)));
        assert!(hit(|r| r.to_ms = Some(51)) && !hit(|r| r.to_ms = Some(50)));
        assert!(hit(|r| r.min_input_tokens = Some(100)) && !hit(|r| r.min_input_tokens = Some(101)));
        assert!(hit(|r| r.max_input_tokens = Some(100)) && !hit(|r| r.max_input_tokens = Some(99)));
        assert!(hit(|r| r.path = Some(CHAT.into())) && !hit(|r| r.path = Some("/v1/completions".into())));
        assert!(hit(|r| r.model = Some("m".into())) && !hit(|r| r.model = Some("n".into())));
        assert!(hit(|r| r.stream = Some(true)) && !hit(|r| r.stream = Some(false)));
        assert!(
            hit(|r| r.attempts = Some(Attempts::First)) && !hit(|r| r.attempts = Some(Attempts::Retries))
        );
        assert!(!hit(|r| r.header = Some(HeaderMatch { name: "x-tenant".into(), value: None })));
    }

    #[test]
    fn a_header_is_matched_by_name_or_by_value() {
        let hit = |value: Option<&str>| {
            let header = Some(HeaderMatch { name: "x-tenant".into(), value: value.map(str::to_owned) });
            let mut plan = plan(vec![rule("r", |rule| rule.header = header)]);
            let facts =
                Facts { header: &|name| (name == "x-tenant").then_some(b"acme".as_slice()), ..facts() };
            plan.pick(&facts).is_some()
        };
        assert!(hit(None) && hit(Some("acme")) && !hit(Some("other")));
    }

    #[test]
    fn other_routes_are_hit_only_when_named_and_whole_answers_only_by_what_they_can_have() {
        let health = Facts { path: "/health", ask: None, ..facts() };
        assert!(plan(vec![rule("r", |_| {})]).pick(&health).is_none());
        assert!(plan(vec![rule("r", |r| r.path = Some("/health".into()))]).pick(&health).is_some());
        let ask = AskFacts { model: "m", input_tokens: 1, stream: false };
        let whole = Facts { ask: Some(ask), ..facts() };
        assert!(plan(vec![rule("r", |r| r.after_chunks = Some(1))]).pick(&whole).is_none());
        assert!(plan(vec![FaultRule::new("r", FaultKind::NoDone)]).pick(&whole).is_none());
        assert!(plan(vec![rule("r", |r| r.after_bytes = Some(1))]).pick(&whole).is_some());
    }

    #[test]
    fn connections_have_rules_of_their_own() {
        let mut plan = plan(vec![rule("r", |_| {}), FaultRule::new("a", FaultKind::AcceptReset)]);
        assert_eq!(plan.pick_connection(0).unwrap().name, "a");
        assert_eq!(plan.pick(&facts()).unwrap().name, "r");
        plan.count(&FaultRule::new("a", FaultKind::AcceptReset));
        assert_eq!(plan.effects(), [("r".into(), 0), ("a".into(), 1)]);
    }
}
