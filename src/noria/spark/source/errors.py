"""Errors that a user of the source can correct.  Spark reports them in one line, without its Python worker's stack.

Keeps true: only a `UserError` is reported without a stack; a defect of the source is reported with one.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

HIDDEN = "SPARK_HIDE_TRACEBACK"  # PySpark's workers read it when they report an exception


class UserError(Exception):
    """The user can correct this error: the message says what is wrong, and what to do."""


class OptionError(UserError, ValueError):
    """An option is invalid or missing."""


class RequestFailed(UserError, RuntimeError):
    """The server refused a read or a write, or the connection broke."""


class Unreachable(UserError, ConnectionError):
    """The server does not answer."""


@contextmanager
def in_one_line() -> Iterator[None]:
    """Hide the stack of a UserError.  All code that Spark's worker runs is within; its process ends after an error."""
    try:
        yield
    except UserError:
        os.environ[HIDDEN] = "1"
        raise


COMMON = ("url", "user", "password", "database")
READ = (*COMMON, "table", "view", "query", "columns", "where", "numPartitions", "direct")
STREAM_READ = (*COMMON, "feed", "startingOffsets", "failOnDataLoss")
WRITE = (*COMMON, "table", "primaryKey", "onDuplicate", "ifExists", "maxRejects", "id")
STREAM_WRITE = (*WRITE, "checkpointLocation", "queryName")  # the last two are Spark's own


def check_options(options: Iterable[str], known: Collection[str], what: str) -> None:
    """Raise OptionError for the first option that is not known; case does not matter.  what: for the message."""
    by_lower = {k.lower(): k for k in known}
    for name in options:
        if name.lower() not in by_lower:
            like = difflib.get_close_matches(name.lower(), by_lower, 1)
            hint = f"did you mean \"{by_lower[like[0]]}\"?" if like else f"there are {', '.join(known)}"
            raise OptionError(f"{what} has no option \"{name}\": {hint}")
