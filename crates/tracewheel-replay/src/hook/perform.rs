//! A hook from its first call to its word in the manifest.

use std::path::PathBuf;
use std::sync::Arc;

use http::Uri;
use serde_json::json;
use tracewheel_clock::{Clock, RunClock, blocking};
use tracewheel_protocol::Engine;
use tracewheel_record::manifest::HookSection;
use tracewheel_record::redact::redact_text;

use super::answer::{self, Answer, Verdict};
use super::call::{NoAnswer, Prepared, Way, prepare};
use super::{CallHeaders, CommandCall, Expect, Flush, FlushEngine, Hook, HookAction, HttpCall, command};
use crate::config::Secret;

/// Time between two tries at a busy target.
const RETRY_NS: i64 = 500_000_000;
/// Time between two looks at the stop signal.
const LOOK_NS: i64 = 20_000_000;
/// Characters of an answer that are kept.
const ANSWER_CHARS: usize = 500;
/// LMCache's tier in the engine's own memory.
const LMCACHE_LOCATION: &str = "LocalCPUBackend";

/// A target of the replay, as hooks see it.
#[derive(Debug, Clone)]
pub(crate) struct HookTarget {
    /// Its base URL.
    pub(crate) url: String,
    /// The header of its key.
    pub(crate) key: Option<(String, Secret)>,
    /// Certificates that are trusted instead of the system's.
    pub(crate) ca_file: Option<PathBuf>,
    /// Name that it has a certificate for.
    pub(crate) tls_name: Option<String>,
    /// Who answers there, as far as the routes to it say.
    pub(crate) engines: Vec<Engine>,
}

/// What a hook acts upon.
pub(crate) struct Stage<'a> {
    pub(crate) clock: Arc<RunClock>,
    /// The replay's targets, one at least.
    pub(crate) targets: Vec<HookTarget>,
    /// Whether the run is being ended.
    pub(crate) stopped: &'a (dyn Fn() -> bool + Sync),
}

impl Stage<'_> {
    /// How a call with an address of its own is made: as to the replay's target at that address, else with the
    /// certificates of the only target.
    fn way_to(&self, url: &str) -> Way {
        let address = |url: &str| url.parse::<Uri>().ok().and_then(|uri| uri.authority().cloned());
        let at = address(url);
        let same = self.targets.iter().find(|target| at.is_some() && address(&target.url) == at);
        let only = self.targets.first().filter(|_| self.targets.len() == 1);
        let ca_file = same.or(only).and_then(|target| target.ca_file.clone());
        Way { clock: Arc::clone(&self.clock), ca_file, tls_name: None }
    }

    fn way_of(&self, target: &HookTarget) -> Way {
        Way {
            clock: Arc::clone(&self.clock),
            ca_file: target.ca_file.clone(),
            tls_name: target.tls_name.clone(),
        }
    }
}

/// Which targets a flush without an address acts upon: the only one; of several those whose routes name the engine, and
/// all where no route names any.
pub(crate) fn targets_of(engine: FlushEngine, targets: &[HookTarget]) -> impl Iterator<Item = &HookTarget> {
    let own = match engine {
        FlushEngine::Vllm => Some(Engine::Vllm),
        FlushEngine::Sglang => Some(Engine::Sglang),
        FlushEngine::Llamacpp => Some(Engine::LlamaCpp),
        FlushEngine::Lmcache => None,
    };
    let any = targets.len() == 1 || targets.iter().all(|target| target.engines.is_empty());
    targets.iter().filter(move |target| any || own.is_some_and(|own| target.engines.contains(&own)))
}

