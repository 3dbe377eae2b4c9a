//! `[[routes]]` of a scenario: which requests go where, with which key.

mod keys;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracewheel_replay::{
    AnswerForm, Criteria, HttpVersion, LimitField, Pattern, ReplayConfig, Route, TokenDetail, provider,
};

use tracewheel_timeline::vocab::Operation;

use super::Protocol;
use super::protocol::{published_headers, secret_headers};
use crate::choice::choice;
use crate::cli::ReplayArgs;
use crate::exit::Failure;
use crate::{files, secret};

use keys::Tenants;

/// One route as a scenario writes it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RouteEntry {
    name: Option<String>,
    models: Option<Vec<String>>,
    operations: Option<Vec<String>>,
    tenants: Option<Vec<String>>,
    tenant_hashes: Option<Vec<HashWord>>,
    providers: Option<Vec<String>>,
    endpoints: Option<Vec<String>>,
    gateway_routes: Option<Vec<String>>,
    paths: Option<Vec<String>>,
    url: Option<String>,
    protocol: Option<String>,
    engine: Option<String>,
    model: Option<String>,
    api_key_env: Option<String>,
    api_key_file: Option<PathBuf>,
    api_keys_env: Option<Vec<String>>,
    api_key_files: Option<Vec<PathBuf>>,
    ca_file: Option<PathBuf>,
    tls_name: Option<String>,
    http: Option<String>,
    lengths: Option<String>,
    limit_field: Option<LimitField>,
    token_detail: Option<TokenDetail>,
    api_version: Option<String>,
    prompt_ids: Option<bool>,
    stream_usage: Option<bool>,
    answer: Option<AnswerForm>,
    method: Option<String>,
    path: Option<String>,
    body: Option<String>,
    // Tables stand last: in TOML nothing may follow them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers_env: BTreeMap<String, String>,
}

/// A keyed hash: a text, since TOML's numbers end at 2^63, or a number.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
enum HashWord {
    Number(u64),
    Text(String),
}

impl HashWord {
    fn value(&self) -> Result<u64, String> {
        match self {
            HashWord::Number(number) => Ok(*number),
            HashWord::Text(text) => text.parse().map_err(|_| {
                format!("tenant_hashes: {text:?} is no keyed hash: write it as the timeline has it")
            }),
        }
    }
}

/// The routes with everything filled in that they leave to `[target]`, `[protocol]` and the usual defaults.
///
/// # Errors
/// What contradicts itself, is missing or is a wrong word, with the route's name.
pub(super) fn resolved(args: &ReplayArgs) -> Result<Vec<RouteEntry>, String> {
    let mut names = BTreeSet::new();
    let mut tenants = Tenants::new(args);
    let mut resolved = Vec::new();
    for (entry, number) in args.routes.iter().zip(1..) {
        let name = entry.name.clone().unwrap_or_else(|| number.to_string());
        let entry =
            entry.resolved(&name, args, &mut tenants).map_err(|why| format!("[[routes]] {name}: {why}"))?;
        if !names.insert(name.clone()) {
            return Err(format!("[[routes]]: two have the name {name:?}: give each its own"));
        }
        resolved.push(entry);
    }
    Ok(resolved)
}

/// Flags that name one target: with a table nobody could tell which of its routes they mean.
pub(super) fn refused_flag(args: &ReplayArgs) -> Option<&'static str> {
    let given = [
        ("--target", args.target.is_some()),
        ("--protocol", args.protocol.is_some()),
        ("--engine", args.engine.is_some()),
        ("--model", args.model.is_some()),
        ("--api-key-env", args.api_key_env.is_some()),
        ("--api-key-file", args.api_key_file.is_some()),
        ("--ca-file", args.ca_file.is_some()),
        ("--tls-name", args.tls_name.is_some()),
        ("--http", args.http.is_some()),
    ];
    given.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
}

impl RouteEntry {
    /// The same with paths that start at `folder`.
    pub(super) fn beside(self, folder: &Path) -> Self {
        let beside = |path: PathBuf| folder.join(path);
        Self {
            api_key_file: self.api_key_file.map(beside),
            api_key_files: self.api_key_files.map(|files| files.into_iter().map(beside).collect()),
            ca_file: self.ca_file.map(beside),
            ..self
        }
    }

