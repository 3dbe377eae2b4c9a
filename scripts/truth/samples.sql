-- What is compared: the samples behind every latency, slot by slot. Variables: matched (by row), baseline (`run`, `timeline` or
-- null: a run by itself), unsent (requests of the replay that never left and have no row).

-- The replay's requests in arrival order, and the baseline's request that each replays.
CREATE OR REPLACE TEMP TABLE slot AS
SELECT row_number() OVER (ORDER BY r.order_ns, r.row, r.copy) - 1 AS slot, r.row, r.copy,
       b.row AS their_row, b.copy AS their_copy, b.status AS their_status, b.kind,
       -- A row that several copies replay counts once: in the first copy's slot.
       b.row IS NOT NULL
           AND row_number() OVER (PARTITION BY b.row, b.copy ORDER BY r.order_ns, r.row, r.copy) = 1 AS is_first
FROM request r
LEFT JOIN request b ON getvariable('matched') AND b.side = 'baseline' AND b.row = r.row
    AND b.copy = CASE WHEN getvariable('baseline') = 'run' THEN r.copy ELSE 0 END
WHERE r.side = 'replay';

CREATE OR REPLACE TEMP TABLE their_slot AS
SELECT row, copy, row_number() OVER (ORDER BY order_ns, row, copy) - 1 AS slot FROM request WHERE side = 'baseline';

-- Headers, first byte of the body, or first output: the moment that a TTFT of a kind ends at.
CREATE OR REPLACE MACRO moment(kind) AS CASE
    WHEN kind IN ('headers', 'upstream_headers') THEN 2 WHEN kind = 'first_byte' THEN 1 WHEN kind IS NOT NULL THEN 0 END;
SET VARIABLE usual = coalesce((
    SELECT moment(kind) FROM request WHERE side = 'baseline' AND kind IS NOT NULL
    GROUP BY moment(kind) ORDER BY count(*) DESC, moment(kind) DESC LIMIT 1
), 0);

CREATE OR REPLACE TEMP TABLE metric AS SELECT unnest(['ttft', 'ttfv', 'e2e', 'tpot', 'gap', 'itl']) AS metric;

-- Which successful requests of the baseline know which metric.
CREATE OR REPLACE TEMP TABLE knows AS
SELECT r.row, r.copy, m.metric
FROM request r CROSS JOIN metric m
WHERE r.side = 'baseline' AND r.status = 'ok' AND CASE m.metric
    WHEN 'ttft' THEN r.first_ns IS NOT NULL WHEN 'ttfv' THEN r.visible_ns IS NOT NULL WHEN 'e2e' THEN r.last_ns IS NOT NULL
    WHEN 'tpot' THEN r.span_ns IS NOT NULL WHEN 'gap' THEN r.gaps > 0 ELSE r.gaps > 0 AND r.per_token END;
CREATE OR REPLACE TEMP TABLE known_metric AS SELECT DISTINCT metric FROM knows;

-- The replay's members of each metric: all that have a latency at all where the baseline does not know the metric or nothing
-- is matched; else those that the baseline knows it of, or failed to answer.
CREATE OR REPLACE TEMP TABLE member AS
SELECT s.slot, s.row, s.copy, s.their_row, s.their_copy, s.is_first, s.kind, m.metric, k.metric IS NOT NULL AS compared
FROM slot s CROSS JOIN metric m
JOIN request r ON r.side = 'replay' AND r.row = s.row AND r.copy = s.copy
LEFT JOIN known_metric k ON k.metric = m.metric
LEFT JOIN knows n ON n.row = s.their_row AND n.copy = s.their_copy AND n.metric = m.metric
WHERE r.status IN ('ok', 'failed', 'unsent')
  AND (k.metric IS NULL OR NOT getvariable('matched')
       OR s.their_status IN ('failed', 'unsent') OR (s.their_status = 'ok' AND n.row IS NOT NULL));

