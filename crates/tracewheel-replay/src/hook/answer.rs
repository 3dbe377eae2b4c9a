//! What an answer says: whether the work was done.

use serde_json::Value;

use super::Expect;

/// An answer, as far as it is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

/// What an answer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The work was done.
    Done,
    /// Nothing says that it was not, and nothing that it was.
    Unproven(String),
    /// Not now: worth another call.
    Busy(String),
    /// It was not, and asking again is in vain.
    Failed(String),
}

/// Statuses by which a server says that it cannot just now.
const NOT_NOW: [u16; 3] = [429, 502, 503];

impl Answer {
    fn json(&self) -> Option<Value> {
        serde_json::from_str(&self.body).ok()
    }

    fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// What a status that is none of success means, unless the caller knows better.
    fn refused(&self, remedy: &str) -> Verdict {
        let status = self.status;
        match status {
            _ if NOT_NOW.contains(&status) => Verdict::Busy(format!("it answered {status}")),
            404 | 405 | 501 => Verdict::Failed(format!("it answered {status}: {remedy}")),
            401 | 403 => Verdict::Failed(format!("it answered {status}: the hook needs a key that it takes")),
            _ => Verdict::Failed(format!("it answered {status}")),
        }
    }

    /// What `success` of a JSON answer says; `None` where there is none.
    fn success(&self) -> Option<bool> {
        self.json()?.get("success")?.as_bool()
    }
}

/// vLLM: `{"success": ...}`; an empty answer in older builds.
pub(super) fn vllm(answer: &Answer) -> Verdict {
    if !answer.is_success() {
        return answer.refused(
            "this vLLM has no /reset_prefix_cache: start it with VLLM_SERVER_DEV_MODE=1 and with prefix caching on",
        );
    }
    match answer.success() {
        Some(true) => Verdict::Done,
        Some(false) => {
            Verdict::Busy("it answered success: false, since requests still hold blocks".to_owned())
        }
        None => Verdict::Unproven(
            "its answer does not say whether the cache was emptied, as in older builds of vLLM".to_owned(),
        ),
    }
}

/// SGLang: 400 while requests run or wait; builds that answer 200 in any case say in the same breath that it may not have
/// been done.
pub(super) fn sglang(answer: &Answer) -> Verdict {
    match (answer.status, answer.success()) {
        (400, _) => Verdict::Busy("it answered 400, since requests run or wait".to_owned()),
        (status, _) if !(200..300).contains(&status) => {
            answer.refused("this SGLang has no /flush_cache: is it the engine itself, and not a router?")
        }
        (_, Some(true)) => Verdict::Done,
        (_, Some(false)) => Verdict::Busy("it answered success: false".to_owned()),
        _ if answer.body.contains("will not be performed") => Verdict::Unproven(
            "its answer is the same whether or not the cache was emptied, in builds that never answer 400"
                .to_owned(),
        ),
        _ if answer.body.to_lowercase().contains("flushed") => Verdict::Done,
        _ => Verdict::Unproven("its answer does not say that the cache was flushed".to_owned()),
    }
}

/// LMCache's controller: the work is scheduled, and done when a later call finds nothing to clear.
pub(super) fn lmcache(answer: &Answer) -> Verdict {
    if !answer.is_success() {
        return answer.refused("is this the address of LMCache's controller?");
    }
    let json = answer.json();
    if json.as_ref().is_some_and(|json| json.get("error").is_some_and(|error| !error.is_null())) {
        return Verdict::Failed("its answer holds an error".to_owned());
    }
    match json.as_ref().and_then(|json| json.get("num_tokens")).and_then(Value::as_u64) {
        Some(0) => Verdict::Done,
        Some(tokens) => {
            Verdict::Busy(format!("it found {tokens} tokens to clear and has only scheduled that"))
        }
        None => Verdict::Failed(
            "its answer has no num_tokens: another version of LMCache, or another server".to_owned(),
        ),
    }
}

/// llama.cpp: the ids of the slots, or why there are none.
pub(super) fn llamacpp_slots(answer: &Answer) -> Result<Vec<i64>, Verdict> {
    if !answer.is_success() {
        return Err(answer.refused("this llama.cpp does not tell its slots: start llama-server with --slots"));
    }
    let json = answer.json();
    let slots = json.as_ref().and_then(Value::as_array).filter(|slots| !slots.is_empty());
    let Some(slots) = slots else {
        return Err(Verdict::Failed("its answer lists no slots".to_owned()));
    };
    if slots.iter().any(|slot| slot.get("is_processing").and_then(Value::as_bool) == Some(true)) {
        return Err(Verdict::Busy("a slot is processing a request".to_owned()));
    }
    let ids: Option<Vec<i64>> = slots.iter().map(|slot| slot.get("id")?.as_i64()).collect();
    ids.ok_or_else(|| Verdict::Failed("a slot has no id".to_owned()))
}

/// llama.cpp: the answer to the erasing of one slot.
pub(super) fn llamacpp_erased(answer: &Answer) -> Verdict {
    if !answer.is_success() {
        return answer.refused("this llama.cpp erases no slots: start llama-server with --slot-save-path");
    }
    match answer.json().and_then(|json| json.get("n_erased")?.as_i64()) {
        Some(_) => Verdict::Done,
        None => Verdict::Failed("its answer has no n_erased".to_owned()),
    }
}

/// A call of one's own: statuses, then content. JSON that says `"success": false` is no success, whatever its status.
pub(super) fn own(answer: &Answer, expect: &Expect) -> Verdict {
    let status = answer.status;
    if expect.busy.contains(&status) {
        return Verdict::Busy(format!("it answered {status}"));
    }
    let taken = if expect.status.is_empty() { answer.is_success() } else { expect.status.contains(&status) };
    if !taken {
        return Verdict::Failed(format!("it answered {status}"));
    }
    said(answer, expect)
}

