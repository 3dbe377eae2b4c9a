#!/usr/bin/env python3
"""How far a run's TTFT and gaps are from what the mock endpoint itself saw.

    stamp_error.py RUN WITNESS.jsonl

RUN is a replay of streams against `tracewheel mock --witness-log WITNESS.jsonl`. TTFT here is last byte written to first output
event against arrival to first token written; a gap is the time between two output events against the time between their tokens.
The mock stamps a token when the kernel has taken its chunk, which on one machine may be after the reader's kernel has it, so
errors have both signs. Prints the quantiles of run - mock in microseconds; of streams of which every token is an event of its own.
Needs the package `duckdb`.
"""

import sys

import duckdb

QUERY = """
WITH answer AS (
    SELECT row, copy, attempt, last_write_ns, request_id, reads, list_filter(events, lambda e: e.kind BETWEEN 1 AND 4) AS output
    FROM read_parquet($run || '/attempts/*.parquet') WHERE status = 'ok'
), seen AS (
    SELECT request_id, retry_count, token_mono_ns AS tokens, coalesce(arrival_kernel_mono_ns, arrival_user_mono_ns) AS arrival_ns
    FROM read_json($witness, format = 'newline_delimited') WHERE len(token_mono_ns) > 0
), pair AS (
    SELECT a.*, s.tokens, s.arrival_ns,
           list_transform(output, lambda e: coalesce(reads[e.read + 1].kernel_ns, reads[e.read + 1].user_ns)) AS times,
           list_transform(output, lambda e: reads[e.read + 1].kernel_ns IS NOT NULL) AS by_kernel
    FROM answer a JOIN seen s ON s.request_id = a.request_id AND s.retry_count = a.attempt - 1
    WHERE len(output) = len(s.tokens)
), single AS (
    SELECT unnest(range(1, len(tokens) + 1)) AS i, * FROM pair
), error AS (
    SELECT 'TTFT' AS what, ((times[1] - last_write_ns) - (tokens[1] - arrival_ns)) / 1000 AS us, by_kernel[1] AS kernel
    FROM single WHERE i = 1
    UNION ALL
    SELECT 'gap', ((times[i] - times[i - 1]) - (tokens[i] - tokens[i - 1])) / 1000, by_kernel[i] AND by_kernel[i - 1]
    FROM single WHERE i > 1
)
SELECT what, count(*) AS n, round(avg(kernel::INT), 4) AS kernel_share, quantile_disc(us, 0.01) AS p1, quantile_disc(us, 0.1) AS p10,
       quantile_disc(us, 0.5) AS p50, quantile_disc(us, 0.9) AS p90, quantile_disc(us, 0.99) AS p99,
       quantile_disc(abs(us), 0.5) AS abs_p50, quantile_disc(abs(us), 0.99) AS abs_p99
FROM error GROUP BY what ORDER BY what
"""


def main():
    if len(sys.argv) != 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    found = duckdb.execute(QUERY, {"run": sys.argv[1], "witness": sys.argv[2]}).fetchall()
    if len(found) != 2:
        print("no stream of the run is in the witness log", file=sys.stderr)
        return 1
    names = ("", "n", "kernel", "p1", "p10", "p50", "p90", "p99", "|p50|", "|p99|")
    print("run - mock, microseconds")
    print("".join(f"{name:>10}" for name in names))
    for row in found:
        print("".join(f"{value:>10.1f}" if isinstance(value, float) and at > 2 else f"{value:>10}" for at, value in enumerate(row)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
