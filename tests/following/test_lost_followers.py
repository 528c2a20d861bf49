"""A follower that ends without a word is shown as lost; one that works or waits for an answer is not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from following.sources import Followed
from noria.core.limits import FOLLOW_LOST_S
from noria.following.target import TargetServer

SOURCE = "mysql://127.0.0.1:3306/shop"
RECORD = {"name": "shop", "n": 0, "source": SOURCE, "tables": {}}


class Clock:
    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


class Lost(Followed):
    """A server whose clock the test moves; the watch over its follower runs when the test says so."""

    def __init__(self, directory: Path):
        super().__init__(directory)
        self.follows = self.source().follows
        self.clock = self.follows._followed.now = Clock()

    def passes(self, seconds: float) -> None:
        self.clock.s += seconds

        async def look() -> None:
            follow = self.follows._follows["shop"]
            if follow.watch is not None:
                follow.watch.cancel()
                self.follows._look("shop", follow)

        self.embedded.run(look())

    def state(self) -> str:
        return str(self.all("SHOW NORIA FOLLOWING")[0][2])

    def metric(self) -> Any:
        return self.follows._followed.numbers()[0]["following"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Lost]:
    with Lost(tmp_path) as local:
        yield local


@pytest.fixture
def follower(server: Lost) -> TargetServer:
    target = TargetServer(server.url, "shop")
    target.begin(RECORD)
    return target


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The project's own log lines; the HTTP server logs each request beside them."""
    return [r.message for r in caplog.records if r.name.split(".")[0] == "noria"]


def test_a_silent_follower_is_lost_and_comes_back(server: Lost, follower: TargetServer,
                                                  caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "noria")
    follower.report_progress({"state": "following", "position": "b:1", "current_s": 0.0})
    server.passes(FOLLOW_LOST_S - 1)
    assert server.state() == "following" and server.metric()
    server.passes(1)
    assert server.state().startswith("lost since 2") and not server.metric()
    for _ in range(3):
        server.passes(100)
    [lost] = logged(caplog)
    assert "has sent nothing for 15 s" in lost and SOURCE in lost and "stay at b:1" in lost
    follower.report_progress({"state": "following"})
    assert server.state() == "following" and server.metric()
    server.passes(FOLLOW_LOST_S)
    assert server.state().startswith("lost since") and len(logged(caplog)) == 2


def test_a_follower_that_said_goodbye_is_stopped(server: Lost, follower: TargetServer,
                                                 caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "noria")
    follower.report_progress({"state": "following"})
    for _ in range(2):
        follower.report_progress({"state": "stopped", "error": "the source is another one"})
    server.passes(FOLLOW_LOST_S * 10)
    assert server.state() == "stopped" and not server.metric()
    assert logged(caplog) == [f"following {SOURCE}: the follower stopped: the source is another one"]


def test_a_follower_that_waits_for_an_answer_is_not_lost(server: Lost, follower: TargetServer) -> None:
    follower.report_progress({"state": "following"})
    turn = server.follows._follows["shop"].turn

    async def take() -> None:
        await turn.acquire()

    async def waits() -> None:
        task = asyncio.ensure_future(server.follows.note("shop", follower.run, RECORD))
        await asyncio.sleep(0)
        server.clock.s += 1000
        assert server.follows._followed.statuses["shop"].shown_state(server.clock()) == "following"
        turn.release()
        await task

    server.embedded.run(take())
    server.embedded.run(waits())
    assert server.state() == "following"


def test_rows_of_the_first_load_are_counted_as_they_are_read(server: Lost, follower: TargetServer) -> None:
    assert follower.report_progress({"state": "loading"}) == 0
    task = TargetServer(server.url, "shop", follower.run)
    assert task.report_progress({"loaded": 10_000}) == 10_000 and task.report_progress({"loaded": 5}) == 10_005
    assert server.all("SHOW NORIA FOLLOWING")[0][8] == 10_005 and server.state() == "loading"
    follower.report_progress({"state": "following", "rows": 3})
    assert server.all("SHOW NORIA FOLLOWING")[0][8] == 10_008
