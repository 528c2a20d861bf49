"""Fewer columns of the rows of another view by the same key: no rows of its own.

    wide      SELECT id, title, url FROM stories WHERE author = ?
    narrow    SELECT title FROM stories WHERE author = ?              reads column 1 of what wide finds

What is read is as many rows, and only the columns that are asked for become values, so such a read takes what it took.
Not where a column that is not asked for may hold an error, of which reads would tell that are not concerned.
"""

from __future__ import annotations

from collections.abc import Sequence

from noria.core.expressions.expr import Expr


def fewer_columns(shown: Sequence[Expr], sure: Sequence[bool], wanted: Sequence[Expr | None]
                  ) -> tuple[int, ...] | None:
    """Where the wanted columns are among those shown; None is wanted in its place only, whatever it is.  sure: of each
    column shown, that it holds no error."""
    place = {e: i for i, e in reversed(list(enumerate(shown)))}
    if not all(e is None or e in place for e in wanted):
        return None
    some = next(place[e] for e in wanted if e is not None)
    columns = tuple(some if e is None else place[e] for e in wanted)
    return columns if all(sure[i] for i in range(len(shown)) if i not in columns) else None
