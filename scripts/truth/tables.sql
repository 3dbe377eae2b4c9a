-- The tables that run.sql and timeline.sql fill, a side at a time, and samples.sql reads.
--
-- Written from docs/reference/metrics.md, not from the code that it checks. Times are nanoseconds on the side's own clock.

-- +infinity among latencies: the answer never came.
CREATE OR REPLACE MACRO never() AS 9223372036854775807::BIGINT;
-- Nearest rank: of n sorted values the one at rank ceil(p/100 * n), in whole numbers.
CREATE OR REPLACE MACRO at_rank(sorted, p) AS sorted[greatest((len(sorted) * p + 99) // 100, 1)];

-- Every request of a run, of all phases, with what leaves it out.
CREATE OR REPLACE TEMP TABLE recorded (
    side VARCHAR, phase VARCHAR, status VARCHAR, reason VARCHAR, after_window BOOLEAN, gated BOOLEAN, drift_ns BIGINT,
    trace_ns BIGINT
);
-- The requests that count, on either side.
CREATE OR REPLACE TEMP TABLE request (
    side VARCHAR, row UBIGINT, copy UINTEGER, order_ns BIGINT, start_ns BIGINT, status VARCHAR, reason VARCHAR,
    service_ns BIGINT, first_ns BIGINT, byte_ns BIGINT, headers_ns BIGINT, kind VARCHAR, visible_ns BIGINT, last_ns BIGINT,
    end_ns BIGINT, span_ns BIGINT, tokens BIGINT, token_source VARCHAR, gaps BIGINT, per_token BOOLEAN,
    input_tokens BIGINT, cached_tokens BIGINT, output_tokens BIGINT,
    attempts BIGINT, sent BOOLEAN, throttled BOOLEAN, backoff_ns BIGINT, budget_ns BIGINT, predicted_cached_tokens BIGINT
);
-- Output events of the answers that counted. `tokens` is null where the event does not say.
CREATE OR REPLACE TEMP TABLE output_event (
    side VARCHAR, row UBIGINT, copy UINTEGER, place BIGINT, at_ns BIGINT, tokens BIGINT, stamp VARCHAR, same_read BOOLEAN,
    merged BOOLEAN
);
-- First attempts of which a byte was written: first byte written - due, both of them, last byte written - first. The
-- lateness of later attempts. Last byte of the body - last output event.
CREATE OR REPLACE TEMP TABLE lateness (side VARCHAR, ns BIGINT, written_ns BIGINT, due_ns BIGINT, write_ns BIGINT, released_ns BIGINT,
                                            ready_ns BIGINT);
CREATE OR REPLACE TEMP TABLE retry_lateness (side VARCHAR, ns BIGINT);
-- Retries whose attempt before has a known end: when it left, the wait before it, the time from the attempt before.
CREATE OR REPLACE TEMP TABLE retry (side VARCHAR, at_ns BIGINT, wait_ns BIGINT, period_ns BIGINT);
-- Made-up prompts of successful requests: input tokens asked for, input tokens that the target counted.
CREATE OR REPLACE TEMP TABLE made_prompt (side VARCHAR, asked BIGINT, counted BIGINT);
CREATE OR REPLACE TEMP TABLE body_tail (side VARCHAR, ns BIGINT);
-- Figures that are one a side.
CREATE OR REPLACE TEMP TABLE figure (side VARCHAR, name VARCHAR, n BIGINT);
CREATE OR REPLACE TEMP TABLE word (side VARCHAR, name VARCHAR, word VARCHAR);
