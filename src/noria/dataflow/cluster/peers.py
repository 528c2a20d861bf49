"""The channels of a worker to its peers: handles received messages by ticks and answers, and collects messages to send.

Keeps true: the messages of one worker are handled in the order in which it sent them. Adjacent updates become one
tick; every other message is handled alone (rule R1).

A message of a later program version waits until this worker has that version, and so do all later messages of its
sender (design/decisions.md, 7). A message for a dropped node is ignored.

Call `receive` with received messages, and send the messages of `outgoing` after each step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from noria.core.batch import Batch, concat
from noria.dataflow.cluster.exchanges import Exchanges
from noria.dataflow.cluster.frontier_requests import exchanges_above
from noria.dataflow.cluster.remote_scan import RemoteScan
from noria.dataflow.engine.engine import Engine
from noria.dataflow.graph.nodes import Node
from noria.dataflow.messages.packets import (
    AddView,
    DropView,
    Envelope,
    Migrate,
    Migrated,
    MigrationStep,
    PeerPacket,
    RenameView,
)
from noria.dataflow.messages.peer_messages import (
    EvictedKeys,
    ExchangeDelta,
    ExchangesBroken,
    HoldEviction,
    KeysToFill,
    Marker,
    MarkerReply,
    Message,
    MoreChunks,
    RowsChunk,
    RowsReply,
    RowsRequest,
    TableLoaded,
    TableLookup,
    TableLookupReply,
    WorkerRestarted,
)

NOBODY = 0  # the request number of a `MarkerReply` that answers no mark


class Peers:
    """This worker's end of all channels. `version`: of this worker's program. `sent`: the number of messages sent in
    this life; message numbers increase through all lives."""

    def __init__(self, engine: Engine, epoch: int, worker: int, workers: int, incarnation: int):
        self.version = self.sent = 0
        self._engine, self._epoch, self._worker = engine, epoch, worker
        self._outbox: list[tuple[int, Envelope]] = []
        self.ahead: defaultdict[int, list[tuple[int, PeerPacket]]] = defaultdict(list)  # with their numbers
        self._life = incarnation << 40
        self._last = {w: self._life for w in range(workers) if w != worker}  # by worker: the last message to it
        self._received = [0] * workers
        self.exchanges = engine.exchanges = Exchanges(engine, worker, workers, self._send, incarnation)
        self.remote_scan = RemoteScan(engine, worker, workers, self._send, self._life)

    def _send(self, to: int, message: Message) -> None:
        self.sent += 1
        self._last[to] = number = self._life + self.sent
        self._outbox.append((to, Envelope(self._epoch, self._worker, number, PeerPacket(message, self.version))))

    def outgoing(self) -> list[tuple[int, Envelope]]:
        """Return the messages to send, in order, with their receivers, and clear the outbox."""
        sent, self._outbox = self._outbox, []
        return sent

    def recipients(self, sent: int) -> tuple[tuple[int, int], ...]:
        """The workers to which messages were sent after the first `sent` ones, with the number of the last message to
        each. -1: all workers."""
        return tuple((w, max(last, self._life + 1)) for w, last in self._last.items() if last > self._life + sent)

    def frontier(self) -> tuple[int, ...]:
        """The frontier: for each peer, the number of the last message whose effects this worker's states have. Zeros
        while rows of a lost worker are missing."""
        return tuple(self._received) if self.exchanges.has_all_rows() else (0,) * len(self._received)

    def receive(self, envelopes: Sequence[Envelope]) -> None:
        """Handle messages of other workers, in order of arrival."""
        self._handle([(e.sender, e.seq, e.body) for e in envelopes if isinstance(e.body, PeerPacket)])

    def reached(self, version: int) -> None:
        """Set the program's version, and handle the messages that waited for it."""
        self.version = version
        waited, self.ahead = self.ahead, defaultdict(list)
        self._handle([(sender, number, b) for sender, bodies in waited.items() for number, b in bodies])

    def stayed(self, version: int) -> None:
        """Return to the program's former version after a failed change. Unsent messages are marked with it too."""
        self.version = version
        self._outbox = [(to, replace(e, body=replace(e.body, version=version)) if isinstance(e.body, PeerPacket) else e)
                        for to, e in self._outbox]

    def routes(self, steps: Iterable[MigrationStep]) -> Iterator[tuple[str, tuple[int, ...], int]]:
        """The routes (`Migrated.routes`) of the views that these steps name and that exist."""
        named = [name for s in steps for name in _views(s)]
        for name in dict.fromkeys(named):
            if (node := self._engine.readers.get(name)) is not None:
                key = self._engine.reads[node]
                yield name, tuple(map(key.index, node.parts[0])), exchanges_above(node)

    def number_from(self, first: int) -> int:
        """Set and return the number of the graph's next node. `first`: that number (0: unchanged). If a node has
        it already, this change was sent twice, and the number is not set."""
        graph = self._engine.graph
        if all(n.id < first for n in graph.nodes):
            graph.next_id = first or graph.next_id
        return graph.next_id

    def _handle(self, messages: Sequence[tuple[int, int, PeerPacket]]) -> None:
        arrived: dict[Node, list[Batch]] = {}
        for sender, number, body in messages:
            if isinstance(body.message, WorkerRestarted):
                self.ahead.pop(sender, None)  # sent in an earlier life of the sender
            if body.version > self.version or sender in self.ahead:
                self.ahead[sender].append((number, body))
                continue
            self._received[sender] = max(number, self._received[sender])
            if isinstance(body.message, ExchangeDelta):
                if (known := self.exchanges.arrived(sender, body.message)) is not None:
                    arrived.setdefault(known[0], []).append(known[1])
            else:
                self._tick(arrived)
                arrived = {}
                self._other(sender, body.message)
                self.exchanges.run_ready()
        self._tick(arrived)

    def _tick(self, arrived: dict[Node, list[Batch]]) -> None:
        if arrived:
            self._engine.tick({}, {n: concat(rows, n.width) for n, rows in arrived.items()})
            self.exchanges.run_ready()

    def _other(self, sender: int, message: Message) -> None:
        if isinstance(message, RowsRequest):
            self.exchanges.server.serve(sender, message)
        elif isinstance(message, RowsReply):
            self.exchanges.answered(message)
        elif isinstance(message, RowsChunk):
            self.exchanges.chunk_arrived(sender, message)
        elif isinstance(message, MoreChunks):
            self.exchanges.server.more(sender, message)
        elif isinstance(message, EvictedKeys):
            self.exchanges.evicted(sender, message)
        elif isinstance(message, TableLookup):
            self.remote_scan.serve(sender, message)
        elif isinstance(message, TableLookupReply):
            self.remote_scan.answered(message)
        elif isinstance(message, Marker):
            self.exchanges.marks.serve(sender, message)
        elif isinstance(message, MarkerReply):
            self.exchanges.marks.answered(sender, message)
        elif isinstance(message, WorkerRestarted):
            self.exchanges.peer_restarted(sender)
            self.remote_scan.lost(sender)
            self._send(sender, MarkerReply(NOBODY))  # so that its frontier advances to the last message sent to it
        elif isinstance(message, TableLoaded):
            self.exchanges.loaded(sender, message.table)
        elif isinstance(message, ExchangesBroken):
            self.exchanges.broken(sender, message)
        elif isinstance(message, HoldEviction):
            self.exchanges.hold_eviction(sender, message.hold)
        elif isinstance(message, KeysToFill):
            self.exchanges.found_keys.receive(message)


def routed(peers: Peers | None, body: Migrate, migrate: Callable[[], Migrated]) -> Migrated:
    """Run a change of the program and add the routes of its views to the reply.

    New nodes have the same numbers at all workers, even after a worker failed to apply an earlier change.
    """
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