    /// The same with absolute paths, without what an address may hide, and with the lengths that `route` came to.
    pub(super) fn published(&self, route: &Route) -> Self {
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let forced = provider(&route.provider).and_then(|provider| route.protocol.settle(provider).ok());
        let forced = forced.is_some_and(|settled| settled.force_length);
        Self {
            url: self.url.as_deref().map(tracewheel_record::redact::redact_url),
            api_key_file: self.api_key_file.as_ref().map(absolute),
            api_key_files: self.api_key_files.as_ref().map(|files| files.iter().map(absolute).collect()),
            ca_file: self.ca_file.as_ref().map(absolute),
            lengths: Some(if forced { "exact" } else { "cap" }.to_owned()),
            headers_env: published_headers(&self.headers_env),
            ..self.clone()
        }
    }

    fn resolved(&self, name: &str, args: &ReplayArgs, tenants: &mut Tenants<'_>) -> Result<Self, String> {
        self.check()?;
        let url = self.url.clone().or_else(|| args.target.clone());
        let url = url.ok_or("it has no url, and [target] has none")?;
        let protocol = self.protocol.clone().or_else(|| args.protocol.clone());
        let protocol = protocol.ok_or("it has no protocol, and [target] has none")?;
        // What belongs to a server goes to no other one, least of all its key.
        let own_server = self.url.is_some();
        let of_target = |given: bool| !own_server && !given;
        let own_key = self.has_key();
        let section = self.options(&protocol, args);
        let https = url.trim_start().starts_with("https:");
        let ca_file = self.ca_file.clone().or_else(|| args.ca_file.clone().filter(|_| of_target(false)));
        Ok(Self {
            name: Some(name.to_owned()),
            tenants: None,
            tenant_hashes: tenants.hashes(self.tenants.as_deref(), self.tenant_hashes.as_deref())?,
            url: Some(url),
            engine: section.engine,
            model: self.model.clone().or_else(|| args.model.clone()),
            api_key_env: self.api_key_env.clone().or(args.api_key_env.clone().filter(|_| of_target(own_key))),
            api_key_file: self
                .api_key_file
                .clone()
                .or(args.api_key_file.clone().filter(|_| of_target(own_key))),
            ca_file: ca_file.or_else(|| files::trusted_by_environment(https)),
            tls_name: self.tls_name.clone().or_else(|| args.tls_name.clone().filter(|_| of_target(false))),
            http: self.http.clone().or_else(|| args.http.clone()).or(Some("auto".to_owned())),
            lengths: self.lengths.clone().or_else(|| args.lengths.clone()),
            limit_field: section.limit_field,
            token_detail: section.token_detail,
            api_version: section.api_version,
            prompt_ids: section.prompt_ids,
            stream_usage: section.stream_usage,
            answer: section.answer,
            method: section.method,
            path: section.path,
            body: section.body,
            headers: section.headers,
            protocol: Some(protocol),
            ..self.clone()
        })
    }

    /// Its options; what it leaves open comes from `[protocol]`, where that is about the same protocol.
    fn options(&self, protocol: &str, args: &ReplayArgs) -> Protocol {
        let own = Protocol {
            engine: self.engine.clone(),
            limit_field: self.limit_field,
            token_detail: self.token_detail,
            api_version: self.api_version.clone(),
            prompt_ids: self.prompt_ids,
            stream_usage: self.stream_usage,
            answer: self.answer,
            method: self.method.clone(),
            path: self.path.clone(),
            body: self.body.clone(),
            headers: self.headers.clone(),
        };
        match args.protocol.as_deref() == Some(protocol) {
            true => own.over(&args.protocol_section.with_engine(args.engine.as_ref())),
            false => own,
        }
    }

    /// Words that a flag would have been refused for, and lists that would take nothing.
    fn check(&self) -> Result<(), String> {
        for (key, value) in [
            ("protocol", &self.protocol),
            ("engine", &self.engine),
            ("http", &self.http),
            ("lengths", &self.lengths),
        ] {
            if let (Some(value), Some(choice)) = (value, choice("replay", key)) {
                choice.check(value).map_err(|why| format!("{key}: {why}"))?;
            }
        }
        let empty = |list: &Option<Vec<String>>| list.as_ref().is_some_and(Vec::is_empty);
        for (key, is_empty) in [
            ("models", empty(&self.models)),
            ("operations", empty(&self.operations)),
            ("tenants", empty(&self.tenants)),
            ("tenant_hashes", self.tenant_hashes.as_ref().is_some_and(Vec::is_empty)),
            ("providers", empty(&self.providers)),
            ("endpoints", empty(&self.endpoints)),
            ("gateway_routes", empty(&self.gateway_routes)),
            ("paths", empty(&self.paths)),
        ] {
            if is_empty {
                return Err(format!("{key} is empty, so the route takes nothing: leave it out to take all"));
            }
        }
        self.check_keys()
    }

