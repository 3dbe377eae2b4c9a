//! OpenAI's embeddings: inputs in, one vector each out, as numbers or as base64; nothing is generated.

use std::borrow::Cow;

use serde::Deserialize;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::openai_chat::error_json;
use super::{Asked, Dialect, quoted};
use crate::api::{Answer, ApiError, Ask, Finish, Part, json, served_model};
use crate::prompt::{Prompt, PromptHasher};
use crate::reply::{TailShape, Text, Token, Usage, Voice};

/// `POST /v1/embeddings`.
pub(crate) struct OpenAiEmbeddings;

const DEFAULT_DIMENSIONS: u32 = 256;
const MOST_DIMENSIONS: u32 = 8192;
/// As OpenAI has it.
const MOST_INPUTS: usize = 2048;

impl Dialect for OpenAiEmbeddings {
    fn paths(&self) -> &'static [&'static str] {
        &["/v1/embeddings"]
    }

    fn read(&self, asked: &Asked<'_>) -> Result<(Ask, Box<dyn Voice>), ApiError> {
        read(None, asked)
    }

    fn refusal(&self, error: &ApiError, _request_id: &str) -> String {
        error_json(error, error.code)
    }
}

#[derive(Debug, Deserialize)]
struct Body<'a> {
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
    #[serde(borrow)]
    input: Input<'a>,
    #[serde(borrow, default)]
    encoding_format: Option<Cow<'a, str>>,
    dimensions: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Input<'a> {
    #[serde(borrow)]
    Text(Cow<'a, str>),
    Ids(Vec<u32>),
    #[serde(borrow)]
    Texts(Vec<Cow<'a, str>>),
    IdLists(Vec<Vec<u32>>),
}

impl Input<'_> {
    /// Each input's tokens and digest.
    fn prompts(&self) -> Vec<Prompt> {
        let text = |text: &str| {
            let mut hasher = PromptHasher::new(u32::MAX, &[]);
            hasher.text(text);
            hasher.finish()
        };
        let ids = |ids: &[u32]| {
            let mut hasher = PromptHasher::new(u32::MAX, &[]);
            ids.iter().for_each(|id| hasher.token_id(*id));
            hasher.finish()
        };
        match self {
            Self::Text(one) => vec![text(one)],
            Self::Ids(one) => vec![ids(one)],
            Self::Texts(all) => all.iter().map(|one| text(one)).collect(),
            Self::IdLists(all) => all.iter().map(|one| ids(one)).collect(),
        }
    }
}

/// Reads a request; `model` of the path goes before that of the body.
pub(super) fn read(model: Option<&str>, asked: &Asked<'_>) -> Result<(Ask, Box<dyn Voice>), ApiError> {
    let body: Body<'_> = json(asked.body)?;
    let model = served_model(model.or(body.model.as_deref()), asked.config)?;
    let base64 = match body.encoding_format.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => {
            return Err(ApiError::invalid(
                Some("encoding_format"),
                "encoding_format must be float or base64",
            ));
        }
    };
    let dimensions = body.dimensions.unwrap_or(DEFAULT_DIMENSIONS);
    if dimensions == 0 || dimensions > MOST_DIMENSIONS {
        let message = format!("dimensions must be from 1 to {MOST_DIMENSIONS}");
        return Err(ApiError::invalid(Some("dimensions"), message));
    }
    let form = Form { dimensions, base64, shape: Shape::List };
    ask(model, body.input.prompts(), form, asked)
}

/// What an answer looks like.
struct Form {
    dimensions: u32,
    base64: bool,
    shape: Shape,
}

/// Whose answer it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// OpenAI's list.
    List,
    /// Gemini's one vector.
    One,
    /// Gemini's list.
    Batch,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content<'a> {
    #[serde(borrow)]
    content: Parts<'a>,
    #[serde(alias = "output_dimensionality")]
    output_dimensionality: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct Parts<'a> {
    #[serde(borrow)]
    parts: Vec<Part<'a>>,
}

#[derive(Debug, Deserialize)]
struct Batch<'a> {
    #[serde(borrow)]
    requests: Vec<Content<'a>>,
}

/// Reads a request of Gemini's `embedContent`, or of `batchEmbedContents`.
pub(super) fn read_gemini(
    model: &str,
    batch: bool,
    asked: &Asked<'_>,
) -> Result<(Ask, Box<dyn Voice>), ApiError> {
    let model = served_model(Some(model), asked.config)?;
    let contents: Vec<Content<'_>> = match batch {
        true => json::<Batch<'_>>(asked.body)?.requests,
        false => vec![json(asked.body)?],
    };
    let prompts = contents.iter().map(|content| {
        let mut hasher = PromptHasher::new(u32::MAX, &[]);
        Part::hash_all(&content.content.parts, &mut hasher);
        hasher.finish()
    });
    let dimensions = contents.first().and_then(|content| content.output_dimensionality);
    let dimensions = dimensions.unwrap_or(DEFAULT_DIMENSIONS).clamp(1, MOST_DIMENSIONS);
    let shape = if batch { Shape::Batch } else { Shape::One };
    ask(model, prompts.collect(), Form { dimensions, base64: false, shape }, asked)
}

