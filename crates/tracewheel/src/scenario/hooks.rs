//! `[[hooks]]` of a scenario.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tracewheel_replay::{
    CallHeaders, CommandCall, Expect, Flush, FlushEngine, HOOK_TIMEOUT_NS, HOOK_WAIT_NS, Hook, HookAction,
    HookPoint, HttpCall,
};

use super::protocol::{published_headers, secret_headers};
use super::{duration_ns, duration_text};
use crate::exit::Failure;

/// One hook as a scenario writes it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HookEntry {
    #[serde(default, skip_serializing_if = "is_first")]
    at: HookPoint,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    preset: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    locations: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    command: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    status: Vec<u16>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    busy: Vec<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    contains: Option<String>,
    #[serde(
        default,
        deserialize_with = "duration_ns",
        serialize_with = "duration_text",
        skip_serializing_if = "Option::is_none"
    )]
    timeout: Option<i64>,
    #[serde(
        default,
        deserialize_with = "duration_ns",
        serialize_with = "duration_text",
        skip_serializing_if = "Option::is_none"
    )]
    wait: Option<i64>,
    // Tables stand last: in TOML nothing may follow them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    headers_env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    json: BTreeMap<String, serde_json::Value>,
}

fn is_first(at: &HookPoint) -> bool {
    *at == HookPoint::default()
}

impl HookEntry {
    /// The hook of `--flush ENGINE`.
    pub(crate) fn flush(engine: &str) -> Self {
        HookEntry { preset: Some(engine.to_owned()), ..HookEntry::default() }
    }

    /// As a manifest writes it.
    pub(super) fn published(self) -> Self {
        HookEntry { headers_env: published_headers(&self.headers_env), ..self }
    }

    /// As the replay takes it.
    ///
    /// # Errors
    /// What contradicts itself or is missing, as a usage error.
    pub(crate) fn hook(&self) -> Result<Hook, Failure> {
        let action = self.action().map_err(|why| {
            let name = self.name.as_deref().or(self.preset.as_deref()).unwrap_or("without a name");
            Failure::usage(format!("the hook {name}: {why}"))
        })?;
        let word = match &action {
            HookAction::Flush(flush) => flush.engine.as_str().to_owned(),
            HookAction::Http(call) => call.method.clone(),
            HookAction::Command(call) => call.argv.first().cloned().unwrap_or_default(),
        };
        Ok(Hook {
            at: self.at,
            name: self.name.clone().unwrap_or(word),
            action,
            timeout_ns: self.timeout.unwrap_or(HOOK_TIMEOUT_NS),
            wait_ns: self.wait.unwrap_or(HOOK_WAIT_NS),
        })
    }

    fn action(&self) -> Result<HookAction, String> {
        match (&self.preset, &self.url, self.command.is_empty()) {
            (Some(preset), _, true) => self.preset_action(preset),
            (None, Some(url), true) => {
                self.without(&[
                    ("instance", self.instance.is_some()),
                    ("locations", !self.locations.is_empty()),
                ])?;
                let method = if self.body.is_some() { "POST" } else { "GET" };
                Ok(HookAction::Http(HttpCall {
                    method: self.method.clone().unwrap_or(method.to_owned()),
                    url: url.clone(),
                    headers: self.headers()?,
                    body: self.body.clone(),
                    expect: self.expect(),
                }))
            }
            (None, None, false) => {
                self.without(&[
                    ("method", self.method.is_some()),
                    ("body", self.body.is_some()),
                    ("headers", !self.headers.is_empty()),
                    ("headers_env", !self.headers_env.is_empty()),
                    ("status", !self.status.is_empty()),
                    ("busy", !self.busy.is_empty()),
                    ("instance", self.instance.is_some()),
                    ("locations", !self.locations.is_empty()),
                ])?;
                Ok(HookAction::Command(CommandCall { argv: self.command.clone(), expect: self.expect() }))
            }
            _ => Err("give one of preset, url and command (a preset may have a url)".to_owned()),
        }
    }

    fn preset_action(&self, preset: &str) -> Result<HookAction, String> {
        let Some(engine) = FlushEngine::ALL.into_iter().find(|engine| engine.as_str() == preset) else {
            let known: Vec<&str> = FlushEngine::ALL.iter().map(|engine| engine.as_str()).collect();
            return Err(format!("`{preset}` is no preset: {}", known.join(", ")));
        };
        self.without(&[
            ("method", self.method.is_some()),
            ("body", self.body.is_some()),
            ("status", !self.status.is_empty()),
            ("busy", !self.busy.is_empty()),
            ("contains", self.contains.is_some()),
            ("json", !self.json.is_empty()),
        ])?;
        Ok(HookAction::Flush(Flush {
            engine,
            url: self.url.clone(),
            instance: self.instance.clone(),
            locations: self.locations.clone(),
            headers: self.headers()?,
        }))
    }

