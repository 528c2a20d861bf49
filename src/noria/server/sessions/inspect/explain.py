"""EXPLAIN, EXPLAIN ANALYZE and SHOW NORIA: the running graph and its numbers as result sets.

Each statement requests the graph from the worker when it runs, and all use one rendering of it
(`dataflow/inspect/render.py`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from noria.control.apply.preview import state_of
from noria.control.catalog.policy import Verdict
from noria.control.catalog.view_index import reading
from noria.core.errors import SqlError, not_supported
from noria.core.expressions.coerce import EPOCH
from noria.core.limits import FILL_ROWS_S, ONE_SHOT_ROWS
from noria.dataflow.inspect import render
from noria.dataflow.messages.packets import Inspect, Read
from noria.dataflow.messages.rehearsal import NodePlan
from noria.plan.describing import named
from noria.plan.lookups import Range
from noria.plan.mir import show
from noria.plan.view import ViewDef, first_of
from noria.server.answering import followed_tables
from noria.server.answering.executor import NOT_MAINTAINED, Executor, SetState
from noria.server.answering.keys import keys_of, looked_up, range_of
from noria.server.outcomes import ResultSet
from noria.server.sessions.inspect import inspection
from noria.sql import commands as sql
from noria.sql.program.outline import statements

Graph = list[dict[str, Any]]


class Explainer:
    """Answers EXPLAIN and SHOW NORIA for all sessions."""

    def __init__(self, executor: Executor):
        self._executor = executor

    # ------------------------------------------------------------ EXPLAIN
    async def explain(self, command: sql.Explain, set_state: SetState) -> ResultSet:
        """Describe how a SELECT is answered: by existing views, or by a predicted view, one-shot or Spark job.

        EXPLAIN creates nothing; EXPLAIN ANALYZE runs the statement, and may create a view.  Raises SqlError 1235 for
        statements other than SELECT.
        """
        select = command.command
        if not isinstance(select, sql.Select):
            raise not_supported("EXPLAIN of this statement", "EXPLAIN a SELECT")
        lines = await (self._run(select, set_state) if command.analyze else self._described(select))
        return inspection.texts(["EXPLAIN"], [(line,) for text in lines for line in text.splitlines()])

    async def _described(self, select: sql.Select) -> list[str]:
        program, view = self._executor.program, select.view
        if view is None:
            return await self._by_spark(select, "" if select.batch is None else select.batch.reason, None)
        if (reader := program.match(view)) is not None:
            return [await self._now(select, view, reader), *_found_there(reader, select), *_then(select),
                    *await self._nodes(reader)]
        if not select.once and (unread := program.readerless(view)) is not None:
            return [f"answered by the view {unread.name}, not read yet: it keeps nothing, and its first read makes "
                    "its reader", *_then(select), show(unread.plan)]
        return await self._foreseen(select, view)

    async def _foreseen(self, select: sql.Select, view: ViewDef) -> list[str]:
        """Describe how a SELECT would be answered that no view answers yet."""
        verdict = self._executor.program.expected(view)
        one_shot, too_much = (None, "") if verdict is Verdict.VIEW else await self._one_shot(select, view)
        if select.once:
            return [one_shot or f"{too_much}answered by Spark", *_then(select), show(view.plan)]
        try:
            made = await self._executor.program.rehearsed(view)
        except SqlError as e:
            if e.code != NOT_MAINTAINED:
                raise
            if one_shot is None:
                return await self._by_spark(select, f"{too_much}{e.message}", None)
            return [f"{one_shot}; it must not be a view: {e.message}", *_then(select), show(view.plan)]
        by = f"looked up by ({', '.join(f.name for f in view.key_fields)})"
        if one_shot is None:
            lines = [f"{too_much}answered by an ad-hoc view, made when it is asked, {by}, which keeps:"]
        elif verdict is Verdict.BOTH:
            lines = [f"{one_shot}; meanwhile an ad-hoc view is made for it, {by}, which keeps:"]
        else:
            lines = [f"{one_shot}; when it is asked again, by an ad-hoc view, {by}, which would keep:"]
        filling = self._filling(max((n.rows for n in made.nodes if n.new and n.filled), default=0), one_shot is None)
        return [*lines, *_then(select), *map(_planned, made.nodes), *filling]

    async def _one_shot(self, select: sql.Select, view: ViewDef) -> tuple[str | None, str]:
        """Return how a one-shot would answer now: the worker tries it.  Or return None and why it would not."""
        try:
            keys, nulls, key_range = looked_up(select.lookups, view.key_fields)
        except SqlError as e:
            return f"with these values it is answered with error {e.code}, {e.message}", ""
        if not keys and key_range is None:
            return "answered by a one-shot that reads nothing: no row can have the key", ""
        found = await self._executor.reads.foreseen(view, keys, nulls, key_range)
        if found.way == "slices":
            return "answered by a one-shot that reads its table in slices and keeps nothing", ""
        if found.way == "one-shot":
            return f"answered by a one-shot that reads {_count(found.rows, 'row')} and keeps nothing", ""
        return None, f"too much for a one-shot, which reads {ONE_SHOT_ROWS:,} rows at most; "

    async def _now(self, select: sql.Select, view: ViewDef, reader: ViewDef) -> str:
        """Describe how a SELECT is answered by an existing view, which may not have its first state yet."""
        by = _answered_by(reader)
        if not self._executor.program.first_states.is_unfilled(reader):
            return by
        one_shot, too_much = await self._one_shot(select, view)
        return (f"{one_shot}, while the view {reader.name} is filled; then {by}" if one_shot is not None else
                f"{by}, as soon as that is filled: until then {too_much.rstrip('; ')}")

    def _filling(self, rows: int, awaited: bool) -> list[str]:
        """Estimate how long a view is filled from so many rows.  awaited: the SELECT waits for it; else return []."""
        if rows < FILL_ROWS_S / 10 or not awaited:
            return []
        patience = self._executor.program.patience_of(rows)
        spark = "waits for it, however long that takes" if patience is None else (
            f"waits {patience:.0f} s for it, and then for Spark, too")
        return [f"filled from {_count(rows, 'row')}, which takes about {rows / FILL_ROWS_S:.1f} s; the SELECT {spark}"]

    async def _run(self, select: sql.Select, set_state: SetState) -> list[str]:
        program, view = self._executor.program, select.view
        known = view is None or program.match(view) is not None or program.readerless(view) is not None
        if view is not None and not known and program.expected(view) is not Verdict.VIEW:
            start = time.perf_counter()
            result = await self._executor.select_bound(select, set_state)
            if program.expected(view) is not Verdict.VIEW:  # else a one-shot would have read too much
                return ["answered by a one-shot, of which nothing is kept", *_then(select),
                        f"ran in {_ms(start)} ms: {_count(len(result.rows), 'row')}", show(view.plan)]
        reader, reason = await self._reader(select)
        if reader is None:
            return await self._by_spark(select, reason, set_state)
        return [_answered_by(reader), *_found_there(reader, select), *_then(select),
                *await self._analyzed(reader, select), *await self._nodes(reader)]

    async def _reader(self, select: sql.Select) -> tuple[ViewDef | None, str]:
        """Return the view that answers, which may be made now; or None and the reason."""
        if select.view is None:
            return None, "" if select.batch is None else select.batch.reason
        try:
            return await self._executor.program.reader(select.view), ""
        except SqlError as e:
            if e.code != NOT_MAINTAINED:
                raise
            return None, e.message

    async def _nodes(self, reader: ViewDef) -> list[str]:
        """Describe the view's nodes, each with its state's size and its rate of hits."""
        lines, nodes = [], render.of_view(await self._graph(), reader.name)
        leaf = nodes[-1]["id"] if nodes else None
        for d in nodes:
            figures = render.figures(d)
            lines.append(render.line(d, reader.name) + (f" | {figures}" if figures else ""))
            if d["id"] == leaf:
                lines += self._read_through(reader, d["bytes"])
        hits, lookups = _counts(self._executor, reader.name)
        if lookups:
            lines.append(f"{100 * hits / lookups:.1f} % of {lookups} lookups were answered from shared memory")
        return lines

    def _read_through(self, reader: ViewDef, nbytes: int) -> list[str]:
        """Describe the other views that this view's reader answers, and the memory that they save."""
        names, parts = [], 0.0
        for view in self._executor.program.read_through(reader):
            through = reading(reader, view)
            parts += 1 if through is None else through.part(reader)
            names.append(view.name + (f" ({through.show(reader)})" if through is not None else ""))
        saves = render.size(nbytes * parts)
        return [f"read in its rows, too: {', '.join(names)} | saves up to {saves} of other readers"] if names else []

    async def _by_spark(self, select: sql.Select, reason: str, set_state: SetState | None) -> list[str]:
        plan = select.view.plan if select.view is not None else sql.as_batch(select).plan
        lines = [f"answered by Spark over a snapshot, not by a view: {reason}", show(plan)]
        if set_state is not None:
            start = time.perf_counter()
            result = await self._executor.select_bound(select, set_state)
            lines.insert(1, f"ran in {_ms(start)} ms: {len(result.rows)} rows")
        return lines

    # ------------------------------------------------------------ EXPLAIN ANALYZE
    async def _analyzed(self, reader: ViewDef, select: sql.Select) -> list[str]:
        """Run the lookup once, from shared memory or by an upquery, and describe the work of each node."""
        read = _read_of(reader, select)
        if read is None:
            return ["ran without a lookup: no value lies in the range"]
        await self._executor.program.first_states.of(reader)
        start = time.perf_counter()
        found = None if read.key_range else self._executor.reads.local_keys(reader, read.keys, read.nulls)
        if found is not None:
            return [f"ran in {_ms(start)} ms: {_count(len(read.keys), 'key')} present in shared memory, "
                    f"{_count(found.num_rows, 'row')} found"]
        seen = await self._executor.ask(Inspect(0, "analyze", reader.name, read))
        graph = {d["id"]: d for d in await self._graph()}
        requested = "a range" if read.key_range else _count(len(read.keys), "key")
        lines = [f"ran in {_ms(start)} ms: {requested} asked of the worker, {_count(seen['rows'], 'row')} found; "
                 f"missing on the way: {_count(seen['misses'], 'key')}, pull depth {seen['depth']}"]
        for node, visit in sorted(seen["nodes"].items()):
            lines.append(f"  n{node} {graph[node]['does']}: {_count(visit['calls'], 'read')} of "
                         f"{_count(visit['keys'], 'key')}, {_count(visit['rows'], 'row')}, {visit['misses']} missing, "
                         f"{visit['ms']:.3f} ms")
        return lines

    # ------------------------------------------------------------ SHOW NORIA
    async def show(self, command: sql.Show) -> ResultSet:
        """Answer SHOW NORIA VIEWS, STATUS, GRAPH, MIGRATIONS, HISTORY, PROGRAM or FOLLOWING."""
        what = command.what.removeprefix("noria ")
        tables = {"views": self._views, "status": self._status, "graph": self._nodes_table,
                  "migrations": self._migrations, "history": self._history, "program": self._program,
                  "following": self._following}
        names, rows = await tables[what]()
        return inspection.narrowed(command, inspection.texts(names, rows))

    async def _views(self) -> tuple[Sequence[str], list[tuple[Any, ...]]]:
        """Return a row for each view, with the memory of its reader and of the nodes that no other view uses.  A view
        without a reader has a row with the reason."""
        graph = await self._graph()
        rows: list[tuple[Any, ...]] = []
        program = self._executor.program
        for view in sorted([*program.views(), *program.adhoc()], key=lambda v: v.name):
            nodes = render.of_view(graph, view.name)
            if why := program.why_readerless(view.name):
                key = ", ".join(f.name for f in view.key_fields)
                rows.append((view.name, "view", key, "none", why, 0, 0, 0, 0, None, 0, 0))
            if not nodes:
                continue  # an internal view, or one without a reader: other views have its nodes
            leaf, own = nodes[-1], [d for d in nodes if d["views"] == [view.name]]
            hits, lookups = _counts(self._executor, view.name)
            failed = next((d["failed"] for d in nodes if d["failed"]), "")
            state, why = ("out of service", failed) if failed else (leaf["state"], leaf["why"])
            kind = "feed" if view.feed else "ad-hoc" if view.adhoc else "view"
            rows.append((view.name, kind, ", ".join(f.name for f in view.key_fields),
                         state, why, leaf["rows"], leaf["bytes"], sum(d["bytes"] for d in own),
                         lookups, f"{100 * hits / lookups:.1f}" if lookups else None, leaf["misses"],
                         leaf["evictions"]))
        return ["View", "Kind", "Key", "State", "Why", "Rows", "Bytes", "Bytes_above_too", "Lookups",
                "Hit_percent", "Misses", "Evictions"], rows

    async def _status(self) -> tuple[Sequence[str], list[tuple[Any, ...]]]:
        """Return counters and sizes, then each state that cannot be evicted, with the reason."""
        executor = self._executor
        worker = await executor.ask(Inspect(0, "stats"))
        numbers = {**executor.stats(), **{f"worker_{k}": v for k, v in worker.items() if isinstance(v, int | float)}}
        rows: list[tuple[Any, ...]] = [(k, str(v)) for k, v in sorted(numbers.items())]
        rows += [(f"essential n{d['id']}", f"{d['bytes']} bytes: {d['does']} is full: {d['why']}")
                 for d in sorted(await self._graph(), key=lambda d: -d["bytes"]) if d["state"] == "full"]
        return ["Variable_name", "Value"], rows

    async def _migrations(self) -> tuple[Sequence[str], list[tuple[Any, ...]]]:
        """Return the builds that run in the background.  SHOW PROCESSLIST has the change that began them, and KILL ends
        that; a build that a first read began continues without the read."""
        builds = await self._executor.builds()
        rows = [(b["what"], ", ".join(b["views"]), b["state"], b["rows"], b["of"],
                 f"{100 * b['rows'] / b['of']:.1f}" if b["of"] else None, b["why"]) for b in builds]
        return ["Builds", "Views", "State", "Rows", "Of", "Percent", "Why"], rows

    async def _history(self) -> tuple[Sequence[str], list[tuple[Any, ...]]]:
        """Return the last changes of the program, the latest first.  Times are UTC."""
        changes = await self._executor.program.history()
        return ["Version", "Time", "Who", "Statement"], [
            (c.version, str(EPOCH + timedelta(microseconds=c.note.at)), c.note.who, c.note.text)
            for c in reversed(changes)]

    async def _following(self) -> tuple[Sequence[str], list[tuple[Any, ...]]]:
        """Return the databases that tables follow, and how far the tables lag."""
        return followed_tables.COLUMNS, self._executor.locks.followed.shown()

    async def _program(self) -> tuple[Sequence[str], list[tuple[Any, ...]]]:
        """Return the statements that define the program."""
        text = await self._executor.program.exported()
        return ["Statement"], [(f"{s.text};",) for s in statements(text)]

    async def _nodes_table(self) -> tuple[Sequence[str], list[tuple[Any, ...]]]:
        counted = ("rows", "bytes", "rows_in", "rows_out", "ticks", "requested", "misses", "evictions", "pull_depth",
                   "saves")
        names = ["Node", "Does", "From", "State", "Why", "Indexes", "Views", "Tick_ms",
                 *(c.capitalize() for c in counted)]
        rows = [(f"n{d['id']}", d["does"], ", ".join(f"n{p}" for p in d["parents"]), d["state"], d["why"],
                 "; ".join(", ".join(i) or "()" for i in d["indexes"]), ", ".join(d["views"]), f"{d['tick_ms']:.3f}",
                 *(d[c] for c in counted)) for d in await self._graph()]
        return names, rows

    async def _graph(self) -> Graph:
        graph: Graph = await self._executor.ask(Inspect(0, "graph"))
        return graph


