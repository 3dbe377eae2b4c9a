-- One side from a run directory. Variables: side, run (the directory), window_end (where a person or a crash ended the run;
-- null when its plan ended it).

CREATE OR REPLACE TEMP TABLE run_request AS
SELECT *, coalesce(reason, '') IN ('stopped_by_user', 'run_crashed')
          OR coalesce(planned_ns >= getvariable('window_end'), false) AS after_window,
       coalesce(operation, '') <> 'embeddings'
          AND coalesce(stream, coalesce(operation, '') <> 'http') AS streamed
FROM read_parquet(getvariable('run') || '/requests/*.parquet');

INSERT INTO recorded
SELECT getvariable('side'), phase, status, reason, after_window, gated, due_ns - planned_ns, trace_unix_ns FROM run_request;

CREATE OR REPLACE TEMP TABLE run_attempt AS
SELECT a.*, r.status AS request_status, r.final_attempt, r.streamed
FROM read_parquet(getvariable('run') || '/attempts/*.parquet') a
JOIN run_request r USING (row, copy)
WHERE r.phase = 'measure' AND NOT r.after_window;

-- The answer that counted, of requests that ended well.
CREATE OR REPLACE TEMP TABLE answer AS
SELECT *, coalesce(reads[-1].kernel_ns, reads[-1].user_ns, end_ns) AS body_end_ns
FROM run_attempt WHERE attempt = final_attempt AND request_status = 'ok' AND status = 'ok';

-- Its output events (text, reasoning, tool_args, refusal) at their read's time, never before the event before.
CREATE OR REPLACE TEMP TABLE run_event AS
WITH single AS (
    SELECT row, copy, streamed, unnest(range(1, len(events) + 1)) AS place, unnest(events) AS event, reads FROM answer
), counted AS (
    SELECT *, count(*) OVER (PARTITION BY row, copy, event.read) AS of_read FROM single
), output AS (
    SELECT row, copy, streamed, place, event.kind AS kind, event.tokens AS tokens, event.read AS read,
           reads[event.read + 1] AS stamps, of_read > 1 AS merged
    FROM counted WHERE event.kind BETWEEN 1 AND 4
)
SELECT row, copy, streamed, place, kind, tokens,
       CASE WHEN stamps.kernel_ns IS NULL THEN 'user' ELSE 'kernel' END AS stamp,
       coalesce(read = lag(read) OVER stream, false) AS same_read, merged,
       max(coalesce(stamps.kernel_ns, stamps.user_ns)) OVER (stream ROWS UNBOUNDED PRECEDING) AS at_ns,
       row_number() OVER stream AS position
FROM output WINDOW stream AS (PARTITION BY row, copy ORDER BY place);

INSERT INTO output_event
SELECT getvariable('side'), row, copy, place, at_ns, tokens, stamp, same_read, merged FROM run_event WHERE streamed;

CREATE OR REPLACE TEMP TABLE run_stream AS
SELECT row, copy, min(at_ns) AS first_ns, max(at_ns) AS last_ns, count(*) AS events,
       arg_min(at_ns, place) FILTER (kind = 1) AS visible_ns,
       coalesce(max(tokens) FILTER (position = 1), 1) AS first_tokens,
       count(*) FILTER (position > 1 AND tokens IS NULL) AS uncounted,
       coalesce(sum(tokens) FILTER (position > 1), 0)::BIGINT AS counted
FROM run_event GROUP BY row, copy;

