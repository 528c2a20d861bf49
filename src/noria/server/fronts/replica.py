"""A front end's knowledge of the program: how to answer the statements that it was taught.  Pure.

Keeps true: it answers as the controller would, under the version and with the views that it was told of.  It forgets
statements of another version, or of a dropped view.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from weakref import WeakSet

from noria.dataflow.messages.packets import Own
from noria.runtime.routing.key_routing import KeyRoutes
from noria.runtime.transactions.own_writes import has_heard
from noria.server.answering.hits import Known
from noria.server.answering.kept import Kept


class Replica:
    """Taught statements.  version: the program's, also compared with kept replies; workers: how many there are.

    heard: for a worker and a peer, the number of the peer's last message that it has processed
    (`runtime/worker/frontier.py`).
    """

    def __init__(self, version: int, workers: int, heard: Callable[[int, int], int] = lambda worker, writer: 0):
        self.version, self.routes, self._heard = version, KeyRoutes(workers), heard
        self._by_shape: Kept[Known] = Kept()
        self._of_reader: dict[str, WeakSet[Known]] = {}
        self._seen: dict[tuple[str, int], dict[int, int]] = {}  # by view and worker, up to which of whose writes

    def known(self, shape: str) -> Known | None:
        """The statement that answers texts of this shape, or None."""
        return self.valid(self._by_shape.get(shape))

    def valid(self, known: Known | None) -> Known | None:
        return known if known is not None and known.version == self.version and known.reader is not None else None

    def learn(self, known: Known, shape: str | None = None) -> None:
        """Remember a statement.  shape: of the texts that it answers; None: a prepared statement."""
        if self.valid(known) is None or known.reader is None:
            return
        if known.route is not None:
            self.routes.learn((known.route,))
        self._of_reader.setdefault(known.reader.name, WeakSet()).add(known)
        if shape is not None:
            self._by_shape.put(shape, known)

    def changed(self, version: int) -> None:
        """Forget everything: the program has another version."""
        self.version, self._by_shape = version, Kept()
        self._of_reader.clear()
        self._seen.clear()

    def forget(self, view: str) -> None:
        """Forget statements of a view whose reader was dropped or replaced."""
        for known in self._of_reader.pop(view, ()):
            known.reader = None
        self.routes.forget(view)
        for place in [p for p in self._seen if p[0] == view]:
            del self._seen[place]

    # ------------------------------------------------------------ a session's own writes
    def has(self, worker: int, view: str, writes: Own) -> bool:
        """As `Link.has`, as far as the controller or the workers have reported."""
        depth = self.routes.depth_of(view)
        seen = self._seen.get((view, worker), {})
        return not depth or all(
            seen.get(w, 0) >= number
            or (depth == 1 and (w == worker or has_heard(worker, told, partial(self._heard, worker, w))))
            for w, (number, told) in writes.items())

    def saw(self, view: str, worker: int, writes: Own) -> None:
        """Note that the view's part on the worker has these writes."""
        seen = self._seen.setdefault((view, worker), {})
        for w, (number, _) in writes.items():
            seen[w] = max(seen.get(w, 0), number)
