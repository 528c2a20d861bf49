"""Golden scripts of several workers: each message between them is delivered by a command.  Beside `runner`'s commands:

    workers N            how many there are; first of all
    read VIEW (k)        asked of the worker that has the key; its rows come when they can
    deliver A B          the next message from worker A to worker B, and what comes of it
    deliver all          all messages, each channel's in order, the lowest pair first, until none is left
    evict W NODE (k)     at worker W
    holes                of each worker

Lines begin with the worker's number: what it sends, `→`, and what its engine does.
"""

from __future__ import annotations

import ast
import re
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from noria.core.keys import shard_of
from noria.core.types import INT
from noria.dataflow.engine.engine import Engine
from noria.dataflow.graph.eviction import evict
from noria.dataflow.graph.story import format_event
from noria.dataflow.messages import packets, peer_messages
from noria.dataflow.messages.packets import Envelope
from noria.dataflow.worker.worker import Worker
from noria.lowering.lower import Lowering
from noria.runtime.routing.write_routing import AutoIncrementValues, routed
from noria.state.symbols.symbols import SymbolTable
from noria.storage.store import RocksStore
from noria.views.writer import ViewDirectory
from scripts.runner import Script, keys_of


class SeveralScript(Script):
    def __init__(self, workers: int):
        self.workers: list[Worker] = []
        self._number = workers
        self.channels: dict[tuple[int, int], deque[Envelope]] = {}
        self.version = self.request = 0
        super().__init__()

    def _start(self) -> None:
        for w in range(self._number):
            symbols = SymbolTable(None)
            store = RocksStore(str(Path(self._dir.name) / f"base-{w}"), symbols)
            worker = Worker(store, symbols, ViewDirectory(None, symbols, 1), Lowering, worker=w, workers=self._number)
            worker.engine.trace = self._tracer(w, worker.engine)
            self.workers.append(worker)

    def _tracer(self, w: int, engine: Engine) -> Any:
        return lambda *event: self.out.append(f"{w}: {format_event(engine.symbols, *event)}")

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self._dir.cleanup()

    # ------------------------------------------------------------ packets
    def _step(self, w: int, envelopes: list[Envelope]) -> list[Any]:
        replies = [e.body for e in self.workers[w].step(envelopes)]
        for to, e in self.workers[w].outgoing():
            self.channels.setdefault((w, to), deque()).append(e)
            self.out.append(f"{w}: → {to} {_named(e.body.message)}")
        for r in replies:
            if isinstance(r, packets.Rows) and r.request:
                rows = [tuple(row.values())[:-1] for row in r.rows.to_pylist()]
                self.out += [f"{w}: = {row}" for row in sorted(rows, key=str)] or [f"{w}: = nothing"]
        return replies

    def send(self, body: Any) -> Any:
        """A change of the program, at all workers; a write, at those of its rows."""
        self.seq += 1
        if isinstance(body, packets.Migrate):
            self.version += 1
            body = packets.Migrate(body.steps, version=self.version)
            replies = [self._step(w, [Envelope(1, -1, self.seq, body)])[0] for w in range(self._number)]
            return replies[0]
        (statement,) = body.statements
        parts = routed(statement, self.tables[statement.table.lower()], self._number, AutoIncrementValues(), 0).parts
        replies = [self._step(w, [Envelope(1, -1, self.seq, packets.Write((part,)))])[0] for w, part in parts.items()]
        (first, *others) = [r.results[0] for r in replies]
        return packets.Wrote(0, (first._replace(affected=first.affected + sum(o.affected for o in others)),))

    # ------------------------------------------------------------ commands
    def do_workers(self, rest: str) -> None:
        self.out.append(f"{rest} workers")

    def do_read(self, rest: str) -> None:
        name, _, keys = rest.partition(" ")
        ((key,),) = [k if isinstance(k, tuple) else (k,) for k in keys_of(keys)]
        owner = int(shard_of([np.array([key])], [INT], self._number)[0])
        self.request += 1
        body = packets.Read(self.request, self.views[name.lower()].name, ((key,),))
        if not self._step(owner, [Envelope(1, -1, 0, body)]):
            self.out.append(f"{owner}: the read waits")

    def do_deliver(self, rest: str) -> None:
        if rest != "all":
            sender, to = map(int, rest.split())
            self._deliver((sender, to))
            return
        while some := sorted(c for c, messages in self.channels.items() if messages):
            self._deliver(some[0])

    def _deliver(self, c: tuple[int, int]) -> None:
        e = self.channels[c].popleft()
        self.out.append(f"{c[1]}: ← {c[0]} {_named(e.body.message)}")
        self._step(c[1], [e])

    def do_evict(self, rest: str) -> None:
        w, _, rest = rest.partition(" ")
        name, _, keys = rest.partition(" (")
        engine = self.workers[int(w)].engine
        node = next(n for n in engine.graph.nodes if f"n{n.id}" == name)
        (key,) = keys_of(f"({keys}")
        cols = node.op.presence(node)[0]
        evict(engine, node, cols, np.array([[key]], np.int64))
        self._step(int(w), [])

    def do_holes(self, rest: str) -> None:
        for worker in self.workers:
            before = len(self.out)
            self.worker = worker
            super().do_holes(rest)
            self.out[before:] = [f"{worker.worker}: {line}" for line in self.out[before:]]

    def do_explain(self, rest: str) -> None:
        reply = self.workers[0].step([Envelope(1, -1, 0, packets.Inspect(1, "explain", rest))])[0].body
        self.out += reply.value.split("\n")


def _named(message: peer_messages.Message) -> str:
    """What a message says, without numbers of requests."""
    kind = re.sub(r"(?<!^)(?=[A-Z])", " ", type(message).__name__).lower()
    rows = getattr(message, "rows", None) or getattr(message, "keys", None) or getattr(message, "values", None)
    shown = "" if rows is None else " ".join(
        f"{'' if w == 1 else f'{w}×'}{tuple(c)}"
        for c, w in zip(rows.columns.T.tolist(), rows.weights.tolist(), strict=True))
    return f"{kind} of n{message.node}: {shown or 'nothing'}" if hasattr(message, "node") else kind


def script_of(text: str) -> Script:
    first = next((line for line in text.splitlines() if line.startswith("> ")), "")
    return SeveralScript(ast.literal_eval(first.split()[2])) if first.startswith("> workers ") else Script()


def run_file(path: Path) -> str:
    """The script with the output it has now."""
    text = path.read_text()
    script, lines = script_of(text), list[str]()
    try:
        for line in text.splitlines():
            if line.startswith("> "):
                lines += ["", line, *script.run(line[2:])]
            elif line.startswith("#"):
                lines += [line] if not lines or lines[-1].startswith("#") else ["", line]
    finally:
        script.close()
    return "\n".join(lines).strip() + "\n"
