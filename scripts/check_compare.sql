-- The percentiles of `tracewheel compare`, computed again from the Parquet files alone, in DuckDB.
--
-- Written from docs/reference/metrics.md, not from the code that it checks. `check_compare.py` sets the variables and
-- compares `answer` with the JSON. By hand:
--
--   SET VARIABLE run = 'runs/ID'; SET VARIABLE timeline = 'traffic.parquet'; SET VARIABLE window_end = NULL;
--   .read scripts/check_compare.sql
--   FROM answer;
--
-- window_end: where a person ended the run (manifest: outcome.ended_ns when ended_by is drained, cut or killed).

-- +infinity among latencies: the answer never came.
CREATE OR REPLACE MACRO never() AS 9223372036854775807::BIGINT;
-- Output kinds: text, reasoning, tool_args, refusal.
CREATE OR REPLACE MACRO is_output(kind) AS kind IN (1, 2, 3, 4);

-- ---------------------------------------------------------------- replay

CREATE OR REPLACE TEMP TABLE measured AS
SELECT *
FROM read_parquet(getvariable('run') || '/requests/*.parquet')
WHERE phase = 'measure'
  AND coalesce(reason, '') NOT IN ('stopped_by_user', 'run_crashed')
  AND (getvariable('window_end') IS NULL OR planned_ns < getvariable('window_end'));

-- The attempt that counted, of requests that ended well.
CREATE OR REPLACE TEMP TABLE counted AS
SELECT a.*, r.due_ns AS request_due_ns,
       coalesce(r.stream, true) AND coalesce(r.operation, 'chat') NOT IN ('embeddings', 'http') AS streamed
FROM read_parquet(getvariable('run') || '/attempts/*.parquet') a
JOIN measured r ON r.row = a.row AND r.copy = a.copy AND r.final_attempt = a.attempt
WHERE r.status = 'ok' AND a.status = 'ok';

-- Output events with the time of their read: the kernel's stamp, else the user's; never before the event before.
CREATE OR REPLACE TEMP TABLE output_event AS
WITH single AS (
    SELECT row, copy, unnest(range(1, len(events) + 1)) AS place, unnest(events) AS event, reads FROM counted
)
SELECT row, copy, place, event.kind AS kind, event.tokens AS tokens,
       max(coalesce(reads[event.read + 1].kernel_ns, reads[event.read + 1].user_ns))
           OVER (PARTITION BY row, copy ORDER BY place) AS at_ns,
       row_number() OVER (PARTITION BY row, copy ORDER BY place) AS position
FROM single
WHERE is_output(event.kind);

CREATE OR REPLACE TEMP TABLE stream AS
SELECT row, copy, min(at_ns) AS first_ns, max(at_ns) AS last_ns, count(*) AS events,
       min(at_ns) FILTER (kind = 1) AS visible_ns,
       coalesce(max(tokens) FILTER (position = 1), 1) AS first_tokens,
       count(*) FILTER (position > 1 AND tokens IS NULL) AS uncounted,
       sum(tokens) FILTER (position > 1) AS tokens_after_first
FROM output_event GROUP BY ALL;

CREATE OR REPLACE TEMP TABLE replay AS
SELECT r.row, r.copy, r.status, r.due_ns, c.last_write_ns, c.headers_ns, c.first_byte_ns, s.first_ns, s.visible_ns,
       CASE WHEN c.streamed THEN s.last_ns
            ELSE coalesce(c.reads[-1].kernel_ns, c.reads[-1].user_ns, c.end_ns) END AS last_ns,
       CASE WHEN c.streamed AND s.events >= 2 THEN s.last_ns - s.first_ns END AS span_ns,
       CASE WHEN s.uncounted = 0 THEN s.tokens_after_first
            WHEN c.usage_output_tokens IS NOT NULL THEN greatest(c.usage_output_tokens::BIGINT - s.first_tokens, 0)
            ELSE s.events - 1 END AS tokens_after_first,
       CASE WHEN c.streamed THEN s.events - 1 ELSE 0 END AS gaps
FROM measured r
LEFT JOIN counted c USING (row, copy)
LEFT JOIN stream s USING (row, copy);

-- ---------------------------------------------------------------- production

