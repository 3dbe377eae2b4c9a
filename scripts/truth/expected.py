"""What a comparison or a summary must say, recomputed from the Parquet files by docs/reference/metrics.md."""

import intervals
from intervals import PERCENTS
from leaves import Close, Prose

REQUEST_METRICS, STREAM_METRICS = ("ttft", "ttfv", "e2e"), ("gap", "itl", "tpot")
POPULATIONS = ("user", "success", "service")
TABLE = [(m, p) for m in REQUEST_METRICS for p in POPULATIONS] + [(m, "success") for m in STREAM_METRICS]
BINS = ("0", "(0,25]", "(25,50]", "(50,75]", "(75,100]", "not reported")
MIN_BIN, MIN_REPORTED, MIN_SHARE = 20, 0.95, 0.01


class Options:
    """Options and their documented defaults."""

    level, floor_ns, stall_ns = 0.95, 1_000_000, 500_000_000
    gates = [("ttft", "p50"), ("ttft", "p95"), ("e2e", "p50"), ("e2e", "p95")]

    def __init__(self, tolerance=0.1):
        self.tolerance = tolerance


class Samples:
    """The latency samples of both sides, as intervals need them."""

    def __init__(self, tables, options, told):
        self.tables, self.options, self.told = tables, options, told
        self.known = {m for (m,) in tables.rows("SELECT metric FROM known_metric")}
        self.sizes = {tuple(row[:3]): row[3:] for row in tables.rows("FROM sample")}

    def size(self, side, metric, population):
        n, infinite, without = self.sizes.get((side, metric, population), (0,) * 3)[:3]
        return {"n": n, "infinite": infinite, "without_value": without}

    def has(self, side, metric):
        return side == "replay" or metric in self.known

    def values(self, side, metric, population):
        """One value a slot; the requests that never left and have no row stand at the end of either side."""
        rows = self.tables.rows(
            "SELECT slot, ns FROM value WHERE side = $1 AND metric = $2 AND population = $3", side, metric, population
        )
        slots = self.tables.slots[side]
        if population == "user" and (side == "replay" or self.tables.matched):
            slots += 0 if self.tables.replay.early else self.tables.replay.without_row
        values = [None] * slots
        for slot, ns in rows:
            values[slot] = ns
        return values

    def estimate(self, side, metric, population, name):
        if not self.has(side, metric):
            return None
        percent, level = PERCENTS[name], self.options.level
        told = self.told.get((side, metric, population, name))
        if metric in ("gap", "itl"):
            pool = self.tables.rows("SELECT slot, ns, mass FROM pooled WHERE side = $1 AND metric = $2", side, metric)
            found = intervals.estimate_pooled(pool, self.tables.slots[side], percent, level, told)
        else:
            found = intervals.estimate(self.values(side, metric, population), percent, level, told)
        if found:
            quantile = self.sizes[side, metric, population][3 + list(PERCENTS).index(name)]
            assert quantile == found.value, (side, metric, population, name, quantile, found.value)
        return found


def json_of(estimate):
    return estimate.json() if estimate else None


def json_of_ratio(ratio):
    if ratio is None:
        return None
    ends = {name: None if ratio[name] is None else Close(ratio[name]) for name in ("lo", "hi")}
    return {**ratio, **ends}


# ---------------------------------------------------------------- latencies


def metrics(samples, stamp):
    """The list `metrics` of a comparison; the baseline's estimates by (metric, population, percentile) beside it."""
    entries, theirs = [], {}
    for metric, population in TABLE:
        known = metric in samples.known
        entry = {
            "metric": metric,
            "population": population,
            "stamp": stamp if metric == "ttft" and known else None,
            "replay": samples.size("replay", metric, population),
            "baseline": samples.size("baseline", metric, population) if known else None,
            "percentiles": [],
        }
        for name in PERCENTS:
            pair = [samples.estimate(side, metric, population, name) for side in ("replay", "baseline")]
            theirs[metric, population, name] = pair[1]
            entry["percentiles"].append(percentile(samples, name, *pair))
        entries.append(entry)
    return entries, theirs


