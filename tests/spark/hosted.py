"""The whole of hosting for a test: links, driver child, the workers' jobs, workers that are dictionaries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from noria.control.processes.supervisor import Event, Supervisor
from noria.runtime.link.link import WorkerLink
from noria.runtime.worker.worker_main import WorkerConfig
from noria.spark.hosting.session import SparkSettings
from runtime.processes import config, within

START_S = 90.0  # a JVM on a busy machine


class Hosted:
    """A running system and a way to wait for what happens to it."""

    def __init__(self, tmp_path: Path, workers: int = 1, **more: Any):
        self.config: WorkerConfig = replace(config(tmp_path, **more), workers=workers)
        self.configs = [self.config.for_worker(w) for w in range(workers)]
        self.events: list[Event] = []
        self._news = asyncio.Event()
        self.links = [WorkerLink(c.endpoint, c.epoch, c.worker, lease_ms=c.lease_ms,
                                 note=lambda text: self._tell(Event(0, "link", text))) for c in self.configs]
        self.link = self.links[0]
        self.supervisor = Supervisor(SparkSettings(workers=workers, scratch_dir=tmp_path / "scratch"), self.config,
                                     log_path=tmp_path / "driver.log", on_event=self._tell)

    def _tell(self, event: Event) -> None:
        self.events.append(event)
        self._news.set()

    async def until(self, what: Callable[[list[Event]], bool]) -> None:
        """Wait until the events since the start satisfy `what`."""
        async def wait() -> None:
            while not what(self.events):
                self._news.clear()
                await self._news.wait()

        try:
            await within(wait(), START_S)
        except TimeoutError:
            raise AssertionError("these happened, and not what was waited for:\n" + self.story()) from None

    async def another_worker(self) -> None:
        """Wait until a worker other than the present one is up."""
        workers = self.link.stats.workers
        await self.until(lambda _: self.link.stats.workers > workers)
        await within(self.link.up(), START_S)

    def count(self, what: str) -> int:
        return sum(e.what == what for e in self.events)

    def story(self) -> str:
        return "\n".join(f"{e.what}: {e.detail}" for e in self.events)


@asynccontextmanager
async def hosted(tmp_path: Path, **more: Any) -> AsyncIterator[Hosted]:
    it = Hosted(tmp_path, **more)
    for link in it.links:
        await link.start()
    try:
        await within(it.supervisor.start(), START_S)
        for link in it.links:
            await within(link.up(), START_S)
        yield it
    finally:
        for link in it.links:
            await link.close()
        await it.supervisor.stop()
