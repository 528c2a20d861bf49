"""Protocols of the engine: its own interface to its parts (`EngineRuntime`), and the interfaces of later rooms to it.

So no part of the engine imports a room that follows in the import order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from noria.core.batch import Batch, Codes
from noria.core.errors import SqlError
from noria.dataflow.backfill.backfills import Backfills
from noria.dataflow.backfill.build import Backfill, BackfillRuntime, RemoteSources
from noria.dataflow.graph.nodes import Columns, MissMode, Node


class SlicedRead(Protocol):
    """A read of a table in slices, which ticks keep up to date."""

    def tick(self, inputs: Mapping[str, Batch]) -> None:
        """Apply the deltas of base tables."""

    def memory(self) -> int:
        """Bytes in use."""

    def held(self) -> Iterator[Codes]:
        """Every text id in use; other numbers may be among them."""


class SavedState(Protocol):
    """States of an earlier life (`worker/saving.py`). `waits`: whether the program is still to be restored. `deltas`:
    the rows written since, by table. `build_later`: nodes whose state is built after these are applied."""

    waits: bool
    deltas: Mapping[str, Batch]
    build_later: list[Node]

    @property
    def lacks_rows(self) -> bool: ...

    def restore(self, node: Node) -> bool: ...

    def keys(self) -> dict[str, Codes]: ...


class KeyRefill(Protocol):
    """The keys of partial views that an earlier life had (`worker/refill.py`)."""

    def has_work(self) -> bool: ...

    def step(self) -> int: ...


class WorkerExchanges(RemoteSources, Protocol):
    """The exchanges with other workers (`cluster/exchanges.py`). `worker`: the number of this one. `holding_for`: the
    workers for whose requests nothing is evicted for lack of memory."""

    worker: int
    holding_for: set[int]

    def ticking(self) -> AbstractContextManager[None]: ...

    def split(self, node: Node, rows: Batch) -> Batch: ...

    def gather(self, node: Node, cols: Columns, keys: Codes) -> None: ...

    def restart_full_state(self, node: Node) -> None: ...

    def adapt_to_layout(self) -> None: ...

    def forget(self, node: Node) -> None: ...

    def report_load(self, table: str) -> None: ...

    def report_broken(self, raised: set[Node]) -> None: ...

    def recreated(self, nodes: set[Node]) -> None: ...

    def has_all_rows(self) -> bool: ...

    def held(self) -> Iterator[Codes]: ...


class Failures(Protocol):
    """The nodes out of service (`outages.py`)."""

    def of_build(self, build: Backfill, bug: Exception) -> SqlError: ...

    def failed(self, node: Node, bug: Exception) -> SqlError: ...


class EngineRuntime(BackfillRuntime, Protocol):
    """The engine, as its parts see it."""

    saved: SavedState | None
    scans: list[SlicedRead]

    @property
    def builds(self) -> Backfills: ...

    @property
    def exchanges(self) -> WorkerExchanges | None: ...

    @property
    def outages(self) -> Failures: ...

    def answer(self, node: Node, cols: Columns, keys: Codes, mode: MissMode) -> tuple[Batch, Codes]:
        """`fetch` without the profile."""

    def forget(self, node: Node) -> None:
        """Make all keys of a partial node missing."""

    def first_state(self, node: Node, in_use: bool, large: int | None, at_once: bool = True) -> None:
        """Build the first state of a full node, or schedule its build."""
