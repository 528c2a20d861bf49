"""A worker on a real store that builds first states and indexes in slices.  A second copy of its rows is the oracle."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from dataflow.bench import Bench
from noria.core.expressions import functions
from noria.core.expressions.expr import col, const
from noria.core.statements import Delete
from noria.core.types import INT
from noria.dataflow.messages import packets
from noria.dataflow.messages.packets import Envelope

ROWS = 3_000
WAITING = 2**41  # the number of the request that waits


class Building(Bench):
    """A bench with a second copy of t's rows, for the oracle."""

    def __init__(self, path: Path):
        super().__init__(path)
        self.rows: dict[int, int] = {}
        self.replies: list[Any] = []

    @staticmethod
    def filled(path: Path) -> Building:
        """A bench with rows in t. States over more than a hundred rows are built in slices."""
        made = Building(path)
        made.define("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)")
        made.put(*((i, i % 7) for i in range(ROWS)))
        made.worker.engine.builds.at_once_rows = 100
        return made

    def send(self, body: Any, seq: int = 0) -> Any:
        """Return the packet's own reply; replies to waiting requests are appended to `replies`."""
        replies = self.worker.step([Envelope(1, -1, seq, body)])
        self.replies += [r.body for r in replies[1:]]
        return replies[0].body

    def put(self, *rows: tuple[int, int]) -> None:
        self.insert(*rows)
        self.rows.update(rows)

    def delete_below(self, id: int) -> None:
        self.change(packets.Write((Delete("t", functions.call("lt", col(0, INT), const(id, INT))),)))
        self.rows = {i: a for i, a in self.rows.items() if i >= id}

    def await_view(self, name: str, number: int = WAITING) -> None:
        """Send a request that is answered when the view is built."""
        self.replies += [r.body for r in self.worker.step([Envelope(1, -1, 0, packets.Inspect(number, "built", name))])]

    def building(self) -> list[dict[str, Any]]:
        shown: list[dict[str, Any]] = self.send(packets.Inspect(1, "builds")).value
        return shown

    def idle(self) -> None:
        for _ in range(10_000):
            replies, more = self.worker.idle(5)
            self.replies += [r.body for r in replies]
            if not more:
                return
        raise AssertionError("the build does not end")

    def all_of(self, view: str, *keys: tuple[Any, ...]) -> Counter[tuple[Any, ...]]:
        reply = self.send(packets.Read(2**42, view, list(keys) or [()]))
        assert reply.error is None, reply.error
        return Counter(tuple(r.values())[:-1] for r in reply.rows.to_pylist())
