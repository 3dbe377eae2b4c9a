//! A mock in words and in figures, for a person and for a script.

use std::fmt::Write as _;

use serde::Serialize;

use crate::config::{FaultRule, HttpConfig, MockConfig, OverLimit, Point, TimeOfDay, Variation};
use crate::engine::step_time::StepTime;
use crate::engine::tenants::Curve;

/// Prompt of the request that throughput is told for, tokens.
const USUAL_PROMPT: u32 = 1000;
/// Prompts that first-token times are told for, tokens.
const PROMPTS: [u32; 3] = [100, USUAL_PROMPT, 8000];
const HOUR_NS: i64 = 3_600_000_000_000;
/// Heights of a sketched curve.
const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// What a configuration means: the configuration itself and the figures that follow from it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Description {
    /// All of it, defaults filled in.
    pub config: MockConfig,
    /// Time to the first token on an idle endpoint.
    pub first_token: Vec<FirstToken>,
    /// Time from token to token of one sequence alone, milliseconds.
    pub token_gap_alone_ms: f64,
    /// The same among as many sequences as run at once, none of them in prefill.
    pub token_gap_full_ms: f64,
    /// Output tokens a second of a full batch that has nothing in prefill.
    pub most_output_tokens_per_s: f64,
    /// What throughput is told for.
    pub usual_prompt_tokens: u32,
    /// What throughput is told for.
    pub usual_output_tokens: u32,
    /// Such requests a second that the engine or a budget lets through, nothing cached and nobody else there.
    pub most_requests_per_s: f64,
    /// Such requests at once that find a place when nobody else is there; one more waits.
    pub places: u32,
    /// Wanted places of the other tenants over a day from midnight, the mean of each hour; empty without any.
    pub tenants_by_hour: Vec<f64>,
}

/// Time to the first token of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FirstToken {
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// With nothing cached, milliseconds.
    pub cold_ms: f64,
    /// With all of it cached that can be, milliseconds.
    pub cached_ms: f64,
}

