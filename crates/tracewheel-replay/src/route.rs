//! Routes: which requests of a mixed timeline go where, and how they are put there.
//!
//! The first route in the table whose criteria a request meets takes it. Criteria look at what was recorded; a route says
//! anew where its requests go, in which protocol, for which model, with which key and headers.

mod pattern;

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tracewheel_protocol::ProtocolOptions;
use tracewheel_timeline::vocab::Operation;
use tracewheel_workload::PlannedRequest;

use crate::config::{HttpVersion, ReplayConfig, Secret};

pub use pattern::Pattern;

/// A line of the table: which requests it takes, and all that is its own in how they are sent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Route {
    /// What it is called in messages, in the manifest and in the run's rows; no two have the same.
    pub name: String,
    /// Which requests it takes.
    pub takes: Criteria,
    /// As [`ReplayConfig::target`].
    pub target: String,
    /// As [`ReplayConfig::ca_file`].
    pub ca_file: Option<PathBuf>,
    /// As [`ReplayConfig::tls_name`].
    pub tls_name: Option<String>,
    /// Which HTTP is spoken.
    pub http: HttpVersion,
    /// As [`ReplayConfig::provider`].
    pub provider: String,
    /// Model asked for; without it each request's recorded one.
    pub model: Option<String>,
    /// As [`ReplayConfig::protocol`].
    pub protocol: ProtocolOptions,
    /// As [`ReplayConfig::headers`].
    pub headers: Vec<(String, String)>,
    /// Further request headers whose values are neither recorded nor printed.
    #[serde(skip)]
    pub secret_headers: Vec<(String, Secret)>,
    /// API keys: none, one, or a pool. A session keeps to one of a pool; requests without a session take them in turn.
    pub keys: Vec<ApiKey>,
}

/// An API key and where it came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    /// `env:NAME` or `file:NAME`; empty where that is not told.
    pub from: String,
    /// The key.
    #[serde(skip)]
    pub secret: Secret,
}

/// What a request must be for a route to take it: all of what is named. A list that is empty takes any request; one that
/// is not takes none that lacks the field.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Criteria {
    /// Recorded models.
    pub models: Vec<Pattern>,
    /// Operations.
    pub operations: Vec<Operation>,
    /// Keyed hashes of tenants.
    pub tenant_hashes: Vec<u64>,
    /// Recorded providers.
    pub providers: Vec<Pattern>,
    /// Recorded endpoints: hosts, deployments or listeners.
    pub endpoints: Vec<Pattern>,
    /// Routes that a gateway chose, as recorded.
    pub gateway_routes: Vec<Pattern>,
    /// Recorded paths.
    pub paths: Vec<Pattern>,
}

impl Criteria {
    /// Whether a request meets them.
    pub fn take(&self, request: &PlannedRequest) -> bool {
        let any = |patterns: &[Pattern], text: Option<&str>| {
            patterns.is_empty()
                || text.is_some_and(|text| patterns.iter().any(|pattern| pattern.matches(text)))
        };
        let is_one_of = |hash: u64| self.tenant_hashes.contains(&hash);
        (self.operations.is_empty() || self.operations.contains(&request.operation))
            && any(&self.models, request.model.as_deref())
            && (self.tenant_hashes.is_empty() || request.tenant_hash.is_some_and(is_one_of))
            && any(&self.providers, request.provider.as_deref())
            && any(&self.endpoints, request.endpoint.as_deref())
            && any(&self.gateway_routes, request.route.as_deref())
            && any(&self.paths, request.path.as_deref())
    }
}

impl fmt::Display for Criteria {
    /// As a manifest tells them: `models = a, b*; operations = chat`, or `all`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let patterns = |list: &[Pattern]| list.iter().map(Pattern::as_str).collect::<Vec<_>>().join(", ");
        let operations: Vec<&str> = self.operations.iter().map(|operation| operation.as_str()).collect();
        let tenants: Vec<String> = self.tenant_hashes.iter().map(u64::to_string).collect();
        let told = [
            ("models", patterns(&self.models)),
            ("operations", operations.join(", ")),
            ("tenant_hashes", tenants.join(", ")),
            ("providers", patterns(&self.providers)),
            ("endpoints", patterns(&self.endpoints)),
            ("gateway_routes", patterns(&self.gateway_routes)),
            ("paths", patterns(&self.paths)),
        ];
        let told: Vec<String> = told
            .into_iter()
            .filter(|(_, words)| !words.is_empty())
            .map(|(name, words)| format!("{name} = {words}"))
            .collect();
        f.write_str(if told.is_empty() { "all" } else { "" })?;
        f.write_str(&told.join("; "))
    }
}

impl ReplayConfig {
    /// The one route of a configuration without a table: its own target takes all.
    pub(crate) fn own_route(&self) -> Route {
        let keys = self.secret.iter().map(|secret| ApiKey { from: String::new(), secret: secret.clone() });
        Route {
            name: String::new(),
            takes: Criteria::default(),
            target: self.target.clone(),
            ca_file: self.ca_file.clone(),
            tls_name: self.tls_name.clone(),
            http: self.http,
            provider: self.provider.clone(),
            model: self.model.clone(),
            protocol: self.protocol.clone(),
            headers: self.headers.clone(),
            secret_headers: Vec::new(),
            keys: keys.collect(),
        }
    }

