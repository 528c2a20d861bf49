"""Reports bulk jobs to the log and to clients: loads, exports, backups and verifications.

Keeps true: each job has one line in the log, written when it has ended, whatever ended it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from noria.control.processes.supervisor import DriverGone, JobError
from noria.core.errors import SqlError
from noria.core.errors.codes import OUT_OF_RESOURCES, UNKNOWN_ERROR

Step = dict[str, Any]
LOGGED_COUNTS = ("rows", "rejected", "files")  # numbers of a job's last step
log = logging.getLogger("noria")


def failed(error: JobError | DriverGone) -> SqlError:
    """Return the client's error for a job that failed on Spark (1105), or whose driver ended (1041)."""
    return SqlError(*(OUT_OF_RESOURCES if isinstance(error, DriverGone) else UNKNOWN_ERROR), str(error))


async def logged(what: str, steps: AsyncGenerator[Step, None], closed: str = "cancelled") -> AsyncIterator[Step]:
    """Yield the job's steps, then log one line: its name, its outcome, the counts of its last step, and its seconds.

    closed: the outcome if the client disconnected before the last step.
    """
    began, counted, outcome = time.monotonic(), dict[str, int](), closed
    try:
        async with aclosing(steps):
            async for step in steps:
                _count(counted, step)
                yield step
        outcome = "done"
    except Exception as e:
        outcome = f"failed: {e}"
        raise
    finally:
        more = "".join(f", {n:,} {name}" for name, n in counted.items())
        log.info("%s: %s%s, after %.1f s", what, outcome, more, time.monotonic() - began)


def _count(counted: dict[str, int], step: Step) -> None:
    if "agrees" in step:  # a line of a verification: of one view, or of one table with misplaced rows
        for name, counts in (("compared", step["agrees"] is not None), ("differ", step["agrees"] is False)):
            counted[name] = counted.get(name, 0) + counts
    elif step.get("step") == "done":
        counted |= {name: int(step[name]) for name in LOGGED_COUNTS if isinstance(step.get(name), int)}


def compared(view: Any, derived: int) -> str:
    """Describe in words how much of a view was compared.  derived: the number of keys derived for the comparison."""
    if view.keys is None:
        return f"{view.rows:,} rows of all keys"
    some = f", {derived:,} of them derived for this" if derived else ""
    return f"{view.rows:,} rows of {view.keys:,} keys of {view.of or 0:,}{some}"
