"""A bulk load before it is taken in: could it be?"""

from __future__ import annotations

from noria.core.errors import SqlError
from noria.dataflow.packets import CheckIngest, Done
from noria.dataflow.protocols import BaseStore


def check(store: BaseStore, body: CheckIngest) -> Done:
    """With the error that the load would have; nothing is changed."""
    try:
        store.check_ingest(body.table, {name: list(paths) for name, paths in body.files}, body.rows,
                           {name: list(paths) for name, paths in body.others})
    except SqlError as error:
        return Done(body.request, error=error)
    return Done(body.request)
