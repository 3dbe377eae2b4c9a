-- The figures of `tracewheel inspect TIMELINE --json`, from the Parquet file alone. Written from docs/reference/json.md and
-- docs/reference/vocabulary.md. Variables: timeline (the file), block_tokens and in_bytes (from its metadata).

CREATE OR REPLACE TEMP TABLE line AS
SELECT file_row_number AS row, * EXCLUDE (file_row_number) FROM read_parquet(getvariable('timeline'), file_row_number = true);

CREATE OR REPLACE TEMP TABLE arrivals AS
WITH gap AS (
    SELECT row, arrival_unix_ns AS at_ns, arrival_unix_ns - lag(arrival_unix_ns) OVER (ORDER BY row) AS gap_ns,
           (arrival_unix_ns - first_value(arrival_unix_ns) OVER (ORDER BY row)) // 60000000000 AS minute
    FROM line WHERE arrival_unix_ns IS NOT NULL
), minute AS (SELECT minute, count(*) AS requests FROM gap GROUP BY minute)
SELECT count(*) AS known, min(at_ns) AS first_ns, max(at_ns) AS last_ns, (max(at_ns) - min(at_ns)) / 1e9 AS span_seconds,
       count(*) FILTER (gap_ns = 0) AS ties,
       CASE WHEN count(gap_ns) >= 2 AND avg(gap_ns) > 0 THEN stddev_pop(gap_ns) / avg(gap_ns) END AS cv,
       (SELECT max(requests) FROM minute) AS peak,
       (SELECT max(requests) * (max(minute) + 1) FROM minute) / count(*) AS peak_to_mean
FROM gap;