def _read_of(reader: ViewDef, select: sql.Select) -> Read | None:
    """Return the read that a bound SELECT needs from its view; None if no row can match."""
    lookup = select.lookups[0] if select.lookups else None
    if not isinstance(lookup, Range):
        assert select.view is not None
        keys, nulls = keys_of(select.lookups, select.view.key_fields)
        through = reading(reader, select.view)
        return Read(0, reader.name, keys if through is None else through.of(keys)[0], nulls)
    key_range = range_of(lookup, reader.key_fields[0])
    if key_range is None:
        return None
    assert select.view is not None
    rows, descending = first_of(select.view) or (None, False)
    return Read(0, reader.name, (), key_range=key_range, first=rows, descending=descending)


def _answered_by(reader: ViewDef) -> str:
    kind = "ad-hoc view" if reader.adhoc else "view"
    return f"answered by the {kind} {reader.name}, looked up by ({', '.join(f.name for f in reader.key_fields)})"


def _planned(n: NodePlan) -> str:
    """Describe a node of a predicted view."""
    kept = f" | {state_of(n)}" if n.state in ("partial", "full") else ""
    return f"{n.does} | {'new' if n.new else 'there'}{kept}"


def _found_there(reader: ViewDef, select: sql.Select) -> list[str]:
    """Describe the rows and columns that the SELECT uses of a view that has more."""
    through = None if select.view is None else reading(reader, select.view)
    return [] if through is None else [f"of its rows: {through.show(reader)}"]


def _then(select: sql.Select) -> list[str]:
    """Describe the operations on the rows of the lookup: the plan `after`, order, limit."""
    view = select.view
    assert view is not None
    steps = [f"order by {', '.join(view.result.fields[c].name + ' desc' * down for c, down in view.order)}"
             ] if view.order else []
    if view.limit is not None:
        steps.append(f"limit {view.limit}" + f" offset {view.offset}" * bool(view.offset))
    plan = view.after
    while plan is not None and plan.inputs:
        steps.insert(0, named(str(plan), plan.inputs[0].fields))
        plan = plan.inputs[0]
    return [f"then, over the rows found: {'; '.join(steps)}"] if steps else []


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _ms(start: float) -> str:
    return f"{1000 * (time.perf_counter() - start):.3f}"


def _counts(executor: Executor, view: str) -> tuple[int, int]:
    """Return (lookups answered from shared memory or by a kept reply, all lookups) of a view."""
    kept = executor.replies.hits_of()[view]
    hits, lookups = executor.reads.counts(view)
    return hits + kept, lookups + kept