def percentile(samples, name, replay, baseline):
    options = samples.options
    entry = {"percentile": name, "replay": json_of(replay), "baseline": json_of(baseline)}
    entry.update({"ratio": None, "tolerance": None, "verdict": None})
    if replay and baseline:
        rho = intervals.correlation(replay.scores, baseline.scores) if samples.tables.matched else 0.0
        ratio = intervals.ratio(replay, baseline, rho)
        tolerance = intervals.tolerance_at(baseline, options.tolerance, options.floor_ns)
        entry["ratio"], entry["tolerance"] = json_of_ratio(ratio), tolerance
        entry["verdict"] = intervals.verdict(replay, baseline, ratio, tolerance, options.floor_ns)
    return entry


def summary_metrics(samples):
    entries = []
    for metric, population in TABLE:
        estimates = [
            {"percentile": name, "estimate": json_of(samples.estimate("replay", metric, population, name))} for name in PERCENTS
        ]
        size = samples.size("replay", metric, population)
        entries.append({"metric": metric, "population": population, "sample": size, "percentiles": estimates})
    return entries


def gates(entries, options):
    """The gates with their verdicts, and the verdict over them."""
    found = []
    for metric, name in options.gates:
        population = "user" if metric in REQUEST_METRICS else "success"
        entry = next(e for e in entries if (e["metric"], e["population"]) == (metric, population))
        verdict = next(p["verdict"] for p in entry["percentiles"] if p["percentile"] == name)
        gate = {"metric": metric, "population": population, "percentile": name, "verdict": verdict or "cannot_tell"}
        found.append(gate)
    return found


def overall(found, unfaithful):
    verdicts = [gate["verdict"] for gate in found]
    if unfaithful:
        return "cannot_tell"
    return next((v for v in ("slower", "cannot_tell", "faster") if v in verdicts), "agree" if verdicts else "cannot_tell")


# ---------------------------------------------------------------- cached shares


def cache(samples, theirs):
    """The table of bins, and the percentiles at the baseline's shares where there is a baseline."""
    tables, sides = samples.tables, ("replay", "baseline") if samples.tables.baseline else ("replay",)
    bins = {side: dict(tables.rows("SELECT slot, bin FROM cache_bin WHERE side = $1", side)) for side in sides}
    rows = []
    for name in BINS:
        row = {"bin": name, "replay": bin_side(samples, "replay", bins["replay"], name), "baseline": None}
        if "baseline" in bins:
            row["baseline"] = bin_side(samples, "baseline", bins["baseline"], name)
        rows.append(row)
    weighted = [at_their_shares(samples, bins, theirs, metric) for metric in ("ttft", "e2e")] if tables.baseline else []
    return {"min_n": MIN_BIN, "bins": rows, "weighted": weighted}


def bin_side(samples, side, bins, name):
    n = sum(1 for found in bins.values() if found == name)
    values = samples.values(side, "ttft", "success") if samples.has(side, "ttft") else []
    values = [value if bins.get(slot) == name else None for slot, value in enumerate(values)]
    row = {"n": n, "share": n / len(bins) if bins else None}
    enough = sum(1 for value in values if value is not None) >= MIN_BIN
    for key, percentile_name in (("ttft_p50", "p50"), ("ttft_p95", "p95")):
        told = samples.told.get(("bin", name, side, percentile_name))
        found = intervals.estimate(values, PERCENTS[percentile_name], samples.options.level, told) if enough else None
        row[key] = json_of(found)
    return row


