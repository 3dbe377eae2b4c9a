//! The timeline's fields that a column of a log can be mapped to.

/// A field that a column can be mapped to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Field {
    Arrival,
    End,
    LogWrite,
    Ttft,
    E2e,
    CancelAfter,
    Think,
    Events,
    InputTokens,
    OutputTokens,
    CachedTokens,
    CacheWriteTokens,
    ReasoningTokens,
    Images,
    Tools,
    Attempts,
    Attempt,
    Turn,
    Status,
    Error,
    Stream,
    ClientGone,
    GatewayCache,
    SampleRate,
    Model,
    ModelServed,
    Provider,
    Route,
    Endpoint,
    Method,
    Path,
    Operation,
    RequestId,
    Session,
    Tenant,
    User,
    PrefixHashes,
    PrefixBlockTokens,
    Params,
    /// Headers of the request.
    Headers,
    /// The request's whole body.
    Body,
    /// One parameter of the request, by the key it gets in `params`.
    Param(&'static str),
    /// `tags.NAME`; the name stands beside it.
    Tag,
}

/// What kind of value a field takes: decides how a column's unit is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A moment: text with a date, or a number with a unit.
    Instant,
    /// A length of time: a number with a unit.
    Duration,
    /// Anything else: units mean nothing.
    Plain,
}

/// One line of the table.
pub(crate) struct FieldSpec {
    pub(crate) name: &'static str,
    /// What the timeline calls the column, where that differs (without a unit).
    pub(crate) column: &'static str,
    pub(crate) field: Field,
    pub(crate) kind: Kind,
    pub(crate) about: &'static str,
}

const fn spec(
    name: &'static str,
    column: &'static str,
    field: Field,
    kind: Kind,
    about: &'static str,
) -> FieldSpec {
    FieldSpec { name, column, field, kind, about }
}