fn ask(
    model: String,
    prompts: Vec<Prompt>,
    form: Form,
    asked: &Asked<'_>,
) -> Result<(Ask, Box<dyn Voice>), ApiError> {
    if prompts.is_empty() || prompts.len() > MOST_INPUTS || prompts.iter().any(|prompt| prompt.tokens == 0) {
        let message = format!("input must be from 1 to {MOST_INPUTS} texts, none of them empty");
        return Err(ApiError::invalid(Some("input"), message));
    }
    let context = asked.config.engine.max_context_tokens;
    if prompts.iter().any(|prompt| prompt.tokens >= context) {
        return Err(ApiError {
            code: Some("context_length_exceeded"),
            ..ApiError::invalid(
                Some("input"),
                format!("this model's maximum context length is {context} tokens"),
            )
        });
    }
    // Computed in one go, and never found in the prefix cache: there is nothing to go on with.
    let prompt = Prompt {
        tokens: prompts.iter().fold(0, |sum, prompt| sum.saturating_add(prompt.tokens)),
        blocks: Vec::new(),
        digest: prompts[0].digest,
    };
    let answer = Answer { tokens: 0, thoughts: 0, cap: 0, finish: Finish::Stop };
    let digests = prompts.iter().map(|prompt| prompt.digest).collect();
    let voice = Vectors { model: model.clone(), digests, form };
    Ok((Ask { model, stream: false, prompt, answer }, Box::new(voice)))
}

/// The vectors of all inputs.
struct Vectors {
    model: String,
    digests: Vec<u64>,
    form: Form,
}

impl Voice for Vectors {
    fn token(&mut self, _token: Token<'_>) -> String {
        String::new()
    }

    fn tail(&mut self, _usage: Usage, _shape: TailShape) -> String {
        String::new()
    }

    fn failure(&mut self, error: &ApiError) -> String {
        error_json(error, error.status)
    }

    fn whole(&mut self, _text: &Text, usage: Usage) -> String {
        if self.form.shape != Shape::List {
            return self.values();
        }
        let data: Vec<String> = self
            .digests
            .iter()
            .enumerate()
            .map(|(index, digest)| {
                let vector = vector(*digest, self.form.dimensions);
                let embedding = if self.form.base64 {
                    let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
                    format!("\"{}\"", base64(&bytes))
                } else {
                    numbers(&vector)
                };
                format!(r#"{{"object":"embedding","index":{index},"embedding":{embedding}}}"#)
            })
            .collect();
        let (model, tokens) = (quoted(&self.model), usage.prompt_tokens);
        format!(
            r#"{{"object":"list","data":[{}],"model":{model},"usage":{{"prompt_tokens":{tokens},"total_tokens":{tokens}}}}}"#,
            data.join(",")
        )
    }
}

impl Vectors {
    /// As Gemini writes them, without counts.
    fn values(&self) -> String {
        let one =
            |digest: &u64| format!(r#"{{"values":{}}}"#, numbers(&vector(*digest, self.form.dimensions)));
        let all: Vec<String> = self.digests.iter().map(one).collect();
        match self.form.shape {
            Shape::One => format!(r#"{{"embedding":{}}}"#, all.join(",")),
            Shape::List | Shape::Batch => format!(r#"{{"embeddings":[{}]}}"#, all.join(",")),
        }
    }
}

/// A list of numbers as JSON.
fn numbers(vector: &[f32]) -> String {
    let numbers: Vec<String> = vector.iter().map(f32::to_string).collect();
    format!("[{}]", numbers.join(","))
}

/// A vector of length 1 that the text decides.
fn vector(digest: u64, dimensions: u32) -> Vec<f32> {
    let raw: Vec<f64> = (0..dimensions)
        .map(|n| (xxh3_64_with_seed(&n.to_le_bytes(), digest) >> 11) as f64 / (1_u64 << 52) as f64 - 1.0)
        .collect();
    let length = raw.iter().map(|x| x * x).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
    raw.iter().map(|x| (x / length) as f32).collect()
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits =
            three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let digit = char::from(DIGITS[(bits >> (18 - 6 * place) & 63) as usize]);
            out.push(if place <= three.len() { digit } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_its_rfc() {
        // RFC 4648, section 10.
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        assert_eq!(base64(&[0xfb, 0xff]), "+/8=");
    }

    #[test]
    fn a_vector_has_length_one_and_goes_by_its_text() {
        let a = vector(1, 64);
        let length: f32 = a.iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
        assert_eq!(a, vector(1, 64));
        assert_ne!(a, vector(2, 64));
    }
}