CREATE OR REPLACE TEMP TABLE their_member AS
SELECT m.slot, m.their_row AS row, m.their_copy AS copy, m.metric FROM member m
WHERE getvariable('matched') AND m.compared AND m.is_first
UNION ALL
SELECT t.slot, t.row, t.copy, k.metric FROM their_slot t JOIN request r ON r.side = 'baseline' AND r.row = t.row AND r.copy = t.copy
CROSS JOIN known_metric k WHERE NOT getvariable('matched') AND r.status IN ('ok', 'failed', 'unsent');

-- One value a request: null where a member has none (a stream without output has no TTFT).
CREATE OR REPLACE TEMP TABLE ends AS
SELECT 'replay' AS side, m.slot, m.metric, r.status, r.start_ns, r.service_ns,
       CASE m.metric WHEN 'e2e' THEN r.last_ns WHEN 'ttfv' THEN r.visible_ns WHEN 'ttft' THEN
           CASE CASE WHEN m.compared THEN coalesce(moment(m.kind), getvariable('usual')) ELSE 0 END
               WHEN 2 THEN r.headers_ns WHEN 1 THEN r.byte_ns ELSE r.first_ns END END AS finish_ns,
       r.span_ns // r.tokens AS tpot_ns
FROM member m JOIN request r ON r.side = 'replay' AND r.row = m.row AND r.copy = m.copy
UNION ALL
SELECT 'baseline', m.slot, m.metric, r.status, r.start_ns, r.service_ns,
       CASE m.metric WHEN 'e2e' THEN r.last_ns WHEN 'ttfv' THEN r.visible_ns WHEN 'ttft' THEN r.first_ns END, r.span_ns // r.tokens
FROM their_member m JOIN request r ON r.side = 'baseline' AND r.row = m.row AND r.copy = m.copy;

CREATE OR REPLACE TEMP TABLE value AS
SELECT side, metric, population, slot,
       CASE WHEN status <> 'ok' THEN never()
            WHEN population = 'service' THEN finish_ns - service_ns ELSE finish_ns - start_ns END AS ns
FROM ends CROSS JOIN (SELECT unnest(['user', 'success', 'service']) AS population)
WHERE metric IN ('ttft', 'ttfv', 'e2e') AND (status = 'ok' OR population = 'user')
UNION ALL
SELECT side, metric, 'success', slot, tpot_ns FROM ends WHERE metric = 'tpot' AND status = 'ok'
UNION ALL
SELECT 'replay', metric, 'user', (SELECT count(*) FROM slot) + i, never()
FROM metric CROSS JOIN range(getvariable('unsent')) t(i) WHERE metric IN ('ttft', 'ttfv', 'e2e');

-- Gaps, pooled: every value and how often it counts. A gap is spread over the tokens of the event that ends it; an event of
-- no token leaves its gap to the next.
CREATE OR REPLACE TEMP TABLE pooled AS
WITH place AS (
    SELECT 'replay' AS side, slot, row, copy, metric FROM member WHERE metric IN ('gap', 'itl')
    UNION ALL
    SELECT 'baseline', slot, row, copy, metric FROM their_member WHERE metric IN ('gap', 'itl')
), gap AS (
    SELECT e.side, e.row, e.copy, e.place, coalesce(e.tokens, 1) AS tokens,
           e.at_ns - lag(e.at_ns) OVER stream AS ns,
           sum(CASE WHEN coalesce(e.tokens, 1) > 0 THEN 1 ELSE 0 END) OVER (stream ROWS UNBOUNDED PRECEDING)
               - CASE WHEN coalesce(e.tokens, 1) > 0 THEN 1 ELSE 0 END AS spread
    FROM output_event e WINDOW stream AS (PARTITION BY e.side, e.row, e.copy ORDER BY e.place)
), carried AS (
    SELECT side, row, copy, sum(ns)::BIGINT AS ns, max(tokens) AS tokens
    FROM gap WHERE ns IS NOT NULL GROUP BY side, row, copy, spread
)
SELECT p.side, p.metric, p.slot, g.ns, 1 AS mass
FROM place p JOIN gap g USING (side, row, copy) WHERE p.metric = 'gap' AND g.ns IS NOT NULL
UNION ALL
SELECT p.side, p.metric, p.slot, c.ns // c.tokens, c.tokens
FROM place p JOIN carried c USING (side, row, copy) WHERE p.metric = 'itl' AND c.tokens > 0;

