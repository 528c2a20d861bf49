"""A worker's channels to the others: what came from them becomes ticks and answers, and what is for them is collected.

Keeps true: messages of one worker are handled in the order in which it sent them; neighbouring updates are one tick,
anything else is handled alone (rule R1).  A message of a later version of the program waits, with all that follow it
from the same worker, until this one has that version (DESIGN section 7); one for a node that is gone is dropped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from noria.core.batch import Batch, concat
from noria.dataflow.between import Answer, Evict, Loaded, Lost, Mark, Marked, Message, Request, Update
from noria.dataflow.engine import Engine
from noria.dataflow.graph import Node
from noria.dataflow.marks import exchanges_above
from noria.dataflow.packets import (
    AddView,
    Between,
    DropView,
    Envelope,
    Migrate,
    Migrated,
    MigrationStep,
    RenameView,
)
from noria.dataflow.shards import Shards


class Peers:
    """version: of the program that this worker has; sent: messages to others so far."""

    def __init__(self, engine: Engine, epoch: int, worker: int, workers: int, incarnation: int):
        self.version = self.sent = 0
        self._engine, self._epoch, self._worker = engine, epoch, worker
        self._outbox: list[tuple[int, Envelope]] = []
        self._ahead: defaultdict[int, list[Between]] = defaultdict(list)
        self.shards = engine.shards = Shards(engine, worker, workers, self._send, incarnation)

    def _send(self, to: int, message: Message) -> None:
        self.sent += 1
        self._outbox.append((to, Envelope(self._epoch, self._worker, 0, Between(message, self.version))))

    def outgoing(self) -> list[tuple[int, Envelope]]:
        """What is to be sent, to whom, in order; it is not told again."""
        sent, self._outbox = self._outbox, []
        return sent

    def take(self, envelopes: Sequence[Envelope]) -> None:
        """Messages of other workers, in order of arrival."""
        self._handle([(e.sender, e.body) for e in envelopes if isinstance(e.body, Between)])

    def reached(self, version: int) -> None:
        """The program is of this version here."""
        self.version = version
        waited, self._ahead = self._ahead, defaultdict(list)
        self._handle([(sender, b) for sender, bodies in waited.items() for b in bodies])

    def stayed(self, version: int) -> None:
        """The program is of this version after all: so is what was sent on the way to another."""
        self.version = version
        self._outbox = [(to, replace(e, body=replace(e.body, version=version)) if isinstance(e.body, Between) else e)
                        for to, e in self._outbox]

    def routes(self, steps: Iterable[MigrationStep]) -> Iterator[tuple[str, tuple[int, ...], int]]:
        """Of the views that these steps name and that are there (`Migrated.routes`)."""
        named = [name for s in steps for name in _views(s)]
        for name in dict.fromkeys(named):
            if (node := self._engine.readers.get(name)) is not None:
                key = self._engine.reads[node]
                yield name, tuple(map(key.index, node.parts[0])), exchanges_above(node)

    def _handle(self, messages: Sequence[tuple[int, Between]]) -> None:
        arrived: dict[Node, list[Batch]] = {}
        for sender, body in messages:
            if isinstance(body.message, Lost):
                self._ahead.pop(sender, None)  # of another life of it
            if body.version > self.version or sender in self._ahead:
                self._ahead[sender].append(body)
            elif isinstance(body.message, Update):
                if (known := self.shards.arrived(sender, body.message)) is not None:
                    arrived.setdefault(known[0], []).append(known[1])
            else:
                self._tick(arrived)
                arrived = {}
                self._other(sender, body.message)
                self.shards.settle()
        self._tick(arrived)

    def _tick(self, arrived: dict[Node, list[Batch]]) -> None:
        if arrived:
            self._engine.tick({}, {n: concat(rows, n.width) for n, rows in arrived.items()})
            self.shards.settle()

    def _other(self, sender: int, message: Message) -> None:
        if isinstance(message, Request):
            self.shards.serve(sender, message)
        elif isinstance(message, Answer):
            self.shards.answered(message)
        elif isinstance(message, Evict):
            self.shards.evicted(sender, message)
        elif isinstance(message, Mark):
            self.shards.marks.asked(sender, message)
        elif isinstance(message, Marked):
            self.shards.marks.answered(sender, message)
        elif isinstance(message, Lost):
            self.shards.lost(sender)
        elif isinstance(message, Loaded):
            self.shards.loaded(sender, message.table)


def routed(peers: Peers | None, body: Migrate, reply: Migrated) -> Migrated:
    """What became of a change of the program, with where the views are that it names."""
    return reply if peers is None else replace(reply, routes=tuple(peers.routes(body.steps)))


def _views(step: MigrationStep) -> tuple[str, ...]:
    match step:
        case AddView(view):
            return (view.name,)
        case DropView(view):
            return (view,)
        case RenameView(view, name):
            return view, name
    return ()
