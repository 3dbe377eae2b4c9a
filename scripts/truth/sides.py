"""Fills the tables of a DuckDB database from a run or a timeline, and reads the figures of a side out of them."""

import json
import pathlib

import duckdb

HERE = pathlib.Path(__file__).parent
STATUSES = ("ok", "failed", "cancelled", "interrupted", "unsent")


def script(name):
    return (HERE / name).read_text()


class Run:
    """What a run's manifest says."""

    kind = "run"

    def __init__(self, path):
        self.path = path
        self.manifest = json.loads(pathlib.Path(path, "manifest.json").read_text())
        outcome = self.manifest["outcome"]
        self.name, self.digest = self.manifest["id"], self.manifest["plan"]["timeline_digest"]
        self.early = outcome is None or outcome["ended_by"] in ("drained", "cut", "killed")
        self.window_end = outcome["ended_ns"] if outcome and self.early else None
        self.without_row = outcome["counts"]["unsent_without_row"] if outcome else 0
        self.faithful = outcome["faithful"] if outcome else None
        if self.manifest["state"] == "open":
            raise SystemExit(f"{path} is open: its journal is not read here")

    def load(self, database, side, _matched):
        for name, value in (("side", side), ("run", self.path), ("window_end", self.window_end)):
            database.execute(f"SET VARIABLE {name} = $1", [value])
        database.execute(script("run.sql"))


class Timeline:
    """What a timeline's metadata says."""

    kind = "timeline"
    early, window_end, without_row = False, None, 0

    def __init__(self, path):
        self.path = path
        pairs = duckdb.execute("SELECT decode(key), decode(value) FROM parquet_kv_metadata($1)", [path]).fetchall()
        self.name = self.digest = dict(pairs)["tracewheel.digest"]

    def load(self, database, side, matched):
        for name, value in (("side", side), ("timeline", self.path), ("matched", matched)):
            database.execute(f"SET VARIABLE {name} = $1", [value])
        database.execute(script("timeline.sql"))


def open_side(path):
    return Run(path) if pathlib.Path(path).is_dir() else Timeline(path)