-- Sizes and quantiles of every sample.
CREATE OR REPLACE TEMP TABLE sample AS
WITH one AS (
    SELECT side, metric, population, count(ns) AS n, count(*) FILTER (ns = never()) AS infinite,
           count(*) FILTER (ns IS NULL) AS without_value, list_sort(list(ns) FILTER (ns IS NOT NULL)) AS sorted
    FROM value GROUP BY side, metric, population
    UNION ALL
    SELECT side, metric, 'success', count(*), 0, 0, list_sort(list(ns))
    FROM (SELECT side, metric, ns, unnest(range(mass)) FROM pooled) GROUP BY side, metric
)
SELECT side, metric, population, n, infinite, without_value,
       at_rank(sorted, 50) AS p50, at_rank(sorted, 90) AS p90, at_rank(sorted, 95) AS p95, at_rank(sorted, 99) AS p99
FROM one;

-- The cache bin of each successful request that the sides have in common.
CREATE OR REPLACE MACRO bin_of(cached, input) AS CASE
    WHEN cached IS NULL OR input IS NULL THEN 'not reported' WHEN cached = 0 THEN '0' WHEN input = 0 THEN 'not reported'
    WHEN 4 * cached <= input THEN '(0,25]' WHEN 2 * cached <= input THEN '(25,50]' WHEN 4 * cached <= 3 * input THEN '(50,75]'
    ELSE '(75,100]' END;
CREATE OR REPLACE TEMP TABLE cache_bin AS
SELECT 'replay' AS side, s.slot, bin_of(r.cached_tokens, r.input_tokens) AS bin
FROM slot s JOIN request r ON r.side = 'replay' AND r.row = s.row AND r.copy = s.copy
WHERE r.status = 'ok' AND (NOT getvariable('matched') OR s.their_status IN ('ok', 'failed', 'unsent'))
UNION ALL
SELECT 'baseline', s.slot, bin_of(b.cached_tokens, b.input_tokens)
FROM slot s JOIN request r ON r.side = 'replay' AND r.row = s.row AND r.copy = s.copy
JOIN request b ON b.side = 'baseline' AND b.row = s.their_row AND b.copy = s.their_copy
WHERE s.is_first AND b.status = 'ok' AND r.status IN ('ok', 'failed', 'unsent')
UNION ALL
SELECT 'baseline', t.slot, bin_of(b.cached_tokens, b.input_tokens)
FROM their_slot t JOIN request b ON b.side = 'baseline' AND b.row = t.row AND b.copy = t.copy
WHERE NOT getvariable('matched') AND b.status = 'ok';

-- ---------------------------------------------------------------- figures of a side

-- Jitter of a stream: p95 / p50 of its gaps, from 20 gaps on and a median above 0. Stalls: gaps above stall_ns.
CREATE OR REPLACE TEMP TABLE evenness AS
WITH gap AS (
    SELECT side, row, copy, at_ns - lag(at_ns) OVER (PARTITION BY side, row, copy ORDER BY place) AS ns FROM output_event
), stream AS (
    SELECT side, row, copy, list_sort(list(ns)) AS gaps, count(*) FILTER (ns > getvariable('stall_ns')) AS stalls,
           coalesce(sum(ns) FILTER (ns > getvariable('stall_ns')), 0)::BIGINT AS stalled_ns
    FROM gap WHERE ns IS NOT NULL GROUP BY side, row, copy
)
SELECT side, stalls, stalled_ns,
       CASE WHEN len(gaps) >= 20 AND at_rank(gaps, 50) > 0 THEN at_rank(gaps, 95) / at_rank(gaps, 50) END AS jitter
FROM stream;

CREATE OR REPLACE TEMP TABLE stream_report AS
SELECT side, count(DISTINCT (row, copy)) AS streams, count(*) AS output_events,
       count(*) FILTER (same_read) AS coalesced_events, count(tokens) AS counted_events,
       count(*) FILTER (merged) AS merged_events,
       count(*) FILTER (stamp = 'kernel') AS kernel, count(*) FILTER (stamp = 'user') AS user_space,
       count(*) FILTER (stamp = 'logged') AS logged
