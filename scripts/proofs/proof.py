"""What the proofs share: a mock or a replay by the program under test, and checks that are told one by one."""

import json
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

# 2 ms a step, 2 µs a prompt token: everything is over soon.
QUICK = "[engine]\nstep_base_us = 2000\ndecode_us_per_sequence = 10\nprefill_us_per_token = 2\n"


def program():
    """The program's path: the first argument."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: {Path(sys.argv[0]).name} PATH_OF_TRACEWHEEL")
    return str(Path(sys.argv[1]).resolve())


def check(what, got, expected):
    """Says what is equal, and ends with the first thing that is not."""
    if got != expected:
        sys.exit(f"DIFFERENT  {what}: got {got!r}, expected {expected!r}")
    print(f"  equal  {what}: {str(got)[:80]}")


def check_that(what, holds):
    """The same for a statement."""
    if not holds:
        sys.exit(f"NOT SO  {what}")
    print(f"  true   {what}")


def refused(what, kind, call):
    """Makes a call that must end in an error of this class, and gives the error."""
    try:
        call()
    except kind as error:
        check(what, type(error).__name__, kind.__name__)
        return error
    sys.exit(f"NOT SO  {what}: no error")


class Mock:
    """A mock endpoint: its address, and the lines of its witness log once it has stopped."""

    def __init__(self, url):
        self.url, self.lines = url, None


@contextmanager
def mock(config=QUICK):
    """Starts a mock on a free port and stops it in the end."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "mock.toml").write_text(config)
        arguments = ["mock", "--listen", "127.0.0.1:0", "--config", "mock.toml", "--witness-log", "witness.jsonl"]
        process = subprocess.Popen(
            [program(), *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        endpoint = Mock(process.stdout.readline().strip())
        try:
            yield endpoint
        finally:
            process.send_signal(2)
            process.wait(timeout=20)
            endpoint.lines = [json.loads(line) for line in (folder / "witness.jsonl").read_text().splitlines()]
