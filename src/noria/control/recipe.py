"""The recipe: the statements that make the views, as the store keeps them beside the tables.

Each begins with the number of changes of columns that there were when it was written, if there were any: `SELECT *`
means the columns of then, and a name that was clear then is clear.
"""

from __future__ import annotations

import re

from noria.core.types import TableDef
from noria.plan.view import ViewDef
from noria.sql.query.context import Catalog

_STORED = re.compile(r"AS OF (\d+): ", re.ASCII)


def stored(text: str, as_of: int) -> str:
    return f"AS OF {as_of}: {text}" if as_of else text


def read(statement: str) -> tuple[str, int]:
    """The text, and as of which change it is."""
    found = _STORED.match(statement)
    return (statement, 0) if found is None else (statement[found.end():], int(found[1]))


class AsOf:
    """A catalog as it was after so many changes of columns."""

    def __init__(self, catalog: Catalog, change: int):
        self._catalog, self._change = catalog, change

    def table(self, name: str) -> TableDef | None:
        found = self._catalog.table(name)
        return None if found is None else found.as_of(self._change)

    def view(self, name: str) -> ViewDef | None:
        return self._catalog.view(name)
