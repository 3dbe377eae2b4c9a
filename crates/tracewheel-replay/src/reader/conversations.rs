//! What sessions have said so far, and the next turn's request made of it.

use std::collections::HashMap;

use bytes::Bytes;
use tracewheel_protocol::{Chat, Provider, Speaker, Turn};
use tracewheel_record::manifest::ThreadingOutcome;
use tracewheel_timeline::vocab::BodyState;
use tracewheel_transport::Body;
use tracewheel_workload::{PlannedRequest, PromptSpec};

use crate::prefetch::Renderer;

/// Bytes kept of conversations, twice: beyond them those used longest ago are forgotten.
const MOST_BYTES: usize = 64 << 20;
/// The longest answer that is kept.
pub(super) const MOST_ANSWER_BYTES: usize = 1 << 20;
/// What a part of a conversation costs beside its text.
const PART_BYTES: usize = 128;

/// The conversations under way, within bounds.
#[derive(Default)]
pub(super) struct Conversations {
    younger: Kept,
    older: Kept,
    seen: ThreadingOutcome,
}

#[derive(Default)]
struct Kept {
    of: HashMap<u64, Conversation>,
    bytes: usize,
}

/// One session: what was asked and answered, in order.
#[derive(Default)]
struct Conversation {
    parts: Vec<Part>,
    /// The turn that was written last and has not ended.
    pending: Option<Pending>,
}

struct Pending {
    row: u64,
    asked: Asked,
    /// It does not go on from what was there.
    anew: bool,
}

struct Part {
    row: u64,
    asked: Asked,
    /// Output tokens that were recorded.
    output_tokens: u32,
    answer: Option<Said>,
}

/// What a turn asked.
enum Asked {
    /// The end of a made-up prompt, behind so many of its tokens.
    MadeUp { prompt: PromptSpec, behind_tokens: u32 },
    /// A recorded body of so many messages.
    Recorded { messages: usize },
}

/// A live answer.
pub(super) struct Said {
    pub(super) text: String,
    pub(super) tokens: u32,
}

/// A turn's request as it became.
pub(super) struct Written {
    pub(super) body: Body,
    /// Input tokens of a made-up prompt, with the live answers in it.
    pub(super) asked_input_tokens: Option<u32>,
}

/// Why a turn goes as planned.
#[derive(Clone, Copy)]
enum Left {
    /// The turn before has no text: it failed, or called tools, or said too much.
    NoAnswer,
    /// The recorded conversation does not go on from the turn before, or has no place for its answer.
    NotContinued,
    /// It has been too long, and too much was said elsewhere.
    Forgotten,
}

impl Conversations {
    /// What became of the turns so far.
    pub(super) fn seen(self) -> ThreadingOutcome {
        self.seen
    }

    /// A turn has ended, with this answer.
    pub(super) fn ended(
        &mut self,
        session: u64,
        planned: &PlannedRequest,
        chat: Option<Chat>,
        answer: Option<Said>,
    ) {
        let mut known = self.take(session).unwrap_or_default();
        let (asked, anew) = match known.pending.take().filter(|pending| pending.row == planned.row) {
            Some(pending) => (pending.asked, pending.anew),
            None => (Asked::whole(planned, chat), true),
        };
        if anew {
            known.parts.clear();
        }
        let (row, output_tokens) = (planned.row, planned.output_tokens);
        known.parts.push(Part { row, asked, output_tokens, answer });
        self.keep(session, known);
    }

    /// The request of a session's next turn with the live answers in it; `None` where it goes as planned. `after_row`: the
    /// turn before it, if that one ended well.
    pub(super) fn write(
        &mut self,
        (session, after_row): (u64, Option<u64>),
        planned: &PlannedRequest,
        provider: &'static dyn Provider,
        renderer: &mut Renderer,
    ) -> Option<Written> {
        let chat = provider.chat();
        let known = self.take(session);
        let last = |known: &Conversation| known.parts.last().map(|part| part.row);
        let outcome = match (&known, after_row) {
            (_, None) => Err(Left::NoAnswer),
            (None, _) => Err(Left::Forgotten),
            // A turn that was left as recorded has no whole answer.
            (Some(known), row) if last(known) != row => Err(Left::NoAnswer),
            (Some(known), _) => known.write(planned, provider, renderer),
        };
        let mut known = known.unwrap_or_default();
        let (asked, written) = match outcome {
            Ok((asked, written, answers)) => {
                self.seen.turns += 1;
                self.seen.answers += u64::from(answers);
                if let Some(Part { answer: Some(said), output_tokens, .. }) = known.parts.last() {
                    self.seen.recorded_tokens += u64::from(*output_tokens);
                    self.seen.live_tokens += u64::from(said.tokens);
                }
                (Some(asked), Some(written))
            }
            Err(left) => {
                *self.seen.as_planned.entry(left.word().to_owned()).or_default() += 1;
                (None, None)
            }
        };
        let anew = asked.is_none();
        let asked = asked.unwrap_or_else(|| Asked::whole(planned, chat));
        known.pending = Some(Pending { row: planned.row, asked, anew });
        self.keep(session, known);
        written
    }