impl MockConfig {
    /// The configured model in words: what the endpoint does and how long it takes, for a person.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        self.describe_engine(&mut text);
        self.describe_cache(&mut text);
        self.describe_limits(&mut text);
        self.describe_tenants(&mut text);
        self.describe_http(&mut text);
        self.describe_faults(&mut text);
        self.description().derived(&mut text);
        text
    }

    /// The configuration with the figures that follow from it.
    pub fn description(&self) -> Description {
        let times = StepTime::new(&self.engine);
        let full = self.engine.max_running;
        let output = self.engine.natural_output_tokens;
        Description {
            config: self.clone(),
            first_token: PROMPTS.map(|prompt| self.first_token(&times, prompt)).to_vec(),
            token_gap_alone_ms: ms(times.step_ns(1, 0)),
            token_gap_full_ms: ms(times.step_ns(full, 0)),
            most_output_tokens_per_s: f64::from(full) * 1e9 / times.step_ns(full, 0).max(1) as f64,
            usual_prompt_tokens: USUAL_PROMPT,
            usual_output_tokens: output,
            most_requests_per_s: self.most_requests_per_s(&times),
            places: self.places(),
            tenants_by_hour: self.tenants_by_hour(),
        }
    }

    fn first_token(&self, times: &StepTime, prompt_tokens: u32) -> FirstToken {
        let intake_ns = i64::from(self.engine.intake_us) * 1000;
        let after = |computed: u32| {
            let most = self.engine.max_batched_tokens.max(1);
            let steps = i64::from(computed.div_ceil(most));
            ms(intake_ns + steps * times.step_ns(0, 0) + times.prefill_of(computed))
        };
        let block = self.cache.block_tokens.max(1);
        let blocks = ((prompt_tokens - 1) / block).min(self.cache.capacity_blocks);
        let cached = if self.cache.enabled { blocks * block } else { 0 };
        FirstToken { prompt_tokens, cold_ms: after(prompt_tokens), cached_ms: after(prompt_tokens - cached) }
    }

    /// Usual requests that run at once.
    fn places(&self) -> u32 {
        let size = u64::from(USUAL_PROMPT) + u64::from(self.engine.natural_output_tokens);
        let by_room = self.engine.kv_tokens.map_or(u64::MAX, |tokens| u64::from(tokens) / size).max(1);
        let limited = self.limits.max_in_flight.map_or(u32::MAX, Into::into);
        self.engine.max_running.min(u32::try_from(by_room).unwrap_or(u32::MAX)).min(limited)
    }

    /// Usual requests a second in a steady state: each step gives every running sequence a token and computes the
    /// prompts of as many as leave; a step has room for so many tokens only.
    fn most_requests_per_s(&self, times: &StepTime) -> f64 {
        let (prompt, output) = (f64::from(USUAL_PROMPT), f64::from(self.engine.natural_output_tokens));
        let by_places = f64::from(self.places()) / output;
        let by_tokens = f64::from(self.engine.max_batched_tokens) / (prompt + output);
        let a_step = by_places.min(by_tokens);
        let step_ns = times.step_ns((a_step * output).round() as u32, (a_step * prompt).round() as u32);
        let of_engine = a_step * 1e9 / step_ns.max(1) as f64;
        let of_budget = |per_minute: Option<std::num::NonZeroU32>, each: f64| {
            per_minute.map_or(f64::INFINITY, |rate| f64::from(rate.get()) / 60.0 / each)
        };
        of_engine
            .min(of_budget(self.limits.requests_per_minute, 1.0))
            .min(of_budget(self.limits.tokens_per_minute, prompt + output))
    }

    fn tenants_by_hour(&self) -> Vec<f64> {
        let curve = Curve::new(self);
        if curve.is_empty() {
            return Vec::new();
        }
        // A quarter's middle stands for the quarter.
        let mean = |hour: i64| {
            (0..4).map(|quarter| curve.at(hour * HOUR_NS + (2 * quarter + 1) * HOUR_NS / 8)).sum::<f64>()
                / 4.0
        };
        (0..24).map(mean).collect()
    }

    fn describe_engine(&self, text: &mut String) {
        let engine = &self.engine;
        let names = if self.models.is_empty() { "any model name".to_owned() } else { self.models.join(", ") };
        line(text, format_args!("serves {names}; seed {}", self.seed));
        let batch = if engine.decode_levels.is_empty() {
            format!(
                "{} ms + {} ms a decoding sequence",
                us(engine.step_base_us),
                us(engine.decode_us_per_sequence)
            )
        } else {
            let level = |level: &crate::config::DecodeLevel| {
                let step = f64::from(level.sequences.get()) * 1000.0 / f64::from(level.tokens_per_s.get());
                format!(
                    "{step:.1} ms with {} decoding ({} tokens a second)",
                    level.sequences, level.tokens_per_s
                )
            };
            engine.decode_levels.iter().map(level).collect::<Vec<_>>().join(", ")
        };
        let prefill = match engine.prefill_tokens_per_s {
            Some(rate) => {
                format!("1 s for {} prompt tokens that are not cached", grouped(f64::from(rate.get())))
            }
            None => format!("{} ms a prompt token that is not cached", us(engine.prefill_us_per_token)),
        };
        let jitter = match engine.jitter_percent {
            0 => String::new(),
            percent => format!(", ± {percent} %"),
        };
        line(text, format_args!("a step takes {batch} + {prefill}{jitter}"));
        line(
            text,
            format_args!(
                "at most {} sequences and {} tokens a step; at most {} requests wait, first come first served",
                engine.max_running, engine.max_batched_tokens, engine.queue_limit
            ),
        );
        if engine.intake_us > 0 {
            line(
                text,
                format_args!("a request reaches the queue {} ms after it arrived", us(engine.intake_us)),
            );
        }
        if let Some(tokens) = engine.kv_tokens {
            line(text, format_args!("running sequences hold at most {tokens} tokens together"));
        }
    }

    fn describe_cache(&self, text: &mut String) {
        let cache = &self.cache;
        if cache.enabled {
            line(
                text,
                format_args!(
                    "prefix cache of {} blocks of {} tokens, the least recently admitted dropped first",
                    cache.capacity_blocks, cache.block_tokens
                ),
            );
        } else {
            line(text, format_args!("no prefix cache"));
        }
    }

    fn describe_limits(&self, text: &mut String) {
        let limits = &self.limits;
        let whose = if limits.per_key { " for each key" } else { "" };
        if let Some(rate) = limits.requests_per_minute {
            let burst = limits.request_burst.unwrap_or(rate);
            line(text, format_args!("{rate} requests a minute{whose}, {burst} at once; beyond that 429"));
        }
        if let Some(rate) = limits.tokens_per_minute {
            let burst = limits.token_burst.unwrap_or(rate);
            line(text, format_args!("{rate} tokens a minute{whose}, {burst} at once; beyond that 429"));
        }
        if let Some(most) = limits.max_in_flight {
            line(text, format_args!("at most {most} requests under way{whose}; beyond that 429"));
        }
        if limits.requests_per_minute.is_none()
            && limits.tokens_per_minute.is_none()
            && limits.max_in_flight.is_none()
        {
            line(text, format_args!("no request or token budget"));
        } else if limits.retry_after_floor_ms > 0 || limits.retry_after_spread_ms > 0 {
            line(
                text,
                format_args!(
                    "a 429 asks to wait at least {} ms and up to {} ms more",
                    limits.retry_after_floor_ms, limits.retry_after_spread_ms
                ),
            );
        }
    }

    fn describe_tenants(&self, text: &mut String) {
        let by_hour = self.tenants_by_hour();
        let tenants = &self.tenants;
        let Some(peak) = by_hour.iter().copied().reduce(f64::max) else {
            line(text, format_args!("no other tenants"));
            return;
        };
        let pace = match tenants.time_scale {
            1 => String::new(),
            scale => format!(", {scale} times as fast as real time"),
        };
        let spread = match tenants.variation {
            Variation::None => "exactly",
            Variation::Poisson => "on average",
        };
        line(
            text,
            format_args!(
                "other tenants, requests of {} + {} tokens; the day begins at {}{pace}; places they want {spread}:",
                tenants.prompt_tokens, tenants.output_tokens, tenants.start_at
            ),
        );
        let top = peak.max(f64::from(self.engine.max_running));
        let sketch: String = by_hour.iter().map(|places| height(places / top)).collect();
        let low = by_hour.iter().copied().fold(f64::INFINITY, f64::min);
        let hour = |wanted: f64| {
            let hour = by_hour.iter().position(|places| (places - wanted).abs() < 1e-9).unwrap_or(0);
            TimeOfDay::from_minute(hour as u16 * 60)
        };
        line(
            text,
            format_args!(
                "  00:00 |{sketch}| 24:00   {low:.0} in the hour from {}, {peak:.0} from {}, of {}",
                hour(low),
                hour(peak),
                self.engine.max_running
            ),
        );
    }

    fn describe_http(&self, text: &mut String) {
        let http = &self.http;
        let more = match http.over_limit {
            OverLimit::Close => "is closed",
            OverLimit::Reset => "is reset",
            OverLimit::Wait => "waits",
        };
        line(text, format_args!("at most {} connections, one more {more}", http.max_connections));
        if let Some(answers) = http.close_after_answers {
            line(text, format_args!("a connection ends with its answer {answers}, which says so"));
        }
        if let Some(idle) = http.idle_close_ms {
            line(text, format_args!("a connection that is idle for {idle} ms is closed without a word"));
        }
        if http.max_concurrent_streams != HttpConfig::default().max_concurrent_streams {
            let streams = http.max_concurrent_streams;
            line(text, format_args!("at most {streams} streams at once on an HTTP/2 connection"));
        }
        if let Some(certificate) = &http.tls_cert {
            line(text, format_args!("HTTPS, with the certificate {}", certificate.display()));
        }
    }

    fn describe_faults(&self, text: &mut String) {
        if self.fault.is_empty() {
            line(text, format_args!("no faults"));
            return;
        }
        line(text, format_args!("faults, the first rule that matches fires:"));
        for (number, rule) in self.fault.iter().enumerate() {
            line(text, format_args!("  {}. {}", number + 1, rule_in_words(rule)));
        }
    }
}

