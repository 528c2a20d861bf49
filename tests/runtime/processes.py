"""Workers as plain processes, for tests of the transport that need no Spark."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from noria.runtime.link.link import WorkerLink
from noria.runtime.transport.wire import private_endpoint
from noria.runtime.worker.worker_main import WorkerConfig
from runtime.fork_server import ForkedProcess, forked

T = TypeVar("T")
DEADLINE_S = 20.0


def config(tmp_path: Path, endpoint: str = "", epoch: int = 1, factory: str = "runtime.fake_worker:build",
           lease_ms: int = 2_000) -> WorkerConfig:
    return WorkerConfig(0, 1, endpoint or private_endpoint(tmp_path / "run"), tmp_path / "data", tmp_path / "run",
                        epoch, lease_ms=lease_ms, factory=factory)


def spawn(what: WorkerConfig) -> ForkedProcess:
    """Run `run_worker` in a process of its own, which prints why it ended."""
    return forked(what)


def finish(child: ForkedProcess) -> tuple[int, str, str]:
    """The exit code, the printed reason, and the standard error."""
    out, err = child.communicate(timeout=DEADLINE_S)
    return child.returncode, out.decode().strip(), err.decode()


class Nursery:
    """Starts a worker again whenever the link loses one, as Spark's supervision does."""

    def __init__(self, what: WorkerConfig):
        self.config = what
        self.children: list[ForkedProcess] = []

    def another(self, why: str = "") -> None:
        self.children.append(spawn(self.config))

    def end(self) -> None:
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.communicate()


@asynccontextmanager
async def linked(tmp_path: Path, restart: bool = True, **more: Any) -> AsyncIterator[tuple[WorkerLink, Nursery]]:
    """A link that is up, and the processes behind it."""
    nursery = Nursery(config(tmp_path))
    link = WorkerLink(nursery.config.endpoint, 1, on_lost=nursery.another if restart else None,
                      **more)
    await link.start()
    try:
        nursery.another()
        await within(link.up())
        yield link, nursery
    finally:
        link.on_lost = None
        await link.close()
        nursery.end()


async def within(what: Awaitable[T], seconds: float = DEADLINE_S) -> T:
    return await asyncio.wait_for(what, seconds)


def run(test: Callable[[], Coroutine[Any, Any, None]], seconds: float = 60.0) -> None:
    asyncio.run(within(test(), seconds))
