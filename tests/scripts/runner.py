"""Runs golden scripts: commands in, every packet, delta, miss, fill, eviction and hole out.

A script is blocks of one `> command` line and its expected output.  Commands:

    sql STATEMENT        DDL becomes a migration, INSERT/UPDATE/DELETE a write; the tick's deltas are printed
    read VIEW (k) (k)    one upquery for all keys that are missing; the rows, and what was pulled and filled
    between VIEW LOW HIGH  the rows whose key lies in a range; what was pulled and filled; HIGH may be missing
    evict NODE (k)       evict a key of the first index of the first node so described, with the cascade
    holes                which keys are present, state by state
    explain VIEW         the plan: partial or full, indexes, sharing
    validate             every state against a recomputation
    restart              stop the worker and start another on the same base tables
"""

from __future__ import annotations

import ast
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from noria.core.limits import MAX_INT
from noria.core.statements import Delete, Insert, Update
from noria.core.values import encode
from noria.dataflow.graph import text
from noria.dataflow.graph.eviction import evict
from noria.dataflow.graph.story import format_event
from noria.dataflow.messages import packets
from noria.dataflow.worker.worker import Worker
from noria.lowering.lower import Lowering
from noria.sql import commands
from noria.sql.parse import parse
from noria.state.symbols.symbols import SymbolTable
from noria.storage.store import RocksStore
from noria.views.writer import ViewDirectory


class Script:
    def __init__(self) -> None:
        self._dir = tempfile.TemporaryDirectory()
        self.tables: dict = {}
        self.views: dict = {}
        self.seq = 0
        self.out: list[str] = []
        self._start()

    def _start(self) -> None:
        symbols = SymbolTable(None)
        self.store = RocksStore(str(Path(self._dir.name) / "base"), symbols)
        self.symbols = symbols
        self.worker = Worker(self.store, symbols, ViewDirectory(None, symbols, 1), Lowering)
        engine = self.worker.engine
        engine.trace = lambda *event: self.out.append(format_event(engine.symbols, *event))

    def close(self) -> None:
        self.store.close()
        self._dir.cleanup()

    # the catalog that statements are parsed against
    def table(self, name: str):
        return self.tables.get(name.lower())

    def view(self, name: str):
        return self.views.get(name.lower())

    def run(self, command: str) -> list[str]:
        self.out.clear()
        word, _, rest = command.partition(" ")
        getattr(self, f"do_{word}")(rest.strip())
        return list(self.out)

    def send(self, body):
        self.seq += 1
        (reply,) = self.worker.step([packets.Envelope(1, -1, self.seq, body)])
        return reply.body

    def do_sql(self, text: str) -> None:
        try:
            for c in parse(text, self):
                self._command(c)
        except Exception as e:
            if not hasattr(e, "code"):
                raise
            self.out.append(f"error {e.code}: {e}")

    def _command(self, c) -> None:
        if isinstance(c, (Insert, Update, Delete)):
            (result,) = self.send(packets.Write((c,))).results
            self.out.append(f"error {result.error.code}: {result.error}" if result.error
                            else f"{result.affected} rows affected")
            return
        if isinstance(c, commands.CreateTable):
            table = replace(c.table, table_id=len(self.tables) + 1)
            self.tables[table.name.lower()] = table
            step = packets.CreateTable(table)
        elif isinstance(c, commands.CreateView):
            self.views[c.view.name.lower()] = c.view
            step = packets.AddView(c.view)
        elif isinstance(c, commands.DropView):
            step = packets.DropView(self.views.pop(c.names[0].lower()).name)
        else:
            raise ValueError(f"scripts do not run {c}")
        reply = self.send(packets.Migrate((step,)))
        self.out.append(f"error {reply.error.code}: {reply.error}" if reply.error else "migrated")

    def do_read(self, rest: str) -> None:
        name, _, keys = rest.partition(" ")
        view = self.views[name.lower()]
        asked = tuple(k if isinstance(k, tuple) else (k,) for k in keys_of(keys)) if view.key else ((),)
        reply = self.send(packets.Read(0, view.name, asked))
        if reply.error:
            self.out.append(f"error {reply.error.code}: {reply.error}")
            return
        rows = [tuple(r.values())[:-1] for r in reply.rows.to_pylist()]
        once = self.send(packets.Query(0, view, asked, rows=10**6))
        assert once.error is None, once.error
        assert sorted(reply.rows.to_pylist(), key=str) == sorted(once.rows.to_pylist(), key=str), f"{name} {keys}: once"
        self.out += [f"= {r}" for r in sorted(rows, key=str)] or ["= nothing"]

    def do_between(self, rest: str) -> None:
        name, low, *high = rest.split()
        view = self.views[name.lower()]
        type = view.key_fields[0].type
        codes = [encode(ast.literal_eval(v), type, self.symbols) for v in (low, *high)]
        reply = self.send(packets.Read(0, view.name, (), key_range=(codes[0], codes[1] if high else MAX_INT)))
        rows = [tuple(r.values())[:-1] for r in reply.rows.to_pylist()]
        self.out += [f"= {r}" for r in sorted(rows, key=str)] or ["= nothing"]

    def do_evict(self, rest: str) -> None:
        name, _, keys = rest.partition(" (")
        keys = f"({keys}"
        node = next(n for n in self.worker.engine.graph.nodes if n.op.describe().startswith(name))
        cols = node.op.presence(node)[0]
        asked = [k if isinstance(k, tuple) else (k,) for k in keys_of(keys)]
        codes = np.array([[encode(v, node.fields[c].type, self.symbols) for v, c in zip(k, cols, strict=True)]
                          for k in asked], np.int64).T
        evict(self.worker.engine, node, cols, np.ascontiguousarray(codes))

    def do_holes(self, rest: str) -> None:
        engine = self.worker.engine
        for n in engine.graph.nodes:
            if n.op.stateful and n.state is not None:
                for cols in n.op.presence(n):
                    names = ", ".join(n.fields[c].name for c in cols)
                    present = "" if n.full else text.of_keys(engine.symbols, n.fields, cols, n.stored.present(cols))
                    shown = "everything" if n.full else present or "nothing"
                    ranges = f", filled {n.ranges[cols].intervals()}" if cols in n.ranges else ""
                    self.out.append(f"n{n.id} by {names or '()'} has {shown}{ranges}")

    def do_explain(self, rest: str) -> None:
        reply = self.send(packets.Inspect(0, "explain", rest))
        assert reply.error is None, reply.error
        self.out += reply.value.split("\n")

    def do_validate(self, rest: str) -> None:
        self.out.append(self.send(packets.Inspect(0, "validate")).value)

    def do_restart(self, rest: str) -> None:
        self.store.close()
        self._start()
        steps = [packets.CreateTable(t) for t in self.tables.values()]
        steps += [packets.AddView(v) for v in self.views.values()]
        reply = self.send(packets.Migrate(tuple(steps), durable=False))
        assert reply.error is None, reply.error
        self.out.append("another worker serves")


def keys_of(text: str) -> list:
    """`(1) ('a', 2)` as Python values."""
    return [ast.literal_eval(k + ")") for k in text.split(")") if k.strip()]
