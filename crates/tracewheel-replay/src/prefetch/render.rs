//! From a planned request to the exact bytes that are sent.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use tracewheel_protocol::{AnswerForm, Overrides, Place, Provider, RenderRequest, Turn, carrier};
use tracewheel_timeline::HeaderClass;
use tracewheel_timeline::vocab::{BodyState, Phase};
use tracewheel_tokens::{WORDS, words};
use tracewheel_transport::{Body, Endpoint};
use tracewheel_workload::{PlannedRequest, PromptRenderer, PromptSpec};

use crate::config::ReplayConfig;
use crate::routing::{BoundRoute, Routing};
use crate::worker::Head;

use super::Splicer;

/// Makes the exact bytes of requests.
pub(crate) struct Renderer {
    pub(super) routing: Arc<Routing>,
    prompts: PromptRenderer,
    ids: TokenIds,
    pub(super) config: ReplayConfig,
    nonce: u64,
    text: String,
    body: Vec<u8>,
    long: Splicer,
    paths: Paths,
}

/// Where requests go. Plans name few models.
#[derive(Default)]
struct Paths(HashMap<PathKey, Uri>);

/// What a path may depend on: the route's base address and version, the protocol, the model, the manner of the answer, the
/// recorded path.
type PathKey = (usize, &'static str, String, bool, Option<Arc<str>>);

/// Paths that are kept; a plan that names more models gets theirs made anew.
const MOST_PATHS: usize = 1024;

impl Paths {
    fn of(&mut self, (at, endpoint): (usize, &Endpoint), provider: &dyn Provider, place: &Place<'_>) -> Uri {
        let recorded = place.recorded.map(Arc::from);
        let key = (at, provider.name(), place.model.to_owned(), place.stream, recorded);
        if let Some(uri) = self.0.get(&key) {
            return uri.clone();
        }
        let path = provider.path(place);
        let uri = endpoint.uri(&path).expect("what stands in a path is escaped, and the rest was checked");
        if self.0.len() < MOST_PATHS {
            self.0.insert(key, uri.clone());
        }
        uri
    }
}

impl Renderer {
    pub(crate) fn new(
        routing: Arc<Routing>,
        config: &ReplayConfig,
        nonce: u64,
        prompts: PromptRenderer,
    ) -> Self {
        Renderer {
            routing,
            prompts,
            ids: TokenIds::default(),
            config: config.clone(),
            nonce,
            text: String::new(),
            body: Vec::new(),
            long: Splicer::default(),
            paths: Paths::default(),
        }
    }

    /// How and where a request goes, and its exact bytes.
    pub(super) fn request(&mut self, planned: &PlannedRequest, phase: Phase) -> Rendered {
        let routing = Arc::clone(&self.routing);
        let (at, route, head) = routing.lane(planned.lane);
        let provider =
            carrier(route.provider, planned.operation).expect("operations that none carries were refused");
        let options = &route.options;
        let method = match provider.knobs().free_form {
            true => planned.method.as_deref().or(options.method.as_deref()),
            false => None,
        };
        let method = method
            .map_or(Method::POST, |name| Method::from_bytes(name.as_bytes()).expect("methods were checked"));
        let place = Place {
            model: route.model(planned),
            stream: planned.stream && provider.streams(),
            recorded: planned
                .path
                .as_deref()
                .or(options.path.as_deref())
                .filter(|_| provider.knobs().free_form),
            api_version: options.api_version.as_deref(),
        };
        let uri = self.paths.of((at, &route.endpoint), provider, &place);
        let body = self.body(route, provider, &method, planned, phase);
        let headers = planned.headers.as_ref().filter(|_| provider.knobs().free_form);
        Rendered {
            provider,
            answer: options.answer,
            target: route.target,
            headers: headers.map(|recorded| Box::new(recorded_headers(recorded, &head.set))),
            head: Arc::clone(head),
            method,
            uri,
            body,
        }
    }

    fn body(
        &mut self,
        route: &BoundRoute,
        provider: &dyn Provider,
        method: &Method,
        planned: &PlannedRequest,
        phase: Phase,
    ) -> Body {
        if let (BodyState::Full, Some(body)) = (planned.body_state, &planned.body) {
            let overrides = Overrides { model: route.model.as_deref(), usage: route.settled.recorded_usage };
            return overrides.apply(provider, body).map_or_else(|| body.clone().into(), Body::from);
        }
        if [Method::GET, Method::HEAD, Method::DELETE, Method::OPTIONS].contains(method) {
            return Body::default();
        }
        let nonce = match phase {
            // What is sent ahead is what the run will send, under the run's own nonce.
            Phase::Prime | Phase::Calibrate => self.nonce,
            _ => self.config.cache.nonce(self.nonce, planned.request_id),
        };
        let request = asking(route, self.config.temperature, provider, planned);
        let by_ids = route.options.prompt_ids;
        let nonce_of = (nonce, nonce == self.nonce);
        if !by_ids
            && let Some(body) = self.long.body(provider, &request, &self.prompts, &planned.prompt, nonce_of)
        {
            return body;
        }
        self.prompts.render(&planned.prompt, nonce, &mut self.text);
        let prompt_ids = by_ids.then(|| self.ids.of(&self.text));
        let request = RenderRequest { prompt: &self.text, prompt_ids, ..request };
        provider.render(&request, &mut self.body);
        Bytes::copy_from_slice(&self.body).into()
    }

    /// The text of a made-up prompt behind so many of its tokens, under the run's own nonce.
    pub(crate) fn text_behind(&mut self, prompt: &PromptSpec, behind_tokens: u32) -> String {
        self.prompts.render(prompt, self.nonce, &mut self.text);
        if behind_tokens == 0 {
            return self.text.clone();
        }
        // Each word stands behind a space.
        let begins = self.text.match_indices(' ').map(|(at, _)| at);
        let words = begins.clone().count() as u64;
        let behind = words * u64::from(behind_tokens) / u64::from(prompt.tokens().max(1));
        let at = begins.clone().nth(behind as usize).unwrap_or(self.text.len());
        self.text[at..].to_owned()
    }

    /// The body of a request that asks `prompt` behind what was said before.
    pub(crate) fn with_turns(
        &mut self,
        provider: &dyn Provider,
        planned: &PlannedRequest,
        turns: &[Turn<'_>],
        prompt: &str,
    ) -> Body {
        let routing = Arc::clone(&self.routing);
        let (_, route, _) = routing.lane(planned.lane);
        let request = asking(route, self.config.temperature, provider, planned);
        provider.render(&RenderRequest { prompt, turns, ..request }, &mut self.body);
        Bytes::copy_from_slice(&self.body).into()
    }
}

/// The recorded headers that are sent: those that may be, and that the scenario has not set.
fn recorded_headers(recorded: &BTreeMap<Arc<str>, Arc<str>>, set: &[HeaderName]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in recorded {
        if HeaderClass::of(name, value) == HeaderClass::Request
            && let Ok(name) = HeaderName::from_bytes(name.as_bytes())
            && let Ok(value) = HeaderValue::from_str(value)
            && !set.contains(&name)
        {
            headers.insert(name, value);
        }
    }
    headers
}

/// All that a made-up request says beside its prompt.
fn asking<'a>(
    route: &'a BoundRoute,
    temperature: f64,
    provider: &dyn Provider,
    planned: &'a PlannedRequest,
) -> RenderRequest<'a> {
    let settled = &route.settled;
    RenderRequest {
        model: route.model(planned),
        template: settled.template.as_ref(),
        max_tokens: planned.output_tokens,
        limit_field: settled.limit_field,
        stream: planned.stream && provider.streams(),
        force_length: settled.force_length,
        engine: settled.engine,
        token_detail: settled.token_detail,
        include_obfuscation: settled.include_obfuscation,
        temperature,
        params: planned.params.as_deref(),
        ..RenderRequest::default()
    }
}

