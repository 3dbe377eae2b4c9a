//! Event kinds: one vocabulary for decoder, record and analysis.

use super::vocabulary;

vocabulary! {
    /// What one decoded unit of a stream is. [`EventKind::is_output`] says which kinds carry output.
    EventKind, "event kind" {
        /// Framing of the dialect without content of its own: a role, a block's start or stop, an empty delta.
        Structure = "structure",
        /// Visible answer text.
        Text = "text",
        /// Reasoning text, full or summarised.
        Reasoning = "reasoning",
        /// A piece of a tool call's name or arguments.
        ToolArgs = "tool_args",
        /// Refusal text in its own field.
        Refusal = "refusal",
        /// Content without readable text: signatures, encrypted reasoning, audio.
        Opaque = "opaque",
        /// Token counts.
        Usage = "usage",
        /// The dialect's end of the answer: a finish reason, a stop event, `[DONE]`.
        Terminal = "terminal",
        /// A sign of life without content: a comment line, a ping.
        Heartbeat = "heartbeat",
        /// A server-side state report: queued, in progress, searching.
        Progress = "progress",
        /// Anything about the answer that is not the answer: ids, log probabilities alone, moderation results.
        Meta = "meta",
        /// An error object inside the stream.
        Error = "error",
    }
}

impl EventKind {
    /// Whether the event carries output that counts for TTFT, gaps and token times: text, reasoning, tool arguments,
    /// refusals.
    pub const fn is_output(self) -> bool {
        matches!(self, Self::Text | Self::Reasoning | Self::ToolArgs | Self::Refusal)
    }

    /// The code in the `kind` column of a run's events: the position in [`EventKind::ALL`], never renumbered.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The kind behind a stored code; `None` for codes of a later version.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_positions_and_survive_the_way_back() {
        for (position, kind) in EventKind::ALL.iter().enumerate() {
            assert_eq!(usize::from(kind.code()), position);
            assert_eq!(EventKind::from_code(kind.code()), Some(*kind));
        }
        assert_eq!(EventKind::from_code(EventKind::ALL.len() as u8), None);
    }

    #[test]
    fn output_kinds_are_text_reasoning_tool_arguments_and_refusals() {
        let output: Vec<&str> =
            EventKind::ALL.iter().filter(|kind| kind.is_output()).map(|kind| kind.as_str()).collect();
        assert_eq!(output, ["text", "reasoning", "tool_args", "refusal"]);
    }
}