    fn take(&mut self, session: u64) -> Option<Conversation> {
        self.younger.take(session).or_else(|| self.older.take(session))
    }

    fn keep(&mut self, session: u64, known: Conversation) {
        if self.younger.bytes > MOST_BYTES {
            self.older = std::mem::take(&mut self.younger);
        }
        self.younger.bytes += known.bytes();
        self.younger.of.insert(session, known);
    }
}

impl Kept {
    fn take(&mut self, session: u64) -> Option<Conversation> {
        let known = self.of.remove(&session)?;
        self.bytes -= known.bytes();
        Some(known)
    }
}

impl Left {
    fn word(self) -> &'static str {
        match self {
            Left::NoAnswer => "no_answer",
            Left::NotContinued => "not_continued",
            Left::Forgotten => "forgotten",
        }
    }
}

impl Asked {
    /// All that a turn asks as it was planned.
    fn whole(planned: &PlannedRequest, chat: Option<Chat>) -> Asked {
        match recorded(planned) {
            Some(body) => {
                Asked::Recorded { messages: chat.and_then(|chat| chat.messages_in(body)).unwrap_or(0) }
            }
            None => Asked::MadeUp { prompt: planned.prompt.clone(), behind_tokens: 0 },
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Asked::MadeUp { prompt, .. } => prompt.blocks.capacity() * 16,
            Asked::Recorded { .. } => 0,
        }
    }
}

impl Conversation {
    fn bytes(&self) -> usize {
        let text = |part: &Part| part.answer.as_ref().map_or(0, |said| said.text.capacity());
        let parts: usize = self.parts.iter().map(|part| PART_BYTES + part.asked.bytes() + text(part)).sum();
        PART_BYTES + parts + self.pending.as_ref().map_or(0, |pending| pending.asked.bytes())
    }

    /// What the turn asks, its request, and how many answers are in it.
    fn write(
        &self,
        planned: &PlannedRequest,
        provider: &'static dyn Provider,
        renderer: &mut Renderer,
    ) -> Result<(Asked, Written, u32), Left> {
        let before = self.parts.last().ok_or(Left::Forgotten)?;
        let chat = provider.chat().ok_or(Left::NotContinued)?;
        if before.answer.is_none() {
            return Err(Left::NoAnswer);
        }
        match recorded(planned) {
            Some(body) => self.recorded(before, chat, body),
            None => self.made_up(before, planned, provider, renderer),
        }
    }

    fn recorded(&self, before: &Part, chat: Chat, body: &[u8]) -> Result<(Asked, Written, u32), Left> {
        let Asked::Recorded { messages: before } = before.asked else { return Err(Left::NotContinued) };
        let messages = chat.messages_in(body).unwrap_or(0);
        // A conversation that was cut down holds other answers than those of the turns before.
        if messages < before + 2 {
            return Err(Left::NotContinued);
        }
        let answers: Vec<Option<&str>> =
            self.parts.iter().map(|part| part.answer.as_ref().map(|said| said.text.as_str())).collect();
        let threaded = chat.with_answers(body, &answers).filter(|threaded| threaded.last);
        let threaded = threaded.ok_or(Left::NotContinued)?;
        let written = Written { body: Bytes::from(threaded.body).into(), asked_input_tokens: None };
        Ok((Asked::Recorded { messages }, written, threaded.replaced))
    }

    fn made_up(
        &self,
        before: &Part,
        planned: &PlannedRequest,
        provider: &'static dyn Provider,
        renderer: &mut Renderer,
    ) -> Result<(Asked, Written, u32), Left> {
        let behind_tokens = goes_on_behind(before, &planned.prompt).ok_or(Left::NotContinued)?;
        let asked = Asked::MadeUp { prompt: planned.prompt.clone(), behind_tokens };
        let mut texts = Vec::with_capacity(self.parts.len());
        let mut input_tokens = i64::from(planned.prompt.tokens());
        for part in &self.parts {
            let (Asked::MadeUp { prompt, behind_tokens }, Some(said)) = (&part.asked, &part.answer) else {
                return Err(Left::NotContinued);
            };
            texts.push((renderer.text_behind(prompt, *behind_tokens), said));
            input_tokens += i64::from(said.tokens) - i64::from(part.output_tokens);
        }
        let turns: Vec<Turn<'_>> = texts
            .iter()
            .flat_map(|(asked, said)| {
                [
                    Turn { speaker: Speaker::User, text: asked },
                    Turn { speaker: Speaker::Assistant, text: &said.text },
                ]
            })
            .collect();
        let prompt = renderer.text_behind(&planned.prompt, behind_tokens);
        let written = Written {
            body: renderer.with_turns(provider, planned, &turns, &prompt),
            asked_input_tokens: u32::try_from(input_tokens.max(1)).ok(),
        };
        Ok((asked, written, self.parts.len() as u32))
    }
}