-- Straight between the neighbours of position (n - 1) * p / 100, from 0: `quantile_cont`, with the position in whole numbers.
CREATE OR REPLACE MACRO straight(sorted, p) AS
    sorted[(len(sorted) - 1) * p // 100 + 1]::DOUBLE
    + (sorted[least((len(sorted) - 1) * p // 100 + 2, len(sorted))] - sorted[(len(sorted) - 1) * p // 100 + 1])
      * ((len(sorted) - 1) * p % 100 / 100);
CREATE OR REPLACE TEMP TABLE token_stats AS
WITH tokens AS (
    SELECT unnest(['input', 'output', 'cached']) AS name, unnest([input_tokens, output_tokens, cached_tokens]) AS n FROM line
)
SELECT name, count(n) AS known, coalesce(sum(n), 0)::BIGINT AS total, sum(n)::BIGINT / count(n) AS mean, min(n) AS least,
       max(n) AS most, straight(sorted, 50) AS p50, straight(sorted, 95) AS p95, straight(sorted, 99) AS p99
FROM tokens JOIN (SELECT name, list_sort(list(n) FILTER (n IS NOT NULL)) AS sorted FROM tokens GROUP BY name) USING (name)
GROUP BY name, sorted;

-- A block is hit when it and every block before it in its prompt stand in an earlier row.
CREATE OR REPLACE TEMP TABLE prefix AS
WITH block AS (
    SELECT row, unnest(range(1, len(prefix_hashes) + 1)) AS place, unnest(prefix_hashes) AS hash FROM line
    WHERE prefix_hashes IS NOT NULL
), known AS (
    SELECT row, place, min(row) OVER (PARTITION BY hash) < row AS is_known FROM block
), hit AS (
    SELECT row, coalesce(min(place) FILTER (NOT is_known) - 1, max(place)) AS hits FROM known GROUP BY row
), lengths AS (
    SELECT l.row, len(l.prefix_hashes) AS blocks, coalesce(h.hits, 0) AS hits, l.prefix_block_tokens AS tokens, l.input_tokens AS input
    FROM line l LEFT JOIN hit h USING (row) WHERE l.prefix_hashes IS NOT NULL
), counted AS (
    SELECT *, CASE WHEN tokens IS NOT NULL THEN list_sum(tokens[:hits])
                   ELSE least(hits * getvariable('block_tokens'), coalesce(input, 9223372036854775807)) END AS hit_tokens,
              CASE WHEN tokens IS NOT NULL THEN list_sum(tokens[:blocks])
                   ELSE least(blocks * getvariable('block_tokens'), coalesce(input, 9223372036854775807)) END AS block_tokens
    FROM lengths
)
SELECT count(*) AS requests, sum(blocks)::BIGINT AS blocks, (SELECT count(DISTINCT hash) FROM block) AS distinct_blocks,
       sum(hits)::BIGINT AS hit_blocks, sum(hits)::BIGINT / nullif(sum(blocks)::BIGINT, 0) AS block_hit_ratio,
       CASE WHEN NOT getvariable('in_bytes') AND bool_and(tokens IS NOT NULL OR getvariable('block_tokens') IS NOT NULL)
            THEN sum(coalesce(hit_tokens, 0))::BIGINT / nullif(sum(coalesce(input, block_tokens, 0))::BIGINT, 0) END AS token_hit_ratio
FROM counted HAVING count(*) > 0;

CREATE OR REPLACE TEMP TABLE latency_stats AS
WITH latency AS (
    SELECT 'ttft_ns' AS name, prod_ttft_ns AS ns FROM line WHERE prod_ttft_ns >= 0
    UNION ALL SELECT 'e2e_ns', prod_e2e_ns FROM line WHERE prod_e2e_ns >= 0
)
SELECT name, quantile_disc(ns, 0.50), quantile_disc(ns, 0.90), quantile_disc(ns, 0.95), quantile_disc(ns, 0.99), max(ns), count(*)
FROM latency GROUP BY name;

-- What is odd, and how often.
CREATE OR REPLACE TEMP TABLE odd AS
WITH t AS (
    SELECT *, (input_tokens IS NULL) = (coalesce(input_tokens_source, 'absent') = 'absent') AS fits_input,
           (output_tokens IS NULL) = (coalesce(output_tokens_source, 'absent') = 'absent') AS fits_output,
           (cached_tokens IS NULL) = (coalesce(cached_tokens_source, 'absent') = 'absent') AS fits_cached,
           (cache_write_tokens IS NULL) = (coalesce(cache_write_tokens_source, 'absent') = 'absent') AS fits_write,
           (reasoning_tokens IS NULL) = (coalesce(reasoning_tokens_source, 'absent') = 'absent') AS fits_reasoning,
           len(prefix_hashes) AS blocks, len(prefix_block_tokens) AS lengths, list_sum(prefix_block_tokens) AS length
    FROM line
)
SELECT unnest(['equal_arrivals', 'coarse_precision', 'arrival_not_start', 'arrival_unknown', 'sampled',
               'sample_rate_out_of_range', 'input_tokens_unknown', 'output_tokens_unknown', 'zero_input_tokens',
               'zero_output_tokens', 'cached_over_input', 'reasoning_over_output', 'source_contradiction',
               'negative_duration', 'ttft_over_e2e', 'ttft_kind_contradiction', 'events_unsorted', 'retry_of_later_row',
               'duplicate_source_id', 'turn_without_session', 'prefix_contradiction']) AS kind,
       unnest([
           (SELECT ties FROM arrivals),
           count(*) FILTER (arrival_unix_ns IS NOT NULL AND arrival_precision_ns > 100000000),
           count(*) FILTER (arrival_source <> 'start'),
           count(*) FILTER (arrival_unix_ns IS NULL),
           count(*) FILTER (sample_rate > 0 AND sample_rate < 1),
           count(*) FILTER (NOT (sample_rate > 0 AND sample_rate <= 1)),
           count(*) FILTER (input_tokens IS NULL AND coalesce(input_tokens_source, '') <> 'absent'),
           count(*) FILTER (output_tokens IS NULL AND coalesce(output_tokens_source, '') <> 'absent'),
           count(*) FILTER (input_tokens = 0),
           count(*) FILTER (output_tokens = 0),
           count(*) FILTER (coalesce(cached_tokens, 0)::BIGINT + coalesce(cache_write_tokens, 0) > input_tokens),
           count(*) FILTER (reasoning_tokens > output_tokens),
           sum((NOT fits_input)::INT + (NOT fits_output)::INT + (NOT fits_cached)::INT + (NOT fits_write)::INT
               + (NOT fits_reasoning)::INT)::BIGINT,
           sum(coalesce(cancel_after_ns < 0, false)::INT + coalesce(prod_ttft_ns < 0, false)::INT
               + coalesce(prod_e2e_ns < 0, false)::INT + coalesce(list_min(prod_event_ns) < 0, false)::INT)::BIGINT,
           count(*) FILTER (prod_ttft_ns > prod_e2e_ns),
           count(*) FILTER ((prod_ttft_ns IS NULL) <> (prod_ttft_kind IS NULL)),
           count(*) FILTER (prod_event_ns <> list_sort(prod_event_ns)),
           count(*) FILTER (retry_of_row >= row),
           (SELECT count(source_id_hash) - count(DISTINCT source_id_hash) FROM line WHERE retry_of_row IS NULL),
           count(*) FILTER (turn IS NOT NULL AND session_hash IS NULL),
           count(*) FILTER (CASE WHEN blocks IS NULL THEN false WHEN lengths <> blocks THEN true
               WHEN lengths IS NOT NULL THEN coalesce(length > input_tokens, false)
               WHEN getvariable('block_tokens') IS NULL THEN true
               ELSE coalesce(blocks > ceil(input_tokens / greatest(getvariable('block_tokens'), 1)), false) END)
       ]) AS n
FROM t;
