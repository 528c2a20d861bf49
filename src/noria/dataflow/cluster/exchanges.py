"""One worker among several: what it sends to the others, asks of them and holds back until they answer (section 6.2).

The rules R1 to R16 are the model's (DESIGN section 7).  Every message of a pair of workers is in one order: updates,
requests, answers, evictions.  A tick takes updates; every other message is handled alone, between ticks.

Keeps true, for each key that is gathered at an exchange (R4, R5):
* it is filled when every worker that was asked has given its piece
* an update from a worker that has given its piece joins it; one from a worker that has not is dropped, for the
  piece will contain it
* an eviction from a worker that has given its piece voids it and asks again

A request that misses rows of other workers ends with `Remote`; it is run again from the start when these are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from noria.core.batch import Batch, Codes, concat
from noria.core.errors import InvariantViolation, SqlError
from noria.dataflow.backfill.exchange_state import Counts
from noria.dataflow.cluster.exchange_server import Giving, Mine, Values, asks_by
from noria.dataflow.cluster.frontier import Marks
from noria.dataflow.cluster.pending import MOST_WAITS, Asked, Gather, Gathers, Mask, Waiting, asked_of, end
from noria.dataflow.engine import evict
from noria.dataflow.engine.lookups import LongLookup
from noria.dataflow.graph import layout
from noria.dataflow.graph.nodes import Columns, Node, Pattern, Remote, ancestors
from noria.dataflow.graph.partition import owners
from noria.dataflow.messages.peer_messages import (
    Answer,
    Broke,
    Evict,
    Keep,
    Loaded,
    Message,
    More,
    Piece,
    Request,
    Update,
)
from noria.dataflow.ops.exchange import Exchange
from noria.state import probe
from noria.state.netting import netted

if TYPE_CHECKING:
    from noria.dataflow.engine.engine import Engine

Send = Callable[[int, Message], None]
NO_KEY = np.empty((0, 1), np.int64)  # of no columns, the only one


class Shards:
    """workers: how many there are; worker: which this is.  send: puts a message last into the channel to a worker.
    incarnation: how often this worker was started; answers to what it asked in another life are none of its own."""

    def __init__(self, engine: Engine, worker: int, workers: int, send: Send, incarnation: int = 1):
        self.worker, self.workers = worker, workers
        self._engine, self._send = engine, send
        self._gathers = Gathers()
        self._asks: dict[int, Asked] = {}
        self._next_ask = incarnation << 40
        self.waiting = Waiting()
        self._values = Values(engine, workers)
        self.giving = Giving(engine, worker, self._values, send, self.waiting,
                             Mine(self._take, self._failed, self._piece))
        self._thin: list[Node] = []
        self._in_tick = False
        self._void_often: set[Gather] = set()  # of what is under way
        self.keeping: set[int] = set()  # for the requests of these nothing is evicted for want of memory
        others = [w for w in range(workers) if w != worker]
        self.marks = Marks(others, send, self.waiting.park, incarnation << 40, self.lost_nothing)

    # -------------------------------------------------------------- ticks
    @contextmanager
    def ticking(self) -> Iterator[None]:
        """A tick is under way."""
        self._in_tick = True
        try:
            yield
        finally:
            self._in_tick = False

    def split(self, node: Node, rows: Batch) -> Batch:
        """An exchange's input delta of this worker: what belongs to others is sent; the rest is returned."""
        whose = self._values.owners(node, rows.columns)
        for w in range(self.workers):
            if w != self.worker and len(mine := rows.where(whose == w)):
                self._send(w, Update(node.id, self._values.packed(mine, node.fields)))
        mine = rows.where(whose == self.worker)
        self.join(self.worker, node, mine)
        return Batch.empty(node.width) if self._stale_of(self.worker, node) else mine

    def arrived(self, sender: int, update: Update) -> tuple[Node, Batch] | None:
        """The rows of an update, for the next tick; None where its node is gone."""
        node = self._values.node(update.node)
        if node is None:
            return None
        rows = self._values.unpacked(update.rows, node.fields)
        self.join(sender, node, rows)
        if self._stale_of(sender, node):
            return node, Batch.empty(node.width)  # beside rows that the sender lost; what is gathered will have them
        return node, rows

    def _stale_of(self, worker: int, node: Node) -> bool:
        """Is a full state gathered again for what this worker lost or loaded?"""
        return any(worker in g.lost for g in self._gathers.of(node, ()))

    def join(self, sender: int, node: Node, rows: Batch) -> None:
        """Rows that come after the sender's piece join it."""
        for g in self._gathers.of(node, ()):
            if sender in g.answered and g.answered[sender].all():
                self._came(g, sender, rows)
        for cols in self._gathers.indexes(node):
            have = self._values.keys(node, cols, rows.columns[list(cols)])
            late: dict[Gather, list[int]] = {}
            for row, at in enumerate(self._gathers.find(node, cols, have)):
                if at is not None and sender in at[0].answered and at[0].answered[sender][at[1]]:
                    late.setdefault(at[0], []).append(row)
            for g, some in late.items():
                g.pieces[sender].append(rows.take(np.array(some, np.int64)))

    def gathers(self) -> Iterator[Gather]:
        """All that is under way."""
        return iter(self._gathers)

    def held(self) -> Iterator[Codes]:
        """Every text id of what is gathered and of who waits for it, and other numbers."""
        for g in self.gathers():
            yield from g.held()
        yield from self.waiting.held()

    # -------------------------------------------------------------- pulls
    def gather(self, node: Node, cols: Columns, keys: Codes) -> None:
        """Ask for distinct missing keys (folded) of an exchange, those that nobody asks for already; raises `Remote`
        unless this worker alone has the rows.  In a tick nobody is asked (R14): what hangs on the keys goes, and comes
        again when it is read."""
        if self._in_tick:
            raise Remote(())
        known = self._gathers.find(node, cols, keys)
        waits = list(dict.fromkeys(at[0] for at in known if at is not None))
        if None in known:
            waits.append(self._begin(node, cols, np.ascontiguousarray(keys[:, [at is None for at in known]])))
        waits = [g for g in waits if not g.over]
        if waits:
            raise Remote(tuple(waits))

    def gather_all(self, node: Node) -> None:
        """Ask for all rows of an exchange that belong here, from the beginning: its first full state; `Builds.gathered`
        is told when they came."""
        for g in [g for g in self._gathers.of(node, ()) if not g.lost]:
            self._give_up(g)
        self._engine.builds.gathers_anew(node)
        self._begin(node, (), NO_KEY)

    def gather_anew(self, node: Node) -> None:
        """`gather_all`, of an exchange whose full state was dropped: what was to bring that up to date is of no use."""
        for g in [g for g in self._gathers.of(node, ()) if g.lost]:
            self._give_up(g)
        self.gather_all(node)

    def _begin(self, node: Node, cols: Columns, keys: Codes) -> Gather:
        wanted = self._asked_of(node, cols, keys)
        none = np.zeros(keys.shape[1], np.bool_)
        g = Gather(node, cols, keys, wanted, {w: none.copy() for w in wanted})
        self._gathers.add(g)
        if not wanted:
            self.waiting.park(lambda: True, lambda: None if g.over else self._release(g))
        try:
            for w, mask in sorted(wanted.items(), key=lambda item: item[0] != self.worker):
                self._ask(g, w, mask)
                if g.error is not None:
                    raise g.error
        except LongLookup:  # of this worker's own piece, so nobody was asked yet; whoever wants it comes again
            self._asks = {number: ask for number, ask in self._asks.items() if ask.gather is not g}
            self._end(g)
            raise
        return g

    def _asked_of(self, node: Node, cols: Columns, keys: Codes) -> dict[int, Mask]:
        """Who is asked for which keys."""
        return asked_of(self._engine.symbols, self.workers, node, cols, keys)

    def _ask(self, g: Gather, worker: int, keys: Mask) -> None:
        self._next_ask += 1
        ask = self._next_ask
        self._asks[ask] = Asked(g, worker, keys)
        asked = np.ascontiguousarray(g.keys[:, keys])
        if worker == self.worker and not g.cols:
            self.giving.serve_all(worker, g.node, ask)
        elif worker == self.worker:
            self.giving.serve_keys(worker, g.node, g.cols, asked, ask)
        else:
            fields = [g.node.fields[c] for c in g.cols]
            self._send(worker, Request(g.node.id, g.cols, self._values.packed(Batch.of(asked), fields), ask))

    def piece(self, sender: int, p: Piece) -> None:
        node = self._values.node(p.node)
        if node is None:
            self._send(sender, More(p.ask, 0))
        else:
            self._piece(sender, p.ask, self._values.unpacked(p.rows, node.fields), p.more, p.passed)

    def _piece(self, sender: int, number: int, rows: Batch, more: bool, passed: Counts) -> None:
        ask = self._asks.get(number)
        wanted = ask is not None and self._came(ask.gather, sender, rows)
        if ask is not None and wanted and not ask.gather.lost:
            self._engine.builds.passed(ask.gather.node, sender, passed)
        if not wanted or more:
            answer = More(number, int(wanted))
            self.giving.more(sender, answer) if sender == self.worker else self._send(sender, answer)

    def _came(self, g: Gather, sender: int, rows: Batch) -> bool:
        """Some of all rows of an exchange; whether more are wanted."""
        if g.lost:
            g.pieces[sender].append(rows)
            return True
        wanted = self._engine.builds.arrived(g.node, rows)
        if not wanted:
            self._give_up(g)
        return wanted

    def _give_up(self, g: Gather) -> None:
        self._asks = {number: ask for number, ask in self._asks.items() if ask.gather is not g}
        self._end(g)

    def answered(self, a: Answer) -> None:
        if a.rows is None:
            assert a.error is not None
            self._failed(a.ask, a.error)
        elif (node := self._values.node(a.node)) is not None:
            self._take(a.ask, self._values.unpacked(a.rows, node.fields))

    def _failed(self, number: int, error: SqlError) -> None:
        """Nobody who waits for what is gathered will have it."""
        ask = self._asks.pop(number, None)
        if ask is None:
            return
        g = ask.gather
        g.error = error
        if g.lost:  # what is kept of it is stale, and cannot be brought up to date
            self._give_up(g)
            self._engine.outages.fail(g.node, error)
            return
        self._give_up(g)
        if not g.cols:
            self._engine.builds.not_gathered(g.node, error)

    def _take(self, number: int, rows: Batch) -> None:
        ask = self._asks.pop(number, None)
        if ask is None:
            return  # nobody wants it any more
        g = ask.gather
        g.answered[ask.worker] |= ask.keys
        if len(rows):
            g.pieces[ask.worker].append(rows)
        if g.whole():
            self._release(g)

    def _release(self, g: Gather) -> None:
        if not g.cols and not g.lost and any(other.lost for other in self._gathers.of(g.node, ())):
            return  # it is to take the place of a state that is stale: what differs is told below before
        self._end(g)
        if not g.cols and not g.lost:
            self._engine.builds.gathered(g.node)
            return
        rows = netted(concat([b for pieces in g.pieces.values() for b in pieces], g.node.width))
        if len(rows) and int(rows.weights.min()) < 0:
            raise InvariantViolation("NO-SPURIOUS", f"{g.node}: negative rows were gathered for {g.cols}: {rows}")
        if not g.cols:
            stored = g.node.stored.rows()
            self._engine.tick({}, {g.node: netted(concat([rows, stored.negated()], g.node.width))})
            for other in [o for o in self._gathers.of(g.node, ()) if o.whole()]:
                self._release(other)
            return
        g.node.op.fill(self._engine, g.node, g.cols, g.keys, rows)
        self._engine.note("fills", g.node, g.cols, g.keys, lambda: f" from {len(rows)} rows of {len(g.wanted)} workers")

    def _end(self, g: Gather) -> None:
        self._void_often.discard(g)
        self._gathers.remove(g)
        end(g)

    def relaid(self) -> None:
        """After a new layout: what is gathered for an index that is no more is let go."""
        nodes = self._engine.graph.nodes
        self._values.nodes = {n.id: n for n in nodes if n.op.remote}
        for n in nodes:
            before, n.thin = n.thin, layout.is_thin(n)
            if before and not n.thin and not n.full:  # what is below did not come through keys that it keeps
                self._evict_below(n)
        self._thin = [n for n in nodes if n.thin]
        for g in list(self._gathers):
            if g.node not in nodes or (g.cols and not asks_by(g.node, g.cols)):
                self._end(g)
        self._asks = {number: ask for number, ask in self._asks.items() if not ask.gather.over}

    # -------------------------------------------------------------- evictions
    def evict(self, node: Node, cols: Columns, p: Pattern) -> None:
        """What was pulled through evicted keys may be at any exchange end that the pattern's rows belong to (R7)."""
        if not p.values.shape[1]:
            return
        assert isinstance(node.op, Exchange)
        if all(c in p.cols for c in node.op.by):
            by = p.values[[p.cols.index(c) for c in node.op.by]]
            whose = owners(by, [node.fields[c] for c in node.op.by], self.workers, self._engine.symbols)
        else:
            whose = None
        fields = [node.fields[c] for c in p.cols]
        for w in range(self.workers):
            values = p.values if whose is None else np.ascontiguousarray(p.values[:, whose == w])
            if not values.shape[1]:
                continue
            if w == self.worker:
                self._evicted(w, node, cols, Pattern(p.cols, values, np.arange(values.shape[1])))
            else:
                self._send(w, Evict(node.id, cols, p.cols, self._values.packed(Batch.of(values), fields)))

    def forget(self, node: Node) -> None:
        """All keys of a partial node, and what hangs on them anywhere."""
        for cols in node.op.presence(node) if node.state is not None and not node.full else ():
            evict.evict(self._engine, node, cols, node.stored.present(cols))

    def evicted(self, sender: int, e: Evict) -> None:
        node = self._values.node(e.node)
        if node is None:
            return
        values = self._values.unpacked(e.values, [node.fields[c] for c in e.known]).columns
        self._evicted(sender, node, e.cols, Pattern(e.known, values, np.arange(values.shape[1])))

    def _evicted(self, sender: int, node: Node, cols: Columns, p: Pattern) -> None:
        for g in self._gathers.of(node, cols):
            if sender in g.answered:
                stale = evict.agreeing(self._engine, node, cols, g.keys, p) & g.answered[sender]
                if stale.any():
                    self._void(g, sender, stale)
        if node.state is not None:  # else nothing was pulled through it
            evict.evict(self._engine, node, cols, evict.matching(self._engine, node, cols, p))
        if node.thin:
            evict.pass_on(self._engine, node, cols, p)

    def _void(self, g: Gather, worker: int, keys: Mask) -> None:
        g.answered[worker] &= ~keys
        g.voids += 1
        if g.voids > MOST_WAITS:
            self._void_often.add(g)
        void = np.ascontiguousarray(g.keys[:, keys])
        kept = []
        for rows in g.pieces[worker]:
            stay = np.ones(len(rows), np.bool_)
            stay[probe.pairs(self._values.keys(g.node, g.cols, rows.columns[list(g.cols)]), void)[0]] = False
            kept.append(rows.where(stay))
        g.pieces[worker] = kept
        self._ask_again(g, worker, keys)

    def _ask_again(self, g: Gather, worker: int, keys: Mask) -> None:
        if worker == self.worker:  # perhaps within a walk, whose outputs come first (R2)
            self.waiting.park(lambda: True, partial(self._ask_own, g, keys), worker)
        else:
            self._ask(g, worker, keys)

    def _ask_own(self, g: Gather, keys: Mask) -> None:
        """Those that are not there or asked for meanwhile."""
        keys = keys & ~g.answered[self.worker]
        for ask in self._asks.values():
            if ask.gather is g and ask.worker == self.worker:
                keys = keys & ~ask.keys
        if keys.any() and not g.over:
            self._ask(g, self.worker, keys)

    # -------------------------------------------------------------- another worker was lost
    def lost(self, worker: int) -> None:
        """It starts again with its base tables (R19): whatever derives from its rows is evicted, as if it had evicted
        it; full states gather again, and what differs goes on as a delta; what was asked of it is asked again, and what
        it asked is forgotten."""
        self.waiting.lost(worker)
        self.marks.lost(worker)
        self.giving.lost(worker)
        self.keeping.discard(worker)
        if self.worker in self.keeping:
            self._send(worker, Keep(True))
        self._doubt(worker, [n for n in self._engine.graph.nodes if n.op.remote])

    def load(self, table: str) -> None:
        """The table's rows of this worker changed on disk; states here that derive from them without an exchange are
        forgotten already."""
        for w in range(self.workers):
            if w != self.worker:
                self._send(w, Loaded(table))
        self.giving.loaded(self._derived(table))
        self.loaded(self.worker, table)

    def loaded(self, worker: int, table: str) -> None:
        """A worker's rows of the table changed on disk: what came over exchanges of what derives from it goes, as if
        the worker had been lost (R19)."""
        self._doubt(worker, self._derived(table))

    def broke(self, raised: set[Node]) -> None:
        """Operators of this worker raised in a tick: what others have of their output, and this worker by an exchange,
        is gathered again."""
        self._gathered_again([n for n in self._engine.graph.nodes if n.op.remote and n not in raised
                              and not raised.isdisjoint(ancestors(n))])

    def made_again(self, nodes: set[Node]) -> None:
        """These were taken out of the graph and put into it again, empty; what was written meanwhile missed them."""
        exchanges = [n for n in self._engine.graph.nodes if n.op.remote]
        self._gathered_again([n for n in exchanges if not nodes.isdisjoint(ancestors(n))])

    def _gathered_again(self, stale: list[Node]) -> None:
        """What anybody has of this worker's rows of these exchanges."""
        for w in range(self.workers) if stale else ():
            if w != self.worker:
                self._send(w, Broke(tuple([n.id for n in stale])))
        self.giving.loaded(stale)
        self._doubt(self.worker, stale)

    def broken(self, worker: int, b: Broke) -> None:
        """See `broke`, of another worker."""
        stale = [self._values.node(number) for number in b.exchanges]
        self._doubt(worker, [n for n in stale if n is not None])

    def _derived(self, table: str) -> list[Node]:
        """The exchanges of what derives from a table."""
        bases = set(self._engine.bases.get(table, ()))
        return [n for n in self._engine.graph.nodes if n.op.remote and bases & set(ancestors(n))]

    def _doubt(self, worker: int, exchanges: Sequence[Node]) -> None:
        """What these exchanges have of a worker's rows may be stale."""
        stale = set(exchanges)
        self._asks = {number: ask for number, ask in self._asks.items()
                      if ask.worker != worker or ask.gather.node not in stale}
        for g in [g for g in self._gathers if worker in g.wanted and g.node in stale]:
            if not g.cols and not g.lost:
                self.gather_all(g.node)
                continue
            g.answered[worker][:] = False
            g.pieces[worker] = []
            if not g.cols:
                g.lost.add(worker)
            self._ask_again(g, worker, g.wanted[worker])
        for n in exchanges:
            if n.full and n.live and not n.inert:
                self._gather_again(n, worker)
            elif not n.full:
                for cols in n.indexes:
                    self._evict_from(worker, n, cols)
                if n.thin:
                    self._evict_below(n)

    def lost_nothing(self) -> bool:
        """Has no full state rows of a worker that lost some?"""
        return not any(g.lost for g in self._gathers.of_all_rows())

    def _gather_again(self, node: Node, worker: int) -> None:
        if self._stale_of(worker, node) or worker not in self._asked_of(node, (), NO_KEY):
            return
        self._begin(node, (), NO_KEY).lost.add(worker)

    def _evict_below(self, node: Node) -> None:
        """All keys that were pulled through an exchange."""
        for cols in node.indexes:
            for below, index, _ in node.users_of(cols):
                if not below.full:
                    evict.evict(self._engine, below, index, below.stored.present(index))

    def _evict_from(self, worker: int, node: Node, cols: Columns) -> None:
        """The keys of an index whose rows come from this worker, too."""
        keys = node.stored.present(cols)
        theirs = self._asked_of(node, cols, keys).get(worker)
        if theirs is not None and keys.shape[1]:
            evict.evict(self._engine, node, cols, np.ascontiguousarray(keys[:, theirs]))

    # -------------------------------------------------------------- what waits
    def kept_for(self, worker: int, keep: bool) -> None:
        """What a request of the worker asks for again and again stays here for now (see `Keep`)."""
        if keep:
            self.keeping.add(worker)
        else:
            self.keeping.discard(worker)

    def settle(self) -> None:
        """Run again what waits no more, in the order in which it came."""
        self.waiting.settle()
        keep = self.waiting.goes_round() or bool(self._void_often)
        if keep != (self.worker in self.keeping):
            self.kept_for(self.worker, keep)
            for w in range(self.workers):
                if w != self.worker:
                    self._send(w, Keep(keep))
        for n in () if self.waiting else self._thin:
            for cols in n.op.presence(n) if n.state is not None else ():
                n.stored.evict(cols, n.stored.present(cols))

    def idle(self) -> bool:
        return not (self.waiting or self._gathers or self._asks) and self.marks.idle()
