"""Gatherings of rows from other workers, and the requests that wait for them (used by `exchanges.py`).

Keeps true: waiting requests continue between ticks, oldest first among those that can. A request does not wait
for rows that will not arrive. `PendingRequests.waits_too_often` reports a request whose keys are evicted again and
again. The cost of a step does not depend on the number of waiting requests.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from noria.core.batch import Batch, Codes
from noria.core.errors import SqlError
from noria.core.symbols import Symbols
from noria.dataflow.graph.nodes import Columns, Node, RemoteRowsNeeded
from noria.dataflow.graph.partition import owners

Mask = npt.NDArray[np.bool_]
Held = Callable[[], Iterable[Codes]]
LOOKED_AT = 64  # waiting requests checked for cancellation at each step
MOST_WAITS = 16  # of a request, which waits once or twice at each of few exchanges; also the most voids of a gathering


@dataclass(eq=False)
class Gather:
    """One gathering: distinct missing keys of one index of an exchange, folded, of shape (key columns, keys).

    `requested`: the keys that each worker must send. `answered`: which of these it has sent; the rows are in
    `received`. `voids`: how often an eviction at the sender made an answer void before the others arrived. `error`: why
    the rows will not arrive. `then`: called when it is over.

    Without `cols` all rows are gathered, and chunks are added to the state on arrival. `lost`: then, for an
    existing full state, the workers whose rows in it may be stale.
    """

    node: Node
    cols: Columns
    keys: Codes
    requested: dict[int, Mask]
    answered: dict[int, Mask]
    received: defaultdict[int, list[Batch]] = field(default_factory=lambda: defaultdict(list))
    lost: set[int] = field(default_factory=set)
    over: bool = False
    voids: int = 0
    error: SqlError | None = None
    then: list[Callable[[], None]] = field(default_factory=list)

    def held(self) -> Iterator[Codes]:
        """Every text id in use; other numbers may be among them."""
        yield from self.keys
        for rows in (rows for batches in self.received.values() for rows in batches):
            yield from rows.columns

    def complete(self) -> bool:
        """Whether all requested workers have answered."""
        return all((self.answered[w] >= mask).all() for w, mask in self.requested.items())


class AwaitedRows(Protocol):
    """A `Gather`, or another request that ends likewise."""

    over: bool
    then: list[Callable[[], None]]


def end(awaited: AwaitedRows) -> None:
    """End a gathering and call the functions that wait for it. Its error, if any, must be set before."""
    awaited.over = True
    for callback in awaited.then:
        callback()
    awaited.then = []


At = tuple[Gather, int]  # a key of a gathering, by its position


@dataclass(eq=False)
class _Index:
    """The gatherings of one index. `of`: for each key, the gathering that has it. Empty for gatherings of all
    rows, which may overlap."""

    gathers: dict[Gather, None] = field(default_factory=dict)
    of: dict[tuple[int, ...], At] = field(default_factory=dict)


class PendingGathers:
    """All gatherings under way, in one order. No key of an index is in two of them, so the cost of an update or a
    read depends on its own keys only."""

    def __init__(self) -> None:
        self._at: defaultdict[Node, dict[Columns, _Index]] = defaultdict(dict)

    def __iter__(self) -> Iterator[Gather]:
        return (g for indexes in self._at.values() for index in indexes.values() for g in index.gathers)

    def __bool__(self) -> bool:
        return bool(self._at)

    def add(self, g: Gather) -> None:
        index = self._at[g.node].setdefault(g.cols, _Index())
        index.gathers[g] = None
        index.of.update((key, (g, i)) for i, key in enumerate(_tuples(g.keys)))

    def remove(self, g: Gather) -> None:
        index = self._at[g.node][g.cols]
        del index.gathers[g]
        for key in _tuples(g.keys):
            del index.of[key]
        if not index.gathers:
            del self._at[g.node][g.cols]
        if not self._at[g.node]:
            del self._at[g.node]

    def of(self, node: Node, cols: Columns) -> list[Gather]:
        at = self._at.get(node, {}).get(cols)
        return [] if at is None else list(at.gathers)

    def of_all_rows(self) -> list[Gather]:
        return [g for node in self._at for g in self.of(node, ())]

    def indexes(self, node: Node) -> list[Columns]:
        """The indexes of the node whose keys are being gathered."""
        return [cols for cols in self._at.get(node, ()) if cols]

    def find(self, node: Node, cols: Columns, keys: Codes) -> list[At | None]:
        """For each folded key, its gathering and its position there, or None."""
        index = self._at.get(node, {}).get(cols)
        if index is None:
            return [None] * keys.shape[1]
        return [(next(iter(index.gathers)), 0)] * keys.shape[1] if not cols else [*map(index.of.get, _tuples(keys))]


def _tuples(keys: Codes) -> Iterator[tuple[int, ...]]:
    """Keys as tuples; empty if there are no columns."""
    return zip(*keys.tolist(), strict=True)


@dataclass(frozen=True)
class GatherRequest:
    """A request to one worker for some keys of a gathering."""

    gather: Gather
    worker: int
    keys: Mask


def nothing() -> Iterable[Codes]:
    return ()


@dataclass(frozen=True)
class _ParkedRequest:
    """A function that continues a request between ticks. `requester`: the worker it serves. `whose`: identifies the
    request. `held`: its text ids; other numbers may be among them."""

    run: Callable[[], None]
    requester: int
    whose: Hashable
    held: Held


class PendingRequests:
    """All waiting requests, numbered in order of arrival. The end of a gathering wakes the requests that wait for
    it; the few others are polled at each step."""

    def __init__(self) -> None:
        self._parked: dict[int, _ParkedRequest] = {}
        self._last = 0
        self._polled: dict[int, Callable[[], bool]] = {}  # those that are polled
        self._can: list[int] = []  # a heap of those that can continue
        self._cancellable: deque[tuple[int, Callable[[], bool]]] = deque()  # those that may be cancelled
        self._waits: Counter[Hashable] = Counter()  # how often each request has waited until now
        self._too_often: set[Hashable] = set()  # those that have waited too often

    def __bool__(self) -> bool:
        return bool(self._parked)

    def wait(self, remote: RemoteRowsNeeded, whose: Hashable, run: Callable[[], None], fail: Callable[[SqlError], None],
             requester: int = -1, cancelled: Callable[[], bool] | None = None, held: Held = nothing) -> None:
        """Call `run`, between ticks, when the missing rows have arrived, or `fail` if they will not arrive.

        `run` is also called if the request is cancelled, some steps later if many wait. `whose`: identifies the
        request each time it waits. `held`: its text ids.
        """
        def error() -> SqlError | None:
            return next((g.error for g in remote.gathers if g.error is not None), None)

        def resume() -> None:
            before = self._waits[whose]
            if (wrong := error()) is None:
                run()
            else:
                fail(wrong)
            if self._waits[whose] == before:  # the request does not wait again
                self._forget(whose)

        def wake() -> None:
            if error() is not None or all(g.over for g in remote.gathers):
                heapq.heappush(self._can, number)

        self._waits[whose] += 1
        if self._waits[whose] > MOST_WAITS:
            self._too_often.add(whose)
        number = self._park(resume, requester, whose, held)
        for g in remote.gathers:
            if not g.over:
                g.then.append(wake)
        if cancelled is not None:
            self._cancellable.append((number, cancelled))
        wake()

    def waits_too_often(self) -> bool:
        """Whether a request has waited more than MOST_WAITS times: its keys are evicted before all of them have
        arrived."""
        return bool(self._too_often)

    def _forget(self, whose: Hashable) -> None:
        self._waits.pop(whose, None)
        self._too_often.discard(whose)

    def park(self, ready: Callable[[], bool], run: Callable[[], None], requester: int = -1, whose: Hashable = None,
             held: Held = nothing) -> None:
        """Call `run`, between ticks, when `ready` returns True. `requester`: the worker it serves. `held`: the text
        ids of `run`."""
        self._polled[self._park(run, requester, whose, held)] = ready

    def _park(self, run: Callable[[], None], requester: int, whose: Hashable, held: Held) -> int:
        self._last += 1
        self._parked[self._last] = _ParkedRequest(run, requester, whose, held)
        return self._last

    def held(self) -> Iterator[Codes]:
        """Every text id of waiting requests; other numbers may be among them."""
        for p in self._parked.values():
            yield from p.held()

    def requesters(self) -> Iterator[int]:
        return (p.requester for p in self._parked.values())

    def lost(self, worker: int) -> None:
        """Drop the requests of a lost worker."""
        for number, p in list(self._parked.items()):
            if p.requester == worker:
                self._remove(number)
                self._forget(p.whose)

    def run_ready(self) -> None:
        """Run every request that can continue."""
        self._check_cancelled()
        while (number := self._next()) is not None:
            self._remove(number).run()

    def _remove(self, number: int) -> _ParkedRequest:
        self._polled.pop(number, None)
        return self._parked.pop(number)

    def _next(self) -> int | None:
        """The number of the oldest request that can continue."""
        while self._can and self._can[0] not in self._parked:
            heapq.heappop(self._can)
        first = self._can[0] if self._can else self._last + 1
        polled = next((n for n, ready in self._polled.items() if n < first and ready()), first)
        return None if polled > self._last else polled

    def _check_cancelled(self) -> None:
        """Check some of the requests, in turn, for cancellation."""
        for _ in range(min(len(self._cancellable), LOOKED_AT)):
            number, cancelled = self._cancellable.popleft()
            if number not in self._parked:
                continue
            if cancelled():
                heapq.heappush(self._can, number)
            else:
                self._cancellable.append((number, cancelled))


def workers_of(symbols: Symbols, workers: int, node: Node, cols: Columns, keys: Codes) -> dict[int, Mask]:
    """Which workers have rows of which missing keys of an exchange: one worker per key if the key determines it
    (narrow), otherwise all (broad: R3)."""
    if node.all_remote:
        return {}
    (parent,) = node.parents
    part = next((p for p in parent.parts if set(p) <= set(cols)), None)
    if part is None:
        return {w: np.ones(keys.shape[1], np.bool_) for w in range(workers)}
    some = keys[[cols.index(c) for c in part]]
    whose = owners(some, [parent.fields[c] for c in part], workers, symbols) if part else (
        np.zeros(keys.shape[1], np.int64))
    return {w: whose == w for w in range(workers) if (whose == w).any()}
