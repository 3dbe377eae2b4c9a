"""Reads a demo's timeline and runs with DuckDB and Polars, without any help from tracewheel.

Usage: check_readers.py DEMO_DIR

Both readers must see the same rows and values; every column must be readable, nested ones included.
"""

import glob
import os
import sys

import duckdb
import polars


def fail(message):
    print(f"FAIL: {message}", file=sys.stderr)
    sys.exit(1)


def same(what, left, right):
    if left != right:
        fail(f"{what}: DuckDB reads {left}, Polars reads {right}")
    print(f"ok: {what} = {left}")


def check_timeline(path):
    name = os.path.basename(path)
    in_duckdb = duckdb.sql(f"select * from '{path}'").fetchall()
    frame = polars.read_parquet(path)
    same(f"{name}: rows", len(in_duckdb), frame.height)
    columns = [row[0] for row in duckdb.sql(f"describe select * from '{path}'").fetchall()]
    same(f"{name}: columns", len(columns), frame.width)
    if frame.height == 0:
        fail(f"{name} has no rows")
    for column in ["arrival_unix_ns", "input_tokens", "output_tokens", "prod_ttft_ns", "prod_e2e_ns"]:
        values = [row[0] for row in duckdb.sql(f"select {column} from '{path}'").fetchall()]
        if values != frame[column].to_list():
            fail(f"{name}: the values of {column} differ between DuckDB and Polars")
        print(f"ok: {name}: {column} is equal in {len(values)} rows")
    arrivals = frame["arrival_unix_ns"].to_list()
    if arrivals != sorted(arrivals):
        fail(f"{name} is not sorted by arrival")
    same(
        f"{name}: operations",
        sorted(r[0] for r in duckdb.sql(f"select distinct operation from '{path}'").fetchall()),
        sorted(frame["operation"].cast(polars.String).unique().to_list()),
    )


def check_run(folder):
    name = os.path.basename(os.path.normpath(folder))
    requests = os.path.join(folder, "requests", "*.parquet")
    attempts = os.path.join(folder, "attempts", "*.parquet")
    rows = duckdb.sql(f"select count(*) from '{requests}'").fetchall()[0][0]
    same(f"{name}: requests", rows, polars.read_parquet(requests).height)
    frame = polars.read_parquet(attempts)
    same(f"{name}: attempts", duckdb.sql(f"select count(*) from '{attempts}'").fetchall()[0][0], frame.height)
    same(
        f"{name}: events",
        duckdb.sql(f"select sum(len(events))::bigint from '{attempts}'").fetchall()[0][0],
        frame["events"].list.len().sum(),
    )
    same(
        f"{name}: bytes read",
        duckdb.sql(f"select sum(r.bytes)::bigint from (select unnest(reads) r from '{attempts}')").fetchall()[0][0],
        frame["reads"].explode().drop_nulls().struct.field("bytes").cast(polars.Int64).sum(),
    )
    early = duckdb.sql(
        f"select count(*) from '{attempts}' where first_write_ns < due_ns"
    ).fetchall()[0][0]
    if early:
        fail(f"{name}: {early} attempts were written before they were due")
    health = os.path.join(folder, "health", "*.parquet")
    if glob.glob(health):
        same(
            f"{name}: health rows",
            duckdb.sql(f"select count(*) from '{health}'").fetchall()[0][0],
            polars.read_parquet(health).height,
        )


def main():
    demo = sys.argv[1]
    timelines = sorted(glob.glob(os.path.join(demo, "*.parquet")))
    runs = sorted(os.path.dirname(path) for path in glob.glob(os.path.join(demo, "runs", "*", "manifest.json")))
    if not timelines or not runs:
        fail(f"{demo} holds {len(timelines)} timelines and {len(runs)} runs: run the demo first")
    for path in timelines:
        check_timeline(path)
    for folder in runs:
        check_run(folder)
    print(f"{len(timelines)} timelines and {len(runs)} runs read alike by DuckDB and Polars")


if __name__ == "__main__":
    main()
