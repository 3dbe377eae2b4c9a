//! One JSON message of the Responses protocol: an event of a stream, or a whole answer. Read leniently.

use serde::de::{MapAccess, SeqAccess};
use tracewheel_timeline::vocab::EventKind;

use crate::lenient::{Length, Sink, Truthy, count, first, measure, skip, take, take_element};
use crate::{ResponseMeta, Usage};

/// What an event is, by its `type` or its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// A piece of output or of an opaque payload, in `delta`.
    Delta(EventKind),
    /// An item begins; that of a tool call has a name.
    ItemAdded,
    /// Beginnings and ends. Those that end in `done` repeat what the deltas said.
    Structure,
    /// A tool of the server's own is at work.
    Progress,
    /// Citations and the like.
    Annotation,
    /// The answer is whole: `completed`, or `incomplete` because of the cap.
    Ended,
    /// The answer failed.
    Failed,
    Ping,
    #[default]
    Unknown,
}

impl Kind {
    pub(super) fn of(name: &[u8]) -> Self {
        let Some(of_response) = name.strip_prefix(b"response.") else {
            return match name {
                b"error" => Kind::Failed,
                b"ping" | b"keepalive" => Kind::Ping,
                _ => Kind::Unknown,
            };
        };
        match of_response {
            b"output_text.delta" | b"audio.transcript.delta" | b"output_audio_transcript.delta" => {
                Kind::Delta(EventKind::Text)
            }
            b"reasoning_text.delta" | b"reasoning_summary_text.delta" => Kind::Delta(EventKind::Reasoning),
            b"refusal.delta" => Kind::Delta(EventKind::Refusal),
            b"function_call_arguments.delta"
            | b"custom_tool_call_input.delta"
            | b"mcp_call_arguments.delta"
            | b"code_interpreter_call_code.delta"
            | b"shell_call_command.delta" => Kind::Delta(EventKind::ToolArgs),
            b"audio.delta" | b"output_audio.delta" | b"image_generation_call.partial_image" => {
                Kind::Delta(EventKind::Opaque)
            }
            b"output_item.added" => Kind::ItemAdded,
            b"completed" | b"incomplete" => Kind::Ended,
            b"failed" => Kind::Failed,
            b"queued" | b"in_progress" => Kind::Progress,
            b"created" => Kind::Structure,
            _ if of_response.ends_with(b".done") || of_response.ends_with(b".added") => {
                if of_response.ends_with(b"annotation.added") { Kind::Annotation } else { Kind::Structure }
            }
            // Web and file search, code, images: `response.web_search_call.searching` and its like.
            _ if memchr::memmem::find(of_response, b"_call.").is_some()
                || of_response.starts_with(b"mcp_list_tools.") =>
            {
                Kind::Progress
            }
            _ => Kind::Unknown,
        }
    }
}

impl Sink for Kind {
    fn text(&mut self, value: &str) {
        *self = Kind::of(value.as_bytes());
    }
}

/// `status` of a whole answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Status {
    Failed,
    #[default]
    Other,
}

/// What one message says. Kept and cleared for the next one.
#[derive(Default)]
pub(super) struct Message {
    pub(super) kind: Kind,
    /// Bytes of `delta`.
    pub(super) delta: u32,
    /// Bytes of the name of the item's tool.
    pub(super) item_name: u32,
    /// A truthy `error`.
    pub(super) error: bool,
    pub(super) status: Status,
    /// A whole answer has output, be it empty.
    pub(super) has_output: bool,
    pub(super) output: Output,
    pub(super) usage: Option<Usage>,
    pub(super) meta: ResponseMeta,
}

impl Message {
    pub(super) fn clear(&mut self) {
        let meta = std::mem::take(&mut self.meta);
        *self = Message { meta, ..Message::default() };
    }
}

impl Sink for Message {
    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "type" => take(values, &mut self.kind),
            "delta" | "partial_image_b64" => measure(values, &mut self.delta),
            "item" => take(values, &mut Item(&mut self.item_name)),
            "response" => take(values, &mut Response { message: self, whole: false }),
            "error" => {
                let mut truthy = Truthy::default();
                take(values, &mut truthy)?;
                self.error |= truthy.0;
                Ok(())
            }
            _ => Response { message: self, whole: true }.entry(key, values),
        }
    }
}

/// An item that begins: its name, if it is a tool's.
struct Item<'m>(&'m mut u32);

impl Sink for Item<'_> {
    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        if key == "name" { measure(values, self.0) } else { skip(values) }
    }
}

