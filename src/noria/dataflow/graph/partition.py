"""Computes by which of its columns the rows of a node are hashed over the workers (design/decisions.md, 7). Pure.

`Parts` lists alternatives, each of which determines the worker of a row; the rows of an inner join have one for
either side's key. `ONE`: all rows are at worker 0. `SPREAD`: no columns determine the worker.

Keeps true: rows with equal values in an alternative's columns are at one worker, the one that `owners` returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from noria.core.batch import Codes
from noria.core.keys import shard_of
from noria.core.limits import ERROR_CODE, NULL_CODE
from noria.core.symbols import Symbols
from noria.core.types import Field
from noria.state.rows.table import Columns

Parts = tuple[Columns, ...]
ONE: Parts = ((),)
SPREAD: Parts = ()


class Partition(NamedTuple):
    """`inputs`: the columns by which each input must be hashed; None: it stays as it is. `output`: how the output
    is hashed then."""

    inputs: tuple[Columns | None, ...]
    output: Parts


def alike(inputs: Sequence[Parts]) -> Partition:
    """The partition of an operator whose output rows stay at the worker of their input rows."""
    return Partition((None,), inputs[0])


def placed(parts: Parts, places: Mapping[int, int]) -> Parts:
    """Rename the columns of the alternatives by `places`; alternatives with a column that has no place are
    dropped."""
    return tuple(tuple(places[c] for c in p) for p in parts if all(c in places for c in p))


def by_groups(parts: Parts, group: Columns, places: Mapping[int, int]) -> Partition:
    """The partition in which each group is at one worker. `places`: the output column of each group column."""
    if not group:
        return Partition((None if parts == ONE else (),), ONE)
    fitting = tuple(p for p in parts if p and set(p) <= set(group))
    if fitting:
        return Partition((None,), placed(fitting, places))
    return Partition((group,), placed((group,), places))


def by_pairs(left: Parts, right: Parts, pairs: Sequence[tuple[int, int]]) -> tuple[Columns | None, Columns | None]:
    """How to hash two inputs so that rows which are equal in all pairs (left column, right column) are at one
    worker.

    An input stays as it is if its hash columns are among the pairs.
    """
    if left == right == ONE:
        return None, None
    if not pairs:
        return None if left == ONE else (), None if right == ONE else ()
    across, back = dict(reversed(pairs)), {b: a for a, b in reversed(pairs)}
    for p in left:
        if p and all(c in across for c in p):
            other = tuple(across[c] for c in p)
            return None, None if other in right else other
    for p in right:
        if p and all(c in back for c in p):
            return tuple(back[c] for c in p), None
    return tuple(a for a, _ in pairs), tuple(b for _, b in pairs)


def owners(columns: Codes, fields: Sequence[Field], workers: int, symbols: Symbols) -> Codes:
    """The worker of each row, given hash columns of shape (columns, rows). Without columns: worker 0."""
    if not fields:
        return np.zeros(columns.shape[1], np.int64)
    plain = [np.where(c == ERROR_CODE, NULL_CODE, c) for c in columns]
    return shard_of(plain, [f.type for f in fields], workers, symbols)
