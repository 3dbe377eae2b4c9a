#!/usr/bin/env python3
"""Holds the JSON of a comparison or of a run's summary against a recomputation from the Parquet files.

    check_compare.py RUN BASELINE COMPARISON.json    `tracewheel compare RUN --with BASELINE --json` (a timeline or a run)
    check_compare.py RUN SUMMARY.json                `tracewheel inspect RUN --json`, or `tracewheel replay --json` of it

Every leaf of the document is recomputed: counts, samples and quantiles in DuckDB (scripts/truth/*.sql), intervals, ratios and
verdicts in Python (scripts/truth/intervals.py), both written from docs/reference/metrics.md and not from the code. A leaf that
nothing recomputes is a failure, so that no number can be added unchecked. Whole numbers, quantiles and the ends of intervals
must be equal; the two ends of a ratio, which depend on the order of sums, to 1 part in 10^9.

Options: --tolerance T when `compare` ran with it; --whole when the sides were compared as wholes. Exit code 0 when all is equal,
1 when a leaf differs, 2 for a wrong call. Needs the package `duckdb`.
"""

import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "truth"))

import expected
import leaves
import sides

SHOWN = 40


def told_sizes(document):
    """The effective sizes that the document names: taken where ours lies at a rounding edge."""
    told = {}

    def note(key, estimate):
        if estimate:
            told[key] = estimate["interval"]["effective_n"]

    for entry in document.get("metrics", []):
        for p in entry["percentiles"]:
            for side, found in (("replay", p.get("replay", p.get("estimate"))), ("baseline", p.get("baseline"))):
                note((side, entry["metric"], entry["population"], p["percentile"]), found)
    for row in document.get("cache", {}).get("bins", []):
        for side in ("replay", "baseline"):
            for name in ("p50", "p95"):
                note(("bin", row["bin"], side, name), (row[side] or {}).get(f"ttft_{name}"))
    for row in document.get("cache", {}).get("weighted", []):
        note(("weighted", row["metric"]), row["replay"])
    return told


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+", metavar="PATH")
    parser.add_argument("--tolerance", type=float, default=0.1)
    parser.add_argument("--whole", action="store_true")
    arguments = parser.parse_args()
    if len(arguments.inputs) not in (2, 3):
        parser.error("RUN BASELINE COMPARISON.json, or RUN SUMMARY.json")
    run, *baseline, path = arguments.inputs
    document = json.loads(pathlib.Path(path).read_text())
    options = expected.Options(arguments.tolerance)
    replay, other = sides.open_side(run), sides.open_side(baseline[0]) if baseline else None
    matched = bool(other) and not arguments.whole and bool(replay.digest) and replay.digest == other.digest
    tables = sides.Tables(replay, other, matched, options.stall_ns)
    if other:
        wanted = expected.comparison(tables, options, told_sizes(document))
    elif "phases" in document:
        wanted = expected.inspection(tables, options, told_sizes(document["summary"] or {}))
    else:
        for key in ("run_dir", "process"):
            document.pop(key, None)
        wanted = expected.summary(tables, options, told_sizes(document))
    wrong = list(leaves.differences(document, wanted))
    for where, what in wrong[:SHOWN]:
        print(f"{where} {what}")
    if len(wrong) > SHOWN:
        print(f"... and {len(wrong) - SHOWN} more")
    whole, numbers = leaves.count(document)
    noticed = len({where for where, _ in leaves.differences(leaves.disturbed(document), wanted)})
    print(f"{path}: {whole} leaves, {numbers} of them numbers, {len(wrong)} differences")
    if noticed < numbers:
        print(f"only {noticed} of {numbers} numbers would be noticed if they were wrong")
    return 1 if wrong or noticed < numbers else 0


if __name__ == "__main__":
    sys.exit(main())
