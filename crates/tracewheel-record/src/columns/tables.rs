//! The columns of every table, each written once. Text that repeats is a dictionary; see `docs/reference/run.md`.

use arrow_array::types::{Float64Type, Int64Type, UInt16Type, UInt32Type, UInt64Type};
use tracewheel_timeline::vocab::{AttemptStatus, Operation, Phase, Protocol, Reason, RequestStatus, Source};

use super::table::table;
use super::{Events, Flag, Name, Num, OptCounts, OptFlag, OptName, OptNum, OptWord, Reads, Tags, Text, Word};
use crate::rows::{
    AttemptRecord, HealthRecord, LATENESS_BUCKETS, ReleaseRecord, RequestRecord, ServerRecord,
};

table!(
    RequestRecord, "requests", RequestBuilders, RequestView {
        row: Num<UInt64Type>,
        copy: Num<UInt32Type>,
        phase: Word<Phase>,
        planned_ns: Num<Int64Type>,
        due_ns: Num<Int64Type>,
        gated: Flag,
        trace_unix_ns: OptNum<Int64Type>,
        status: Word<RequestStatus>,
        reason: OptWord<Reason>,
        attempts: Num<UInt16Type>,
        final_attempt: Num<UInt16Type>,
        budget_wait_ns: Num<Int64Type>,
        backoff_ns: Num<Int64Type>,
        asked_input_tokens: OptNum<UInt32Type>,
        predicted_cached_tokens: OptNum<UInt32Type>,
        cached_tokens: OptNum<UInt32Type>,
        cached_tokens_source: OptWord<Source>,
        input_tokens: OptNum<UInt32Type>,
        input_tokens_source: OptWord<Source>,
        output_tokens: OptNum<UInt32Type>,
        output_tokens_source: OptWord<Source>,
        first_output_ns: OptNum<Int64Type>,
        first_visible_ns: OptNum<Int64Type>,
        last_output_ns: OptNum<Int64Type>,
        end_ns: OptNum<Int64Type>,
        sent_route: OptName,
        operation in strata: OptWord<Operation>,
        method in strata: OptName,
        path in strata: OptName,
        endpoint in strata: OptName,
        model in strata: OptName,
        model_served in strata: OptName,
        provider in strata: OptName,
        route in strata: OptName,
        stream in strata: OptFlag,
        session_hash in strata: OptNum<UInt64Type>,
        turn in strata: OptNum<UInt32Type>,
        tenant_hash in strata: OptNum<UInt64Type>,
        user_hash in strata: OptNum<UInt64Type>,
        tags in strata: Tags,
    }
);

table!(
    AttemptRecord, "attempts", AttemptBuilders, AttemptView {
        row: Num<UInt64Type>,
        copy: Num<UInt32Type>,
        attempt: Num<UInt16Type>,
        due_ns: Num<Int64Type>,
        released_ns: OptNum<Int64Type>,
        connect_start_ns: OptNum<Int64Type>,
        connected_ns: OptNum<Int64Type>,
        tls_ns: OptNum<Int64Type>,
        first_write_ns: OptNum<Int64Type>,
        last_write_ns: OptNum<Int64Type>,
        headers_ns: OptNum<Int64Type>,
        first_byte_ns: OptNum<Int64Type>,
        end_ns: OptNum<Int64Type>,
        connection: OptNum<UInt32Type>,
        connection_reused: OptFlag,
        protocol: OptWord<Protocol>,
        status: Word<AttemptStatus>,
        reason: OptWord<Reason>,
        http_status: OptNum<UInt16Type>,
        retry_after_ns: OptNum<Int64Type>,
        reads: Reads,
        events: Events,
        usage_input_tokens: OptNum<UInt32Type>,
        usage_cached_tokens: OptNum<UInt32Type>,
        usage_cache_write_tokens: OptNum<UInt32Type>,
        usage_output_tokens: OptNum<UInt32Type>,
        usage_reasoning_tokens: OptNum<UInt32Type>,
        server_ms: OptNum<Int64Type>,
        request_id: Text,
        system_fingerprint: OptName,
        rate_limit_requests_limit: OptNum<Int64Type>,
        rate_limit_requests_remaining: OptNum<Int64Type>,
        rate_limit_requests_reset_ns: OptNum<Int64Type>,
        rate_limit_tokens_limit: OptNum<Int64Type>,
        rate_limit_tokens_remaining: OptNum<Int64Type>,
        rate_limit_tokens_reset_ns: OptNum<Int64Type>,
        error_body: Text,
    }
);

table!(
    HealthRecord, "health", HealthBuilders, HealthView {
        second: Num<UInt32Type>,
        at_ns: Num<Int64Type>,
        released: OptNum<UInt32Type>,
        completed: OptNum<UInt32Type>,
        lateness_p50_ns: OptNum<Int64Type>,
        lateness_p99_ns: OptNum<Int64Type>,
        lateness_max_ns: OptNum<Int64Type>,
        loop_delay_p99_ns: OptNum<Int64Type>,
        loop_delay_max_ns: OptNum<Int64Type>,
        kernel_lag_p50_ns: OptNum<Int64Type>,
        kernel_lag_p99_ns: OptNum<Int64Type>,
        kernel_lag_max_ns: OptNum<Int64Type>,
        cpu_ns: OptNum<Int64Type>,
        machine_busy_ns: OptNum<Int64Type>,
        steal_ns: OptNum<Int64Type>,
        rss_bytes: OptNum<Int64Type>,
        prefetch_queue: OptNum<UInt32Type>,
        wheel_queue: OptNum<UInt32Type>,
        recorder_queue: OptNum<UInt32Type>,
        socket_backlog_bytes: OptNum<Int64Type>,
        in_flight: OptNum<UInt32Type>,
        connections_open: OptNum<UInt32Type>,
        connections_opened: OptNum<UInt32Type>,
        clock_offset_ns: OptNum<Int64Type>,
        clock_bracket_ns: OptNum<Int64Type>,
        clock_stepped: OptFlag,
        lateness_counts: OptCounts<LATENESS_BUCKETS>,
        rendered_late: OptNum<UInt32Type>,
        send_cpu_ns: OptNum<Int64Type>,
        send_run_delay_ns: OptNum<Int64Type>,
        machine_capacity_ns: OptNum<Int64Type>,
        cpu_pressure_ns: OptNum<Int64Type>,
        cpu_throttled_ns: OptNum<Int64Type>,
        cpu_throttled_periods: OptNum<UInt32Type>,
    }
);

table!(
    ServerRecord, "server", ServerBuilders, ServerView {
        at_ns: Num<Int64Type>,
        source: OptName,
        name: Name,
        labels: Text,
        value: Num<Float64Type>,
    }
);

table!(
    ReleaseRecord, "releases", ReleaseBuilders, ReleaseView {
        row: Num<UInt64Type>,
        copy: Num<UInt32Type>,
        attempt: Num<UInt16Type>,
        phase: Word<Phase>,
        planned_ns: Num<Int64Type>,
        due_ns: Num<Int64Type>,
        gated: Flag,
        trace_unix_ns: OptNum<Int64Type>,
        released_ns: Num<Int64Type>,
    }
);
