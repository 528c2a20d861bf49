"""Previews a change of the whole program, as lines for people and as JSON."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from noria.control.apply.target import NewView, TargetProgram
from noria.control.catalog.names import fold
from noria.core.identifiers import quote_identifier
from noria.dataflow.inspect.render import size
from noria.dataflow.messages.rehearsal import NodePlan, Rehearsal, ViewPlan
from noria.sql.commands import AlterTable
from noria.sql.program.definition_text import table_text


@dataclass(frozen=True)
class Preview:
    """What a change would do.  first: the tables that are changed before all else, each by itself."""

    target: TargetProgram
    rehearsal: Rehearsal
    first: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """A hash of the change: two previews with the same digest make the same change."""
        content = repr((self.target.difference, [v.text for v in self.target.views], self.target.created,
                     *self.target.databases))
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def filled_bytes(self) -> int:
        """The estimated bytes of all states that must be filled; a node that several views share counts once."""
        return sum({(n.does, n.rows, n.nbytes): n.nbytes for v in self.rehearsal.views for n in v.nodes
                    if n.filled}.values())

    def as_json(self) -> dict[str, Any]:
        d = self.target.difference
        return {"digest": self.digest, "empty": d.empty and not self.target.databases, "difference": asdict(d),
                "filled_bytes": self.filled_bytes, **asdict(self.rehearsal), "lines": list(self.lines())}

    # ------------------------------------------------------------ for people
    def lines(self) -> Iterator[str]:
        """Yield a line for each thing that is added (+), changed (~) or dropped (-), with its consequences."""
        d, rows = self.target.difference, self.rehearsal.rows
        yield from (f"+ database {database.name}" for database in self.target.databases)
        if d.empty and not self.target.databases:
            yield "nothing to do: the program is what the text says"
        for t in self.target.created:
            yield f"+ table {t.name}: {' '.join(table_text(t, t.first_id).split())}"
        for name, parts in d.altered:
            yield f"~ table {name}: ALTER TABLE {quote_identifier(name)} {', '.join(parts)}"
            if name in self.first:
                yield "    first, and by itself: its rows are copied to the workers that have them then"
            yield from self._values_of(name)
            yield from self._indexes_of(name)
        for name in d.tables_dropped:
            yield f"- table {name}: its {rows.get(name, 0):,} rows are lost"
        plans = {v.name.partition("\0")[0]: v for v in self.rehearsal.views}
        replaced = {fold(n) for n in d.replaced}
        for v in self.target.views:
            yield from _view(v, plans.get(v.view.name), fold(v.view.name) in replaced)
        yield from (f"- view {name}" for name in d.views_dropped)
        yield from self._summary()

    def _values_of(self, name: str) -> Iterator[str]:
        """Report dropped columns whose values are lost or converted."""
        altered, rows = self._altered(name), self.rehearsal.rows.get(name, 0)
        sources = {c.source for c in altered.table.columns[len(altered.was.columns):]}
        for at, (was, now) in enumerate(zip(altered.was.columns, altered.table.columns, strict=False)):
            if now.dropped and not was.dropped:
                yield f"    the values of {was.name} in {rows:,} rows are {'converted' if at in sources else 'lost'}"

    def _altered(self, name: str) -> AlterTable:
        return next(a for a in self.target.altered if a.table.name == name)

    def _indexes_of(self, name: str) -> Iterator[str]:
        altered = self._altered(name)
        had = {i.columns for i in altered.was.indexes}
        for index in altered.table.indexes:
            if index.columns not in had:
                yield f"    the index {index.name} is built over {self.rehearsal.rows.get(name, 0):,} rows"

    def _summary(self) -> Iterator[str]:
        d, r = self.target.difference, self.rehearsal
        for i in r.indexes:
            by = ", ".join(i.columns)
            yield f"the table {i.table} is looked up by ({by}): an index is built over {i.rows:,} rows"
        if self.filled_bytes:
            yield (f"to be filled: about {size(self.filled_bytes)}, if each state has as many rows as the largest "
                   "table that it comes from; strings are not counted")
        if not d.empty and r.freed_nodes:
            yield f"{r.freed_nodes} nodes of the graph are not needed any more: {size(r.freed_bytes)}"
        if d.tables_kept or d.views_kept:
            yield f"= {len(d.tables_kept)} tables and {len(d.views_kept)} views stay as they are"
        if d.left:
            yield f"= not in the text, and kept: {', '.join(d.left)} (--drop drops them)"


def _view(new: NewView, plan: ViewPlan | None, replaced: bool) -> Iterator[str]:
    if new.without_reader:
        why = "keeps nothing: it is read in the rows of another view" if new.lent else "keeps nothing until it is read"
        yield f"{'~' if replaced else '+'} view {new.view.name}: {why}"
        return
    nodes = () if plan is None else plan.nodes
    shared = sum(not n.new for n in nodes)
    yield (f"{'~' if replaced else '+'} view {new.view.name}: {len(nodes) - shared} nodes are new, {shared} are there"
           + _when(replaced, new.early, nodes))
    for n in nodes:
        if n.state in ("partial", "full") and (n.new or n.filled):
            yield f"    {'new' if n.new else 'there'}: {n.does}: {state_of(n)}"


def _when(replaced: bool, early: bool, nodes: Iterable[NodePlan]) -> str:
    if not any(n.filled and n.rows for n in nodes):
        return ""
    if not early:
        return "; it reads what is new in this change, so it is filled after it, and reads of it wait"
    return "; the old one answers until it is filled" if replaced else "; the program changes when it is filled"


def state_of(n: NodePlan) -> str:
    """Describe the state that a node will keep."""
    if n.state == "partial":
        return "partial: empty until it is read"
    filled = f"; filled from {n.rows:,} rows, about {size(n.nbytes)}" if n.filled and n.rows else ""
    return f"full: {n.why}{filled}"
