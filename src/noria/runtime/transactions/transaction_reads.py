"""Records what a SERIALIZABLE transaction has read, and adds the check of these reads to its commit.

    SELECT ──► conditions on the rows of its tables, and the moment (a mark) ──► the commit sends them to the workers
    UPDATE, DELETE, INSERT ──► each worker notes what they read there (`storage/transactions/read_notes.py`)

Keeps true: the conditions of a SELECT include each row on which its answer depends. A transaction that has only read
its snapshot needs no check: a snapshot is of one moment of all workers, so it follows what was committed before it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from noria.core.expressions.expr import Call, Col, Const, Expr
from noria.core.limits import READ_CONDITIONS, READ_KEYS
from noria.core.statements import Delete, Staged, Statement, TableRead
from noria.core.types import BOOL
from noria.runtime.routing.write_routing import RoutedWrite


class OfTransaction(Protocol):
    """An `OpenTransaction`, as its reads use it."""

    name: str
    done: dict[int, int]


@dataclass
class _Table:
    """The reads of one table. `all_rows_since`: the first mark from which on all rows count as read; None: not
    all do.

    `points`: by column and mark, the values by which rows were looked up. `conditions`: all others, with their marks.
    """

    all_rows_since: int | None = None
    points: dict[tuple[Col, int], dict[Const, None]] = field(default_factory=dict)
    conditions: dict[Expr, int] = field(default_factory=dict)

    @property
    def keys(self) -> int:
        return sum(map(len, self.points.values()))

    def coarsen(self) -> None:
        """Note all rows of the table instead of single conditions."""
        marks = [*(mark for _, mark in self.points), *self.conditions.values()]
        self.all_rows_since = min(marks if self.all_rows_since is None else [*marks, self.all_rows_since])
        self.points.clear()
        self.conditions.clear()


class TransactionReads:
    """See the module. `marks`: how many moments all workers have marked. `noted_at`: the workers that may have
    notes."""

    def __init__(self) -> None:
        self.marks = 0
        self.noted_at: set[int] = set()
        self._snapshot: int | None = None
        self._tables: dict[str, _Table] = {}

    def mark(self) -> int:
        """The number of a new mark."""
        self.marks += 1
        return self.marks - 1

    def mark_snapshot(self) -> int:
        """The number of a new mark, which is the snapshot's."""
        self._snapshot = self.mark()
        return self._snapshot

    @property
    def snapshot(self) -> int:
        """The mark of the snapshot, which is open."""
        assert self._snapshot is not None
        return self._snapshot

    def note(self, table: str, terms: Sequence[Expr], mark: int) -> None:
        """Note that the rows for which all terms are true were read at the moment of the mark."""
        known = self._tables.setdefault(table, _Table())
        if known.all_rows_since is not None and known.all_rows_since <= mark:
            return
        if not terms:
            known.conditions[_ALL] = mark
            known.coarsen()
        elif len(terms) == 1 and (point := _point(terms[0])) is not None:
            column, values = point
            known.points.setdefault((column, mark), {}).update(dict.fromkeys(values))
        else:
            known.conditions.setdefault(terms[0] if len(terms) == 1 else Call(BOOL, True, "and", tuple(terms)), mark)
        tables = self._tables.values()
        if sum(len(t.points) + len(t.conditions) for t in tables) > READ_CONDITIONS or (
                sum(t.keys for t in tables) > READ_KEYS):
            known.coarsen()

    def reads(self) -> list[TableRead]:
        """The noted reads."""
        noted = []
        for name, known in self._tables.items():
            if known.all_rows_since is not None:
                noted.append(TableRead(name, None, known.all_rows_since))
            noted += [TableRead(name, Call(BOOL, True, "in", (column, *values)), mark)
                      for (column, mark), values in known.points.items()]
            noted += [TableRead(name, where, mark) for where, mark in known.conditions.items()]
        return noted

    def checked(self, transaction: OfTransaction, parts: Mapping[int, Staged],
                routed: Callable[[Statement], RoutedWrite]) -> dict[int, Staged]:
        """The parts of the commit, which check what was read. `parts`: those that change something."""
        if not parts and not self.noted_at and self.marks <= (self._snapshot is not None):
            return {}
        by_worker: dict[int, list[TableRead]] = {}
        for read in self.reads():
            for w in _workers(read, routed):
                by_worker.setdefault(w, []).append(read)
        return {w: Staged(transaction.name, transaction.done.get(w, 0), parts[w].tables if w in parts else (),
                          reads=tuple(by_worker.get(w, ())), marks=self.marks)
                for w in sorted({*parts, *by_worker, *self.noted_at})}


_ALL = Const(BOOL, False, True)


def _workers(read: TableRead, routed: Callable[[Statement], RoutedWrite]) -> Collection[int]:
    """The workers that may have rows of what was read."""
    return routed(Delete(read.table, read.where)).parts


def _point(term: Expr) -> tuple[Col, tuple[Const, ...]] | None:
    """The column and the values of a comparison by `=` or IN."""
    if not isinstance(term, Call) or term.op not in ("eq", "in"):
        return None
    column, *values = term.args
    constants = tuple(v for v in values if isinstance(v, Const))
    return (column, constants) if isinstance(column, Col) and len(constants) == len(values) else None
