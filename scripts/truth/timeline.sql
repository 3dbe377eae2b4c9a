-- One side from a timeline. Variables: side, timeline (the file), matched (whether only the rows that the side `replay` holds
-- are wanted).

CREATE OR REPLACE TEMP TABLE logged AS
SELECT file_row_number AS row, arrival_unix_ns AS arrival_ns, arrival_source, retry_of_row, operation, stream,
       input_tokens, output_tokens, cached_tokens, served_by_gateway_cache, client_gone, cancel_after_ns, prod_status,
       prod_error, greatest(coalesce(prod_attempts, 1), 1) AS attempts, prod_ttft_kind AS kind, sample_rate,
       model, model_served, provider, endpoint, prod_ttft_ns AS stated_ttft_ns,
       CASE WHEN prod_ttft_ns >= 0 THEN prod_ttft_ns END AS ttft_ns,
       CASE WHEN prod_e2e_ns >= 0 THEN prod_e2e_ns END AS e2e_ns,
       list_sort(prod_event_ns) AS events
FROM read_parquet(getvariable('timeline'), file_row_number = true);

-- Every row with the first attempt that it belongs to, and its place among the attempts.
CREATE OR REPLACE TEMP TABLE logged_attempt AS
WITH RECURSIVE chain AS (
    SELECT row, row AS first_row FROM logged
    WHERE retry_of_row IS NULL
      AND (NOT getvariable('matched') OR row IN (SELECT row FROM request WHERE side = 'replay'))
    UNION ALL
    SELECT l.row, chain.first_row FROM logged l JOIN chain ON l.retry_of_row = chain.row
)
SELECT c.first_row, l.*, coalesce(l.e2e_ns, l.events[-1]) AS whole_ns,
       row_number() OVER (PARTITION BY c.first_row ORDER BY l.row DESC) = 1 AS is_last,
       lag(l.arrival_ns + coalesce(l.e2e_ns, l.events[-1])) OVER (PARTITION BY c.first_row ORDER BY l.row) AS before_end_ns,
       lag(l.arrival_ns) OVER (PARTITION BY c.first_row ORDER BY l.row) AS before_ns
FROM chain c JOIN logged l USING (row);

INSERT INTO request
WITH sums AS (
    SELECT first_row, sum(attempts) AS attempts, bool_or(coalesce(prod_status, 0) IN (429, 503, 529)) AS throttled,
           sum(CASE WHEN before_end_ns IS NULL THEN 0 ELSE greatest(arrival_ns - before_end_ns, 0) END)::BIGINT AS backoff_ns
    FROM logged_attempt GROUP BY first_row
), told AS (
    SELECT l.*, f.arrival_ns AS first_arrival_ns, s.attempts AS all_attempts, s.throttled, s.backoff_ns,
           CASE WHEN coalesce(l.client_gone, false) OR l.cancel_after_ns IS NOT NULL OR coalesce(l.prod_status, 0) = 499
                    THEN 'cancelled'
                WHEN l.prod_error IS NOT NULL THEN 'failed'
                WHEN l.prod_status IS NULL THEN 'ok'
                WHEN l.operation = 'http' AND l.prod_status BETWEEN 200 AND 399 THEN 'ok'
                WHEN l.prod_status BETWEEN 200 AND 299 THEN 'ok'
                ELSE 'failed' END AS status,
           len(l.events) >= 2 AS has_gaps,
           l.kind IN ('token', 'first_chunk') AND coalesce(l.stream, true) AND l.e2e_ns > l.ttft_ns AND l.output_tokens > 1
               AND NOT coalesce(len(l.events) >= 2, false) AS to_last_byte
    FROM logged_attempt l JOIN logged f ON f.row = l.first_row JOIN sums s ON s.first_row = l.first_row
    WHERE l.is_last
)
SELECT getvariable('side'), first_row, 0, coalesce(first_arrival_ns, 0), coalesce(first_arrival_ns, 0), status,
       CASE WHEN status <> 'failed' THEN NULL WHEN prod_status >= 400 THEN 'http_' || prod_status ELSE 'error' END,
       arrival_ns, arrival_ns + ttft_ns, NULL, NULL, kind, NULL, arrival_ns + whole_ns, arrival_ns + whole_ns,
       CASE WHEN has_gaps AND coalesce(output_tokens, len(events)) > 1 THEN events[-1] - events[1]
            WHEN to_last_byte THEN e2e_ns - ttft_ns END,
       CASE WHEN has_gaps THEN coalesce(output_tokens, len(events))::BIGINT - 1
            WHEN to_last_byte THEN output_tokens::BIGINT - 1 END,
       CASE WHEN has_gaps AND coalesce(output_tokens, len(events)) > 1
                THEN CASE WHEN output_tokens IS NULL THEN 'one_per_event' ELSE 'usage' END
            WHEN to_last_byte THEN 'to_last_byte' END,
       greatest(coalesce(len(events), 0) - 1, 0), false,
       input_tokens, cached_tokens, output_tokens, all_attempts, true, throttled, backoff_ns, 0, NULL
FROM told;

-- Streams of logged events, of requests that ended well: at least two events make gaps.
INSERT INTO output_event
WITH single AS (
    SELECT l.first_row AS row, unnest(range(1, len(l.events) + 1)) AS place, unnest(l.events) AS at_ns
    FROM logged_attempt l JOIN request r ON r.side = getvariable('side') AND r.row = l.first_row
    WHERE l.is_last AND r.status = 'ok' AND len(l.events) >= 2
)
SELECT getvariable('side'), row, 0, place, at_ns, NULL, 'logged', false, false FROM single;

INSERT INTO retry
SELECT getvariable('side'), arrival_ns, greatest(arrival_ns - before_end_ns, 0), arrival_ns - before_ns
FROM logged_attempt WHERE before_end_ns IS NOT NULL;

INSERT INTO figure
SELECT getvariable('side'), unnest(['retries_folded', 'status_unknown', 'served_by_gateway_cache', 'arrival_not_start', 'sampled']),
       unnest([count(*) FILTER (retry_of_row IS NOT NULL),
               count(*) FILTER (prod_status IS NULL AND prod_error IS NULL),
               count(*) FILTER (served_by_gateway_cache),
               count(*) FILTER (arrival_source <> 'start'),
               count(*) FILTER (sample_rate < 1)])
FROM logged_attempt;

INSERT INTO word
SELECT DISTINCT getvariable('side'), 'ttft_kind', kind FROM logged_attempt
WHERE stated_ttft_ns IS NOT NULL AND kind IS NOT NULL
UNION SELECT getvariable('side'), 'target.models_asked', model FROM logged_attempt WHERE model IS NOT NULL
UNION SELECT getvariable('side'), 'target.models_served', model_served FROM logged_attempt WHERE model_served IS NOT NULL
UNION SELECT getvariable('side'), 'target.url', endpoint FROM logged_attempt WHERE endpoint IS NOT NULL;
