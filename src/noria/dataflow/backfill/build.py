"""The base class of all builds, and the part of the engine that they use (`BackfillRuntime`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from noria.core.errors import SqlError
from noria.dataflow.backfill.pace import SliceCost
from noria.dataflow.graph.graph import Graph
from noria.dataflow.graph.nodes import GraphRuntime, Node, RemoteEvictions
from noria.dataflow.graph.request_limits import Clock

FIRST_ROWS = 16  # of a slice: each row may match many; later slices have as many as run for BUILD_SLICE_MS


class RemoteSources(RemoteEvictions, Protocol):
    """The other workers, which send the rows of full exchanges."""

    def gather_full_state(self, node: Node) -> None:
        """Request all rows of an exchange."""


class BuildFailures(Protocol):
    """The record of what failed."""

    def of_build(self, build: Backfill, bug: Exception) -> SqlError:
        """The error that a failed build reports."""


class BackfillRuntime(GraphRuntime, Protocol):
    """What builds use of the engine."""

    clock: Clock | None
    processor: Clock | None

    @property
    def graph(self) -> Graph: ...

    @property
    def bases(self) -> Mapping[str, Sequence[Node]]:
        """The nodes of each base table."""

    @property
    def readers(self) -> Mapping[str, Node]:
        """The readers, by view."""

    @property
    def exchanges(self) -> RemoteSources | None: ...

    @property
    def outages(self) -> BuildFailures: ...

    def ready(self, view: str) -> bool:
        """Whether the view has its first state."""

    def relayout(self) -> None:
        """Plan all pulls again and adapt every state."""


class Backfill:
    """One build. `rows`: the size of its next slice. `cost`: of its slices. `error`: why it has stopped."""

    def __init__(self) -> None:
        self.rows, self.cost = FIRST_ROWS, SliceCost()
        self.error: SqlError | None = None

    def step(self, engine: BackfillRuntime) -> bool:
        """Run one slice. Returns True when the build is complete."""
        raise NotImplementedError

    def counts(self, engine: BackfillRuntime) -> tuple[int, int]:
        """Rows done, and rows in total."""
        raise NotImplementedError

    def describe(self) -> str:
        raise NotImplementedError
