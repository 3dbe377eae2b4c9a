#!/usr/bin/env python3
"""Holds `tracewheel inspect TIMELINE --json` against a recomputation from the Parquet file (scripts/truth/inspect.sql).

    check_inspect.py TIMELINE STATS.json

Every leaf is recomputed, and one that nothing recomputes is a failure. Whole numbers, interpolated quantiles and ratios must be
equal to the last digit, the variation of the gaps, a sum of squares, to 1 part in 10^9. Exit code 0 when all is equal, 1 when a
leaf differs, 2 for a wrong call. Needs the package `duckdb`.
"""

import json
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "truth"))

import duckdb
import leaves
from leaves import Close, Prose


def clock_resolution(database):
    """The rule of `methods.clock_resolution`: (resolution, rule), or nothing."""
    declared = database.execute(
        "SELECT min(arrival_precision_ns) FROM line WHERE arrival_unix_ns IS NOT NULL AND arrival_precision_ns > 0"
    ).fetchone()[0]
    steps = [
        step
        for (step,) in database.execute(
            """SELECT step FROM (SELECT arrival_unix_ns - lag(arrival_unix_ns) OVER (ORDER BY row) AS step FROM line
               WHERE arrival_unix_ns IS NOT NULL) WHERE step > 0 ORDER BY step"""
        ).fetchall()
    ]
    if len(steps) < 16:
        return (declared, "declared") if declared else (None, None)
    smallest = steps[len(steps) // 100]
    single = [step for step in steps if smallest <= step <= smallest + smallest // 2]
    typical, unit = single[len(single) // 2], math.gcd(*steps)
    on_step = sum(1 for s in steps if 100 * (typical - s if s < typical else min(s % typical, typical - s % typical)) <= typical)
    stands = on_step * 100 >= len(steps) * 99 and typical > unit
    found = (typical, "step") if stands else (unit, "unit")
    return (declared, "declared") if declared and declared > found[0] else found


def production(database):
    names = ("p50", "p90", "p95", "p99", "max", "known")
    latency = {row[0]: dict(zip(names, row[1:])) for row in database.execute("FROM latency_stats").fetchall()}

    def tally(column):
        rows = database.execute(f"SELECT {column}::VARCHAR, count(*) FROM line WHERE {column} IS NOT NULL GROUP BY 1").fetchall()
        return dict(rows)

    errors, total, known, retries = database.execute(
        """SELECT count(prod_error), coalesce(sum(prod_attempts), 0)::BIGINT, count(prod_attempts), count(retry_of_row) FROM line"""
    ).fetchone()
    found = {
        "ttft_ns": latency.get("ttft_ns"),
        "ttft_kinds": tally("prod_ttft_kind"),
        "e2e_ns": latency.get("e2e_ns"),
        "status": tally("prod_status"),
        "errors": errors,
        "attempts": {"total": total, "known": known, "retry_rows": retries},
    }
    nothing = not latency and not found["status"] and not errors and not any(found["attempts"].values())
    return None if nothing else found


def prefix(database, block_tokens, basis):
    rows = database.execute("FROM prefix").fetchall()
    if not rows:
        return None
    names = ("requests", "blocks", "distinct_blocks", "hit_blocks", "block_hit_ratio", "token_hit_ratio")
    return {"block_tokens": block_tokens, "block_basis": basis, **dict(zip(names, rows[0])), "definition": Prose()}


def identical_rows(database):
    """Rows equal to another of the same arrival in all but where they were found; a body was not read."""
    columns = [row[0] for row in database.execute("DESCRIBE line").fetchall()]
    maps = [name for name in ("tags", "request_headers") if name in columns]
    inside = ", ".join(f'"{name}"' for name in columns if name not in ("row", "source_file", "source_offset", "body", *maps))
    return database.execute(
        f"""SELECT coalesce(sum(n - 1), 0)::BIGINT FROM (
                SELECT count(*) AS n FROM line WHERE arrival_unix_ns IS NOT NULL AND body_state = 'absent'
                GROUP BY {inside}, {', '.join(f'{name}::VARCHAR' for name in maps)})"""
    ).fetchone()[0]


def expected(path):
    database = duckdb.connect()
    pairs = dict(database.execute("SELECT decode(key), decode(value) FROM parquet_kv_metadata($1)", [path]).fetchall())
    block_tokens = int(pairs["tracewheel.block_tokens"]) if "tracewheel.block_tokens" in pairs else None
    basis, has_epoch = pairs.get("tracewheel.block_basis"), pairs["tracewheel.has_epoch"] == "true"
    for name, value in (("timeline", path), ("block_tokens", block_tokens), ("in_bytes", basis == "bytes")):
        database.execute(f"SET VARIABLE {name} = $1", [value])
    database.execute((pathlib.Path(__file__).parent / "truth" / "inspect.sql").read_text())
    known, first, last, span, ties, cv, peak, peak_to_mean = database.execute("FROM arrivals").fetchone()
    tokens = {row[0]: row[1:] for row in database.execute("FROM token_stats").fetchall()}
    names = ("known", "total", "mean", "min", "max", "p50", "p95", "p99")
    requests, sessions, session_requests = database.execute(
        "SELECT count(*), count(DISTINCT session_hash), count(session_hash) FROM line"
    ).fetchone()
    resolution, rule = clock_resolution(database)
    odd = dict(database.execute("FROM odd").fetchall())
    odd["identical_rows"] = identical_rows(database)
    order = list(odd)[:-3] + ["identical_rows"] + list(odd)[-3:-1]
    return {
        "schema": "1.0",
        "requests": requests,
        "has_epoch": has_epoch,
        "first_arrival_unix_ns": first if has_epoch else None,
        "last_arrival_unix_ns": last if has_epoch else None,
        "span_seconds": span if known else None,
        **{f"{name}_tokens": dict(zip(names, tokens[name])) for name in ("input", "output", "cached")},
        "interarrival_cv": None if cv is None else Close(cv),
        "ties": ties,
        "peak_minute_requests": peak,
        "peak_to_mean": peak_to_mean if known else None,
        "clock_resolution_ns": resolution,
        "clock_resolution_rule": rule,
        "prefix": prefix(database, block_tokens, basis),
        "sessions": sessions if session_requests else None,
        "session_requests": session_requests,
        "production": production(database),
        "oddities": [{"kind": kind, "count": odd[kind], "detail": Prose()} for kind in order if odd[kind]],
        "methods": dict.fromkeys(
            ("token_quantiles", "latency_quantiles", "interarrival_cv", "peak", "clock_resolution"), Prose()
        ),
    }


def main():
    if len(sys.argv) != 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    document = json.loads(pathlib.Path(sys.argv[2]).read_text())
    wanted = expected(sys.argv[1])
    wrong = list(leaves.differences(document, wanted))
    for where, what in wrong:
        print(f"{where} {what}")
    whole, numbers = leaves.count(document)
    noticed = len({where for where, _ in leaves.differences(leaves.disturbed(document), wanted)})
    print(f"{sys.argv[2]}: {whole} leaves, {numbers} of them numbers, {len(wrong)} differences")
    if noticed < numbers:
        print(f"only {noticed} of {numbers} numbers would be noticed if they were wrong")
    return 1 if wrong or noticed < numbers else 0


if __name__ == "__main__":
    sys.exit(main())
