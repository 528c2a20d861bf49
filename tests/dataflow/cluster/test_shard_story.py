"""The talk's case, message by message: a key whose rows come from two workers, while they are written and evicted.

Worker 2 has the view's key; its rows are votes at workers 0 and 1.  The end of the exchange is the talk's shard merger,
and the answers of the workers are its pockets.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from dataflow.simulator import Cluster, ShardRig
from noria.core.batch import Batch, Codes
from noria.core.plain_symbols import PlainSymbols
from noria.core.types import INT, Column, TableDef
from noria.dataflow.graph.eviction import evict
from noria.plan import mir
from noria.plan.view import ViewDef
from reference.table_views import TableViews

VOTES = TableDef("votes", (Column("id", INT, nullable=False), Column("story", INT)), (0,), table_id=1)
STORIES = TableDef("stories", (Column("number", INT, nullable=False), Column("story", INT)), (0,), table_id=2)
WORKERS = 3


class Story(Cluster):
    """A cluster whose messages are delivered one by one."""

    def __init__(self, plan: mir.Mir):
        self.view = ViewDef("v", plan, (1,), plan.width)
        super().__init__([VOTES, STORIES], [self.view], WORKERS, random.Random(1), TableViews, PlainSymbols)
        self.drain()
        self.key = next(k for k in range(100) if self.owner(self.view, self.rigs[0], np.array([[k]])) == 2)
        self.ids = {w: [i for i in range(200) if self.home("votes", (i, 0)) == w] for w in range(WORKERS)}
        self.answers: list[list[int]] = []

    def reader(self) -> ShardRig:
        return self.rigs[2]

    def read_key(self) -> None:
        self.read(self.view, self.reader(), np.array([[self.key]]), self._answered)

    def _answered(self, rows: Batch, ordinal: Codes) -> None:
        self.answers.append(sorted(np.repeat(rows.columns[0], rows.weights).tolist()))

    def vote(self, worker: int, n: int, table: str = "votes") -> int:
        """Insert the n-th vote for the key that is stored on the worker. Returns its id."""
        number = self.ids[worker][n]
        self.insert(table, (number, self.key))
        return number

    def message(self, sender: int, to: int) -> str:
        """Deliver the next message of a channel. Returns its class."""
        kept = {c: messages.copy() for c, messages in self.channels.items()}
        kind = type(kept[sender, to].popleft()).__name__
        for c, messages in self.channels.items():
            if c != (sender, to):
                messages.clear()
        first = self.channels[sender, to].popleft()
        rest = self.channels[sender, to].copy()
        self.channels[sender, to].clear()
        self.channels[sender, to].append(first)
        for c in kept:
            kept[c] = rest if c == (sender, to) else kept[c]
        self.deliver()
        for c, messages in kept.items():  # earlier messages precede those that the delivery sent
            self.channels[c].extendleft(reversed(messages))
        return kind


@pytest.fixture
def story() -> Story:
    return Story(mir.Base(VOTES))


def test_writes_while_the_answers_arrive(story: Story) -> None:
    """An answer of one worker; a write of another one, whose answer will have it; a write of the first, which is added
    to its answer; then the other answer."""
    first, second = story.vote(0, 0), story.vote(1, 0)
    story.drain()
    story.read_key()
    assert story.message(2, 0) == "RowsRequest"
    assert story.message(0, 2) == "RowsReply"
    late = story.vote(1, 1)
    assert story.message(1, 2) == "ExchangeDelta"
    joins = story.vote(0, 1)
    assert story.message(0, 2) == "ExchangeDelta"
    assert story.answers == []
    assert story.message(2, 1) == "RowsRequest"
    assert story.message(1, 2) == "RowsReply"
    assert story.answers == [sorted([first, second, late, joins])]
    story.validate()


def test_a_key_that_is_evicted_at_one_side_of_a_union_only() -> None:
    """A union over two mergers answers when both have all their answers, even if one of them still has the key."""
    story = Story(mir.UnionAll(mir.Distinct(mir.Base(VOTES)), mir.Distinct(mir.Base(STORIES))))
    one, two = story.vote(0, 0), story.vote(1, 0, "stories")
    story.drain()
    story.read_key()
    story.drain()
    assert story.answers == [sorted([one, two])]
    left = next(n for n in story.rigs[0].engine.graph.nodes if n.op.describe() == "distinct" and n.parents[0].fields
                == VOTES.fields)
    evict(story.rigs[0].engine, left, (1,), np.array([[story.key]]))
    third = story.vote(0, 1)  # dropped where the key is missing
    assert story.message(0, 2) == "EvictedKeys"
    story.read_key()
    assert story.answers == [sorted([one, two])]
    fourth = story.vote(1, 1, "stories")
    story.drain()
    assert story.answers[1:] == [sorted([one, two, third, fourth])]
    story.validate()


def test_an_eviction_voids_an_answer() -> None:
    """A worker that has answered evicts the key of its answer before the others have answered."""
    story = Story(mir.Distinct(mir.Base(VOTES)))
    first = story.vote(0, 0)
    story.vote(1, 0)
    story.drain()
    story.read_key()
    assert story.message(2, 0) == "RowsRequest"
    assert story.message(0, 2) == "RowsReply"
    state = next(n for n in story.rigs[0].engine.graph.nodes if n.op.describe() == "distinct")
    evict(story.rigs[0].engine, state, (1,), np.array([[story.key]]))
    story.vote(0, 1)
    assert story.message(0, 2) == "EvictedKeys"
    assert story.answers == []
    story.drain()
    assert story.answers == [sorted([first, story.ids[1][0], story.ids[0][1]])]
    story.validate()