FROM output_event GROUP BY side;

-- How long each number of requests was in flight: ends come before starts at one instant.
CREATE OR REPLACE TEMP TABLE in_flight AS
WITH step AS (
    SELECT side, start_ns AS at_ns, 1 AS step FROM request WHERE end_ns > start_ns
    UNION ALL
    SELECT side, end_ns, -1 FROM request WHERE end_ns > start_ns
)
SELECT side, sum(step) OVER moments AS level, lead(at_ns) OVER moments - at_ns AS ns
FROM step WINDOW moments AS (PARTITION BY side ORDER BY at_ns, step ROWS UNBOUNDED PRECEDING);

-- How closely retries came together. The window is a tenth of the median wait, from 1 ms to 1 s; every retry has its share of
-- a window when it is spread evenly over its wait (at least the window), in millionths.
CREATE OR REPLACE TEMP TABLE retry_window AS
SELECT side, count(*) AS retries,
       greatest(least(at_rank(list_sort(list(wait_ns)), 50) // 10, 1000000000), 1000000)::BIGINT AS window_ns
FROM retry GROUP BY side;
CREATE OR REPLACE TEMP TABLE retry_wave AS
WITH moment AS (
    SELECT DISTINCT side, at_ns FROM retry
), held AS (
    SELECT m.side, m.at_ns, count(*) AS n, at_rank(list_sort(list(r.period_ns)), 50) AS period_ns
    FROM moment m JOIN retry_window w USING (side)
    JOIN retry r ON r.side = m.side AND r.at_ns >= m.at_ns AND r.at_ns - m.at_ns < w.window_ns
    GROUP BY m.side, m.at_ns
), densest AS (
    SELECT *, row_number() OVER (PARTITION BY side ORDER BY n DESC, at_ns) AS place FROM held
), spread AS (
    SELECT r.side, r.at_ns - r.wait_ns AS from_ns, greatest(r.wait_ns, w.window_ns) AS spread_ns,
           greatest(w.window_ns::HUGEINT * 1000000 // greatest(r.wait_ns, w.window_ns), 1)::BIGINT AS part
    FROM retry r JOIN retry_window w USING (side)
), step AS (
    SELECT side, from_ns AS at_ns, part FROM spread
    UNION ALL
    SELECT side, from_ns + spread_ns, -part FROM spread
), level AS (
    SELECT side, sum(part) OVER (PARTITION BY side ORDER BY at_ns, part ROWS UNBOUNDED PRECEDING) AS level FROM step
)
SELECT w.side, w.retries, w.window_ns, d.n AS densest, d.period_ns, max(l.level)::BIGINT AS even
FROM retry_window w JOIN densest d ON d.side = w.side AND d.place = 1 JOIN level l ON l.side = w.side
GROUP BY ALL;

-- Durations that are summed up by percentiles.
CREATE OR REPLACE TEMP TABLE duration AS
SELECT side, 'lateness' AS what, ns FROM lateness
UNION ALL SELECT side, 'retry_lateness', ns FROM retry_lateness
UNION ALL SELECT side, 'write_time', write_ns FROM lateness WHERE write_ns IS NOT NULL
UNION ALL SELECT side, 'body_tail', ns FROM body_tail
UNION ALL SELECT side, 'gate_drift', drift_ns FROM recorded
    WHERE phase = 'measure' AND NOT after_window AND gated AND status <> 'unsent'
UNION ALL SELECT side, 'backoff', backoff_ns FROM request WHERE backoff_ns > 0
UNION ALL SELECT side, 'budget_wait', budget_ns FROM request WHERE budget_ns > 0;
CREATE OR REPLACE TEMP TABLE duration_summary AS
SELECT side, what, len(sorted) AS n, at_rank(sorted, 50) AS p50_ns, at_rank(sorted, 90) AS p90_ns, at_rank(sorted, 95) AS p95_ns,
       at_rank(sorted, 99) AS p99_ns, sorted[-1] AS max_ns
FROM (SELECT side, what, list_sort(list(ns)) AS sorted FROM duration GROUP BY side, what);
