"""Intervals and ratios as docs/reference/metrics.md defines them, by other means than the Rust code: exact integers for the
binomial distribution, the closed form for Student's, plain cosines, `math.fsum` for sums."""

import bisect
import functools
import math
import statistics

NEVER = 2**63 - 1
PERCENTS = {"p50": 50, "p90": 90, "p95": 95, "p99": 99}
# How far an effective size may lie beside a whole number and still be rounded to either side of it.
NEARLY = 1e-9


def rank(percent, n):
    """Nearest rank from 1."""
    return max(-(-percent * n // 100), 1)


# ---------------------------------------------------------------- distributions


@functools.lru_cache(maxsize=None)
def order_bounds(m, percent, level):
    """The order statistics of m independent observations that bound the quantile; None where nothing does. The binomial
    distribution is summed in whole numbers over the denominator `whole`, so that no rounding decides."""
    gcd = math.gcd(percent, 100)
    hit, parts = percent // gcd, 100 // gcd
    miss, whole = parts - hit, parts**m
    tail = (1.0 - level) / 2.0
    low, high = tail.as_integer_ratio(), (1.0 - tail).as_integer_ratio()
    low, high = whole * low[0] // low[1], -(-whole * high[0] // high[1])
    # The smallest k with P(X <= k) > tail, and the smallest with P(X <= k) >= 1 - tail.
    term, total, below = miss**m, 0, None
    for k in range(m + 1):
        total += term
        if below is None and total > low:
            below = k
        if total >= high:
            break
        term = term * (m - k) * hit // ((k + 1) * miss)
    return (below if below > 0 else None, k + 1 if k < m else None)


def student_within(t, dof):
    """P(|T| <= t) for whole degrees of freedom (Abramowitz & Stegun 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(dof))
    cosine, sine = math.cos(angle), math.sin(angle)
    term, total = (cosine, cosine) if dof % 2 else (1.0, 1.0)
    for k in range(3 if dof % 2 else 2, dof - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    if dof == 1:
        return 2.0 * angle / math.pi
    return 2.0 / math.pi * (angle + sine * total) if dof % 2 else sine * total


@functools.lru_cache(maxsize=None)
def caution(level, dof):
    """(z / t)^2."""
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        if student_within(middle, dof) < level:
            low = middle
        else:
            high = middle
    return (statistics.NormalDist().inv_cdf((1 + level) / 2) / low) ** 2


# ---------------------------------------------------------------- dependence


class Scores:
    """Each slot's mass at or below a threshold, and its whole mass, in arrival order."""

    def __init__(self, parts, ceiling):
        self.mass = math.fsum(n for _, n in parts)
        self.share = math.fsum(c for c, _ in parts) / self.mass if self.mass > 0 else 0.0
        self.ceiling = ceiling
        scores = [c - self.share * n for c, n in parts]
        self.slots = len(scores)
        self.projections = project(scores)

    @property
    def splits(self):
        return 0.0 < self.share < 1.0

    def variance(self):
        """Long-run variance of one score."""
        return math.fsum(v * v for v in self.projections) / len(self.projections)

    def effective(self, level):
        """Before it is rounded down."""
        largest = max(self.ceiling, 1.0)
        if self.slots < 8 or not self.splits:
            return largest
        error = self.variance() * self.slots / self.mass**2
        if error <= 0.0:
            return largest
        worth = self.share * (1 - self.share) / error * caution(level, len(self.projections))
        return min(max(worth, 1.0), largest)


def project(scores):
    n = len(scores)
    bins = min(n, 4096)
    sums = [0.0] * bins
    for at, score in enumerate(scores):
        sums[at * bins // n] += score
    count = min(max(math.floor(0.4 * n ** (2 / 3)), 4), 128)
    turn = [math.cos(math.pi * k / (2 * bins)) for k in range(4 * bins)]
    norm = math.sqrt(2 / n)
    return [
        norm * math.fsum(s * turn[j * (2 * b + 1) % (4 * bins)] for b, s in enumerate(sums)) for j in range(1, count + 1)
    ]


def correlation(one, other):
    """One standard error nearer to zero than estimated, and never negative."""
    count = min(len(one.projections), len(other.projections))
    scale = math.sqrt(one.variance() * other.variance()) * count
    if scale <= 0.0:
        return 0.0
    plain = math.fsum(a * b for a, b in zip(one.projections, other.projections)) / scale
    return min(max(plain - max(1 - plain * plain, 0.0) / math.sqrt(count), 0.0), 0.95)


# ---------------------------------------------------------------- estimates


class Estimate:
    """A quantile with the two ends of its interval (None: nothing bounds it) and its scores. `worth` is the effective size
    before it is rounded down; `told` the size that the output says, taken where it is next to a rounding edge."""

    def __init__(self, value, scores, worth, level, told):
        self.value, self.scores, self.level = value, scores, level
        self.effective = int(worth)
        if told is not None and told != self.effective and abs(worth - max(told, self.effective)) <= NEARLY * worth:
            self.effective = told
        self.lo = self.hi = None

    def of_ranks(self, percent, n, at_lo, at_hi):
        """The ends, carried over from the effective size to ranks among n."""
        lower, upper = order_bounds(self.effective, percent, self.level)
        if lower is not None:
            self.lo = at_lo((lower - 1) * n // self.effective + 1)
        if upper is not None:
            self.hi = at_hi(-(-upper * n // self.effective))
        return self

    def json(self):
        def end(value):
            if value is None:
                return None, "unbounded"
            return (None, "infinite") if value == NEVER else (value, "value")

        (lo, lo_is), (hi, hi_is) = end(self.lo), end(self.hi)
        never = self.value == NEVER
        interval = {"lo_ns": lo, "lo_is": lo_is, "hi_ns": hi, "hi_is": hi_is, "level": self.level}
        interval["effective_n"] = self.effective
        return {"value_ns": None if never else self.value, "infinite": never, "interval": interval}


def estimate(slots, percent, level, told, weights=None):
    """Of one value a slot (None takes no part)."""
    weights = weights or [1.0] * len(slots)
    slots = [v if w > 0 else None for v, w in zip(slots, weights)]
    ordered = sorted(v for v in slots if v is not None)
    n = len(ordered)
    if n == 0:
        return None
    margin = min(5, n // 2)
    place = min(max(rank(percent, n), max(margin, 1)), max(n - margin, 1))
    threshold = ordered[place - 1]
    strict = ordered[-1] == threshold

    def under(v):
        return v < threshold if strict else v <= threshold

    parts = [(0.0, 0.0) if v is None else (w if under(v) else 0.0, w) for v, w in zip(slots, weights)]
    mass, squares = math.fsum(w for _, w in parts), math.fsum(w * w for _, w in parts)
    scores = Scores(parts, mass * mass / squares)
    if all(w == 1.0 for w in weights):
        found = Estimate(ordered[rank(percent, n) - 1], scores, scores.effective(level), level, told)
        return found.of_ranks(percent, n, lambda r: ordered[r - 1], lambda r: ordered[r - 1])
    pairs = sorted((v, w) for v, w in zip(slots, weights) if v is not None)
    found = Estimate(at_mass(pairs, percent / 100 * mass), scores, scores.effective(level), level, told)
    lower, upper = order_bounds(found.effective, percent, level)
    if lower is not None:
        found.lo = at_mass(pairs, (lower - 1) / found.effective * mass)
    if upper is not None:
        found.hi = at_mass(pairs, upper / found.effective * mass)
    return found


def at_mass(pairs, mass):
    """The smallest value at which the running weight reaches the mass, but for a rounding error of 1 in 10^12."""
    total = 0.0
    for value, weight in pairs:
        total += weight
        if total >= mass * (1 - 1e-12):
            return value
    return pairs[-1][0]


def bucket(value):
    """The two ends of the bucket that a pooled value lies in: at most 1/2048 of it wide, one value each below 4096."""
    width = 1 << max(max(value, 0).bit_length() - 12, 0)
    low = max(value, 0) // width * width
    return low, low + width - 1


def estimate_pooled(pool, slots, percent, level, told):
    """Of values that count several times: `pool` holds (slot, value, mass)."""
    ordered, total, running = sorted((v, m) for _, v, m in pool), 0, []
    for _, mass in ordered:
        total += mass
        running.append(total)
    if total == 0:
        return None

    def at(r):
        return ordered[bisect.bisect_left(running, r)][0]

    value = at(rank(percent, total))
    low, high = bucket(value)
    whole, below, upto = [0] * slots, [0] * slots, [0] * slots
    for slot, v, mass in pool:
        whole[slot] += mass
        below[slot] += mass if v < low else 0
        upto[slot] += mass if v <= high else 0
    before, after = Scores(list(zip(below, whole)), total), Scores(list(zip(upto, whole)), total)
    choices = [(s.effective(level), s) for s in (after, before) if s.splits]
    if choices:
        # Compared as whole numbers; where both are worth alike, the upper edge counts.
        worth, scores = min(choices, key=lambda choice: int(choice[0]))
    else:
        worth, scores = max(sum(1 for mass in whole if mass), 1), after
    found = Estimate(value, scores, worth, level, told)
    return found.of_ranks(
        percent, total, lambda r: min(bucket(at(r))[0], value), lambda r: max(bucket(at(r))[1], value)
    )


# ---------------------------------------------------------------- ratios and verdicts


def log(ns):
    return math.inf if ns == NEVER else math.log(ns) if ns > 0 else -math.inf


def ratio(replay, baseline, rho):
    """Replay / baseline by `mover_log`: value, lo, hi, and what hi is; None where there is no ratio."""
    v1, v2 = log(replay.value), log(baseline.value)
    if v1 == -math.inf or v2 == -math.inf or (v1 == math.inf and v2 == math.inf):
        return None
    l1, l2 = (log(e.lo) if e.lo is not None else -math.inf for e in (replay, baseline))
    u1, u2 = (log(e.hi) if e.hi is not None else math.inf for e in (replay, baseline))
    if v1 < math.inf and v2 < math.inf:

        def apart(a, b):
            if math.isinf(a) or math.isinf(b):
                return math.inf
            return math.sqrt(max(a * a + b * b - 2 * rho * a * b, 0.0))

        lo, hi = v1 - v2 - apart(v1 - l1, u2 - v2), v1 - v2 + apart(u1 - v1, v2 - l2)
    else:
        lo = -math.inf if math.isinf(u2) or l1 == -math.inf else l1 - u2
        hi = math.inf if v1 == math.inf or math.isinf(u1) or l2 == -math.inf else u1 - l2
    if v1 == math.inf:
        value = None
    else:
        value = 0.0 if v2 == math.inf else replay.value / baseline.value
    bounded = hi < math.inf
    hi_is = "value" if bounded else "infinite" if v1 == math.inf or replay.hi == NEVER else "unbounded"
    return {"value": value, "lo": math.exp(lo) if lo < math.inf else None, "hi": math.exp(hi) if bounded else None, "hi_is": hi_is, "level": replay.level}


def tolerance_at(baseline, tolerance, floor_ns):
    return max(tolerance, floor_ns / baseline.value) if 0 < baseline.value < NEVER else tolerance


def verdict(replay, baseline, found, tolerance, floor_ns):
    if found is None:
        near = all(e.hi is not None and e.hi <= floor_ns for e in (replay, baseline))
        return "agree" if near else "cannot_tell"
    low, high = 1 / (1 + tolerance), 1 + tolerance
    hi = math.inf if found["hi"] is None else found["hi"]
    lo = math.inf if found["lo"] is None else found["lo"]
    if lo > high:
        return "slower"
    if hi < low:
        return "faster"
    return "agree" if lo >= low and hi <= high else "cannot_tell"
