"""Answers SELECTs of one key at the end of an earlier tick, from shared memory.

Keeps true: rows are returned only if no later tick of the only worker has published them.  So they are those that a
snapshot of that tick has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noria.core.errors import SqlError
from noria.plan.view import ViewDef
from noria.server.answering.executor import Executor
from noria.server.answering.keys import key_of
from noria.server.answering.reads import Key
from noria.server.answering.statements import CachedStatement
from noria.server.outcomes import ResultSet
from noria.views.reader import LargeAnswer


def select_as_of(executor: Executor, compiled: CachedStatement, values: Sequence[Any], tick: int) -> ResultSet | None:
    """Run a SELECT of one key; None if shared memory does not have that answer."""
    view = compiled.view
    assert view is not None
    reader = executor.reader_of(compiled, view) if compiled.one_key else None
    if reader is None or executor.program.first_states.wait_for(reader):
        return None
    shape, asked = compiled.asked(values)
    try:
        key = key_of(asked, view.key_fields)
        if key is None:
            return ResultSet(shape.shown, shape.apply([]))
        rows = _rows(executor, compiled, reader, key, tick)
    except (LargeAnswer, SqlError, OSError):
        return None
    if rows is None:
        return None
    executor.selects += 1
    executor.reads.had_elsewhere({reader.name: 1})
    return ResultSet(shape.shown, shape.apply(rows))


def _rows(executor: Executor, compiled: CachedStatement, reader: ViewDef, key: Key, tick: int) -> list[Any] | None:
    through = compiled.through
    if through is not None and not through.same_key:
        (key,), through = through.of([key])
    attached = executor.reads.attached(reader, 0)
    if attached is None:
        return None
    rows = attached.lookup_as_of(key, tick, through)
    return rows if attached.definition == reader.definition else None