    /// Everything secret that any request carries: to be taken out of whatever a target says.
    pub(crate) fn secrets(&self) -> Vec<Secret> {
        let own = self.secret.iter();
        let keys = self.routes.iter().flat_map(|route| route.keys.iter().map(|key| &key.secret));
        let headers =
            self.routes.iter().flat_map(|route| route.secret_headers.iter().map(|(_, value)| value));
        own.chain(keys).chain(headers).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use tracewheel_timeline::vocab::{BodyState, Phase};
    use tracewheel_workload::{Lane, PromptSpec};

    use super::*;

    fn request(change: impl FnOnce(&mut PlannedRequest)) -> PlannedRequest {
        let mut request = PlannedRequest {
            row: 0,
            copy: 0,
            request_id: 1,
            planned_ns: 0,
            phase: Phase::Measure,
            trace_unix_ns: None,
            operation: Operation::Chat,
            method: None,
            path: Some("/v1/chat/completions".into()),
            model: Some("gpt-4o-mini".into()),
            route: Some("eu".into()),
            endpoint: Some("gw-1".into()),
            provider: Some("openai".into()),
            input_tokens: 1,
            output_tokens: 1,
            tokens_filled: false,
            stream: true,
            cancel_after_ns: None,
            session_hash: None,
            turn: None,
            think_ns: None,
            tenant_hash: Some(7),
            user_hash: None,
            tags: None,
            params: None,
            headers: None,
            body: None,
            body_state: BodyState::Absent,
            prompt: PromptSpec { blocks: Vec::new(), tail: None },
            predicted_cached_tokens: None,
            lane: Lane::default(),
        };
        change(&mut request);
        request
    }

    fn patterns(texts: &[&str]) -> Vec<Pattern> {
        texts.iter().map(|text| Pattern::new(*text)).collect()
    }

    #[test]
    fn without_criteria_any_request_is_taken_and_with_them_one_that_meets_all() {
        assert!(Criteria::default().take(&request(|_| {})));
        assert!(Criteria::default().take(&request(|request| request.model = None)));
        let both = Criteria {
            models: patterns(&["other", "gpt-4o-*"]),
            operations: vec![Operation::Chat],
            tenant_hashes: vec![1, 7],
            providers: patterns(&["open*"]),
            endpoints: patterns(&["gw-?", "gw-1"]),
            gateway_routes: patterns(&["eu"]),
            paths: patterns(&["/v1/*"]),
        };
        assert!(both.take(&request(|_| {})));
        for change in [
            |request: &mut PlannedRequest| request.model = Some("gpt-4".into()),
            |request: &mut PlannedRequest| request.operation = Operation::Embeddings,
            |request: &mut PlannedRequest| request.tenant_hash = Some(8),
            |request: &mut PlannedRequest| request.provider = Some("azure".into()),
            |request: &mut PlannedRequest| request.endpoint = Some("gw-2".into()),
            |request: &mut PlannedRequest| request.route = Some("us".into()),
            |request: &mut PlannedRequest| request.path = Some("/v2/x".into()),
        ] {
            assert!(!both.take(&request(change)));
        }
    }

    #[test]
    fn a_request_that_lacks_the_field_does_not_meet_its_criterion() {
        let models = Criteria { models: patterns(&["*"]), ..Criteria::default() };
        assert!(models.take(&request(|_| {})) && !models.take(&request(|request| request.model = None)));
        let tenants = Criteria { tenant_hashes: vec![7], ..Criteria::default() };
        assert!(!tenants.take(&request(|request| request.tenant_hash = None)));
    }

    #[test]
    fn criteria_are_told_as_the_table_writes_them() {
        assert_eq!(Criteria::default().to_string(), "all");
        let some = Criteria {
            models: patterns(&["a", "b*"]),
            operations: vec![Operation::Chat, Operation::Embeddings],
            tenant_hashes: vec![17],
            ..Criteria::default()
        };
        assert_eq!(some.to_string(), "models = a, b*; operations = chat, embeddings; tenant_hashes = 17");
    }

    #[test]
    fn no_secret_of_a_route_is_printed_or_serialised() {
        let route = Route {
            keys: vec![ApiKey { from: "env:KEY".to_owned(), secret: Secret::new("sk-hidden") }],
            secret_headers: vec![("x-team".to_owned(), Secret::new("hidden-too"))],
            ..Route::default()
        };
        let config = ReplayConfig { routes: vec![route], ..ReplayConfig::default() };
        let told = format!("{config:?}{}", serde_json::to_string(&config).unwrap());
        assert!(!told.contains("hidden") && told.contains("env:KEY"));
        let secrets: Vec<_> = config.secrets().iter().map(|secret| secret.expose().to_owned()).collect();
        assert_eq!(secrets, ["sk-hidden", "hidden-too"]);
    }
}
