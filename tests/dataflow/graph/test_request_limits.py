"""The time limit of a request, which counts the processor's time if that is known."""

from __future__ import annotations

import pytest

from noria.core.errors import SqlError
from noria.core.limits import WAITING_TIMES
from noria.dataflow.graph.request_limits import RequestLimits

MS = 1_000_000


class Clocks:
    def __init__(self) -> None:
        self.wall = self.processor = 0

    def work(self, limit_ms: int, known: bool = True) -> RequestLimits:
        return RequestLimits(lambda: self.wall, limit_ms, processor=(lambda: self.processor) if known else None)


def late(work: RequestLimits) -> bool:
    try:
        work.check()
    except SqlError as e:
        assert e.code == 3024
        return True
    return False


def test_a_busy_machine_does_not_count() -> None:
    clocks = Clocks()
    work = clocks.work(50)
    clocks.wall, clocks.processor = 200 * MS, 50 * MS
    assert not late(work)
    clocks.processor += 1
    assert late(work)


def test_waits_for_a_disk_are_bounded_too() -> None:
    clocks = Clocks()
    work = clocks.work(50)
    clocks.wall = WAITING_TIMES * 50 * MS
    assert not late(work)
    clocks.wall += 1
    assert late(work)


def test_without_the_processors_time_the_clock_counts() -> None:
    clocks = Clocks()
    work = clocks.work(50, known=False)
    clocks.wall = 50 * MS
    assert not late(work)
    clocks.wall += 1
    assert late(work)


@pytest.mark.parametrize("known", [False, True])
def test_no_limit_is_no_limit(known: bool) -> None:
    clocks = Clocks()
    work = clocks.work(0, known)
    clocks.wall = clocks.processor = 2**60
    assert not late(work)