INSERT INTO request
WITH tries AS (
    SELECT row, copy, bool_or(first_write_ns IS NOT NULL) AS sent,
           bool_or(coalesce(http_status, 0) IN (429, 503, 529) OR coalesce(reason, '') IN ('rate_limited', 'overloaded'))
               AS throttled
    FROM run_attempt GROUP BY row, copy
), spread AS (
    SELECT r.*, t.sent, t.throttled, a.last_write_ns, a.headers_ns, a.first_byte_ns, a.body_end_ns, a.row IS NOT NULL AS answered,
           a.end_ns AS answer_end_ns, s.first_ns, s.visible_ns, s.last_ns, s.events, s.first_ns IS NOT NULL AS has_output,
           CASE WHEN s.uncounted = 0 THEN 'event' WHEN a.usage_output_tokens IS NOT NULL THEN 'usage' ELSE 'one_per_event' END
               AS source,
           CASE WHEN s.uncounted = 0 THEN s.counted
                WHEN a.usage_output_tokens IS NOT NULL THEN greatest(a.usage_output_tokens::BIGINT - s.first_tokens, 0)
                ELSE s.events - 1 END AS tokens_after_first
    FROM run_request r LEFT JOIN tries t USING (row, copy) LEFT JOIN answer a USING (row, copy)
    LEFT JOIN run_stream s USING (row, copy)
    WHERE r.phase = 'measure' AND NOT r.after_window
)
SELECT getvariable('side'), row, copy, planned_ns, due_ns, status, reason,
       CASE WHEN first_byte_ns < last_write_ns THEN NULL ELSE last_write_ns END, first_ns, first_byte_ns, headers_ns, NULL,
       visible_ns, CASE WHEN NOT answered THEN NULL WHEN streamed THEN last_ns ELSE body_end_ns END,
       coalesce(end_ns, answer_end_ns),
       CASE WHEN streamed AND events >= 2 AND tokens_after_first > 0 THEN last_ns - first_ns END, tokens_after_first,
       CASE WHEN streamed AND events >= 2 AND tokens_after_first > 0 THEN source END,
       CASE WHEN streamed AND answered THEN greatest(coalesce(events, 0) - 1, 0) ELSE 0 END, answered AND streamed,
       input_tokens, cached_tokens, output_tokens, attempts, coalesce(sent, false), coalesce(throttled, false),
       backoff_ns, budget_wait_ns, predicted_cached_tokens
FROM spread;

INSERT INTO lateness
SELECT getvariable('side'), first_write_ns - due_ns, first_write_ns, due_ns, last_write_ns - first_write_ns, released_ns,
       CASE WHEN NOT connection_reused THEN coalesce(tls_ns, connected_ns) END
FROM run_attempt
WHERE attempt = 1 AND first_write_ns IS NOT NULL;

INSERT INTO retry_lateness
SELECT getvariable('side'), first_write_ns - due_ns FROM run_attempt WHERE attempt > 1 AND first_write_ns IS NOT NULL;

INSERT INTO retry
SELECT getvariable('side'), a.first_write_ns, greatest(a.due_ns - b.end_ns, 0), a.due_ns - b.due_ns
FROM run_attempt a JOIN run_attempt b ON b.row = a.row AND b.copy = a.copy AND b.attempt = a.attempt - 1
WHERE a.first_write_ns IS NOT NULL AND b.end_ns IS NOT NULL;

INSERT INTO made_prompt
SELECT getvariable('side'), asked_input_tokens, input_tokens FROM run_request
WHERE phase = 'measure' AND NOT after_window AND status = 'ok' AND asked_input_tokens IS NOT NULL
  AND input_tokens IS NOT NULL AND input_tokens_source = 'reported';

INSERT INTO body_tail
SELECT getvariable('side'), a.body_end_ns - s.last_ns FROM answer a JOIN run_stream s USING (row, copy) WHERE a.streamed;

INSERT INTO figure
SELECT getvariable('side'), 'attempts_sent', count(*) FILTER (first_write_ns IS NOT NULL) FROM run_attempt
UNION ALL
-- Failed for want of a descriptor, a port or an allowed connection, and no byte written.
SELECT getvariable('side'), 'stuck', count(*) FROM request
WHERE side = getvariable('side') AND NOT sent AND reason IN ('local_descriptors', 'local_resources', 'connection_limit')
UNION ALL
SELECT getvariable('side'), 'without_output', count(*) FROM answer a LEFT JOIN run_stream s USING (row, copy)
WHERE a.streamed AND s.row IS NULL;
