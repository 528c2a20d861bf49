"""What a slow start says that it waits for."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from noria.runtime.link.link import LinkState
from noria.server import starting
from noria.server.starting import Compiling, waited_for
from noria.spark.hosting import archive


def link(worker: int, state: LinkState, why: str) -> Any:
    return SimpleNamespace(worker=worker, state=state, why=why)


LINKS = (link(0, LinkState.UP, ""), link(1, LinkState.RECOVERING, "the program is being brought back"))


def test_compiles_is_said_only_while_kernels_are_compiled() -> None:
    counts: Iterator[int] = iter((100, 100, 130, 131, 131))
    compiling = Compiling(lambda: next(counts))
    assert compiling.now() == ""
    assert compiling.now().startswith("kernels are being compiled, 30 so far")
    assert compiling.now().startswith("kernels are being compiled, 31 so far")
    assert compiling.now() == ""


def test_otherwise_it_says_what_is_not_there() -> None:
    assert waited_for("x is compiled", LINKS, "starting") == "x is compiled"
    assert waited_for("", LINKS, "starting") == "Spark's driver is starting"
    assert waited_for("", LINKS, "up") == "worker 1 is recovering (the program is being brought back)"


# ---------------------------------------------------------------- the class archive of a server that has none
async def _ended_by(directory: Path) -> tuple[int, int]:
    """The process that makes the archive, and its niceness; it is told to stop when it runs."""
    made = asyncio.ensure_future(starting.archive_made(directory / "log"))
    while not (directory / "pid").exists() or not (directory / "pid").read_text():
        await asyncio.sleep(0)
    made.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await made
    pid, nice = (directory / "pid").read_text().split()
    return int(pid), int(nice)


def _lives(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # it has just ended
        return False


def test_an_archive_is_made_behind_everything_else_and_not_after_the_end(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "ARCHIVE_AFTER_S", 0)
    monkeypatch.setattr(archive, "_directories", lambda: (tmp_path, tmp_path))
    monkeypatch.setattr(archive, "MODULE", "server.forever")
    monkeypatch.chdir(tmp_path)
    pid, nice = asyncio.run(asyncio.wait_for(_ended_by(tmp_path), 60))
    assert nice == 19
    while _lives(pid):
        os.sched_yield()


@pytest.mark.parametrize("there", [True, False])
def test_a_failure_to_make_it_is_a_line_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
                                                   ) -> None:
    monkeypatch.setattr(starting, "ARCHIVE_AFTER_S", 0)
    monkeypatch.setattr(archive, "_directories", lambda: (tmp_path, tmp_path))
    monkeypatch.setattr(archive, "MODULE", "noria.no_such_module")
    if there:
        (tmp_path / f"{archive.name()}-0.jsa").touch()
    asyncio.run(starting.archive_made(tmp_path / "log"))
    assert (tmp_path / "log").exists() != there
    assert there or "No module named noria.no_such_module" in (tmp_path / "log").read_text()