def at_their_shares(samples, bins, theirs, metric):
    entry = {"metric": metric, "percentile": "p95", "replay": None, "ratio": None, "withheld": None}
    weights, withheld = bin_weights(bins["replay"].values(), bins["baseline"].values())
    if withheld:
        return {**entry, "withheld": withheld}
    values = samples.values("replay", metric, "success")
    of_slot = [weights.get(bins["replay"].get(slot), 0.0) for slot in range(len(values))]
    told = samples.told.get(("weighted", metric))
    found = intervals.estimate(values, 95, samples.options.level, told, of_slot)
    if found is None:
        return {**entry, "withheld": Prose([])}
    baseline = theirs[metric, "success", "p95"]
    ratio = intervals.ratio(found, baseline, 0.0) if baseline else None
    return {**entry, "replay": json_of(found), "ratio": json_of_ratio(ratio)}


def bin_weights(mine, theirs):
    """What a request of each bin weighs, or a sentence that says why nothing does."""
    mine, theirs = list(mine), list(theirs)

    def reported(bins):
        return 1 - bins.count("not reported") / len(bins) if bins else 0.0

    for bins in (theirs, mine):
        if reported(bins) < MIN_REPORTED:
            return None, Prose([f"{100 * reported(bins):.0f}", f"{100 * MIN_REPORTED:.0f}"])
    total, weights = sum(1 for b in theirs if b != "not reported"), {}
    for name in BINS[:5]:
        share, n = theirs.count(name) / max(total, 1), mine.count(name)
        if share < MIN_SHARE:
            continue
        if n < MIN_BIN:
            first = ["0"] if name == "0" else []
            return None, Prose([*first, f"{100 * share:.0f}", str(n), str(MIN_BIN)])
        weights[name] = share / n
    return weights, None


# ---------------------------------------------------------------- environments

SECTIONS = ("target", "cache", "plan", "policy", "protocol", "tls", "vantage", "prompts", "machine", "tool_version")
PASSED_OVER = ("plan.nonce", "cache.reported_by", "vantage.round_trip_samples", "vantage.round_trip_min_ns")
NEVER_LOGGED = ("vantage.name", "protocol.http", "tls", "policy.retry", "policy.budgets", "policy.connections.mode")


def flatten(value, path=""):
    if isinstance(value, dict):
        return {k: v for key, part in value.items() for k, v in flatten(part, f"{path}.{key}" if path else key).items()}
    return {path: value}


def environment(tables):
    mine = flatten(tables.replay.manifest)
    if tables.baseline.kind == "run":
        theirs = flatten(tables.baseline.manifest)
        pairs = []
        for section in SECTIONS:
            inside = sorted(key for key in mine.keys() | theirs.keys() if key.split(".")[0] == section)
            pairs += [(key, mine.get(key), theirs.get(key)) for key in inside if key not in PASSED_OVER]
        texts = [side.manifest["scenario"]["text"] for side in (tables.replay, tables.baseline)]
        if texts[0] != texts[1]:
            pairs.append(("scenario.text", *(t and f"{len(t.splitlines())} lines" for t in texts)))
    else:
        pairs = with_production(tables, mine)
    differences, equal, unknown = [], 0, []
    for key, one, other in pairs:
        blank = [value in (None, "", []) for value in (one, other)]
        if any(blank):
            unknown += [key] if not all(blank) else []
        elif alike(key, one, other):
            equal += 1
        else:
            differences.append({"key": key, "replay": echoed(one), "baseline": echoed(other)})
    return {"differences": differences, "equal": equal, "unknown": unknown}


def echoed(value):
    """An entry of a manifest: reading a float from JSON and writing it again may change its last digit."""
    if isinstance(value, list):
        return [echoed(part) for part in value]
    return Close(value, 4e-16) if isinstance(value, float) else value


