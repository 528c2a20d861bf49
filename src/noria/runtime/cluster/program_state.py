"""The program of several workers: state that the parts of `ClusterLink` share.

Keeps true: `mirror`, `version` and `routes` are those of a program that all workers have. While a change is under
way, `next` is the program after it.
"""

from __future__ import annotations

import asyncio
from enum import Enum

from noria.dataflow.messages.packets import Migrated
from noria.runtime.cluster.joining import ChangeUnderWay
from noria.runtime.cluster.mirror import ProgramMirror
from noria.runtime.routing.key_routing import KeyRoutes

LEADER = 0  # its catalog decides what the program is


class Restores(Enum):
    """What workers that start together do with saved states."""

    NOTHING = "nothing"  # they build all states from tables
    AGREED = "agreed"  # worker 0 is to restore its states
    BEGUN = "begun"  # worker 0 has restored its states, so the others must




class ProgramState:
    """The program of all workers.

    `known`: set once the program is known. All workers that start together get another event. `changing`: held by a
    change. `started`: replies of workers that started since a change began. `adopted`: by worker, the version of the
    graph that it adopted in this life. `restores`: while all workers start, whether they restore saved states.
    """

    def __init__(self, workers: int):
        self.routes, self.version, self.mirror = KeyRoutes(workers), 0, ProgramMirror()
        self.next: tuple[int, ProgramMirror] | None = None
        self.under_way: ChangeUnderWay | None = None
        self.known, self.changing = asyncio.Event(), asyncio.Lock()
        self.started: list[Migrated] = []
        self.adopted: dict[int, int] = {}
        self.restores = Restores.NOTHING

    def mirror_at(self, version: int) -> ProgramMirror:
        """The tables and views that belong to a graph of this version."""
        return self.next[1] if self.next is not None and version == self.next[0] else self.mirror

    def worker_started(self, version: int, reply: Migrated) -> None:
        """Record the routes of a starting worker's graph of this version."""
        if self.changing.locked():
            self.started.append(reply)
        if self.next is None and version == self.version:
            self.routes.changed((), [reply], self.mirror.views)
