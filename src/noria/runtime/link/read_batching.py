"""Batches reads of single keys: reads that arrive while others are under way leave together in one packet, as in a
group commit. Call `ReadBatcher.add`.

This pays where a packet costs much compared with its content: towards another host, be it a worker or the
controller of a front end (`server/fronts/far_lookups.py`). There is no timer: if fewer than `READ_PACKETS` are under
way, a read leaves in the same turn of the loop.

Keeps true: each read keeps its own number, so it is cancelled, blamed and retried like any other. When the
other end is lost, the packets under way are over.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from noria.core.limits import READ_PACKETS, READS_TOGETHER
from noria.dataflow.messages.packets import Read, ReadMany, ReadManyReply, Rows, SameViewReads
from noria.runtime.link.change_queue import PendingReplies


class BatchRows:
    """The rows of many keys, in the order of their keys."""

    def __init__(self, rows: pa.Table, keys: int):
        ordinals = rows.column(rows.num_columns - 1).to_numpy()
        order = np.argsort(ordinals, kind="stable")
        self.table = rows if (order[:-1] < order[1:]).all() else rows.take(pa.array(order))
        self.starts: list[int] = np.searchsorted(ordinals[order], np.arange(keys + 1)).tolist()
        self._made: list[Any] | None = None

    def made(self, make: Callable[[pa.Table], list[Any]]) -> list[Any]:
        """Convert all rows once, for all who need some of them."""
        if self._made is None:
            self._made = make(self.table)
        return self._made


class KeyRows:
    """The rows of one key within a `BatchRows`."""

    def __init__(self, batch: BatchRows, at: int):
        self.batch = batch
        self._start, self._stop = batch.starts[at:at + 2]

    def of(self, made: list[Any]) -> list[Any]:
        return made[self._start:self._stop]

    def table(self) -> pa.Table:
        return self.batch.table.slice(self._start, self._stop - self._start)


Question = TypeVar("Question")
Packed = TypeVar("Packed")


class BatchQueue(Generic[Question, Packed]):
    """The waiting questions, and the packets under way by number.

    `send`: sends a packet. Returns its number and the data needed for its answer; None if nobody waits for these
    questions any more.
    """

    def __init__(self, send: Callable[[list[Question]], tuple[int, Packed] | None]) -> None:
        self._send = send
        self._waiting: deque[Question] = deque()
        self._flying: dict[int, Packed] = {}
        self._soon = False

    def add(self, question: Question) -> None:
        """Queue a question; it leaves with the others of this turn of the loop, if a packet may leave."""
        self._waiting.append(question)
        if not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_soon(self._leave)

    def _leave(self) -> None:
        self._soon = False
        while self._waiting and len(self._flying) < READ_PACKETS:
            some = [self._waiting.popleft() for _ in range(min(len(self._waiting), READS_TOGETHER))]
            if (sent := self._send(some)) is not None:
                self._flying[sent[0]] = sent[1]

    def landed(self, number: int) -> Packed | None:
        """Remove and return the data of an answered packet, so that another may leave. None if it is not under way."""
        packed = self._flying.pop(number, None)
        if packed is not None and not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_soon(self._leave)
        return packed

    def under_way(self) -> list[Packed]:
        """The data of the packets under way."""
        return list(self._flying.values())

    def clear(self) -> list[Question]:
        """Drop everything because the other end is lost. Returns the questions that had not left."""
        waiting = list(self._waiting)
        self._waiting.clear()
        self._flying.clear()
        return waiting


class ReadBatcher:
    """The batched reads of one worker's link. `send`: sends a packet at once."""

    def __init__(self, book: PendingReplies, send: Callable[[ReadMany], None]):
        self._book, self._send = book, send
        self._queue = BatchQueue[Read, ReadMany](self._sent)
        self.add, self.clear = self._queue.add, self._queue.clear

    def _sent(self, some: list[Read]) -> tuple[int, ReadMany] | None:
        alike: defaultdict[tuple[str, int, int], list[Read]] = defaultdict(list)
        for read in some:
            if read.request in self._book.questions:  # else its caller was cancelled
                alike[read.view, read.definition, read.limit_ms].append(read)
        if not alike:
            return None
        body = ReadMany(self._book.number(), tuple(
            SameViewReads(*kind, tuple(r.request for r in reads), tuple(r.keys[0] for r in reads))
            for kind, reads in alike.items()))
        self._send(body)
        return body.request, body

    def deliver(self, reply: ReadManyReply) -> bool:
        """Deliver an answer to its callers. False if nobody waits for it."""
        body = self._queue.landed(reply.request)
        if body is None:
            return False
        if reply.error is not None:
            for alike in body.alike:
                for number in alike.requests:
                    self._book.deliver(Rows(number, None, reply.error))
        for numbers, rows in reply.parts:
            batch = BatchRows(rows, len(numbers))
            for at, number in enumerate(numbers):
                self._book.deliver(Rows(number, KeyRows(batch, at)))
        return True