/// A request, ready but for its row.
pub(super) struct Rendered {
    pub(super) provider: &'static dyn Provider,
    pub(super) answer: AnswerForm,
    pub(super) target: u16,
    pub(super) head: Arc<Head>,
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: Option<Box<HeaderMap>>,
    pub(super) body: Body,
}

/// Token ids for made-up prompts: one a word, the same for the same word.
#[derive(Default)]
struct TokenIds {
    by_word: HashMap<&'static str, u32>,
    ids: Vec<u32>,
}

/// The id of the first word. Lower ones are bytes and control tokens in the usual vocabularies; the words' own end far
/// below the smallest of these vocabularies' sizes.
const FIRST_WORD_ID: u32 = 1_000;

impl TokenIds {
    fn of(&mut self, text: &str) -> &[u32] {
        if self.by_word.is_empty() {
            self.by_word = WORDS.iter().copied().zip(FIRST_WORD_ID..).collect();
        }
        self.ids.clear();
        let id = |word: &str| self.by_word.get(word).copied().unwrap_or(FIRST_WORD_ID);
        self.ids.extend(words(text).map(id));
        &self.ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_has_one_token_id_a_word_and_equal_words_have_equal_ids() {
        let mut ids = TokenIds::default();
        let text = format!(" {} {} {}", WORDS[3], WORDS[2047], WORDS[3]);
        assert_eq!(ids.of(&text), [1_003, 3_047, 1_003]);
        assert_eq!(ids.of(""), [0; 0]);
    }
}
