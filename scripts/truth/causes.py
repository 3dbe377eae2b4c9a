"""Why requests left late or not at all, by the rules of docs/reference/metrics.md."""

from leaves import Prose

SECOND = 1_000_000_000
# Words in the order in which equally frequent ones are told, and the figure that stands for each.
FIGURES = {
    "connections": "connection_wait_ns",
    "prefetch": "rendered_late",
    "cpu_throttled": "cpu_throttled_ns",
    "cpu_steal": "steal_ns",
    "cpu_run_delay": "send_run_delay_ns",
    "cpu_pressure": "cpu_pressure_ns",
    "cpu_busy": "machine_busy_ns",
    "clock_step": "clock_steps",
    "sending_thread": "behind_ns",
    "unexplained": None,
    "back_pressure": "write_time_ns",
    "target_failed": "unsent",
    "recorder": "unsent",
    "local_resources": "unsent",
    "limits": "unsent",
}


class Found:
    def __init__(self):
        self.requests, self.seconds, self.value, self.capacity = 0, [], None, 0

    def take(self, due):
        self.requests += 1
        self.seconds.append(due // SECOND)


def threshold(criteria):
    """How late a request must be to need a cause: the bound that was passed, lateness before distance."""
    for name in ("lateness_p99_ns", "gap_distance_ns"):
        if criteria[name]["verdict"] in ("degraded", "unfaithful"):
            return criteria[name]["degraded_above"]
    return None


def overdue(departures, health):
    """For each row, the part of its time in which at least one of these requests was overdue."""
    spans = []
    for due, written in sorted((d["due_ns"], d["written_ns"]) for d in departures):
        if spans and due <= spans[-1][1]:
            spans[-1][1] = max(spans[-1][1], written)
        else:
            spans.append([due, written])
    behind, before = [], None
    for row in health:
        start, end = before, row["at_ns"]
        inside = [(a if start is None else max(a, start), min(b, end)) for a, b in spans]
        behind.append(sum(max(b - a, 0) for a, b in inside))
        before = end
    return behind


def of_row(row, behind):
    def explains(name):
        return row[name] is not None and 2 * row[name] >= behind

    if row["rendered_late"]:
        return "prefetch"
    lost = [(row[FIGURES[word]], word) for word in ("cpu_throttled", "cpu_steal", "cpu_run_delay") if explains(FIGURES[word])]
    if lost:
        return max(lost, key=lambda pair: pair[0])[1]
    blind = row["send_run_delay_ns"] is None
    if blind and explains("cpu_pressure_ns"):
        return "cpu_pressure"
    busy, capacity = row["machine_busy_ns"], row["machine_capacity_ns"]
    if blind and busy is not None and capacity and busy + (row["steal_ns"] or 0) >= 0.9 * capacity:
        return "cpu_busy"
    return "clock_step" if row["clock_stepped"] else "sending_thread"


def find(departures, health, bound, limited, unsent, ended_by):
    found = {}

    def note(word):
        return found.setdefault(word, Found())

    senders = []
    for d in departures if bound is not None else ():
        late = d["written_ns"] - d["due_ns"]
        if d["write_ns"] is not None and d["write_ns"] > bound:
            one = note("back_pressure")
            one.take(d["due_ns"])
            one.value = max(one.value or 0, d["write_ns"])
        if late <= bound:
            continue
        wait = 0
        if d["ready_ns"] is not None:
            wait = d["ready_ns"] - d["due_ns"]
        elif limited and d["released_ns"] is not None:
            wait = d["written_ns"] - d["released_ns"]
        if 2 * wait >= late:
            one = note("connections")
            one.take(d["due_ns"])
            one.value = max(one.value or 0, wait)
        else:
            senders.append(d)
    behind = overdue(senders, health)
    used = set()
    for d in senders:
        at = next((i for i, row in enumerate(health) if row["at_ns"] >= d["written_ns"]), None)
        word = "unexplained" if at is None else of_row(health[at], behind[at])
        one = note(word)
        one.take(d["due_ns"])
        if at is None or at in used:
            continue
        used.add(at)
        row = {**health[at], "behind_ns": behind[at], "clock_steps": 1}
        figure = row[FIGURES[word]]
        if figure is not None:
            one.value = (one.value or 0) + figure
        one.capacity += health[at]["machine_capacity_ns"] or 0
    aborted = {"failures": "target_failed", "recorder": "recorder"}.get(ended_by, "limits")
    for word, count in ((aborted, unsent["aborted"]), ("local_resources", unsent["stuck"]), ("limits", unsent["limits"])):
        if count:
            note(word).requests += count
            note(word).value = note(word).requests
    order = sorted(found, key=lambda word: (-found[word].requests, list(FIGURES).index(word)))
    return [told(word, found[word]) for word in order]


def told(word, one):
    share = None
    if word in ("cpu_steal", "cpu_busy") and one.capacity and one.value is not None:
        share = one.value / one.capacity
    return {
        "cause": word,
        "requests": one.requests,
        "first_second": min(one.seconds, default=None),
        "last_second": max(one.seconds, default=None),
        "figure": None if one.value is None else FIGURES[word],
        "value": one.value,
        "share": share,
        "text": Prose(),
        "remedy": Prose([]),
    }
