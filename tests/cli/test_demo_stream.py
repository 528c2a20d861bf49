"""The demo's follower of a feed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from noria.client.api import Changes
from noria.demo.streaming import FeedFollower

NOTHING = pa.RecordBatch.from_pylist([], pa.schema([]))


@dataclass(frozen=True)
class One(Changes):
    """One row that came."""

    number: int

    def __iter__(self) -> Iterator[tuple[int, tuple[Any, ...]]]:
        return iter([(1, (self.number,))])


class Slow(int):
    """A value of a row; while the rows are added up, another one comes before it is looked at."""

    meanwhile: threading.Thread | None = None

    def __hash__(self) -> int:
        thread, self.meanwhile = self.meanwhile, None
        if thread is not None:
            thread.start()
            thread.join(0.2)  # it waits for the sum to be whole
        return super().__hash__()


def test_rows_come_while_they_are_compared() -> None:
    follower, slow = FeedFollower(""), Slow(0)
    follower.rows.update({(slow,): 1, (1,): 1})
    coming = slow.meanwhile = threading.Thread(target=lambda: follower._told(One("rows", NOTHING, None, 2)))
    assert follower._sum() == {(0,): 1, (1,): 1}
    coming.join()
    assert follower.has(lambda: [(0,), (1,), (2,)])
