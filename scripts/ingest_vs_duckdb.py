"""Times `tracewheel ingest` of a Mooncake trace against DuckDB's read_json to Parquet, on one core, in one run.

Usage: ingest_vs_duckdb.py --tracewheel target/release/tracewheel --trace mooncake_conversation.jsonl [--copies N]
       [--rounds N] [--work DIR]

Both sides read the same JSON lines, sort them by time and write Parquet with zstd, each in a process of its own that
may use core 0 only. They take turns, so that a slow moment of the machine meets both; the ratio is that of the medians
of one run. DuckDB runs with one thread, once with its columns given and once finding them itself; its time is that of
the statement alone, without Python's start. tracewheel's is that of the whole process, its start and end included, and
of waiting until the disk has the file (fsync), which DuckDB does not do. So there are two wall ratios: one against the
statement alone, which favours DuckDB, and one ("durable") against the statement and an fsync of its file. tracewheel's
file also holds chained keyed hashes, a digest of all rows and a quality report, which DuckDB's does not.

With --copies the trace is repeated end to end with moved timestamps, and block ids of its own in every copy, so that
starting up does not decide.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

CORE = 0
COLUMNS = "{timestamp: 'BIGINT', input_length: 'INTEGER', output_length: 'INTEGER', hash_ids: 'BIGINT[]'}"
COPY = "COPY (SELECT * FROM {read} ORDER BY timestamp) TO '{out}' (FORMAT parquet, COMPRESSION zstd)"
READ = {
    "DuckDB, columns given": "read_json('{log}', format = 'newline_delimited', columns = " + COLUMNS + ")",
    "DuckDB, columns found": "read_json('{log}')",
}


def statement(side, log, out):
    return COPY.format(read=READ[side].replace("{log}", log), out=out)


def repeat(trace, copies, out):
    """Writes the trace `copies` times, each after the one before it, with ids that no other copy has."""
    with open(trace, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file if line.strip()]
    span = max(row["timestamp"] for row in rows) + 1
    ids = max((max(row["hash_ids"], default=0) for row in rows), default=0) + 1
    with open(out, "w", encoding="utf-8") as file:
        for copy in range(copies):
            for row in rows:
                moved = dict(row, timestamp=row["timestamp"] + copy * span)
                moved["hash_ids"] = [block + copy * ids for block in row["hash_ids"]]
                file.write(json.dumps(moved) + "\n")
    return len(rows) * copies


def on_one_core():
    os.sched_setaffinity(0, {CORE})


def duckdb_once(sql, out):
    """Runs as a process of its own: prints wall and CPU seconds of the statement, and wall seconds with an fsync."""
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    # Its first statement loads what the library loads only once.
    connection.execute("SELECT 1")
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    connection.execute(sql)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    with open(out, "rb") as file:
        os.fsync(file.fileno())
    durable = time.perf_counter() - start
    print(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, durable)


def time_duckdb(side, log, out):
    command = [sys.executable, os.path.abspath(__file__), "--statement", statement(side, log, out), "--out", out]
    done = subprocess.run(command, check=True, capture_output=True, text=True, preexec_fn=on_one_core)
    return tuple(map(float, done.stdout.split()))


def time_tracewheel(binary, log, out, key, threads):
    command = [binary, "ingest", log, "-o", out, "--key-file", key, "--json"]
    start = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, preexec_fn=on_one_core if threads == 1 else None
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    if status != 0:
        sys.exit(f"{' '.join(command)} ended with {status}")
    return wall, usage.ru_utime + usage.ru_stime, wall


def measure(name, arguments, log, rows, work):
    out, key = os.path.join(work, "out.parquet"), os.path.join(work, "key")
    sides = {"tracewheel": lambda: time_tracewheel(arguments.tracewheel, log, out, key, 1)}
    for side in READ:
        sides[side] = lambda side=side: time_duckdb(side, log, out)
    times = {side: [] for side in sides}
    size = {}
    for _ in range(arguments.rounds):
        for side, run in sides.items():
            times[side].append(run())
            size[side] = os.path.getsize(out)
            os.remove(out)
    read = os.path.getsize(log)
    print(f"\n{name}: {rows:,} rows, {read / 1e6:.1f} MB, {arguments.rounds} rounds, medians")
    print(f"{'':24}{'wall s':>9}{'CPU s':>9}{'rows/s':>12}{'MB/s':>8}{'file MB':>9}{'CPU ratio':>11}{'wall ratio':>12}{'durable':>9}")
    median = {
        side: [statistics.median(column) for column in zip(*runs)] for side, runs in times.items()
    }
    own_wall, own_cpu, _ = median["tracewheel"]
    for side, (wall, cpu, durable) in median.items():
        print(
            f"{side:24}{wall:9.3f}{cpu:9.3f}{rows / wall:12,.0f}{read / 1e6 / wall:8.1f}{size[side] / 1e6:9.2f}"
            f"{cpu / own_cpu:11.2f}{wall / own_wall:12.2f}{durable / own_wall:9.2f}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tracewheel", default="target/release/tracewheel")
    parser.add_argument("--trace")
    parser.add_argument("--copies", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", help="folder for the repeated trace and the outputs (default: a temporary one)")
    parser.add_argument("--statement", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.statement:
        duckdb_once(arguments.statement, arguments.out)
        return
    if not arguments.trace:
        parser.error("--trace is missing: name a Mooncake trace (JSON lines)")
    import duckdb

    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        print(f"DuckDB {duckdb.__version__}, threads = 1, both sides pinned to core {CORE}, sorted by timestamp")
        for side in READ:
            print(f"{side}: {statement(side, 'LOG', 'OUT')}")
        print("tracewheel: ingest LOG -o OUT --key-file KEY --json")
        once = os.path.join(work, "once.jsonl")
        rows = repeat(arguments.trace, 1, once)
        measure("the trace", arguments, once, rows, work)
        os.remove(once)
        if arguments.copies > 1:
            many = os.path.join(work, "many.jsonl")
            rows = repeat(arguments.trace, arguments.copies, many)
            measure(f"the trace {arguments.copies} times", arguments, many, rows, work)
    print("\nratio: DuckDB's time over tracewheel's; above 1, tracewheel is faster")


if __name__ == "__main__":
    main()