CREATE OR REPLACE TEMP TABLE logged AS
SELECT file_row_number AS row, arrival_unix_ns AS arrival_ns, retry_of_row, operation, stream, output_tokens,
       client_gone, cancel_after_ns, prod_status, prod_error, prod_ttft_kind,
       CASE WHEN prod_ttft_ns >= 0 THEN prod_ttft_ns END AS ttft_ns,
       CASE WHEN prod_e2e_ns >= 0 THEN prod_e2e_ns END AS e2e_ns,
       list_sort(prod_event_ns) AS events
FROM read_parquet(getvariable('timeline'), file_row_number = true);

-- Every row with the first attempt that it belongs to.
CREATE OR REPLACE TEMP TABLE attempt_of AS
WITH RECURSIVE chain AS (
    SELECT row, row AS first_row FROM logged WHERE retry_of_row IS NULL
    UNION ALL
    SELECT l.row, chain.first_row FROM logged l JOIN chain ON l.retry_of_row = chain.row
)
SELECT first_row, max(row) AS last_row FROM chain GROUP BY first_row;

-- One row a request of the replay: the last attempt's times, from the first attempt's arrival.
CREATE OR REPLACE TEMP TABLE production AS
SELECT a.first_row AS row, f.arrival_ns AS start_ns, l.arrival_ns AS last_start_ns, l.prod_ttft_kind AS kind, l.events,
       CASE
           WHEN coalesce(l.client_gone, false) OR l.cancel_after_ns IS NOT NULL OR coalesce(l.prod_status, 0) = 499
               THEN 'cancelled'
           WHEN l.prod_error IS NOT NULL THEN 'failed'
           WHEN l.prod_status IS NULL THEN 'ok'
           WHEN l.operation = 'http' AND l.prod_status BETWEEN 200 AND 399 THEN 'ok'
           WHEN l.prod_status BETWEEN 200 AND 299 THEN 'ok'
           ELSE 'failed'
       END AS status,
       l.arrival_ns + l.ttft_ns AS first_ns,
       l.arrival_ns + coalesce(l.e2e_ns, l.events[-1]) AS last_ns,
       CASE WHEN len(l.events) >= 2 THEN l.events[-1] - l.events[1]
            WHEN l.prod_ttft_kind IN ('token', 'first_chunk') AND coalesce(l.stream, true) AND l.e2e_ns > l.ttft_ns
                THEN l.e2e_ns - l.ttft_ns END AS span_ns,
       CASE WHEN l.output_tokens IS NOT NULL THEN greatest(l.output_tokens::BIGINT - 1, 0)
            WHEN len(l.events) >= 2 THEN len(l.events) - 1 END AS tokens_after_first,
       greatest(coalesce(len(l.events), 0) - 1, 0) AS gaps
FROM attempt_of a
JOIN logged f ON f.row = a.first_row
JOIN logged l ON l.row = a.last_row
WHERE a.first_row IN (SELECT row FROM measured);

-- The moment that most of production's TTFTs end at, for requests whose row does not say.
CREATE OR REPLACE MACRO moment(kind) AS CASE
    WHEN kind IN ('headers', 'upstream_headers') THEN 'headers' WHEN kind = 'first_byte' THEN 'byte'
    WHEN kind IS NOT NULL THEN 'output' END;
SET VARIABLE usual = (
    SELECT moment(kind) FROM production WHERE kind IS NOT NULL
    GROUP BY moment(kind) ORDER BY count(*) DESC, moment(kind) DESC LIMIT 1
);

-- ---------------------------------------------------------------- one value a request

-- What production knows of each request that it answered.
CREATE OR REPLACE TEMP TABLE known AS
SELECT row, unnest([
    {'metric': 'ttft', 'known': first_ns IS NOT NULL},
    {'metric': 'ttfv', 'known': false},
    {'metric': 'e2e', 'known': last_ns IS NOT NULL},
    {'metric': 'tpot', 'known': span_ns IS NOT NULL AND tokens_after_first > 0},
    {'metric': 'gap', 'known': gaps > 0}
], recursive := true)
FROM production WHERE status = 'ok';

CREATE OR REPLACE TEMP TABLE knows AS SELECT metric, bool_or(known) AS any_known FROM known GROUP BY metric;

