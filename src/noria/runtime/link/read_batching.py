"""Reads of single keys that go to a worker together: what is asked while others are under way waits for one of them,
and leaves in one packet, as writes do in a group commit.

Worth it where a packet costs much beside what it asks, so for what is on another host: a worker, or the controller of
a front end (`server/fronts/looks.py`).  There is no timer: a read that
finds fewer than `READ_PACKETS` under way leaves in the same turn of the loop.

Keeps true: each read of a worker is known by its own number throughout, so it is cancelled, blamed and asked again as
any other; what is under way when the other end is lost is over.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from noria.core.limits import READ_PACKETS, READS_TOGETHER
from noria.dataflow.messages.packets import Alike, Found, Read, ReadMany, Rows
from noria.runtime.link.changes import ReplyBook


class Whole:
    """The rows of many keys, in the order of their keys."""

    def __init__(self, rows: pa.Table, keys: int):
        ordinals = rows.column(rows.num_columns - 1).to_numpy()
        order = np.argsort(ordinals, kind="stable")
        self.table = rows if (order[:-1] < order[1:]).all() else rows.take(pa.array(order))
        self.starts: list[int] = np.searchsorted(ordinals[order], np.arange(keys + 1)).tolist()
        self._made: list[Any] | None = None

    def made(self, make: Callable[[pa.Table], list[Any]]) -> list[Any]:
        """What is made of all rows, once for all who want some."""
        if self._made is None:
            self._made = make(self.table)
        return self._made


class Part:
    """The rows of one key among them."""

    def __init__(self, whole: Whole, at: int):
        self.whole = whole
        self._start, self._stop = whole.starts[at:at + 2]

    def of(self, made: list[Any]) -> list[Any]:
        return made[self._start:self._stop]

    def table(self) -> pa.Table:
        return self.whole.table.slice(self._start, self._stop - self._start)


Asked = TypeVar("Asked")
Packed = TypeVar("Packed")


class Gathering(ABC, Generic[Asked, Packed]):
    """What is asked, and the packets that are under way with some of it, by number."""

    def __init__(self) -> None:
        self._waiting: deque[Asked] = deque()
        self._flying: dict[int, Packed] = {}
        self._soon = False

    def add(self, asked: Asked) -> None:
        """It leaves with what else is asked in this turn of the loop, if it may."""
        self._waiting.append(asked)
        if not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_soon(self._leave)

    def _leave(self) -> None:
        self._soon = False
        while self._waiting and len(self._flying) < READ_PACKETS:
            some = [self._waiting.popleft() for _ in range(min(len(self._waiting), READS_TOGETHER))]
            if (sent := self._sent(some)) is not None:
                self._flying[sent[0]] = sent[1]

    @abstractmethod
    def _sent(self, some: list[Asked]) -> tuple[int, Packed] | None:
        """Send a packet; its number, and what is to be known when it is answered.  None where nobody asks any more."""

    def landed(self, number: int) -> Packed | None:
        """What was to be known of a packet that is answered, in whose place another one may leave; None for one that
        is not under way."""
        packed = self._flying.pop(number, None)
        if packed is not None and not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_soon(self._leave)
        return packed

    def clear(self) -> list[Asked]:
        """Nobody is there to ask: what was under way is over; what waited."""
        waiting = list(self._waiting)
        self._waiting.clear()
        self._flying.clear()
        return waiting


class Together(Gathering[Read, ReadMany]):
    """Of one worker's link.  send: a packet, at once."""

    def __init__(self, book: ReplyBook, send: Callable[[ReadMany], None]):
        super().__init__()
        self._book, self._send = book, send

    def _sent(self, some: list[Read]) -> tuple[int, ReadMany] | None:
        alike: defaultdict[tuple[str, int, int], list[Read]] = defaultdict(list)
        for read in some:
            if read.request in self._book.asks:  # else whoever asked has gone
                alike[read.view, read.definition, read.limit_ms].append(read)
        if not alike:
            return None
        body = ReadMany(self._book.number(), tuple(
            Alike(*kind, tuple(r.request for r in reads), tuple(r.keys[0] for r in reads))
            for kind, reads in alike.items()))
        self._send(body)
        return body.request, body

    def take(self, found: Found) -> bool:
        """An answer; False where nobody waits for it."""
        body = self.landed(found.request)
        if body is None:
            return False
        if found.error is not None:
            for alike in body.alike:
                for number in alike.requests:
                    self._book.take(Rows(number, None, found.error))
        for numbers, rows in found.parts:
            whole = Whole(rows, len(numbers))
            for at, number in enumerate(numbers):
                self._book.take(Rows(number, Part(whole, at)))
        return True