/// A response: within an event, or as the whole answer, whose output counts.
struct Response<'m> {
    message: &'m mut Message,
    whole: bool,
}

impl Sink for Response<'_> {
    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        let meta = &mut self.message.meta;
        match key {
            "id" => first(values, &mut meta.id),
            "model" => first(values, &mut meta.model),
            "service_tier" => first(values, &mut meta.service_tier),
            "status" => take(values, &mut StatusSink { status: &mut self.message.status, meta }),
            "incomplete_details" => take(values, &mut Reason(&mut meta.finish_reason)),
            "usage" => take(values, &mut UsageSink { usage: &mut self.message.usage, details: false }),
            "output" if self.whole => {
                self.message.has_output = true;
                take(values, &mut Items(&mut self.message.output))
            }
            _ => skip(values),
        }
    }
}

struct StatusSink<'m> {
    status: &'m mut Status,
    meta: &'m mut ResponseMeta,
}

impl Sink for StatusSink<'_> {
    fn text(&mut self, value: &str) {
        match value {
            "failed" | "cancelled" => *self.status = Status::Failed,
            // A better word may stand in `incomplete_details`.
            "completed" => {
                self.meta.finish_reason.get_or_insert_with(|| value.to_owned());
            }
            _ => {}
        }
    }
}

struct Reason<'m>(&'m mut Option<String>);

impl Sink for Reason<'_> {
    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        if key == "reason" { first(values, self.0) } else { skip(values) }
    }
}

/// What a whole answer holds; lengths in bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct Output {
    pub(super) text: u32,
    pub(super) reasoning: u32,
    pub(super) tool_args: u32,
    pub(super) refusal: u32,
}

/// `output`: items, each a message, reasoning or a call.
struct Items<'m>(&'m mut Output);

impl Sink for Items<'_> {
    fn element<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<bool, A::Error> {
        let mut item = WholeItem { output: Output::default(), unnamed: 0, thinks: false };
        let more = take_element(elements, &mut item)?;
        let reasoning = if item.thinks { item.unnamed } else { 0 };
        let text = item.unnamed - reasoning;
        for (sum, bytes) in [
            (&mut self.0.text, item.output.text + text),
            (&mut self.0.reasoning, item.output.reasoning + reasoning),
            (&mut self.0.tool_args, item.output.tool_args),
            (&mut self.0.refusal, item.output.refusal),
        ] {
            *sum = sum.saturating_add(bytes);
        }
        Ok(more)
    }
}

/// One item. Text within it is of the kind that the item's `type` says, which may stand behind it.
struct WholeItem {
    output: Output,
    unnamed: u32,
    thinks: bool,
}

impl Sink for WholeItem {
    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "type" => {
                let mut is = crate::lenient::Is { wanted: "reasoning", found: false };
                take(values, &mut is)?;
                self.thinks |= is.found;
                Ok(())
            }
            "content" | "summary" => take(values, &mut Parts(self)),
            "name" | "arguments" | "input" | "code" => measure(values, &mut self.output.tool_args),
            _ => skip(values),
        }
    }
}

/// The parts of an item's content.
struct Parts<'i>(&'i mut WholeItem);

impl Sink for Parts<'_> {
    fn element<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<bool, A::Error> {
        take_element(elements, self)
    }

    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        let mut bytes = Length::default();
        match key {
            "text" => {
                take(values, &mut bytes)?;
                self.0.unnamed = self.0.unnamed.saturating_add(bytes.0);
                Ok(())
            }
            "refusal" => measure(values, &mut self.0.output.refusal),
            _ => skip(values),
        }
    }
}

/// `usage`, and the details inside of it.
struct UsageSink<'m> {
    usage: &'m mut Option<Usage>,
    details: bool,
}

impl Sink for UsageSink<'_> {
    fn object(&mut self) {
        self.usage.get_or_insert_default();
    }

    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        let usage = self.usage.get_or_insert_default();
        match (self.details, key) {
            (false, "input_tokens") => count(values, &mut usage.input_tokens, true),
            (false, "output_tokens") => count(values, &mut usage.output_tokens, true),
            (false, "input_tokens_details" | "output_tokens_details") => {
                take(values, &mut UsageSink { usage: self.usage, details: true })
            }
            (true, "cached_tokens") => count(values, &mut usage.cached_tokens, true),
            (true, "cache_write_tokens") => count(values, &mut usage.cache_write_tokens, true),
            (true, "reasoning_tokens") => count(values, &mut usage.reasoning_tokens, true),
            _ => skip(values),
        }
    }
}
