#!/usr/bin/env python3
"""Holds `tracewheel compare --json` against a recomputation in DuckDB (check_compare.sql), exactly.

    check_compare.py RUN TIMELINE COMPARISON.json

Exit code 0 when every sample size and every percentile of TTFT, TTFV, E2E, gap and TPOT is equal on both sides,
1 when one differs, 2 for a wrong call. Needs the package `duckdb`.
"""

import json
import pathlib
import sys

import duckdb

CHECKED = {"ttft", "ttfv", "e2e", "gap", "tpot"}
PERCENTILES = ("p50", "p90", "p95", "p99")
NEVER = 2**63 - 1


def recomputed(run: str, timeline: str) -> dict:
    """(side, metric, population) -> {n, infinite, p50, ...}, +infinity as NEVER."""
    outcome = json.loads(pathlib.Path(run, "manifest.json").read_text()).get("outcome") or {}
    ended = outcome.get("ended_by") in ("drained", "cut", "killed")
    database = duckdb.connect()
    database.execute("SET VARIABLE run = $1", [run])
    database.execute("SET VARIABLE timeline = $1", [timeline])
    database.execute("SET VARIABLE window_end = $1", [outcome.get("ended_ns") if ended else None])
    database.execute(pathlib.Path(__file__).with_suffix(".sql").read_text())
    rows = database.execute("FROM answer").fetchall()
    return {tuple(row[:3]): dict(zip(("n", "infinite", *PERCENTILES), row[3:])) for row in rows}


def stated(comparison: dict) -> dict:
    """The same from the JSON."""
    answer = {}
    for metric in comparison["metrics"]:
        if metric["metric"] not in CHECKED:
            continue
        for side in ("replay", "baseline"):
            sample = metric[side]
            if not sample or not sample["n"]:
                continue
            entry = {"n": sample["n"]}
            for percentile in metric["percentiles"]:
                value = percentile[side]
                entry[percentile["percentile"]] = NEVER if value["infinite"] else value["value_ns"]
            entry["infinite"] = sample["infinite"]
            answer[side, metric["metric"], metric["population"]] = entry
    return answer


def main() -> int:
    if len(sys.argv) != 4:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    run, timeline, comparison = sys.argv[1:]
    expected = recomputed(run, timeline)
    found = stated(json.loads(pathlib.Path(comparison).read_text()))
    wrong = 0
    for key in sorted(expected.keys() | found.keys()):
        ours, theirs = found.get(key, {}), expected.get(key, {})
        for name in ("n", "infinite", *PERCENTILES):
            if ours.get(name) != theirs.get(name):
                wrong += 1
                print(f"{' '.join(key)} {name}: compare says {ours.get(name)}, DuckDB {theirs.get(name)}")
    print(f"{len(expected)} samples, {wrong} differences")
    return 1 if wrong or not expected else 0


if __name__ == "__main__":
    sys.exit(main())