/// The tokens of `prompt` that are the turn before and its answer, where the rest is what the person said then.
fn goes_on_behind(before: &Part, prompt: &PromptSpec) -> Option<u32> {
    let Asked::MadeUp { prompt: known, .. } = &before.asked else { return None };
    let behind = known.tokens().checked_add(before.output_tokens)?;
    // The last block may be a short one, and then a longer one with another hash stands in its place.
    let whole = &known.blocks[..known.blocks.len().saturating_sub(1)];
    (behind < prompt.tokens() && prompt.blocks.starts_with(whole)).then_some(behind)
}

/// The body that is sent as it was recorded, where there is one.
fn recorded(planned: &PlannedRequest) -> Option<&Bytes> {
    planned.body.as_ref().filter(|_| planned.body_state == BodyState::Full)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracewheel_workload::{BlockSpec, TailSpec};

    fn prompt(hashes: &[(u64, u32)], tail_tokens: u32) -> PromptSpec {
        let blocks = hashes.iter().map(|&(hash, tokens)| BlockSpec { hash, tokens }).collect();
        PromptSpec { blocks, tail: (tail_tokens > 0).then_some(TailSpec { key: 1, tokens: tail_tokens }) }
    }

    fn asked(prompt: PromptSpec) -> Part {
        let asked = Asked::MadeUp { prompt, behind_tokens: 0 };
        Part { row: 0, asked, output_tokens: 10, answer: None }
    }

    #[test]
    fn a_prompt_goes_on_where_it_holds_the_one_before_with_its_answer_and_more() {
        let next = |before, next| goes_on_behind(&asked(before), &next);
        assert_eq!(next(prompt(&[], 30), prompt(&[], 41)), Some(40));
        assert_eq!(next(prompt(&[], 30), prompt(&[], 40)), None, "nothing was said");
        assert_eq!(next(prompt(&[], 30), prompt(&[], 20)), None, "the history was cut");
        let before = || prompt(&[(1, 16), (2, 16), (3, 4)], 0);
        assert_eq!(next(before(), prompt(&[(1, 16), (2, 16), (4, 16), (5, 8)], 0)), Some(46));
        assert_eq!(next(before(), prompt(&[(1, 16), (9, 16), (4, 16), (5, 8)], 0)), None, "another history");
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_longest_unused_is_forgotten() {
        let mut kept = Conversations::default();
        let planned = |row| PlannedRequest { row, ..tests_request() };
        let answer = || Some(Said { text: "x".repeat(MOST_ANSWER_BYTES), tokens: 1 });
        for session in 0..200 {
            kept.ended(session, &planned(session), Some(Chat::OpenAi), answer());
        }
        assert!(kept.younger.bytes + kept.older.bytes <= 2 * (MOST_BYTES + 2 * MOST_ANSWER_BYTES));
        assert!(kept.take(199).is_some() && kept.take(0).is_none());
        let held = |kept: &Kept| kept.of.values().map(Conversation::bytes).sum::<usize>();
        assert_eq!((held(&kept.younger), held(&kept.older)), (kept.younger.bytes, kept.older.bytes));
    }

    fn tests_request() -> PlannedRequest {
        PlannedRequest {
            row: 0,
            copy: 0,
            request_id: 1,
            planned_ns: 0,
            phase: tracewheel_timeline::vocab::Phase::Measure,
            trace_unix_ns: None,
            operation: tracewheel_timeline::vocab::Operation::Chat,
            method: None,
            path: None,
            model: None,
            route: None,
            endpoint: None,
            provider: None,
            input_tokens: 30,
            output_tokens: 10,
            tokens_filled: false,
            stream: true,
            cancel_after_ns: None,
            session_hash: None,
            turn: None,
            think_ns: None,
            tenant_hash: None,
            user_hash: None,
            tags: None,
            params: None,
            headers: None,
            body: None,
            body_state: BodyState::Absent,
            prompt: prompt(&[], 30),
            predicted_cached_tokens: None,
            lane: tracewheel_workload::Lane::default(),
        }
    }
}
