"""What a user of the source can mend, and how Spark tells it: in one line, without the stack of its Python worker.

Keeps true: only a `UserError` loses its stack; a defect of the source keeps it.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

HIDDEN = "SPARK_HIDE_TRACEBACK"  # heeded by PySpark's workers when they report an exception


class UserError(Exception):
    """Its message says what is wrong, and what to do."""


class OptionError(UserError, ValueError):
    """An option that cannot be followed."""


class Failed(UserError, RuntimeError):
    """A read or a write that the server refused, or that broke off."""


class Unreachable(UserError, ConnectionError):
    """A server that does not answer."""


@contextmanager
def in_one_line() -> Iterator[None]:
    """Around all that Spark's worker runs: the process ends when it has reported the error."""
    try:
        yield
    except UserError:
        os.environ[HIDDEN] = "1"
        raise


COMMON = ("url", "user", "password")
READ = (*COMMON, "table", "view", "query", "columns", "where", "numPartitions", "direct")
STREAM_READ = (*COMMON, "feed", "startingOffsets", "failOnDataLoss")
WRITE = (*COMMON, "table", "primaryKey", "onDuplicate", "ifExists", "maxRejects", "id")
STREAM_WRITE = (*WRITE, "checkpointLocation", "queryName")  # the last two are Spark's own


def check_options(given: Iterable[str], known: Collection[str], what: str) -> None:
    """OptionError for the first option that `what` has not; case does not count."""
    by_lower = {k.lower(): k for k in known}
    for name in given:
        if name.lower() not in by_lower:
            like = difflib.get_close_matches(name.lower(), by_lower, 1)
            hint = f"did you mean \"{by_lower[like[0]]}\"?" if like else f"there are {', '.join(known)}"
            raise OptionError(f"{what} has no option \"{name}\": {hint}")
