//! The metrics page, with the names that vLLM uses where it has them.

use std::fmt::Write as _;

use crate::server::hub::Gauges;

/// The page in Prometheus' text format.
pub(crate) fn page(model: &str, gauges: &Gauges, faults: u64, dropped_log_lines: u64) -> String {
    let counters = &gauges.counters;
    let (held, capacity) = gauges.cache_blocks;
    let usage = if capacity == 0 { 0.0 } else { held as f64 / capacity as f64 };
    let mut page = Page { labels: format!("{{model_name={}}}", quoted(model)), text: String::new() };
    page.metric("vllm:num_requests_running", "gauge", "Requests in the batch.", gauges.running);
    page.metric(
        "mock:tenants_running",
        "gauge",
        "Places in the batch that other tenants hold.",
        gauges.tenants_running,
    );
    page.metric("vllm:num_requests_waiting", "gauge", "Requests that wait.", gauges.waiting);
    page.metric(
        "vllm:kv_cache_usage_perc",
        "gauge",
        "Share of the prefix cache's blocks in use, 0 to 1.",
        usage,
    );
    page.metric(
        "vllm:prefix_cache_queries_total",
        "counter",
        "Prompt tokens looked up in the prefix cache.",
        counters.prompt_tokens,
    );
    page.metric(
        "vllm:prefix_cache_hits_total",
        "counter",
        "Prompt tokens found in the prefix cache.",
        counters.cached_tokens,
    );
    page.metric(
        "vllm:prompt_tokens_total",
        "counter",
        "Prompt tokens of admitted requests.",
        counters.prompt_tokens,
    );
    page.metric("vllm:generation_tokens_total", "counter", "Tokens given out.", counters.output_tokens);
    page.metric(
        "vllm:request_success_total",
        "counter",
        "Requests that got all their tokens.",
        counters.finished,
    );
    page.metric("mock:requests_accepted_total", "counter", "Requests taken in.", counters.accepted);
    page.metric(
        "mock:requests_cancelled_total",
        "counter",
        "Requests whose client went away.",
        counters.cancelled,
    );
    page.metric(
        "mock:requests_rate_limited_total",
        "counter",
        "Requests refused by a budget.",
        counters.rate_limited,
    );
    page.metric(
        "mock:requests_queue_full_total",
        "counter",
        "Requests refused by the full queue.",
        counters.queue_full,
    );
    page.metric("mock:engine_steps_total", "counter", "Steps computed.", counters.steps);
    page.metric("mock:faults_total", "counter", "Faults by rule.", faults);
    page.metric("mock:log_lines_dropped_total", "counter", "Log lines dropped.", dropped_log_lines);
    page.text
}

struct Page {
    labels: String,
    text: String,
}

impl Page {
    fn metric(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{} {value}", self.labels)
            .expect("writing to a string cannot fail");
    }
}

/// A label's value; Prometheus escapes backslash, quote and line end.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EngineCounters;

    #[test]
    fn every_metric_has_help_type_and_an_escaped_label() {
        let counters = EngineCounters { prompt_tokens: 100, cached_tokens: 48, ..EngineCounters::default() };
        let gauges = Gauges { running: 2, tenants_running: 4, waiting: 1, cache_blocks: (3, 12), counters };
        let text = page("a\"b", &gauges, 3, 5);
        assert!(text.contains("vllm:num_requests_running{model_name=\"a\\\"b\"} 2\n"), "{text}");
        assert!(text.contains("vllm:kv_cache_usage_perc{model_name=\"a\\\"b\"} 0.25\n"));
        assert!(text.contains("vllm:prefix_cache_hits_total{model_name=\"a\\\"b\"} 48\n"));
        assert!(text.contains("mock:log_lines_dropped_total{model_name=\"a\\\"b\"} 5\n"));
        let lines = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
        assert_eq!((lines("# HELP"), lines("# TYPE")), (16, 16));
    }
}