def with_production(tables, mine):
    def words(key):
        return [w for (w,) in tables.rows("SELECT word FROM word WHERE side = 'baseline' AND name = $1 ORDER BY word", key)]

    def share(side):
        cached, whole = tables.rows(
            """SELECT sum(cached_tokens)::BIGINT, sum(input_tokens)::BIGINT FROM request
               WHERE side = $1 AND status = 'ok' AND cached_tokens IS NOT NULL AND input_tokens IS NOT NULL""",
            side,
        )[0]
        return cached / whole if whole else None

    pairs = [(key, mine.get(key), words(key)) for key in ("target.url", "target.models_asked", "target.models_served")]
    fixed = {"plan.timeline_digest": tables.baseline.digest, "plan.speed": 1.0, "plan.mode": "open"}
    fixed.update({"plan.amplification": 1.0, "cache.mode": "natural"})
    pairs += [(key, mine.get(key), value) for key, value in fixed.items()]
    pairs.append(("cache.measured_share", share("replay"), share("baseline")))
    return pairs + [(key, mine.get(key), None) for key in NEVER_LOGGED]


def alike(key, one, other):
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (one, other))
    if not numbers:
        return one == other
    if key.endswith("_ns"):
        return abs(one - other) <= 0.2 * max(abs(one), abs(other))
    if isinstance(one, float) or isinstance(other, float):
        return abs(one - other) < 0.01
    return one == other


# ---------------------------------------------------------------- warnings


def warnings_of_run(tables, side, fidelity):
    """Codes and the numbers that each sentence names."""
    manifest, found = tables.replay.manifest, []
    if (manifest["plan"]["mode"] or "").startswith("closed"):
        found.append(("closed_loop", []))
    for code in ("rows_left_out", "requests_filled"):
        if isinstance(manifest.get(code), int):
            found.append((code, [str(manifest[code])]))
    code = {"unfaithful": "not_faithful", "degraded": "degraded"}.get(fidelity["verdict"])
    if code:
        found.append((code, []))
    if fidelity["clock_steps"]:
        found.append(("clock_stepped", [str(fidelity["clock_steps"])]))
    found += [("recorded", text) for text in manifest["warnings"] if not text.startswith("closed loop")]
    counts, streams, stamps = side["counts"], side["streams"], side["stamps"]
    if side["window"]["ended_early"]:
        found.append(("ended_early", [str(counts["after_window"]), str(counts["interrupted"])]))
    elif counts["interrupted"]:
        found.append(("interrupted", [str(counts["interrupted"])]))
    both = side["cached"]["both"]
    if both["difference"] is not None and abs(both["difference"]) > 0.02:
        found.append(("cache_differs", [f"{100 * both[name]:.1f}" for name in ("measured_share", "predicted_share")]))
    if stamps["user"]:
        found.append(("user_stamps", [f"{100 * stamps['user'] / (stamps['user'] + stamps['kernel']):.1f}"]))
    if streams["coalesced_events"] * 10 > streams["output_events"]:
        share = 100 * streams["coalesced_events"] / streams["output_events"]
        found.append(("coalesced_events", [f"{share:.1f}", "0"]))
    if streams["without_output"]:
        found.append(("without_output", [str(streams["without_output"])]))
    return found


def warnings_of_comparison(tables, sides, fidelity, samples, entries):
    found = warnings_of_run(tables, sides[0], fidelity)
    if tables.matched:
        lost = tables.one("SELECT count(*) FROM slot WHERE their_row IS NULL")
        found += [("unmatched", [str(lost)])] if lost else []
    else:
        found.append(("not_matched" if tables.replay.digest == tables.baseline.digest else "different_timeline", []))
    speed = tables.replay.manifest["plan"]["speed"]
    if speed is not None and abs(speed - 1) > 1e-9:
        found.append(("speed", [f"{speed:g}"]))
    shares = []
    for side in sides:
        c = side["counts"]
        asked = c["ok"] + c["failed"] + c["unsent"]
        shares.append((c["failed"] + c["unsent"]) / asked if asked else 0.0)
    if abs(shares[0] - shares[1]) > 0.01:
        found.append(("failures_differ", [f"{100 * share:.1f}" for share in shares]))
    if tables.baseline.kind == "timeline":
        found += warnings_of_recording(tables, sides[1], samples)
    headline = entries[0]
    open_ended = [
        p["percentile"] for p in headline["percentiles"] if p["replay"] and p["replay"]["interval"]["hi_is"] == "unbounded"
    ]
    if open_ended:
        found.append(("thin_sample", [str(headline["replay"]["n"])]))
    return [{"code": code, "text": text if isinstance(text, str) else Prose(text)} for code, text in found]


