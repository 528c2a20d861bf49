"""Reads a view from another with the same key that has more columns, instead of keeping rows of its own.

    wide      SELECT id, title, url FROM stories WHERE author = ?
    narrow    SELECT title FROM stories WHERE author = ?              reads column 1 of the rows in wide

A read costs the same: it finds the same number of rows, and decodes only the wanted columns.  Refused if an unwanted
column may hold an error, which would fail reads of other columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from noria.core.expressions.expr import Expr


def fewer_columns(shown: Sequence[Expr], sure: Sequence[bool], wanted: Sequence[Expr | None]
                  ) -> tuple[int, ...] | None:
    """The positions of the wanted columns among the shown ones; None if one is missing or an unwanted one may fail.

    `sure`: for each shown column, whether it holds no error.  None in `wanted`: any column will do at this position.
    """
    place = {e: i for i, e in reversed(list(enumerate(shown)))}
    if not all(e is None or e in place for e in wanted):
        return None
    some = next(place[e] for e in wanted if e is not None)
    columns = tuple(some if e is None else place[e] for e in wanted)
    return columns if all(sure[i] for i in range(len(shown)) if i not in columns) else None
