"""A worker's channels to the others: what came from them becomes ticks and answers, and what is for them is collected.

Keeps true: messages of one worker are handled in the order in which it sent them; neighbouring updates are one tick,
anything else is handled alone (rule R1).  A message of a later version of the program waits, with all that follow it
from the same worker, until this one has that version (DESIGN section 7); one for a node that is gone is dropped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from noria.core.batch import Batch, concat
from noria.dataflow.cluster.exchanges import Shards
from noria.dataflow.cluster.frontier import exchanges_above
from noria.dataflow.cluster.remote_scan import Elsewhere
from noria.dataflow.engine.engine import Engine
from noria.dataflow.graph.nodes import Node
from noria.dataflow.messages.packets import (
    AddView,
    Between,
    DropView,
    Envelope,
    Migrate,
    Migrated,
    MigrationStep,
    RenameView,
)
from noria.dataflow.messages.peer_messages import (
    Answer,
    Broke,
    Evict,
    Found,
    Keep,
    Loaded,
    LookUp,
    Lost,
    Mark,
    Marked,
    Message,
    More,
    Piece,
    Request,
    Update,
)

NOBODY = 0  # asked: an answer to nobody


class Peers:
    """version: of the program that this worker has; sent: messages to others so far, which are
    numbered through all lives of a worker."""

    def __init__(self, engine: Engine, epoch: int, worker: int, workers: int, incarnation: int):
        self.version = self.sent = 0
        self._engine, self._epoch, self._worker = engine, epoch, worker
        self._outbox: list[tuple[int, Envelope]] = []
        self.ahead: defaultdict[int, list[tuple[int, Between]]] = defaultdict(list)  # with their numbers
        self._life = incarnation << 40
        self._last = {w: self._life for w in range(workers) if w != worker}  # by worker: the last message to it
        self._heard = [0] * workers
        self.shards = engine.shards = Shards(engine, worker, workers, self._send, incarnation)
        self.elsewhere = Elsewhere(engine, worker, workers, self._send, self._life)

    def _send(self, to: int, message: Message) -> None:
        self.sent += 1
        self._last[to] = number = self._life + self.sent
        self._outbox.append((to, Envelope(self._epoch, self._worker, number, Between(message, self.version))))

    def outgoing(self) -> list[tuple[int, Envelope]]:
        """What is to be sent, to whom, in order; it is not told again."""
        sent, self._outbox = self._outbox, []
        return sent

    def told(self, sent: int) -> tuple[tuple[int, int], ...]:
        """Which workers have got messages since so many were sent, and the number of the last to each; -1: all."""
        return tuple((w, max(last, self._life + 1)) for w, last in self._last.items() if last > self._life + sent)

    def heard(self) -> tuple[int, ...]:
        """By worker, up to which of its messages all that came of them is in the states here; zeros while rows of a
        lost one are not."""
        return tuple(self._heard) if self.shards.lost_nothing() else (0,) * len(self._heard)

    def take(self, envelopes: Sequence[Envelope]) -> None:
        """Messages of other workers, in order of arrival."""
        self._handle([(e.sender, e.seq, e.body) for e in envelopes if isinstance(e.body, Between)])

    def reached(self, version: int) -> None:
        """The program is of this version here."""
        self.version = version
        waited, self.ahead = self.ahead, defaultdict(list)
        self._handle([(sender, number, b) for sender, bodies in waited.items() for number, b in bodies])

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

    def number_from(self, first: int) -> int:
        """The number of the next node of the graph.  first: it is this (0: as it was); a node that has it already was
        made by this very change, which was sent again."""
        graph = self._engine.graph
        if all(n.id < first for n in graph.nodes):
            graph.next_id = first or graph.next_id
        return graph.next_id

    def _handle(self, messages: Sequence[tuple[int, int, Between]]) -> None:
        arrived: dict[Node, list[Batch]] = {}
        for sender, number, body in messages:
            if isinstance(body.message, Lost):
                self.ahead.pop(sender, None)  # of another life of it
            if body.version > self.version or sender in self.ahead:
                self.ahead[sender].append((number, body))
                continue
            self._heard[sender] = max(number, self._heard[sender])
            if isinstance(body.message, Update):
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
            self.shards.giving.serve(sender, message)
        elif isinstance(message, Answer):
            self.shards.answered(message)
        elif isinstance(message, Piece):
            self.shards.piece(sender, message)
        elif isinstance(message, More):
            self.shards.giving.more(sender, message)
        elif isinstance(message, Evict):
            self.shards.evicted(sender, message)
        elif isinstance(message, LookUp):
            self.elsewhere.serve(sender, message)
        elif isinstance(message, Found):
            self.elsewhere.found(message)
        elif isinstance(message, Mark):
            self.shards.marks.asked(sender, message)
        elif isinstance(message, Marked):
            self.shards.marks.answered(sender, message)
        elif isinstance(message, Lost):
            self.shards.lost(sender)
            self.elsewhere.lost(sender)
            self._send(sender, Marked(NOBODY))  # so it learns how far what it was sent goes
        elif isinstance(message, Loaded):
            self.shards.loaded(sender, message.table)
        elif isinstance(message, Broke):
            self.shards.broken(sender, message)
        elif isinstance(message, Keep):
            self.shards.kept_for(sender, message.keep)


def routed(peers: Peers | None, body: Migrate, migrate: Callable[[], Migrated]) -> Migrated:
    """What became of a change of the program, with where the views are that it names.  Nodes have the same numbers at
    all workers, also after one could not follow."""
    if peers is None:
        return migrate()
    first = peers.number_from(body.first_node)
    return replace(migrate(), routes=tuple(peers.routes(body.steps)), first_node=first)


def _views(step: MigrationStep) -> tuple[str, ...]:
    match step:
        case AddView(view):
            return (view.name,)
        case DropView(view):
            return (view,)
        case RenameView(view, name):
            return view, name
    return ()
