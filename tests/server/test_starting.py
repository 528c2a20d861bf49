"""What a slow start says that it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from noria.runtime.link import LinkState
from noria.server.starting import Compiling, waited_for


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
