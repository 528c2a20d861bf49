"""Which queries share a snapshot: never one that lacks what was acknowledged before they came."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import noria.server.bulk.snapshots
from noria.core.errors import SqlError
from noria.dataflow.messages.packets import Done, Inspect
from noria.runtime.link.link import WorkerUnavailable
from noria.server.bulk.snapshots import Snapshots


class FakeLink:
    """A worker that makes a directory for each snapshot, when it is let to."""

    def __init__(self) -> None:
        self.stats = SimpleNamespace(changes=0)
        self.quiet, self.ahead = True, 0
        self.go = asyncio.Semaphore(0)
        self.answers: list[Any] = []

    def is_idle(self) -> bool:
        return self.quiet

    async def up(self) -> None:
        return

    async def ask(self, packet: Any) -> Done:
        if isinstance(packet, Inspect):
            self.ahead += 1
            return Done(0, self.ahead % 2 == 0)  # at the second look
        await self.go.acquire()
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, WorkerUnavailable):
                raise answer
            return Done(0, error=answer)
        Path(packet.path).mkdir()
        return Done(0, {})


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not check():
            await asyncio.sleep(0.001)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at what goes to disk follow each other."""
    monkeypatch.setattr(noria.server.bulk.snapshots, "SNAPSHOT_LOOK_MS", 0)


def rig(tmp_path: Path, test: Callable[[FakeLink, Snapshots, Callable[[], asyncio.Task[str]]],
                                       Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        link = FakeLink()
        snapshots = Snapshots(link, tmp_path)

        async def query() -> str:
            async with snapshots.use() as path:
                assert Path(path).is_dir()
                return path

        await test(link, snapshots, lambda: asyncio.ensure_future(query()))

    asyncio.run(run())


def test_queries_that_come_while_one_is_taken_share_the_next(tmp_path: Path) -> None:
    async def test(link: FakeLink, snapshots: Snapshots, query: Callable[[], asyncio.Task[str]]) -> None:
        first = query()
        await settle()
        link.stats.changes = 1  # acknowledged after the first was asked for
        late = [query() for _ in range(50)]
        await settle()
        link.go.release()
        link.go.release()
        paths = {await q for q in late}
        assert len(paths) == 1 and await first not in paths and snapshots.taken == 2

    rig(tmp_path, test)


def test_a_stop_leaves_none(tmp_path: Path) -> None:
    async def test(link: FakeLink, snapshots: Snapshots, query: Callable[[], asyncio.Task[str]]) -> None:
        await snapshots.close()
        link.go.release()
        kept = await query()
        assert Path(kept).exists()
        await snapshots.close()
        assert not Path(kept).exists()
        link.go.release()
        async with snapshots.use() as used:
            await snapshots.close()
            assert Path(used).exists()
        await until(lambda: not any(tmp_path.iterdir()))

    rig(tmp_path, test)


def test_one_that_holds_everything_is_used_again_and_no_other(tmp_path: Path) -> None:
    async def test(link: FakeLink, snapshots: Snapshots, query: Callable[[], asyncio.Task[str]]) -> None:
        for _ in range(9):
            link.go.release()
        one = await query()
        assert await query() == one
        link.stats.changes = 1
        two = await query()
        assert two != one
        await until(lambda: not Path(one).exists())
        link.stats.changes, link.quiet = 2, False  # a write is on its way: it may be in the snapshot or not
        three = await query()
        link.quiet = True
        assert await query() not in (two, three)
        await until(lambda: len(list(tmp_path.iterdir())) == 1)

    rig(tmp_path, test)


def test_a_worker_that_dies_is_no_querys_error_and_a_full_disk_is(tmp_path: Path) -> None:
    async def test(link: FakeLink, snapshots: Snapshots, query: Callable[[], asyncio.Task[str]]) -> None:
        link.answers = [WorkerUnavailable("gone"), SqlError(1021, "HY000", "Disk full")]
        link.go.release()
        hit = query()
        await settle()
        link.go.release()
        with pytest.raises(SqlError, match="Disk full"):
            await hit
        link.go.release()
        await query()
        assert snapshots.taken == 3

    rig(tmp_path, test)


def test_unused_snapshots_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noria.server.bulk.snapshots, "SNAPSHOT_KEEP_S", 0)

    async def test(link: FakeLink, snapshots: Snapshots, query: Callable[[], asyncio.Task[str]]) -> None:
        link.go.release()
        await query()
        await until(lambda: not list(tmp_path.iterdir()))
        given_up = query()
        await settle()
        given_up.cancel()
        link.go.release()
        await until(lambda: snapshots.taken == 2 and not list(tmp_path.iterdir()))

    rig(tmp_path, test)