def warnings_of_recording(tables, side, samples):
    found = []
    tail = tables.duration("replay", "body_tail")["p95_ns"]
    if "e2e" in samples.known and tail is not None and tail >= 1_000_000:
        found.append(("e2e_ends_differ", [f"{tail / 1e6:.1f}"]))
    kinds = tables.rows("SELECT word FROM word WHERE side = 'baseline' AND name = 'ttft_kind'")
    if ("upstream_headers",) in kinds:
        found.append(("upstream_headers", []))
    if side["streams"]["tokens"]["to_last_byte"]:
        found.append(("tpot_to_last_byte", []))
    for code, name in (("status_unknown", "status_unknown"), ("gateway_cache", "served_by_gateway_cache"), ("arrival_not_start",) * 2):
        if tables.figure("baseline", name):
            found.append((code, [str(tables.figure("baseline", name))]))
    if tables.figure("baseline", "sampled"):
        found.append(("sampled", []))
    return found


def missing(tables, samples, side):
    what = [m for m in ("ttft", "ttfv", "e2e", "gap", "itl", "tpot") if m not in samples.known]
    if not tables.one("SELECT count(*) FROM request WHERE side = 'baseline' AND cached_tokens IS NOT NULL"):
        what.append("cache")
    if tables.baseline.kind == "timeline" and side["retries"]["retried"] == 0:
        what.append("retries")
    return [{"what": name, "why": Prose()} for name in what]


# ---------------------------------------------------------------- documents


def definitions():
    return {word: Prose() for word in (*REQUEST_METRICS, *STREAM_METRICS, *POPULATIONS)}


def comparison(tables, options, told):
    samples = Samples(tables, options, told)
    sides, fidelity = (tables.side("replay"), tables.side("baseline")), tables.fidelity("replay")
    other = tables.fidelity("baseline")
    unfaithful = "unfaithful" in (fidelity["verdict"], (other or {}).get("verdict"))
    kinds = [kind for (kind,) in tables.rows("SELECT word FROM word WHERE side = 'baseline' AND name = 'ttft_kind'")]
    entries, theirs = metrics(samples, (kinds or ["first_chunk"])[0] if len(kinds) < 2 else "mixed")
    found = gates(entries, options)
    return {
        "schema": "1.0",
        "methods": {
            "quantile": "nearest_rank",
            "interval": "order_statistics_of_effective_size",
            "ratio": "mover_log",
            "verdict": Prose(),
            "level": options.level,
            "tolerance": options.tolerance,
            "floor_ns": options.floor_ns,
            "stall_ns": options.stall_ns,
            "matching": "by_row" if tables.matched else "none",
            "definitions": definitions(),
        },
        "environment": environment(tables),
        "verdict": overall(found, unfaithful),
        "verdict_reason": Prose(),
        "gates": found,
        "notice": Prose([]) if unfaithful else None,
        "warnings": warnings_of_comparison(tables, sides, fidelity, samples, entries),
        "missing": missing(tables, samples, sides[1]),
        "replay": sides[0],
        "baseline": sides[1],
        "fidelity": fidelity,
        "baseline_fidelity": other,
        "metrics": entries,
        "cache": cache(samples, theirs),
    }