class Tables:
    """The database with both sides loaded."""

    def __init__(self, replay, baseline, matched, stall_ns):
        self.replay, self.baseline, self.matched, self.stall_ns = replay, baseline, matched, stall_ns
        self.database = duckdb.connect()
        self.database.execute(script("tables.sql"))
        replay.load(self.database, "replay", False)
        if baseline:
            baseline.load(self.database, "baseline", matched)
        unsent = 0 if replay.early else replay.without_row
        variables = {"matched": matched, "baseline": baseline and baseline.kind, "unsent": unsent, "stall_ns": stall_ns}
        for name, value in variables.items():
            self.database.execute(f"SET VARIABLE {name} = $1", [value])
        self.database.execute(script("samples.sql"))
        self.slots = {"replay": self.one("SELECT count(*) FROM slot")}
        self.slots["baseline"] = self.slots["replay"] if matched else self.one("SELECT count(*) FROM their_slot")

    def rows(self, query, *values):
        return self.database.execute(query, list(values)).fetchall()

    def one(self, query, *values):
        row = self.database.execute(query, list(values)).fetchone()
        return row[0] if row else None

    def figure(self, side, name):
        return self.one("SELECT n FROM figure WHERE side = $1 AND name = $2", side, name) or 0

    # ---------------------------------------------------------------- a side's report

    def side(self, side):
        source = self.replay if side == "replay" else self.baseline
        return {
            "kind": source.kind,
            "name": source.name,
            "window": self.window(side, source),
            "concurrency": self.concurrency(side),
            "counts": self.counts(side, source),
            "retries": self.retries(side),
            "streams": self.streams(side),
            "stamps": self.stamps(side),
        }

    def window(self, side, source):
        n, first, last = self.rows("SELECT count(*), min(order_ns), max(order_ns) FROM request WHERE side = $1", side)[0]
        span = last - first if n else 0
        run = source.kind == "run"
        trace = (first, last)
        if run:
            trace = self.rows(
                "SELECT min(trace_ns), max(trace_ns) FROM recorded WHERE side = $1 AND phase = 'measure' AND NOT after_window",
                side,
            )[0]
        end = last if source.window_end is None else source.window_end
        return {
            "from_ns": first if run else None,
            "to_ns": end if run and n else None,
            "trace_from_unix_ns": trace[0],
            "trace_to_unix_ns": trace[1],
            "span_ns": span,
            "requests_per_second": per_second(n, span),
            "ended_early": source.early,
        }

    def concurrency(self, side):
        known = self.one("SELECT count(*) FROM request WHERE side = $1 AND end_ns > start_ns", side)
        if not known:
            return {"known": 0, "mean": 0.0, "p50": 0, "p95": 0, "max": 0}
        levels = self.rows(
            "SELECT level, sum(ns)::BIGINT FROM in_flight WHERE side = $1 AND ns IS NOT NULL GROUP BY level ORDER BY level", side
        )
        whole = sum(ns for _, ns in levels)

        def at(percent):
            spent, wanted = 0, max(-(-percent * whole // 100), 1)
            for level, ns in levels:
                spent += ns
                if spent >= wanted:
                    return int(level)

        most = self.one("SELECT max(level)::BIGINT FROM in_flight WHERE side = $1", side)
        mean = sum(int(level) * ns for level, ns in levels) / whole
        return {"known": known, "mean": mean, "p50": at(50), "p95": at(95), "max": most}

    def counts(self, side, source):
        counts = dict.fromkeys(STATUSES, 0)
        counts.update(self.rows("SELECT status, count(*) FROM request WHERE side = $1 GROUP BY status", side))
        after, other = self.rows(
            """SELECT count(*) FILTER (phase = 'measure' AND after_window), count(*) FILTER (phase <> 'measure')
               FROM recorded WHERE side = $1""",
            side,
        )[0]
        if source.early:
            after += source.without_row
        else:
            counts["unsent"] += source.without_row
        reasons = self.rows(
            "SELECT reason, count(*) FROM request WHERE side = $1 AND reason IS NOT NULL GROUP BY reason", side
        )
        counts = {"planned": sum(counts.values()), **counts, "after_window": after, "other_phases": other}
        counts["reasons"] = dict(reasons)
        for name in ("retries_folded", "status_unknown", "served_by_gateway_cache"):
            counts[name] = self.figure(side, name)
        return counts

    def retries(self, side):
        sent, attempts, retried, throttled = self.rows(
            """SELECT count(*), coalesce(sum(attempts), 0)::BIGINT, count(*) FILTER (attempts > 1), count(*) FILTER (throttled)
               FROM request WHERE side = $1 AND attempts > 0""",
            side,
        )[0]
        return {
            "attempts": attempts,
            "retried": retried,
            "retried_share": retried / sent if sent else None,
            "throttled": throttled,
            "throttled_share": throttled / sent if sent else None,
            "backoff": self.duration(side, "backoff"),
            "budget_wait": self.duration(side, "budget_wait"),
        }

    def duration(self, side, what):
        names = ("n", "p50_ns", "p90_ns", "p95_ns", "p99_ns", "max_ns")
        rows = self.rows(f"SELECT {', '.join(names)} FROM duration_summary WHERE side = $1 AND what = $2", side, what)
        return dict(zip(names, rows[0] if rows else (0, *[None] * 5)))

    def streams(self, side):
        names = ("streams", "output_events", "coalesced_events", "counted_events")
        rows = self.rows(f"SELECT {', '.join(names)} FROM stream_report WHERE side = $1", side)
        report = dict(zip(names, rows[0] if rows else (0,) * 4))
        report["without_output"] = self.figure(side, "without_output")
        jitter = self.rows(
            """SELECT len(j), at_rank(j, 50), at_rank(j, 95)
               FROM (SELECT list_sort(list(jitter)) AS j FROM evenness WHERE side = $1 AND jitter IS NOT NULL)""",
            side,
        )[0]
        report["jitter"] = {"streams": jitter[0] or 0, "p50": jitter[1], "p95": jitter[2]}
        stalls = self.rows(
            """SELECT coalesce(sum(stalls), 0)::BIGINT, count(*) FILTER (stalls > 0), coalesce(sum(stalled_ns), 0)::BIGINT
               FROM evenness WHERE side = $1""",
            side,
        )[0]
        report["stalls"] = dict(zip(("stalls", "streams", "total_ns"), stalls))
        sources = dict(
            self.rows(
                """SELECT token_source, count(*) FROM request WHERE side = $1 AND status = 'ok' AND token_source IS NOT NULL
                   GROUP BY token_source""",
                side,
            )
        )
        report["tokens"] = {name: sources.get(name, 0) for name in ("event", "usage", "one_per_event", "to_last_byte")}
        return report

    def stamps(self, side):
        rows = self.rows("SELECT kernel, user_space, logged FROM stream_report WHERE side = $1", side)
        return dict(zip(("kernel", "user", "logged"), rows[0] if rows else (0, 0, 0)))

    def fidelity(self):
        requests = self.window("replay", self.replay)
        written = self.rows("SELECT count(*), max(written_ns) - min(written_ns) FROM lateness WHERE side = 'replay'")[0]
        health = self.rows(
            """SELECT max(loop_delay_max_ns), max(kernel_lag_max_ns), count(*) FILTER (clock_stepped)
               FROM read_parquet($1)""",
            f"{self.replay.path}/health/*.parquet",
        ) if list(pathlib.Path(self.replay.path, "health").glob("*.parquet")) else [(None, None, 0)]
        return {
            "planned": self.counts("replay", self.replay)["planned"],
            "sent": self.one("SELECT count(*) FROM request WHERE side = 'replay' AND sent"),
            "attempts_sent": self.figure("replay", "attempts_sent"),
            "offered_per_second": requests["requests_per_second"],
            "achieved_per_second": per_second(written[0], written[1] or 0),
            "lateness": self.duration("replay", "lateness"),
            "gate_drift": self.duration("replay", "gate_drift"),
            "loop_delay_max_ns": health[0][0],
            "kernel_lag_max_ns": health[0][1],
            "clock_steps": health[0][2],
            "faithful": self.replay.faithful,
        }


def per_second(events, span_ns):
    return (events - 1) * 1e9 / span_ns if events > 1 and span_ns > 0 else None
