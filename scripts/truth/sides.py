"""Fills the tables of a DuckDB database from a run or a timeline, and reads the figures of a side out of them."""

import json
import pathlib

import duckdb

import causes
from leaves import Prose

HERE = pathlib.Path(__file__).parent
STATUSES = ("ok", "failed", "cancelled", "interrupted", "unsent")


# What a run is judged by that does not say.
BOUNDS = {
    "lateness_share": 0.05,
    "lateness_floor_ns": 1_000_000,
    "lateness_ceiling_ns": 10_000_000,
    "gap_distance_share": 0.05,
    "gap_distance_floor_ns": 100_000,
    "gap_distance_ceiling_ns": 10_000_000,
    "unfaithful_factor": 3.0,
    "unsent_share": 0.01,
}


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
        self.bounds = {**BOUNDS, **(self.manifest.get("fidelity") or {})}
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
            "cached": self.cached(side),
            "prompts": self.prompts(side),
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
            "wave": self.wave(side),
        }

    def prompts(self, side):
        """Made-up prompts against what the target counted."""
        n, asked, counted, error, error_abs, error_abs_95 = self.rows(
            """WITH known AS (
                   SELECT asked, counted, CASE WHEN asked > 0 THEN (counted - asked)::DOUBLE / asked END AS error
                   FROM made_prompt WHERE side = $1
               ), whole AS (
                   SELECT count(*) AS n, coalesce(sum(asked), 0)::BIGINT AS asked, coalesce(sum(counted), 0)::BIGINT AS counted,
                          list_sort(list(error) FILTER (error IS NOT NULL)) AS errors,
                          list_sort(list(abs(error)) FILTER (error IS NOT NULL)) AS sizes
                   FROM known
               )
               SELECT n, asked, counted, at_rank(errors, 50), at_rank(sizes, 50), at_rank(sizes, 95) FROM whole""",
            side,
        )[0]
        return {
            "requests": n,
            "asked_tokens": asked,
            "counted_tokens": counted,
            "error_p50": error,
            "error_abs_p50": error_abs,
            "error_abs_p95": error_abs_95,
        }

    def wave(self, side):
        rows = self.rows("SELECT retries, window_ns, densest, period_ns, even FROM retry_wave WHERE side = $1", side)
        retries, window, densest, period, millionths = rows[0] if rows else (0, None, 0, None, None)
        even = millionths / 1_000_000 if rows else None
        return {
            "retries": retries,
            "window_ns": window,
            "densest": densest,
            "densest_share": densest / retries if rows else None,
            "even": even,
            "peak_factor": densest / even if rows else None,
            "period_ns": period,
            "synchronised": bool(rows) and densest >= 10 and densest / even >= 3,
        }

    def cached(self, side):
        """Cached tokens of the successful requests: by class, measured, predicted, and over those that know both."""
        rows = self.rows(
            """SELECT cached_tokens, predicted_cached_tokens, input_tokens FROM request WHERE side = $1 AND status = 'ok'""", side
        )
        classes = {name: [0, 0, 0] for name in ("cold", "partly_warm", "warm", "not_reported")}
        for cached, predicted, whole in rows:
            found = [cache_class(cached, whole), cache_class(predicted, whole)]
            classes[found[0]][0] += 1
            classes[found[1]][1] += 1
            classes[found[0]][2] += found[0] == found[1]
        known = [row for row in rows if row[2] is not None]
        both = [row for row in known if None not in row]
        shares = [cached_share([(row[at], row[2]) for row in both])["share"] for at in (1, 0)]
        return {
            "classes": [
                {"class": name, "measured": mine, "predicted": theirs, "both": same}
                for name, (mine, theirs, same) in classes.items()
            ],
            "measured": cached_share([(row[0], row[2]) for row in known if row[0] is not None]),
            "predicted": cached_share([(row[1], row[2]) for row in known if row[1] is not None]),
            "both": {
                "requests": len(both),
                "predicted_share": shares[0],
                "measured_share": shares[1],
                "difference": None if None in shares else shares[0] - shares[1],
            },
        }

    def duration(self, side, what):
        names = ("n", "p50_ns", "p90_ns", "p95_ns", "p99_ns", "max_ns")
        rows = self.rows(f"SELECT {', '.join(names)} FROM duration_summary WHERE side = $1 AND what = $2", side, what)
        return dict(zip(names, rows[0] if rows else (0, *[None] * 5)))

    def streams(self, side):
        names = ("streams", "output_events", "coalesced_events", "merged_events", "counted_events")
        rows = self.rows(f"SELECT {', '.join(names)} FROM stream_report WHERE side = $1", side)
        report = dict(zip(names, rows[0] if rows else (0,) * 5))
        told = report["output_events"] > 0 and self.stamps(side)["logged"] == 0
        report["merged_share"] = report["merged_events"] / report["output_events"] if told else None
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

    # ---------------------------------------------------------------- how exactly the plan was sent

    def fidelity(self, side):
        source = self.replay if side == "replay" else self.baseline
        if source.kind != "run":
            return None
        written = self.rows("SELECT count(*), max(written_ns) - min(written_ns) FROM lateness WHERE side = $1", side)[0]
        health = (None, None, 0, None)
        if list(pathlib.Path(source.path, "health").glob("*.parquet")):
            health = self.rows(
                """SELECT max(loop_delay_max_ns), max(kernel_lag_max_ns), count(*) FILTER (clock_stepped),
                          (max(clock_bracket_ns) + 1) // 2
                   FROM read_parquet($1)""",
                f"{source.path}/health/*.parquet",
            )[0]
        counts = self.counts(side, source)
        unsent = self.unsent(side, source, counts)
        figures = {
            "planned": counts["planned"],
            "sent": self.one("SELECT count(*) FROM request WHERE side = $1 AND sent", side),
            "unsent": sum(unsent.values()),
            "attempts_sent": self.figure(side, "attempts_sent"),
            "offered_per_second": self.window(side, source)["requests_per_second"],
            "achieved_per_second": per_second(written[0], written[1] or 0),
            **{name: self.duration(side, name) for name in ("lateness", "retry_lateness", "write_time", "gate_drift")},
            "gaps": self.gaps(side),
            "loop_delay_max_ns": health[0],
            "kernel_lag_max_ns": health[1],
            "clock_steps": health[2],
            "stamp_uncertainty_ns": health[3],
        }
        looped = (source.manifest["plan"]["mode"] or "").startswith("closed")
        verdict = judged(figures, source.bounds, looped)
        names = ("due_ns", "written_ns", "write_ns", "released_ns", "ready_ns")
        rows = self.rows(f"SELECT {', '.join(names)} FROM lateness WHERE side = $1", side)
        departures = [dict(zip(names, row)) for row in rows]
        bound = verdict["criteria"]["lateness_p99_ns"]["degraded_above"]
        late = sum(1 for d in departures if d["written_ns"] - d["due_ns"] > bound)
        found = causes.find(
            departures,
            self.health(source),
            causes.threshold(verdict["criteria"]),
            source.manifest["policy"]["connections"]["limit"] is not None,
            dict.fromkeys(unsent, 0) if looped else unsent,
            (source.manifest["outcome"] or {}).get("ended_by"),
        )
        return {"bounds": source.bounds, **figures, **verdict, "late": late, "causes": found}

    def unsent(self, side, source, counts):
        """Requests that never left, by what kept them."""
        aborted = counts["reasons"].get("run_aborted", 0) + (0 if source.early else source.without_row)
        not_to_be = ("previous_turn_failed", "budget_exceeded")
        follows = sum(counts["reasons"].get(reason, 0) for reason in not_to_be)
        stuck = self.figure(side, "stuck")
        return {"aborted": aborted, "stuck": stuck, "limits": counts["unsent"] - aborted - follows}

    def health(self, source):
        """What the health rows tell of causes; columns that an older run has not are unknown."""
        if not list(pathlib.Path(source.path, "health").glob("*.parquet")):
            return []
        self.database.execute("SELECT * FROM read_parquet($1) ORDER BY at_ns", [f"{source.path}/health/*.parquet"])
        names = [column[0] for column in self.database.description]
        wanted = [*filter(None, causes.FIGURES.values()), "at_ns", "machine_capacity_ns", "clock_stepped"]
        rows = [dict(zip(names, row)) for row in self.database.fetchall()]
        return [{name: row.get(name) for name in wanted} for row in rows]

    def gaps(self, side):
        """Gaps between due times, and how far those between first bytes are from the ones between their own due times."""

        def sorted_gaps(query):
            times = sorted(at for (at,) in self.rows(query, side))
            return sorted(later - earlier for earlier, later in zip(times, times[1:]))

        due = sorted_gaps("SELECT start_ns FROM request WHERE side = $1")
        planned = sorted_gaps("SELECT due_ns FROM lateness WHERE side = $1")
        sent = sorted_gaps("SELECT written_ns FROM lateness WHERE side = $1")
        off = sum(abs(p - w) for p, w in zip(planned, sent))
        return {
            "n": len(due),
            "median_ns": due[(len(due) + 1) // 2 - 1] if due else None,
            "compared": len(sent),
            "distance_ns": off // len(sent) if sent else None,
        }


WORDS = ("faithful", "degraded", "unfaithful")


def judged(figures, bounds, looped):
    """Criteria and verdict, by the table of the page."""
    median, factor = figures["gaps"]["median_ns"], bounds["unfaithful_factor"]

    def edges(name):
        floor, ceiling = bounds[f"{name}_floor_ns"], bounds[f"{name}_ceiling_ns"]
        edge = ceiling if median is None else min(max(int(bounds[f"{name}_share"] * median), floor), ceiling)
        return edge, int(edge * factor)

    def criterion(value, near, far, counts):
        verdict = None
        if value is not None and counts and not looped:
            verdict = WORDS[(value > near) + (value > far)]
        return {"value": value, "degraded_above": near, "unfaithful_above": far, "verdict": verdict}

    enough = figures["gaps"]["compared"] >= 100
    unsent = figures["unsent"] / figures["planned"] if figures["planned"] else None
    criteria = {
        "lateness_p99_ns": criterion(figures["lateness"]["p99_ns"], *edges("lateness"), True),
        "gap_distance_ns": criterion(figures["gaps"]["distance_ns"], *edges("gap_distance"), enough),
        "unsent_share": criterion(unsent, 0.0, bounds["unsent_share"], True),
    }
    verdicts = [c["verdict"] for c in criteria.values() if c["verdict"]]
    verdict = max(verdicts, key=WORDS.index) if verdicts else None
    return {"criteria": criteria, "verdict": verdict, "reason": Prose([])}


def cache_class(cached, whole):
    """The class of a prompt of `whole` tokens of which `cached` came from the cache."""
    if cached is None or whole is None or (cached > 0 and whole == 0):
        return "not_reported"
    if cached == 0:
        return "cold"
    return "warm" if 10 * cached >= 9 * whole else "partly_warm"


def cached_share(pairs):
    cached, whole = (sum(pair[at] for pair in pairs) for at in (0, 1))
    share = cached / whole if whole else None
    return {"requests": len(pairs), "cached_tokens": cached, "input_tokens": whole, "share": share}


def per_second(events, span_ns):
    return (events - 1) * 1e9 / span_ns if events > 1 and span_ns > 0 else None