/// What the content says, whatever the status.
pub(super) fn said(answer: &Answer, expect: &Expect) -> Verdict {
    if let Some(text) = expect.contains.as_ref().filter(|text| !answer.body.contains(text.as_str())) {
        return Verdict::Failed(format!("its answer does not hold {text:?}"));
    }
    let json = answer.json();
    for (path, wanted) in &expect.json {
        let found = json.as_ref().and_then(|json| json.pointer(&format!("/{}", path.replace('.', "/"))));
        if found != Some(wanted) {
            let found = found.map_or("nothing".to_owned(), Value::to_string);
            return Verdict::Failed(format!("its answer holds {found} at {path}, not {wanted}"));
        }
    }
    if !expect.json.contains_key("success") && answer.success() == Some(false) {
        return Verdict::Failed("it answered success: false".to_owned());
    }
    Verdict::Done
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        Answer { status, body: body.to_owned() }
    }

    /// The verdict's name.
    fn name(verdict: &Verdict) -> &'static str {
        match verdict {
            Verdict::Done => "done",
            Verdict::Unproven(_) => "unproven",
            Verdict::Busy(_) => "busy",
            Verdict::Failed(_) => "failed",
        }
    }

    #[test]
    fn vllm_is_believed_only_when_it_says_success() {
        for (status, body, verdict) in [
            (200, r#"{"success":true}"#, "done"),
            (200, r#"{"success":false}"#, "busy"),
            (200, "", "unproven"),
            (200, "null", "unproven"),
            (404, r#"{"detail":"Not Found"}"#, "failed"),
            (503, "", "busy"),
            (500, "", "failed"),
        ] {
            assert_eq!(name(&vllm(&answer(status, body))), verdict, "{status} {body}");
        }
        assert!(format!("{:?}", vllm(&answer(404, ""))).contains("VLLM_SERVER_DEV_MODE=1"));
    }

    #[test]
    fn sglang_refuses_while_it_is_busy_and_its_older_builds_prove_nothing() {
        let hedged = "Cache flushed.\nPlease check backend logs for more details. \
                      (When there are running or waiting requests, the operation will not be performed.)\n";
        for (status, body, verdict) in [
            (200, "Cache flushed.\n", "done"),
            (200, r#"{"success":true,"message":"ok"}"#, "done"),
            (200, r#"{"success":false}"#, "busy"),
            (200, hedged, "unproven"),
            (200, "", "unproven"),
            (400, "", "busy"),
            (404, "", "failed"),
        ] {
            assert_eq!(name(&sglang(&answer(status, body))), verdict, "{status} {body}");
        }
    }

    #[test]
    fn lmcache_has_only_scheduled_what_it_found() {
        for (status, body, verdict) in [
            (200, r#"{"event_id":"e","num_tokens":0}"#, "done"),
            (200, r#"{"event_id":"e","num_tokens":12}"#, "busy"),
            (200, r#"{"event_id":"e"}"#, "failed"),
            (200, r#"{"error":"no such instance","num_tokens":0}"#, "failed"),
            (422, r#"{"detail":[]}"#, "failed"),
        ] {
            assert_eq!(name(&lmcache(&answer(status, body))), verdict, "{status} {body}");
        }
    }

    #[test]
    fn llamacpp_tells_its_slots_and_how_much_each_lost() {
        let slots = answer(200, r#"[{"id":0,"is_processing":false},{"id":1}]"#);
        assert_eq!(llamacpp_slots(&slots), Ok(vec![0, 1]));
        let busy = answer(200, r#"[{"id":0,"is_processing":true}]"#);
        assert_eq!(name(&llamacpp_slots(&busy).unwrap_err()), "busy");
        assert_eq!(name(&llamacpp_slots(&answer(200, "[]")).unwrap_err()), "failed");
        assert_eq!(name(&llamacpp_slots(&answer(501, "")).unwrap_err()), "failed");
        assert_eq!(llamacpp_erased(&answer(200, r#"{"id_slot":0,"n_erased":0}"#)), Verdict::Done);
        assert_eq!(name(&llamacpp_erased(&answer(200, "{}"))), "failed");
    }

    #[test]
    fn a_call_of_ones_own_is_judged_by_what_was_expected_and_never_by_a_status_alone() {
        let expect = Expect {
            status: vec![202],
            busy: vec![409],
            contains: Some("cleared".to_owned()),
            json: [("result.cleared".to_owned(), Value::Bool(true))].into(),
        };
        for (status, body, verdict) in [
            (202, r#"{"result":{"cleared":true}}"#, "done"),
            (202, r#"{"result":{"cleared":false}}"#, "failed"),
            (202, "nothing", "failed"),
            (200, r#"{"result":{"cleared":true}}"#, "failed"),
            (409, "", "busy"),
        ] {
            assert_eq!(name(&own(&answer(status, body), &expect)), verdict, "{status} {body}");
        }
        let any = Expect::default();
        assert_eq!(own(&answer(204, ""), &any), Verdict::Done);
        assert_eq!(name(&own(&answer(200, r#"{"success":false}"#), &any)), "failed");
        assert_eq!(name(&own(&answer(301, ""), &any)), "failed");
    }

    proptest::proptest! {
        #[test]
        fn any_answer_gets_a_verdict(status in 100..600_u16, body in ".{0,40}") {
            let answer = answer(status, &body);
            let verdicts = [vllm(&answer), sglang(&answer), lmcache(&answer), llamacpp_erased(&answer)];
            let failing = !(200..300).contains(&status);
            proptest::prop_assert!(!failing || verdicts.iter().all(|verdict| *verdict != Verdict::Done));
        }
    }
}