    /// Refuses keys that would mean nothing.
    fn without(&self, keys: &[(&str, bool)]) -> Result<(), String> {
        match keys.iter().find(|(_, given)| *given) {
            Some((key, _)) => Err(format!("`{key}` means nothing here: leave it out")),
            None => Ok(()),
        }
    }

    fn expect(&self) -> Expect {
        Expect {
            status: self.status.clone(),
            busy: self.busy.clone(),
            contains: self.contains.clone(),
            json: self.json.clone(),
        }
    }

    fn headers(&self) -> Result<CallHeaders, String> {
        Ok(CallHeaders {
            plain: self.headers.clone().into_iter().collect(),
            secret: secret_headers(&self.headers_env)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(text: &str) -> Result<Hook, String> {
        let entry: HookEntry = toml::from_str(text).map_err(|error| error.to_string())?;
        // What is written into the manifest is read again.
        let again: HookEntry = toml::from_str(&toml::to_string(&entry).unwrap()).unwrap();
        let hook = entry.hook().map_err(|failure| failure.error.to_string());
        assert_eq!(again.hook().map_err(|failure| failure.error.to_string()), hook);
        hook
    }

    #[test]
    fn a_preset_is_enough() {
        let hook = hook("preset = \"sglang\"\n").unwrap();
        assert_eq!((hook.at, hook.name.as_str()), (HookPoint::BeforePrime, "sglang"));
        assert_eq!((hook.timeout_ns, hook.wait_ns), (HOOK_TIMEOUT_NS, HOOK_WAIT_NS));
        let HookAction::Flush(flush) = hook.action else { panic!("a flush") };
        assert_eq!((flush.engine, flush.url), (FlushEngine::Sglang, None));
    }

    #[test]
    fn calls_and_commands_say_all_that_they_need() {
        let text = "at = \"before-measure\"\nname = \"warm the router\"\nurl = \"http://127.0.0.1:1/x?y=1\"\nbody = \"{}\"\n\
                    busy = [409]\nwait = \"5s\"\ntimeout = \"250ms\"\n[headers]\nx-a = \"b\"\n[json]\n\"a.b\" = true\n";
        let called = hook(text).unwrap();
        assert_eq!(
            (called.at, called.name.as_str(), called.wait_ns),
            (HookPoint::BeforeMeasure, "warm the router", 5_000_000_000)
        );
        let HookAction::Http(call) = called.action else { panic!("a call") };
        assert_eq!((call.method.as_str(), call.headers.plain.len()), ("POST", 1));
        assert_eq!(call.expect.json["a.b"], serde_json::Value::Bool(true));
        let command = hook("command = [\"./flush.sh\", \"all\"]\nat = \"after-run\"\n").unwrap();
        assert_eq!((command.name.as_str(), command.at), ("./flush.sh", HookPoint::AfterRun));
    }

    #[test]
    fn what_contradicts_itself_is_refused_by_name() {
        for (text, said) in [
            ("name = \"x\"\n", "give one of preset, url and command"),
            ("preset = \"vllm\"\ncommand = [\"x\"]\n", "give one of"),
            ("preset = \"vlm\"\n", "`vlm` is no preset: vllm, sglang, lmcache, llamacpp"),
            ("preset = \"vllm\"\nmethod = \"PUT\"\n", "`method` means nothing here"),
            ("command = [\"x\"]\nbusy = [503]\n", "`busy` means nothing here"),
            ("url = \"http://x\"\ninstance = \"i\"\n", "`instance` means nothing here"),
            (
                "url = \"http://x\"\n[headers_env]\nauthorization = \"NO_SUCH_VARIABLE_HERE\"\n",
                "NO_SUCH_VARIABLE_HERE",
            ),
            ("preset = \"vllm\"\nat = \"later\"\n", "before-prime"),
        ] {
            let told = hook(text).unwrap_err();
            assert!(told.contains(said), "{text}: {told}");
        }
    }

    #[test]
    fn the_page_names_every_key() {
        let page = include_str!("../../../../docs/scenario.md");
        let section = page.split("### Hooks").nth(1).unwrap().split("\n## ").next().unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        let on_page: std::collections::BTreeSet<&str> = rows.collect();
        let error = toml::from_str::<HookEntry>("no-such-key = 1\n").unwrap_err().to_string();
        let expected = error.split("expected ").nth(1).unwrap();
        let in_code: std::collections::BTreeSet<&str> = expected.split('`').skip(1).step_by(2).collect();
        assert_eq!(on_page, in_code);
    }
}
