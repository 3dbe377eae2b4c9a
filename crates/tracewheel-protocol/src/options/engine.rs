//! Engines by name: what each speaks, and which knobs it has.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{LimitField, TokenDetail};

/// Who answers, where that decides what can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// OpenAI's own API.
    Openai,
    /// vLLM, and NIM 2, which serves its API.
    Vllm,
    /// SGLang.
    Sglang,
    /// The server of llama.cpp.
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
    /// Text Generation Inference.
    Tgi,
    /// Ollama.
    Ollama,
    /// LiteLLM's proxy.
    Litellm,
    /// The llm-d inference simulator.
    LlmdSim,
}

/// What an engine decides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Preset {
    /// The protocols that it speaks.
    pub(super) protocols: &'static [&'static str],
    /// `ignore_eos` is obeyed.
    pub(super) forces_length: bool,
    /// And `min_tokens` is known.
    pub(super) min_tokens: bool,
    /// The cap's name, where it is not `max_tokens`.
    pub(super) limit_field: Option<LimitField>,
    /// How chunks can say how many tokens they hold; the first is taken unless told otherwise.
    pub(super) token_details: &'static [TokenDetail],
    /// Completions take token ids for a prompt.
    pub(super) takes_ids: bool,
    /// Deltas are padded unless that is declined.
    pub(super) pads_deltas: bool,
}

const NOTHING: Preset = Preset {
    protocols: &[],
    forces_length: false,
    min_tokens: false,
    limit_field: None,
    token_details: &[],
    takes_ids: false,
    pads_deltas: false,
};

impl Engine {
    /// Every engine, with its word and what its preset sends.
    pub const ALL: [(&'static str, Self, &'static str); 8] = [
        ("openai", Self::Openai, "only the cap, as `max_completion_tokens`; no padding of deltas"),
        ("vllm", Self::Vllm, "`ignore_eos`, `min_tokens`, usage with every chunk"),
        ("sglang", Self::Sglang, "`ignore_eos`, `min_tokens`, usage with every chunk"),
        ("llama.cpp", Self::LlamaCpp, "`ignore_eos`, timings with every chunk"),
        ("tgi", Self::Tgi, "only the cap"),
        ("ollama", Self::Ollama, "only the cap"),
        ("litellm", Self::Litellm, "only the cap"),
        ("llmd-sim", Self::LlmdSim, "`ignore_eos`"),
    ];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(_, engine, _)| *engine == self).map_or("", |(word, ..)| word)
    }

    /// The engine of that word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(own, ..)| *own == word).map(|(_, engine, _)| *engine)
    }

    /// Whether `min_tokens` is known to it.
    pub(crate) fn knows_min_tokens(self) -> bool {
        self.preset().min_tokens
    }

    pub(super) fn preset(self) -> Preset {
        match self {
            Engine::Openai => Preset {
                protocols: &["openai-chat", "openai-completions", "openai-responses", "openai-embeddings"],
                limit_field: Some(LimitField::MaxCompletionTokens),
                pads_deltas: true,
                ..NOTHING
            },
            Engine::Vllm | Engine::Sglang => Preset {
                protocols: &[
                    "openai-chat",
                    "openai-completions",
                    "openai-responses",
                    "openai-embeddings",
                    "anthropic-messages",
                ],
                forces_length: true,
                min_tokens: true,
                token_details: &[TokenDetail::ContinuousUsage, TokenDetail::TokenIds],
                takes_ids: true,
                ..NOTHING
            },
            Engine::LlamaCpp => Preset {
                protocols: &["openai-chat", "openai-completions", "openai-embeddings"],
                forces_length: true,
                token_details: &[TokenDetail::Timings],
                takes_ids: true,
                ..NOTHING
            },
            Engine::Tgi => {
                Preset { protocols: &["tgi-generate", "openai-chat", "openai-completions"], ..NOTHING }
            }
            Engine::Ollama => Preset {
                protocols: &[
                    "ollama-chat",
                    "ollama-generate",
                    "openai-chat",
                    "openai-completions",
                    "openai-embeddings",
                ],
                ..NOTHING
            },
            Engine::Litellm => Preset {
                protocols: &[
                    "openai-chat",
                    "openai-completions",
                    "openai-responses",
                    "openai-embeddings",
                    "anthropic-messages",
                ],
                ..NOTHING
            },
            Engine::LlmdSim => {
                Preset { protocols: &["openai-chat", "openai-completions"], forces_length: true, ..NOTHING }
            }
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