impl Description {
    fn derived(&self, text: &mut String) {
        let first = |time: fn(&FirstToken) -> f64| {
            let each = |at: &FirstToken| {
                format!("{} ms for {}", rounded(time(at)), grouped(f64::from(at.prompt_tokens)))
            };
            self.first_token.iter().map(each).collect::<Vec<_>>().join(", ")
        };
        line(text, format_args!("idle, first token of a cold prompt: {} tokens", first(|at| at.cold_ms)));
        if self.config.cache.enabled {
            line(text, format_args!("the same prompt again, cached: {} tokens", first(|at| at.cached_ms)));
        }
        line(
            text,
            format_args!(
                "then a token each {:.1} ms alone, each {:.1} ms among {} when none of them is in prefill",
                self.token_gap_alone_ms, self.token_gap_full_ms, self.config.engine.max_running
            ),
        );
        line(text, format_args!("at most {} output tokens a second", grouped(self.most_output_tokens_per_s)));
        let (prompt, output) = (f64::from(self.usual_prompt_tokens), f64::from(self.usual_output_tokens));
        line(
            text,
            format_args!(
                "at most {:.1} requests a second of {} + {} tokens, cold; {} of them at once have a place, one more {}",
                self.most_requests_per_s,
                grouped(prompt),
                grouped(output),
                self.places,
                if self.config.limits.max_in_flight.is_some_and(|most| most.get() == self.places) {
                    "is refused"
                } else {
                    "waits"
                }
            ),
        );
    }
}

