"""Holds a JSON document against what it should be, leaf by leaf, and tells of every leaf that nothing was expected for."""

import math


class Close:
    """A float whose last digits depend on the order of sums: equal within `relative`."""

    def __init__(self, value, relative=1e-9):
        self.value, self.relative = value, relative

    def __eq__(self, other):
        return isinstance(other, (int, float)) and math.isclose(self.value, other, rel_tol=self.relative, abs_tol=1e-300)

    def __repr__(self):
        return f"{self.value!r} (within {self.relative})"


class Prose:
    """Any sentence; the numbers in it must be these, in order, as printed. None: it may hold no digits that we vouch for."""

    def __init__(self, numbers=None):
        self.numbers = numbers

    def __repr__(self):
        return "a sentence" if self.numbers is None else f"a sentence with {self.numbers}"


def numbers_in(text):
    """The words of a sentence that are numbers, as printed."""
    words = [word.strip("()[],;:") for word in text.split()]
    return [word for word in words if word.replace(".", "", 1).isdigit()]


def differences(found, expected, path="$"):
    """Yields (path, message) for every leaf that differs, is missing, or is not expected."""
    if isinstance(expected, dict):
        if not isinstance(found, dict):
            yield path, f"is {found!r}, not an object"
            return
        for key in expected.keys() | found.keys():
            at = f"{path}.{key}"
            if key not in expected:
                yield at, f"is {found[key]!r}, and nothing recomputes it"
            elif key not in found:
                yield at, "is missing"
            else:
                yield from differences(found[key], expected[key], at)
    elif isinstance(expected, list):
        if not isinstance(found, list):
            yield path, f"is {found!r}, not a list"
            return
        if len(found) != len(expected):
            yield path, f"has {len(found)} entries, not {len(expected)}: {found!r} and {expected!r}"
        for at, (one, other) in enumerate(zip(found, expected)):
            yield from differences(one, other, f"{path}[{at}]")
    elif isinstance(expected, Prose):
        if not isinstance(found, str):
            yield path, f"is {found!r}, not {expected}"
        elif expected.numbers is not None and numbers_in(found) != expected.numbers:
            yield path, f"names {numbers_in(found)}, not {expected.numbers}: {found}"
    elif isinstance(expected, Close):
        if expected != found:
            yield path, f"is {found!r}, not {expected!r}"
    elif type(found) is not type(expected) or found != expected:
        yield path, f"is {found!r}, not {expected!r}"


def count(value):
    """Leaves of a document: all, and the numbers among them."""
    if isinstance(value, dict):
        parts = [count(v) for v in value.values()]
    elif isinstance(value, list):
        parts = [count(v) for v in value]
    else:
        return 1, int(isinstance(value, (int, float)) and not isinstance(value, bool))
    return sum(p[0] for p in parts), sum(p[1] for p in parts)


def disturbed(value):
    """The same document with every number changed."""
    if isinstance(value, dict):
        return {key: disturbed(v) for key, v in value.items()}
    if isinstance(value, list):
        return [disturbed(v) for v in value]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return value + 1 if isinstance(value, int) else value * (1 + 1e-6) + 1e-6
