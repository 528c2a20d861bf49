"""Where the rows of a node are: by which of its columns they are hashed over the workers (DESIGN section 7).

`Parts` are alternatives, each of which tells the worker of a row: in an inner join's rows either side's key does.
`ONE`: all rows are at worker 0.  `SPREAD`: no columns tell.  Keeps true: equal values of an alternative's columns are
at one worker, the one that `owners` says.
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
from noria.state.table import Columns

Parts = tuple[Columns, ...]
ONE: Parts = ((),)
SPREAD: Parts = ()


class Partition(NamedTuple):
    """inputs: by which columns each input must be hashed; None: as it is.  output: where its own rows are then."""

    inputs: tuple[Columns | None, ...]
    output: Parts


def alike(inputs: Sequence[Parts]) -> Partition:
    """Rows stay where they are."""
    return Partition((None,), inputs[0])


def placed(parts: Parts, places: Mapping[int, int]) -> Parts:
    """The alternatives in the columns that copies of theirs have, where all have one."""
    return tuple(tuple(places[c] for c in p) for p in parts if all(c in places for c in p))


def by_groups(parts: Parts, group: Columns, places: Mapping[int, int]) -> Partition:
    """Every group at one worker.  places: output columns of the group's."""
    if not group:
        return Partition((None if parts == ONE else (),), ONE)
    fitting = tuple(p for p in parts if p and set(p) <= set(group))
    if fitting:
        return Partition((None,), placed(fitting, places))
    return Partition((group,), placed((group,), places))


def by_pairs(left: Parts, right: Parts, pairs: Sequence[tuple[int, int]]) -> tuple[Columns | None, Columns | None]:
    """Rows of two inputs that are equal in all pairs (left column, right column) at one worker: as one of the inputs is
    hashed, if its columns are among them."""
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
    """The worker of each row of some columns, shape (columns, rows).  No columns: worker 0."""
    if not fields:
        return np.zeros(columns.shape[1], np.int64)
    plain = [np.where(c == ERROR_CODE, NULL_CODE, c) for c in columns]
    return shard_of(plain, [f.type for f in fields], workers, symbols)
