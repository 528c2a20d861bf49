"""`noria demo`, small: the verdict, what it says of each act, and that nothing is left running, however it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
SMALL = ("--stories", "4000", "--users", "500", "--votes", "20000", "--seconds", "1")
DEADLINE_S = 360


def demo(directory: Path, *options: str) -> subprocess.Popen[str]:
    # What processes are the demo's is seen by this variable, which all of them inherit.
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "noria", "demo", *SMALL, "--data-dir", str(directory), *options], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "NORIA_TEST_RUN": str(directory)})


def left_running(directory: Path) -> list[str]:
    """Command lines of processes with the mark of the run."""
    mark, found = f"NORIA_TEST_RUN={directory}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            pass
    return found


def test_a_small_demo_ends_with_the_verdict(tmp_path: Path) -> None:
    process = demo(tmp_path / "demo")
    try:
        out, _ = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    assert process.returncode == 0, out
    assert "every view equals its query recomputed by Spark" in out
    assert re.search(r"1\d,000 votes in batches", out) and "they add up to the query's rows" in out, out
    assert "StoriesWithVC: agrees, 4,000 rows" in out and "Karma: agrees" in out, out  # the stream votes for each story
    assert re.search(r"4,000 rows into stories", out) and re.search(r"[1-9]\d* keys evicted", out), out
    voted = re.search(r"a vote comes in: the next read, [\d.]+ ms, shows ([\d,]+) votes instead of ([\d,]+)", out)
    assert voted and int(voted[1].replace(",", "")) == int(voted[2].replace(",", "")) + 1, out
    rates = [re.search(rf"{what} +([\d,]+)", out) for what in ("pages in memory", "first reads", "readers and voters")]
    assert all(rate and int(rate[1].replace(",", "")) > 0 for rate in rates), out
    served = re.search(r"([\d,]+) reads of \d+ pages in memory were served meanwhile", out)
    assert served and int(served[1].replace(",", "")) > 0, out
    assert left_running(tmp_path / "demo") == []
    assert not list((tmp_path / "demo" / "data" / "snapshots").iterdir())


@pytest.mark.parametrize(("number", "act"), [
    (signal.SIGINT, "Start a server"), (signal.SIGTERM, "Made-up files"),
    pytest.param(signal.SIGINT, "Readers and voters", marks=pytest.mark.long)])
def test_an_interrupt_stops_everything(tmp_path: Path, number: signal.Signals, act: str) -> None:
    process = demo(tmp_path / "demo")
    assert process.stdout is not None
    for line in process.stdout:
        if act in line:
            break
    try:
        process.send_signal(number)
        out, _ = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    assert process.returncode == 128 + number, out
    assert left_running(tmp_path / "demo") == []


def test_a_directory_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thing").touch()
    process = demo(tmp_path)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1 and "is not empty" in out