def summary(tables, options, told):
    samples, side, fidelity = Samples(tables, options, told), tables.side("replay"), tables.fidelity("replay")
    notes = warnings_of_run(tables, side, fidelity)
    classes = tables.rows(
        """WITH class AS (
               SELECT coalesce(r.operation, 'unknown') AS operation, r.streamed, q.status = 'ok' AS ok,
                      q.last_ns - q.start_ns AS e2e
               FROM request q JOIN run_request r USING (row, copy) WHERE q.side = 'replay'
           )
           SELECT operation, streamed, count(*), count(*) FILTER (ok),
                  at_rank(list(e2e ORDER BY e2e) FILTER (ok AND e2e IS NOT NULL), 50),
                  at_rank(list(e2e ORDER BY e2e) FILTER (ok AND e2e IS NOT NULL), 95)
           FROM class GROUP BY operation, streamed ORDER BY operation, streamed DESC"""
    )
    columns = [row[0] for row in tables.rows("DESCRIBE run_request")]
    # A run that was written before there were routes has no such column.
    routes = "sent_route" in columns and tables.rows(
        """WITH class AS (
               SELECT r.sent_route AS route, q.status = 'ok' AS ok, q.first_ns - q.start_ns AS ttft, q.last_ns - q.start_ns AS e2e,
                      q.status = 'ok' AND q.cached_tokens IS NOT NULL AND q.input_tokens IS NOT NULL AS tells,
                      q.cached_tokens AS cached, q.input_tokens AS input
               FROM request q JOIN run_request r USING (row, copy) WHERE q.side = 'replay'
           )
           SELECT route, count(*), count(*) FILTER (ok),
                  at_rank(list(ttft ORDER BY ttft) FILTER (ok AND ttft IS NOT NULL), 50),
                  at_rank(list(ttft ORDER BY ttft) FILTER (ok AND ttft IS NOT NULL), 95),
                  at_rank(list(e2e ORDER BY e2e) FILTER (ok AND e2e IS NOT NULL), 50),
                  at_rank(list(e2e ORDER BY e2e) FILTER (ok AND e2e IS NOT NULL), 95),
                  sum(cached) FILTER (tells)::BIGINT / nullif(sum(input) FILTER (tells)::BIGINT, 0)
           FROM class GROUP BY route ORDER BY route NULLS LAST"""
    ) or []
    if all(row[0] is None for row in routes):
        routes = []
    route_keys = ("route", "requests", "ok", "ttft_p50_ns", "ttft_p95_ns", "e2e_p50_ns", "e2e_p95_ns", "cached_share")
    class_keys = ("operation", "streamed", "requests", "ok", "e2e_p50_ns", "e2e_p95_ns")
    return {
        "schema": "1.0",
        "quantile": "nearest_rank",
        "interval": "order_statistics_of_effective_size",
        "definitions": definitions(),
        "run": side,
        "fidelity": fidelity,
        "metrics": summary_metrics(samples),
        "operations": [dict(zip(class_keys, row)) for row in classes],
        "routes": [dict(zip(route_keys, row)) for row in routes],
        "cache": cache(samples, {}),
        "warnings": [{"code": code, "text": text if isinstance(text, str) else Prose(text)} for code, text in notes],
    }


def inspection(tables, options, told):
    """What the library's `inspect_run` says."""
    manifest = tables.replay.manifest
    phases = tables.rows("SELECT phase, status, count(*) FROM recorded WHERE side = 'replay' GROUP BY phase, status")
    order = ("calibrate", "prime", "warmup", "measure", "drain"), ("ok", "failed", "cancelled", "interrupted", "unsent")
    phases.sort(key=lambda row: (order[0].index(row[0]), order[1].index(row[1])))
    tokens = tables.rows(
        """SELECT coalesce(sum(input_tokens), 0)::BIGINT, coalesce(sum(cached_tokens), 0)::BIGINT,
                  coalesce(sum(output_tokens), 0)::BIGINT FROM request WHERE side = 'replay' AND status = 'ok'"""
    )[0]
    return {
        "schema": "1.0",
        "id": manifest["id"],
        "state": manifest["state"],
        "tool_version": manifest["tool_version"],
        "target": manifest["target"]["url"],
        "timeline_digest": manifest["plan"]["timeline_digest"],
        "phases": [dict(zip(("phase", "status", "requests"), row)) for row in phases],
        "tokens": dict(zip(("input", "cached", "output"), tokens)),
        "summary": summary(tables, options, told) if tables.slots["replay"] else None,
    }
