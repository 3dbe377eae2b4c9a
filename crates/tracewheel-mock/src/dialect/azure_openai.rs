//! OpenAI's APIs as Azure serves them: a deployment in the path, filters beside the output, errors in the gateway's shape.

use http::header::HeaderName;
use serde_json::json;

use super::openai_chat::{self, Operation, error_json};
use super::{Asked, Dialect, openai_embeddings, openai_responses};
use crate::api::{ApiError, Ask};
use crate::reply::Voice;

const CHAT: &str = "/openai/deployments/{deployment}/chat/completions";
const COMPLETIONS: &str = "/openai/deployments/{deployment}/completions";
const EMBEDDINGS: &str = "/openai/deployments/{deployment}/embeddings";
const V1_CHAT: &str = "/openai/v1/chat/completions";
const V1_COMPLETIONS: &str = "/openai/v1/completions";
const V1_EMBEDDINGS: &str = "/openai/v1/embeddings";
const V1_RESPONSES: &str = "/openai/v1/responses";

/// Azure's paths, the older ones with deployment and version and the newer ones like OpenAI's.
pub(crate) struct AzureOpenAi;

impl Dialect for AzureOpenAi {
    fn paths(&self) -> &'static [&'static str] {
        // `{deployment}` would take `d/chat` for a deployment's name: chat stands first.
        &[CHAT, COMPLETIONS, EMBEDDINGS, V1_CHAT, V1_COMPLETIONS, V1_EMBEDDINGS, V1_RESPONSES]
    }

    fn read(&self, asked: &Asked<'_>) -> Result<(Ask, Box<dyn Voice>), ApiError> {
        let operation = |operation, model: Option<&str>| {
            super::refuse_foreign(asked.body, false, |name| {
                format!("unrecognized request argument supplied: {name}")
            })?;
            let (ask, mut voice) = openai_chat::read(operation, model, asked)?;
            voice.filters = true;
            Ok::<(Ask, Box<dyn Voice>), ApiError>((ask, Box::new(voice)))
        };
        let (pattern, model) = match asked.path {
            V1_CHAT => return operation(Operation::Chat, None),
            V1_COMPLETIONS => return operation(Operation::Completion, None),
            V1_EMBEDDINGS => return openai_embeddings::read(None, asked),
            V1_RESPONSES => {
                let (ask, voice) = openai_responses::read(asked)?;
                return Ok((ask, Box::new(voice)));
            }
            _ => [CHAT, COMPLETIONS, EMBEDDINGS]
                .into_iter()
                .find_map(|pattern| Some((pattern, asked.hole(pattern)?)))
                .ok_or_else(not_found)?,
        };
        if asked.parameter("api-version").is_none_or(str::is_empty) {
            return Err(not_found());
        }
        match pattern {
            CHAT => operation(Operation::Chat, Some(&model)),
            COMPLETIONS => operation(Operation::Completion, Some(&model)),
            _ => openai_embeddings::read(Some(&model), asked),
        }
    }

    fn key_headers(&self) -> &'static [&'static str] {
        &["api-key", "authorization"]
    }

    fn id_header(&self) -> HeaderName {
        HeaderName::from_static("apim-request-id")
    }

    /// What the gateway refuses has the status as a text for its code; what the model refuses is OpenAI's.
    fn refusal(&self, error: &ApiError, _request_id: &str) -> String {
        match error.status {
            401 | 404 | 429 => {
                json!({ "error": { "code": error.status.to_string(), "message": error.message } }).to_string()
            }
            _ => error_json(error, error.code),
        }
    }
}

/// What is said where the version is missing.
fn not_found() -> ApiError {
    ApiError { status: 404, ..ApiError::invalid(None, "Resource not found") }
}
