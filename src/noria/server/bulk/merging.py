"""Writes a load's rows as statements: a row that conflicts with a stored row is ignored or replaces it, as requested.

Each statement is small, so other clients do not wait long for it.  They may see a part of the load.  A load that was
interrupted is repeated from its start, with the same final result.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from noria.core.errors import SqlError, not_supported
from noria.core.limits import SOURCE_STATEMENT_ROWS
from noria.core.statements import Insert
from noria.core.types import TableDef

if TYPE_CHECKING:  # as in jobs.py
    from noria.spark.loading.merging import RowsReport

Put = Callable[[Insert, str], Awaitable[int]]  # (rows, name as in `packets.Write.idempotency_key`) -> rows affected


async def merged(table: TableDef, report: RowsReport, request: dict[str, Any], put: Put
                 ) -> AsyncIterator[dict[str, Any]]:
    """Write the rows and yield steps of progress.  The last step has the numbers of written, ignored and replaced rows.
    Raises SqlError if a statement fails; its text says how many rows before it are written."""
    on, idempotency_key = str(request["on_duplicate"]), str(request.get("once", ""))
    refuse_scattered(table, report.rows, on)
    columns = table.writable
    done = affected = 0
    for batch in _batches(report.files):
        done += batch.num_rows
        try:
            affected += await put(Insert(table.name, columns, batch, on),
                                  idempotency_key if done == report.rows else "")
        except SqlError as e:
            before = done - batch.num_rows
            raise SqlError(e.code, e.state, f"{e.message}; {before:,} rows before it are written: mend the files or "
                                            "the table, and load again") from e
        yield {"step": f"writing rows into {table.name}", "done": done, "total": report.rows}
    ignored = report.rows - affected if on == "ignore" else 0
    replaced = affected - report.rows if on == "replace" else 0
    yield {"step": "done", "rows": report.rows - ignored, "ignored": ignored, "replaced": replaced}


def refuse_scattered(table: TableDef, rows: int, on: str) -> None:
    """Raise SqlError if a row would be left out, since its parent may be in a later statement."""
    if on == "ignore" and rows > SOURCE_STATEMENT_ROWS and any(k.refers_to(table.name) for k in table.foreign_keys):
        raise not_supported(f"ignoring rows that exist, of more than {SOURCE_STATEMENT_ROWS:,} rows of a table that "
                            f"refers to itself ('{table.name}')", "load in several parts, the parents first")


def _batches(files: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for path in files:
        with pa.memory_map(path) as file:
            held = pa.ipc.open_file(file)
            for i in range(held.num_record_batches):
                batch = held.get_batch(i)
                if batch.num_rows:
                    yield batch