-- Which requests enter which metric: common ones where production knows the metric, else all that have a latency at all.
CREATE OR REPLACE TEMP TABLE member AS
SELECT r.row, r.copy, m.metric, coalesce(k.any_known, false) AS compared
FROM replay r
CROSS JOIN (SELECT unnest(['ttft', 'ttfv', 'e2e', 'tpot', 'gap']) AS metric) m
LEFT JOIN knows k ON k.metric = m.metric
LEFT JOIN production p ON p.row = r.row
LEFT JOIN known n ON n.row = r.row AND n.metric = m.metric
WHERE r.status IN ('ok', 'failed', 'unsent')
  AND (NOT coalesce(k.any_known, false)
       OR (p.status IN ('ok', 'failed') AND (p.status = 'failed' OR n.known)));

CREATE OR REPLACE TEMP TABLE replay_value AS
WITH ends AS (
    SELECT m.metric, r.*,
           CASE m.metric
               WHEN 'e2e' THEN r.last_ns
               WHEN 'ttfv' THEN r.visible_ns
               WHEN 'ttft' THEN CASE WHEN m.compared THEN
                   CASE coalesce(moment(p.kind), getvariable('usual'), 'output')
                       WHEN 'headers' THEN r.headers_ns WHEN 'byte' THEN r.first_byte_ns ELSE r.first_ns END
                   ELSE r.first_ns END
           END AS finish_ns
    FROM member m JOIN replay r USING (row, copy) LEFT JOIN production p ON p.row = r.row
)
SELECT metric, 'user' AS population, CASE WHEN status = 'ok' THEN finish_ns - due_ns ELSE never() END AS ns
FROM ends WHERE metric IN ('ttft', 'ttfv', 'e2e')
UNION ALL
SELECT metric, 'success', finish_ns - due_ns FROM ends WHERE status = 'ok' AND metric IN ('ttft', 'ttfv', 'e2e')
UNION ALL
SELECT metric, 'service', finish_ns - last_write_ns FROM ends WHERE status = 'ok' AND metric IN ('ttft', 'ttfv', 'e2e')
UNION ALL
SELECT metric, 'success', span_ns // tokens_after_first
FROM ends WHERE metric = 'tpot' AND status = 'ok' AND tokens_after_first > 0
UNION ALL
SELECT 'gap', 'success', o.at_ns - lag(o.at_ns) OVER (PARTITION BY o.row, o.copy ORDER BY o.place)
FROM output_event o JOIN member m ON m.row = o.row AND m.copy = o.copy AND m.metric = 'gap'
JOIN replay r ON r.row = o.row AND r.copy = o.copy AND r.gaps > 0;

CREATE OR REPLACE TEMP TABLE production_value AS
WITH ends AS (
    -- A row that several copies replay counts once.
    SELECT m.metric, p.*, CASE m.metric WHEN 'ttft' THEN p.first_ns WHEN 'e2e' THEN p.last_ns END AS finish_ns
    FROM (SELECT DISTINCT row, metric FROM member WHERE compared) m JOIN production p USING (row)
)
SELECT metric, 'user' AS population, CASE WHEN status = 'ok' THEN finish_ns - start_ns ELSE never() END AS ns
FROM ends WHERE metric IN ('ttft', 'e2e')
UNION ALL
SELECT metric, 'success', finish_ns - start_ns FROM ends WHERE status = 'ok' AND metric IN ('ttft', 'e2e')
UNION ALL
SELECT metric, 'service', finish_ns - last_start_ns FROM ends WHERE status = 'ok' AND metric IN ('ttft', 'e2e')
UNION ALL
SELECT metric, 'success', span_ns // tokens_after_first
FROM ends WHERE metric = 'tpot' AND status = 'ok' AND tokens_after_first > 0
UNION ALL
SELECT 'gap', 'success', unnest(list_transform(range(2, len(events) + 1), lambda i: events[i] - events[i - 1]))
FROM ends WHERE metric = 'gap' AND status = 'ok' AND gaps > 0;

-- ---------------------------------------------------------------- the answer

CREATE OR REPLACE TEMP TABLE answer AS
WITH value AS (
    SELECT 'replay' AS side, * FROM replay_value WHERE ns IS NOT NULL
    UNION ALL
    SELECT 'baseline', * FROM production_value WHERE ns IS NOT NULL
)
SELECT side, metric, population, count(*) AS n, count(*) FILTER (ns = never()) AS infinite,
       quantile_disc(ns, 0.50) AS p50, quantile_disc(ns, 0.90) AS p90,
       quantile_disc(ns, 0.95) AS p95, quantile_disc(ns, 0.99) AS p99
FROM value GROUP BY ALL ORDER BY ALL;
