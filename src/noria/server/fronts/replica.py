"""A front end's copy of the program: the statements that the controller sent with its replies.  Pure.

Keeps true: a statement is used only under the program's version in which it was parsed, and only while its view exists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from weakref import WeakSet

from noria.dataflow.messages.packets import SessionWrites
from noria.runtime.routing.key_routing import KeyRoutes
from noria.runtime.transactions.read_your_writes import has_received
from noria.server.answering.bounded_cache import BoundedCache
from noria.server.answering.hits import KnownSelect
from noria.sql.text.databases import HOME, namespace_of, unknown_database


class Replica:
    """The statements, by shape.  version: the program's, also compared with kept replies.

    databases: their folded names; the first is that of clients that name none.

    frontier: returns, for a worker and a peer, the number of the peer's last message that the worker has processed
    (`runtime/worker/frontier.py`).
    """

    def __init__(self, version: int, workers: int, frontier: Callable[[int, int], int] = lambda worker, writer: 0,
                 databases: Sequence[str] = (HOME,)):
        self.version, self.routes, self._frontier = version, KeyRoutes(workers), frontier
        self.databases = databases
        self._by_shape: BoundedCache[KnownSelect] = BoundedCache()
        self._of_reader: dict[str, WeakSet[KnownSelect]] = {}
        self._seen: dict[tuple[str, int], dict[int, int]] = {}  # by view and worker: the last seen write of each worker

    def known(self, shape: str) -> KnownSelect | None:
        """Return the valid statement for texts of this shape, or None."""
        return self.valid(self._by_shape.get(shape))

    def valid(self, known: KnownSelect | None) -> KnownSelect | None:
        """Return the statement if it is of the current version and its view exists, else None."""
        return known if known is not None and known.version == self.version and known.reader is not None else None

    def learn(self, known: KnownSelect, shape: str | None = None) -> None:
        """Keep a statement.  shape: the shape of its texts; None for a prepared statement."""
        if self.valid(known) is None or known.reader is None:
            return
        if known.route is not None:
            self.routes.learn((known.route,))
        self._of_reader.setdefault(known.reader.name, WeakSet()).add(known)
        if shape is not None:
            self._by_shape.put(shape, known)

    def changed(self, version: int, databases: Sequence[str] = (HOME,)) -> None:
        """Forget all statements, because the program has another version."""
        self.version, self._by_shape, self.databases = version, BoundedCache(), databases
        self._of_reader.clear()
        self._seen.clear()

    def forget(self, view: str) -> None:
        """Forget statements of a view whose reader was dropped or replaced."""
        for known in self._of_reader.pop(view, ()):
            known.reader = None
        self.routes.forget(view)
        for place in [p for p in self._seen if p[0] == view]:
            del self._seen[place]

    def namespace(self, database: str) -> str:
        """The namespace of a client's first database; "": it names none.  Raises error 1049."""
        if database and database.lower() not in self.databases[1:]:
            raise unknown_database(database)
        return namespace_of(database or self.databases[0])

    # ------------------------------------------------------------ a session's own writes
    def has(self, worker: int, view: str, writes: SessionWrites) -> bool:
        """As `Link.has`: True only if the controller or the frontier has reported it."""
        depth = self.routes.depth_of(view)
        seen = self._seen.get((view, worker), {})
        return not depth or all(
            seen.get(w, 0) >= number
            or (depth == 1 and (w == worker or has_received(worker, messages, partial(self._frontier, worker, w))))
            for w, (number, messages) in writes.items())

    def saw(self, view: str, worker: int, writes: SessionWrites) -> None:
        """Note that the view's shard on the worker has these writes."""
        seen = self._seen.setdefault((view, worker), {})
        for w, (number, _) in writes.items():
            seen[w] = max(seen.get(w, 0), number)