/// Every mappable field but `tags.NAME`. `docs/formats.md` repeats it and a test holds the page against it.
pub(crate) static FIELDS: &[FieldSpec] = &[
    spec("arrival", "arrival", Field::Arrival, Kind::Instant, "start of the request"),
    spec("end", "end", Field::End, Kind::Instant, "end of the answer; the start is derived with `e2e`"),
    spec(
        "log_write",
        "log_write",
        Field::LogWrite,
        Kind::Instant,
        "when the line was written; arrivals lie late",
    ),
    spec("ttft", "prod_ttft", Field::Ttft, Kind::Duration, "time to the first output"),
    spec("e2e", "prod_e2e", Field::E2e, Kind::Duration, "start to last byte"),
    spec(
        "cancel_after",
        "cancel_after",
        Field::CancelAfter,
        Kind::Duration,
        "when the client left, after the start",
    ),
    spec("think", "think", Field::Think, Kind::Duration, "pause after the previous turn's end"),
    spec(
        "events",
        "prod_event",
        Field::Events,
        Kind::Duration,
        "list: offsets of output events after the start",
    ),
    spec("input_tokens", "input_tokens", Field::InputTokens, Kind::Plain, "prompt tokens"),
    spec("output_tokens", "output_tokens", Field::OutputTokens, Kind::Plain, "answer tokens"),
    spec(
        "cached_tokens",
        "cached_tokens",
        Field::CachedTokens,
        Kind::Plain,
        "prompt tokens read from a cache",
    ),
    spec(
        "cache_write_tokens",
        "cache_write_tokens",
        Field::CacheWriteTokens,
        Kind::Plain,
        "prompt tokens written to a cache",
    ),
    spec(
        "reasoning_tokens",
        "reasoning_tokens",
        Field::ReasoningTokens,
        Kind::Plain,
        "reasoning tokens of the answer",
    ),
    spec("images", "images", Field::Images, Kind::Plain, "images in the request"),
    spec("tools", "tools", Field::Tools, Kind::Plain, "tools that the request declares"),
    spec("attempts", "prod_attempts", Field::Attempts, Kind::Plain, "attempts folded into the row"),
    spec("attempt", "attempt", Field::Attempt, Kind::Plain, "retry count of this row: 0 for a first attempt"),
    spec("turn", "turn", Field::Turn, Kind::Plain, "position in the session, from 0"),
    spec(
        "status",
        "prod_status",
        Field::Status,
        Kind::Plain,
        "HTTP status; `ok`, `success`, `error` and the like are read too",
    ),
    spec("error", "prod_error", Field::Error, Kind::Plain, "error class (a short code), or true/false"),
    spec("stream", "stream", Field::Stream, Kind::Plain, "true/false: the answer was streamed"),
    spec(
        "client_gone",
        "client_gone",
        Field::ClientGone,
        Kind::Plain,
        "true/false: the client left before the end",
    ),
    spec(
        "served_by_gateway_cache",
        "served_by_gateway_cache",
        Field::GatewayCache,
        Kind::Plain,
        "true/false: a gateway answered from its own cache",
    ),
    spec(
        "sample_rate",
        "sample_rate",
        Field::SampleRate,
        Kind::Plain,
        "share of the traffic that was logged, above 0, at most 1",
    ),
    spec("model", "model", Field::Model, Kind::Plain, "model asked for"),
    spec("model_served", "model_served", Field::ModelServed, Kind::Plain, "model that answered"),
    spec("provider", "provider", Field::Provider, Kind::Plain, "provider that answered"),
    spec("route", "route", Field::Route, Kind::Plain, "route that a gateway chose"),
    spec("endpoint", "endpoint", Field::Endpoint, Kind::Plain, "host, deployment or listener"),
    spec("method", "method", Field::Method, Kind::Plain, "HTTP method"),
    spec("path", "path", Field::Path, Kind::Plain, "URL path; its query is cut off"),
    spec(
        "operation",
        "operation",
        Field::Operation,
        Kind::Plain,
        "chat, completion, responses, messages, generate_content, embeddings, http",
    ),
    spec("request_id", "source_id", Field::RequestId, Kind::Plain, "id of the request; hashed"),
    spec("session", "session", Field::Session, Kind::Plain, "id of the session; hashed"),
    spec("tenant", "tenant", Field::Tenant, Kind::Plain, "id of the tenant; hashed"),
    spec("user", "user", Field::User, Kind::Plain, "id of the user; hashed"),
    spec(
        "prefix_hashes",
        "prefix_hashes",
        Field::PrefixHashes,
        Kind::Plain,
        "list: block ids of the prompt from its start",
    ),
    spec(
        "prefix_block_tokens",
        "prefix_block_tokens",
        Field::PrefixBlockTokens,
        Kind::Plain,
        "list: tokens of each block, where they vary",
    ),
    spec(
        "params",
        "params",
        Field::Params,
        Kind::Plain,
        "JSON object of parameters; only known, text-free ones are kept",
    ),
    spec(
        "headers",
        "request_headers",
        Field::Headers,
        Kind::Plain,
        "JSON object of request headers; never taken unasked, and never secrets",
    ),
    spec(
        "body",
        "body",
        Field::Body,
        Kind::Plain,
        "the request's whole body, to be sent as it is; never taken unasked: it holds the prompt",
    ),
    spec(
        "max_tokens",
        "max_tokens",
        Field::Param("max_tokens"),
        Kind::Plain,
        "parameter: most output tokens",
    ),
    spec("temperature", "temperature", Field::Param("temperature"), Kind::Plain, "parameter"),
    spec("top_p", "top_p", Field::Param("top_p"), Kind::Plain, "parameter"),
    spec("top_k", "top_k", Field::Param("top_k"), Kind::Plain, "parameter"),
    spec("seed", "seed", Field::Param("seed"), Kind::Plain, "parameter"),
    spec("n", "n", Field::Param("n"), Kind::Plain, "parameter: answers asked for"),
    spec("presence_penalty", "presence_penalty", Field::Param("presence_penalty"), Kind::Plain, "parameter"),
    spec(
        "frequency_penalty",
        "frequency_penalty",
        Field::Param("frequency_penalty"),
        Kind::Plain,
        "parameter",
    ),
];

/// The fields that a column can be mapped to: name and description, for help texts.
pub fn mappable_fields() -> impl Iterator<Item = (&'static str, &'static str)> {
    let tags = ("tags.NAME", "any column to keep as it is, under a name of your own");
    FIELDS.iter().map(|spec| (spec.name, spec.about)).chain([tags])
}

/// The table's line for a field's name.
pub(crate) fn by_name(name: &str) -> Option<&'static FieldSpec> {
    FIELDS.iter().find(|spec| spec.name == name)
}

/// The table's line for a field.
pub(crate) fn spec_of(field: Field) -> Option<&'static FieldSpec> {
    FIELDS.iter().find(|spec| spec.field == field)
}

/// The table's line for a column that carries a field's name or the timeline's own.
pub(crate) fn by_column(column: &str) -> Option<&'static FieldSpec> {
    FIELDS
        .iter()
        // Headers and bodies may hold anything: somebody has to ask for them.
        .filter(|spec| !matches!(spec.field, Field::Headers | Field::Body))
        .find(|spec| spec.name.eq_ignore_ascii_case(column) || spec.column.eq_ignore_ascii_case(column))
}

/// All names, for error texts.
pub(crate) fn names() -> String {
    let names: Vec<&str> = mappable_fields().map(|(name, _)| name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_stands_twice() {
        for (at, spec) in FIELDS.iter().enumerate() {
            let same = |other: &FieldSpec| other.name == spec.name || other.column == spec.column;
            assert!(!FIELDS[at + 1..].iter().any(same), "{}", spec.name);
        }
    }
}