/// Does what a hook says, again while its target is busy, within its limits.
pub(crate) fn perform(hook: &Hook, stage: &Stage<'_>) -> HookSection {
    let started_ns = stage.clock.now().0;
    let mut trial = Trial {
        hook,
        stage,
        emptied: 0,
        unproven: None,
        until_ns: started_ns.saturating_add(hook.wait_ns),
        section: HookSection {
            at: hook.at.to_string(),
            name: hook.name.clone(),
            started_ns,
            ..HookSection::default()
        },
    };
    let outcome = loop {
        trial.section.tries += 1;
        match trial.once() {
            Ok(Verdict::Busy(why)) => {
                if trial.pause() {
                    continue;
                }
                if (stage.stopped)() {
                    break (Ended::Stopped, None);
                }
                break (Ended::Failed, Some(format!("{why}, for as long as the hook may wait")));
            }
            Ok(Verdict::Done) => break (Ended::Done, None),
            Ok(Verdict::Unproven(why)) => break (Ended::Unproven, Some(why)),
            Ok(Verdict::Failed(why)) | Err(NoAnswer::Senseless(why) | NoAnswer::Failed(why)) => {
                break (Ended::Failed, Some(why));
            }
            Err(NoAnswer::Stopped) => break (Ended::Stopped, None),
        }
    };
    let mut section = trial.section;
    section.outcome = outcome.0.as_str().to_owned();
    section.why = outcome.1;
    section.took_ns = stage.clock.now().0 - started_ns;
    section
}

#[derive(Clone, Copy)]
enum Ended {
    Done,
    Unproven,
    Failed,
    Stopped,
}

impl Ended {
    fn as_str(self) -> &'static str {
        match self {
            Ended::Done => "done",
            Ended::Unproven => "unproven",
            Ended::Failed => "failed",
            Ended::Stopped => "stopped",
        }
    }
}

/// A hook under way.
struct Trial<'a> {
    hook: &'a Hook,
    stage: &'a Stage<'a>,
    /// How many targets were emptied.
    emptied: usize,
    /// Why it is not certain that one of them was.
    unproven: Option<String>,
    until_ns: i64,
    section: HookSection,
}

