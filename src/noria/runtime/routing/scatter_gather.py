"""Splits a read over several workers and merges their answers. Pure. Call `split`, then `merged`.

    one key        its worker
    several keys   the workers that own some; `__key` has the read's key numbers
    a range        all workers that may have values in it; `__key` numbers the values in the order of the rows
    no key         worker 0
    a one-shot     all workers, each for its own rows, if each result row comes from one table row (`row_by_row`);
                   otherwise one of them, which requests the others' rows (`dataflow/cluster/remote_scan.py`)

Keeps true: the rows are those that a single worker would return. An error of any worker is the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import pyarrow as pa

from noria.core.batch import Codes
from noria.core.errors import view_changed
from noria.core.symbols import Symbols
from noria.core.types import SqlType
from noria.core.values import from_arrow
from noria.dataflow.messages.packets import Query, Read, Rows
from noria.plan.mir import Base, Filter, Mir, Project, Repeat, UnionAll
from noria.plan.view import ViewDef
from noria.runtime.routing.key_routing import KeyRoutes

Request = TypeVar("Request", bound=Read | Query)


class RangeColumn(NamedTuple):
    """The column of the result rows that has the range's values."""

    column: int
    type: SqlType


class ReadParts(dict[int, Request]):
    """The parts of a read by worker. `ordinals`: for each worker, the numbers that its keys have in the original read.
    `range`: the column of a range's values; None: it is not visible."""

    def __init__(self, original: Request, parts: Mapping[int, Request], ordinals: Mapping[int, Codes],
                 range: RangeColumn | None = None):
        super().__init__(parts)
        self.original, self.ordinals, self.range = original, ordinals, range


def split(body: Request, routes: KeyRoutes, view: ViewDef) -> ReadParts[Request]:
    """Split a read of `view`. SqlError 1412 if the view's route is unknown or the read is of another definition."""
    if isinstance(body, Read) and body.definition not in (0, view.definition):
        raise view_changed(body.view)
    if isinstance(body, Query) and body.spread:
        return ReadParts(body, {_meeting(view.plan, routes.workers): body}, {})
    everybody = range(routes.workers) if isinstance(body, Query) else routes.everybody(view)
    if body.key_range is not None:
        shown = RangeColumn(view.key[0], view.key_fields[0].type) if view.key[0] < view.visible else None
        return ReadParts(body, dict.fromkeys(everybody, body), {}, shown)
    if isinstance(body, Query):
        return ReadParts(body, dict.fromkeys(everybody, body), dict.fromkeys(everybody, np.arange(len(body.keys))))
    whose = routes.owners(view, body.keys)
    if not len(whose):
        return ReadParts(body, {0: body}, {0: whose})
    first = int(whose[0])
    if (whose == first).all():
        return ReadParts(body, {first: body}, {first: np.arange(len(whose))})
    ordinals = {w: np.flatnonzero(whose == w) for w in np.unique(whose).tolist()}
    return ReadParts(body, {w: replace(body, keys=select_keys(body.keys, at)) for w, at in ordinals.items()}, ordinals)


def row_by_row(plan: Mir) -> bool:
    """Whether each result row comes from one row of a table, so that each worker has some of the result."""
    return isinstance(plan, Base | Filter | Project | Repeat | UnionAll) and all(map(row_by_row, plan.inputs))


def _meeting(plan: Mir, workers: int) -> int:
    """The worker that combines rows of several workers: the one that has all rows of an unsharded table; otherwise a
    hash of the plan, to distribute queries."""
    return 0 if _reads_unsharded_table(plan) else hash(plan) % workers


def _reads_unsharded_table(plan: Mir) -> bool:
    return plan.table.sharded_by == () if isinstance(plan, Base) else any(map(_reads_unsharded_table, plan.inputs))


def select_keys(keys: Any, places: Codes) -> Any:
    """Select some of a read's keys."""
    if isinstance(keys, (pa.Table, pa.RecordBatch)):
        return keys.take(pa.array(places))
    return [keys[i] for i in places.tolist()]


def merged(parts: ReadParts[Request], replies: Mapping[int, Rows]) -> Rows:
    """Merge the answers. `replies`: of all workers that have a part."""
    answers = [replies[w] for w in sorted(parts)]
    wrong = next((a for a in answers if a.error is not None), None)
    if wrong is not None or len(answers) == 1 or answers[0].rows is None:
        return replace(wrong or answers[0], request=parts.original.request)
    if parts.original.key_range is not None:
        return Rows(parts.original.request, _ranged(parts, [a.rows for a in answers]))
    return Rows(parts.original.request, numbered([(replies[w].rows, at) for w, at in sorted(parts.ordinals.items())]))


def numbered(tables: Sequence[tuple[pa.Table, Codes]]) -> pa.Table:
    """Merge rows of several workers in the order of their keys. Each table's last column is `__key`; with it are
    the ordinals of the keys that it numbers from 0."""
    ordinals = np.concatenate([at[_keys(rows)] for rows, at in tables])
    rows = _numbered_anew(_together([rows for rows, _ in tables]), ordinals)
    return rows.take(pa.array(np.argsort(ordinals, kind="stable")))


def _ranged(parts: ReadParts[Request], tables: list[pa.Table]) -> pa.Table:
    """Merge the rows of a range, or of the first values up to the read's limit. All rows of a value are at one
    worker."""
    rows, read = _together(tables), parts.original
    if parts.range is None:
        starts = np.cumsum([0, *(int(_keys(t).max(initial=-1)) + 1 for t in tables)])
        return _numbered_anew(rows, np.concatenate([_keys(t) + s for t, s in zip(tables, starts[:-1], strict=True)]))
    codes = from_arrow(rows.column(parts.range.column), parts.range.type, cast(Symbols, None))
    order = np.argsort(codes, kind="stable")[:: -1 if read.descending else 1]
    if read.first is not None and len(order) > read.first:
        last = codes[order[read.first - 1]]
        order = order[codes[order] >= last] if read.descending else order[codes[order] <= last]
    ranks = np.unique(codes, return_inverse=True)[1]
    return _numbered_anew(rows, ranks.max(initial=0) - ranks if read.descending else ranks).take(pa.array(order))


def _keys(rows: pa.Table) -> Codes:
    keys: Codes = rows.column(rows.num_columns - 1).to_numpy().astype(np.int64, copy=False)
    return keys


def _together(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables([pa.table(t) if isinstance(t, pa.RecordBatch) else t for t in tables])


def _numbered_anew(rows: pa.Table, ordinals: Codes) -> pa.Table:
    last = rows.num_columns - 1
    return rows.set_column(last, rows.column_names[last], pa.array(ordinals, pa.int64()))
