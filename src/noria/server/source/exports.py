"""Exports: Spark writes the rows of a table, view or query, as of one snapshot, to files in a directory.

Keeps true: the directory has all files of the export, or is unchanged.  Spark writes to a directory beside it, whose
name begins with a dot, and this module renames that when it is complete.  It replaces only files of an earlier export.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from noria.core.errors import SqlError
from noria.core.errors.codes import FILE_EXISTS, NOT_SUPPORTED_YET, UNKNOWN_ERROR
from noria.server.bulk.job_directories import remove_directory
from noria.server.bulk.jobs import BulkJobs
from noria.server.source.source_planner import ServerSourcePlanner

FORMATS = ("parquet", "csv", "json")
_MARK, _PART = "_SUCCESS", "part-"  # the names of an export's files: one mark, and the parts


class Exports:
    """Runs exports."""
    def __init__(self, planner: ServerSourcePlanner, bulk: BulkJobs):
        self._planner, self._bulk = planner, bulk

    async def run(self, request: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Export and yield steps of progress.  The last step has `rows`, `files` and `multiline`.  request: as
        `LoadPermit.check_export` returns it."""
        form, target, overwrite = str(request.get("to")), str(request["directory"]), bool(request.get("overwrite"))
        if form not in FORMATS:
            raise SqlError(*UNKNOWN_ERROR, f"there is no format '{form}': give one of {', '.join(FORMATS)} (--to)")
        batch, one_row = self._planner.anything(str(request.get("what", "")))
        await asyncio.to_thread(check_target, target, overwrite)
        head, tail = os.path.split(target)
        unfinished = os.path.join(head, f".{tail}.{secrets.token_hex(4)}.unfinished")
        try:
            async for step in self._bulk.write(batch, form, unfinished):
                if "result" not in step:
                    yield step
                    continue
                made = step["result"]
                if one_row and not made.rows:
                    raise SqlError(*NOT_SUPPORTED_YET,
                                   "the query aggregates no rows at all, which Spark answers by no row: "
                                   "ask it by `noria sql`")
                await asyncio.to_thread(_put, unfinished, target, overwrite)
                yield {"step": "done", "rows": made.rows, "files": made.files, "multiline": made.multiline}
        finally:
            await asyncio.shield(asyncio.to_thread(remove_directory, Path(unfinished)))


def check_target(target: str, overwrite: bool) -> None:
    """Raise SqlError if the directory's parent is missing, or the directory has files that must not be replaced."""
    head = os.path.dirname(target)
    if not os.path.isdir(head):
        raise SqlError(*UNKNOWN_ERROR, f"the directory '{head}' is not there: make it first")
    if not os.path.lexists(target):
        return
    if not os.path.isdir(target):
        raise SqlError(*FILE_EXISTS, f"'{target}' already exists and is no directory: give another name")
    there = os.listdir(target)
    if there and not overwrite:
        raise SqlError(*FILE_EXISTS, f"the directory '{target}' is not empty: give another name, or --overwrite")
    if other := next((n for n in there if n != _MARK and not n.startswith(_PART)), ""):
        raise SqlError(*FILE_EXISTS, f"the directory '{target}' holds '{other}', which no export made: remove it, or "
                                     "give another name")


def _put(made: str, target: str, overwrite: bool) -> None:
    """Mark the export as complete and rename its directory to the target.  If that fails, restore the old files."""
    with open(os.path.join(made, _MARK), "wb"):
        pass
    check_target(target, overwrite)
    before = ""
    try:
        if os.path.isdir(target) and os.listdir(target):
            before = f"{made}.before"
            os.rename(target, before)
        os.rename(made, target)
    except OSError as e:
        if before:
            with contextlib.suppress(OSError):
                os.rename(before, target)
        raise SqlError(*UNKNOWN_ERROR, f"'{target}' cannot be written: {e.strerror}") from e
    if before:
        shutil.rmtree(before, ignore_errors=True)