    fn check_keys(&self) -> Result<(), String> {
        let pool = self.api_keys_env.is_some() || self.api_key_files.is_some();
        let single = [self.api_key_env.is_some(), self.api_key_file.is_some(), pool];
        if single.iter().filter(|given| **given).count() > 1 {
            return Err(
                "a key comes from one of api_key_env, api_key_file and a pool (api_keys_env, api_key_files)"
                    .to_owned(),
            );
        }
        if pool && self.sources().is_empty() {
            return Err("its pool of keys is empty: name a key, or leave it out to send none".to_owned());
        }
        let mut seen = BTreeSet::new();
        match self.sources().into_iter().find(|source| !seen.insert(source.told())) {
            Some(twice) => Err(format!("its pool names {} twice", twice.told())),
            None => Ok(()),
        }
    }

    fn has_key(&self) -> bool {
        !self.sources().is_empty()
    }

    /// Where its keys come from, in their order.
    fn sources(&self) -> Vec<secret::Origin> {
        let variables = self.api_key_env.iter().chain(self.api_keys_env.iter().flatten());
        let files = self.api_key_file.iter().chain(self.api_key_files.iter().flatten());
        let variables = variables.map(|name| secret::Origin::Variable(name.clone()));
        variables.chain(files.map(|path| secret::Origin::File(path.clone()))).collect()
    }

    /// As the replay takes a resolved entry.
    ///
    /// # Errors
    /// Usage: a key or a header's variable that is not there, a word that is no operation.
    pub(crate) fn route(&self) -> Result<Route, Failure> {
        let name = self.name.clone().unwrap_or_default();
        let usage = |why: String| Failure::usage(format!("[[routes]] {name}: {why}"));
        let http = HttpVersion::ALL.into_iter().find(|(word, _)| Some(*word) == self.http.as_deref());
        let force_length = self.lengths.as_deref().map(|word| word == "exact");
        Ok(Route {
            takes: self.criteria().map_err(usage)?,
            target: self.url.clone().unwrap_or_default(),
            ca_file: self.ca_file.clone(),
            tls_name: self.tls_name.clone(),
            http: http.map_or(HttpVersion::Auto, |(_, http)| http),
            provider: self.protocol.clone().unwrap_or_default(),
            model: self.model.clone(),
            protocol: self.section().options(force_length),
            headers: self.section().headers(),
            secret_headers: secret_headers(&self.headers_env).map_err(usage)?,
            keys: self.sources().iter().map(secret::Origin::key).collect::<Result<_, _>>()?,
            name,
        })
    }

    fn section(&self) -> Protocol {
        self.options("", &ReplayArgs::default())
    }

    fn criteria(&self) -> Result<Criteria, String> {
        let patterns = |list: &Option<Vec<String>>| list.iter().flatten().map(Pattern::new).collect();
        let operations = self.operations.iter().flatten().map(|word| {
            Operation::parse(word.trim()).ok_or_else(|| {
                let words: Vec<&str> = Operation::ALL.iter().map(|operation| operation.as_str()).collect();
                format!("operations: `{word}` is none of {}", words.join(", "))
            })
        });
        let hashes = self.tenant_hashes.iter().flatten().map(HashWord::value);
        Ok(Criteria {
            models: patterns(&self.models),
            operations: operations.collect::<Result<_, _>>()?,
            tenant_hashes: hashes.collect::<Result<_, _>>()?,
            providers: patterns(&self.providers),
            endpoints: patterns(&self.endpoints),
            gateway_routes: patterns(&self.gateway_routes),
            paths: patterns(&self.paths),
        })
    }
}

/// The table as a manifest shows it.
pub(super) fn published(args: &ReplayArgs, config: &ReplayConfig) -> Vec<RouteEntry> {
    args.routes.iter().zip(&config.routes).map(|(entry, route)| entry.published(route)).collect()
}

#[cfg(test)]
mod tests;
