"""Checks a bulk load before it is ingested (`check`), and lists what its files must have (`needs`). Changes nothing."""

from __future__ import annotations

from typing import Any

from noria.core.errors import SqlError
from noria.dataflow.graph.protocols import BaseStore
from noria.dataflow.messages.packets import CheckIngest, Done


def check(store: BaseStore, body: CheckIngest) -> Done:
    """Report the error that ingesting these files would have; nothing is changed."""
    try:
        store.check_ingest(body.table, {name: list(paths) for name, paths in body.files}, body.rows,
                           {name: list(paths) for name, paths in body.others})
    except SqlError as error:
        return Done(body.request, error=error)
    return Done(body.request)


def needs(store: BaseStore, table: str) -> dict[str, Any]:
    """The properties of the table that the maker of files needs: indexes, AUTO_INCREMENT mark and number of rows."""
    indexes, auto_increment = store.load_needs(table)
    return {"indexes": indexes, "auto_increment": auto_increment, "rows": store.row_count(table)}
