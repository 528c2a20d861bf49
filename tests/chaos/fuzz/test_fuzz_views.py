"""Readers of shared memory over corrupt copies of view files: a process of its own opens and reads them, and must come
to an end with rows, a miss or an exception, never by a signal and never without end.

What is corrupted is what a reader can find half-made or damaged without the worker's doing: a file's size, the JSON
beside it, its name, the header's format, version and state, versions of blocks, rows' values, weights and counts.
`FUZZ_VIEWS_ALL=1` corrupts any word, also those by which readers find their way (index, offsets, masks): these are
trusted, as memory of the same user, and readers may then crash; the count of crashes is printed.

    FUZZ_VIEWS_CASES=200   FUZZ_SEED=… (printed; in CI always the same)
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from chaos.fuzz.embedded import Embedded, forget, quick_directory
from noria.spark.hosting.session import import_path
from seeds import seed

pytestmark = pytest.mark.timeout(0)
CASES = int(os.environ.get("FUZZ_VIEWS_CASES", "200"))
ALL = bool(os.environ.get("FUZZ_VIEWS_ALL"))
SEED = seed("FUZZ_SEED")
CASE_S = 60  # a reader that needs longer for one case goes on for ever
CRASHES = 200  # after which it is enough


def published(directory: Path) -> Path:
    """Views with present keys, their worker gone."""
    database = Embedded(directory)
    keys = {"by_s": [f"text {i}" for i in range(30)], "joined": list(range(9)), "tops": list(range(5)),
            "by_b": [b"b%d" % i for i in range(30)]}
    for view, some in keys.items():
        assert database.run(database.executor.lookup(view, pa.table({"key": some}))).num_rows
    copy = directory / "copy"
    subprocess.run(["cp", "-r", "--sparse=always", database.views, copy], check=True)  # files reserve gigabytes
    database.close()
    return copy


class Reader:
    """A process that reads case after case, told one by one."""

    def __init__(self, views: Path):
        self._views = views
        self._start()

    def _start(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("corrupt_reader.py")), str(self._views)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": import_path()})
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self._child.stdout is not None
        return self._child.stdout.readline().strip()

    def case(self, seed: str) -> str:
        """What came of it: "signal 11" and "endless" are of a process that is no more."""
        assert self._child.stdin is not None
        started = time.monotonic()
        killer = _after(CASE_S, self._child)
        self._child.stdin.write(f"{seed} {int(ALL)}\n")
        self._child.stdin.flush()
        told = self._line()
        killer.cancel()
        if told:
            return told
        code = self._child.wait()
        self._start()
        return "endless" if time.monotonic() - started >= CASE_S else f"signal {-code}" if code < 0 else f"exit {code}"

    def close(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait(30)


def _after(seconds: float, child: subprocess.Popen[str]) -> threading.Timer:
    timer = threading.Timer(seconds, child.kill)
    timer.daemon = True
    timer.start()
    return timer


def test_corrupt_views(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    directory = quick_directory(tmp_path)
    began, outcomes, bad = time.monotonic(), Counter[str](), list[str]()
    try:
        reader = Reader(published(directory))
        for number in range(CASES):
            outcome = reader.case(f"{SEED}.{number}")
            outcomes[outcome] += 1
            if outcome == "endless" or outcome.startswith(("signal", "exit")):
                bad.append(f"{SEED}.{number}: {outcome}")
                if len(bad) >= CRASHES:
                    break
        reader.close()
    finally:
        forget(directory)
        with capfd.disabled():
            print(f"\nviews: FUZZ_SEED={SEED}, {sum(outcomes.values())} cases in {time.monotonic() - began:.0f} s: "
                  f"{dict(outcomes.most_common(12))}")
    assert ALL or not bad, f"a reader ended by itself: {bad[:20]}"