impl Trial<'_> {
    fn once(&mut self) -> Result<Verdict, NoAnswer> {
        match &self.hook.action {
            HookAction::Http(call) => {
                let answer = self.call(call, None)?;
                Ok(answer::own(&answer, &call.expect))
            }
            HookAction::Command(command) => self.command(command),
            HookAction::Flush(flush) => self.flush(flush),
        }
    }

    /// Waits before another try; false where there is no time for one, or the run is being ended.
    fn pause(&self) -> bool {
        let clock = &self.stage.clock;
        let next_ns = clock.now().0 + RETRY_NS;
        if next_ns >= self.until_ns {
            return false;
        }
        while clock.now().0 < next_ns {
            if (self.stage.stopped)() {
                return false;
            }
            blocking::sleep(LOOK_NS);
        }
        true
    }

    fn limit_ns(&self) -> i64 {
        self.until_ns.min(self.stage.clock.now().0.saturating_add(self.hook.timeout_ns))
    }

    fn command(&mut self, call: &CommandCall) -> Result<Verdict, NoAnswer> {
        // Arguments may hold anything: only the program is told.
        self.note_called(call.argv.first().cloned().unwrap_or_default());
        let ended = command::run(&call.argv, &self.stage.clock, self.limit_ns(), self.stage.stopped)?;
        self.note_answer(ended.code, &ended.output);
        if ended.code != 0 {
            return Ok(Verdict::Failed(match ended.code {
                signal if signal < 0 => format!("signal {} ended it", -signal),
                code => format!("it ended with {code}"),
            }));
        }
        Ok(answer::said(&Answer { status: 0, body: ended.output }, &call.expect))
    }

    /// Empties one target after the other; after a try in vain those that are left.
    fn flush(&mut self, flush: &Flush) -> Result<Verdict, NoAnswer> {
        if flush.url.is_some() {
            return self.flush_at(flush, None);
        }
        let stage = self.stage;
        for target in targets_of(flush.engine, &stage.targets).skip(self.emptied) {
            match self.flush_at(flush, Some(target))? {
                Verdict::Done => {}
                // The others are emptied all the same.
                Verdict::Unproven(why) => self.unproven = Some(why),
                other => return Ok(other),
            }
            self.emptied += 1;
        }
        Ok(self.unproven.take().map_or(Verdict::Done, Verdict::Unproven))
    }

    fn flush_at(&mut self, flush: &Flush, at: Option<&HookTarget>) -> Result<Verdict, NoAnswer> {
        match flush.engine {
            FlushEngine::Vllm => {
                let answer = self.engine((flush, at), "POST", "/reset_prefix_cache", None)?;
                Ok(answer::vllm(&answer))
            }
            FlushEngine::Sglang => {
                let answer = self.engine((flush, at), "POST", "/flush_cache", None)?;
                Ok(answer::sglang(&answer))
            }
            FlushEngine::Lmcache => self.lmcache(flush, at),
            FlushEngine::Llamacpp => self.llamacpp(flush, at),
        }
    }

    /// Every tier, even where one is still busy: the work of all goes on meanwhile.
    fn lmcache(&mut self, flush: &Flush, at: Option<&HookTarget>) -> Result<Verdict, NoAnswer> {
        let default = [LMCACHE_LOCATION.to_owned()];
        let locations = if flush.locations.is_empty() { &default[..] } else { &flush.locations };
        let mut verdict = Verdict::Done;
        for location in locations {
            let body = json!({ "instance_id": flush.instance, "location": location }).to_string();
            let answer = self.engine((flush, at), "POST", "/clear", Some(body))?;
            match answer::lmcache(&answer) {
                Verdict::Done => {}
                Verdict::Busy(why) => verdict = Verdict::Busy(format!("{location}: {why}")),
                other => return Ok(other),
            }
        }
        Ok(verdict)
    }

    fn llamacpp(&mut self, flush: &Flush, at: Option<&HookTarget>) -> Result<Verdict, NoAnswer> {
        let answer = self.engine((flush, at), "GET", "/slots", None)?;
        let slots = match answer::llamacpp_slots(&answer) {
            Ok(slots) => slots,
            Err(verdict) => return Ok(verdict),
        };
        for slot in slots {
            let answer = self.engine((flush, at), "POST", &format!("/slots/{slot}?action=erase"), None)?;
            match answer::llamacpp_erased(&answer) {
                Verdict::Done => {}
                other => return Ok(other),
            }
        }
        Ok(Verdict::Done)
    }

    /// A call of an engine: at its own address, or at the target with the target's key.
    fn engine(
        &mut self,
        (flush, at): (&Flush, Option<&HookTarget>),
        method: &str,
        path: &str,
        body: Option<String>,
    ) -> Result<Answer, NoAnswer> {
        let base = flush.url.as_deref().or(at.map(|target| target.url.as_str())).unwrap_or_default();
        let mut headers = flush.headers.clone();
        if body.is_some() {
            headers.plain.push(("content-type".to_owned(), "application/json".to_owned()));
        }
        headers.secret.extend(at.and_then(|target| target.key.clone()));
        let url = format!("{}{path}", root(base));
        let call = HttpCall { method: method.to_owned(), url, headers, body, expect: Expect::default() };
        self.call(&call, at)
    }

    fn call(&mut self, call: &HttpCall, to: Option<&HookTarget>) -> Result<Answer, NoAnswer> {
        let prepared: Prepared = prepare(call, to.is_some()).map_err(NoAnswer::Senseless)?;
        let way = to.map_or_else(|| self.stage.way_to(&call.url), |target| self.stage.way_of(target));
        self.note_called(prepared.told());
        let answer = prepared.make(&way, self.limit_ns(), self.stage.stopped)?;
        self.note_answer(i32::from(answer.status), &answer.body);
        Ok(answer)
    }

    fn note_called(&mut self, told: String) {
        if !self.section.called.contains(&told) {
            self.section.called.push(told);
        }
    }

    fn note_answer(&mut self, status: i32, body: &str) {
        self.section.status = Some(status);
        let text = redact_text(body.trim());
        self.section.answer = (!text.is_empty()).then(|| text.chars().take(ANSWER_CHARS).collect());
    }
}

/// A base URL without the slash and the `/v1` at its end: engines have these calls at their root.
pub(crate) fn root(url: &str) -> &str {
    let url = url.trim().trim_end_matches('/');
    url.strip_suffix("/v1").unwrap_or(url)
}

/// A call to check the address of a flush with.
pub(crate) fn probe(url: &str, headers: &CallHeaders) -> HttpCall {
    HttpCall {
        method: "POST".to_owned(),
        url: format!("{}/", root(url)),
        headers: headers.clone(),
        body: None,
        expect: Expect::default(),
    }
}