/// A rule as a sentence: name, kind, where, which.
fn rule_in_words(rule: &FaultRule) -> String {
    let mut text = format!("{}: {}", rule.name, rule.kind.name());
    let mut add = |part: String| {
        text.push(' ');
        text.push_str(&part);
    };
    if let Some(status) = rule.status {
        add(format!("{status}"));
    }
    if let Some(kind) = &rule.content_type {
        add(if kind.is_empty() { "without content type".to_owned() } else { format!("as {kind}") });
    }
    if let Some(ms) = rule.retry_after_ms {
        add(format!("asking to wait {ms} ms"));
    }
    if let Some(bytes) = rule.bytes {
        add(format!("of {bytes} bytes"));
    }
    if let Some(chunks) = rule.chunks {
        add(format!("of {chunks} events"));
    }
    if let Some(us) = rule.gap_us {
        add(format!("each {us} µs"));
    }
    if let Some(ms) = rule.for_ms {
        add(format!("for {ms} ms"));
    }
    match rule.point() {
        Point::Head if rule.kind.takes().contains(&"after_chunks") && !rule.needs_stream() => {
            add("before the head".to_owned());
        }
        Point::Head => {}
        Point::Chunks(chunks) => add(format!("after {chunks} chunks")),
        Point::Bytes(bytes) => add(format!("after {bytes} bytes")),
    }
    let which = matchers_in_words(rule);
    if which.is_empty() { text } else { format!("{text}; {}", which.join(", ")) }
}

fn matchers_in_words(rule: &FaultRule) -> Vec<String> {
    let header = rule.header.as_ref().map(|header| match &header.value {
        Some(value) => format!("{}: {value}", header.name),
        None => format!("any {}", header.name),
    });
    let attempts = rule.attempts.map(|attempts| match attempts {
        crate::config::Attempts::First => "first attempts".to_owned(),
        crate::config::Attempts::Retries => "retries".to_owned(),
    });
    [
        rule.every.map(|every| format!("one in {every}")),
        rule.probability.map(|chance| format!("chance {chance}")),
        rule.times.map(|times| format!("at most {times} times")),
        rule.from_ms.map(|ms| format!("from {ms} ms on")),
        rule.to_ms.map(|ms| format!("until {ms} ms")),
        rule.min_input_tokens.map(|tokens| format!("prompts of {tokens} tokens or more")),
        rule.max_input_tokens.map(|tokens| format!("prompts of {tokens} tokens or fewer")),
        rule.path.clone(),
        rule.model.as_ref().map(|model| format!("model {model}")),
        header,
        rule.stream.map(|stream| if stream { "streamed".to_owned() } else { "not streamed".to_owned() }),
        attempts,
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn height(share: f64) -> char {
    // Nothing at all is blank; the hair's breadth keeps whole steps whole.
    let step = (share.clamp(0.0, 1.0) * 8.0 - 1e-9).ceil() as usize;
    HEIGHTS[step.min(8)]
}

/// A whole number with its thousands apart.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn rounded(ms: f64) -> String {
    if ms < 100.0 { format!("{}", (ms * 10.0).round() / 10.0) } else { format!("{ms:.0}") }
}

fn us(us: u32) -> f64 {
    f64::from(us) / 1000.0
}

fn ms(ns: i64) -> f64 {
    ns as f64 / 1e6
}

fn line(text: &mut String, what: std::fmt::Arguments<'_>) {
    writeln!(text, "{what}").expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_look_like_a_mid_size_model() {
        let description = MockConfig::default().description();
        // 12 ms + 1000 × 60 µs; then 16 blocks short of all: 8 tokens of 1,000 are computed.
        let usual = description.first_token[1];
        assert_eq!((usual.cold_ms, usual.cached_ms), (72.0, 12.48));
        // Four steps: 4 × 12 + 8000 × 0.06.
        assert_eq!(description.first_token[2].cold_ms, 528.0);
        assert_eq!((description.token_gap_alone_ms, description.token_gap_full_ms), (12.1, 18.4));
        assert!((description.most_output_tokens_per_s - 64.0 / 0.0184).abs() < 1e-6);
        // Each step 64 tokens, of 0.32 requests, with 320 prompt tokens: 12 + 6.4 + 19.2 = 37.6 ms.
        assert!((description.most_requests_per_s - 0.32 / 0.0376).abs() < 1e-9);
        assert_eq!(description.places, 64);
    }

    #[test]
    fn what_limits_first_limits_throughput() {
        let of = |text: &str| MockConfig::from_toml(text).unwrap().description();
        assert_eq!(of("[limits]\nrequests_per_minute = 120").most_requests_per_s, 2.0);
        assert_eq!(of("[limits]\ntokens_per_minute = 72_000").most_requests_per_s, 1.0);
        assert_eq!(of("[engine]\nkv_tokens = 12_000").places, 10);
        assert_eq!(of("[limits]\nmax_in_flight = 3").places, 3);
        // A step of 600 tokens holds half a request: 100 decode, 500 are computed: 12 + 10 + 30 = 52 ms.
        let narrow = of("[engine]\nmax_running = 600\nmax_batched_tokens = 600");
        assert!((narrow.most_requests_per_s - 0.5 / 0.052).abs() < 1e-9, "{}", narrow.most_requests_per_s);
    }

    #[test]
    fn the_curve_is_sketched_by_the_hour() {
        let text = "[engine]\nmax_running = 8\n[tenants]\nload = [{ at = \"00:00\", load = 0 }, { at = \"12:00\", load = 1 }]";
        let text = MockConfig::from_toml(text).unwrap().describe();
        // Hour h before noon wants (h + ½) / 12 of all, in eighths rounded up.
        assert!(text.contains("|▁▁▂▃▃▄▅▅▆▇▇██▇▇▆▅▅▄▃▃▂▁▁|"), "{text}");
        assert!(text.contains("0 in the hour from 00:00, 8 from 11:00, of 8"), "{text}");
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(
            (grouped(7.0), grouped(1000.0), grouped(12_345_678.4)),
            ("7".into(), "1,000".into(), "12,345,678".into())
        );
    }
}
