"""Long input of a client: a long INSERT with bytes, and the file of LOAD DATA LOCAL INFILE.

    client: COM_QUERY LOAD DATA LOCAL INFILE 'f' …    server: 0xFB f    client: content …, an empty packet    server: OK

Keeps true: a file of more than FILE_BYTES is read to its end, but not kept.
"""

from __future__ import annotations

import inspect
import re
from asyncio import to_thread, wait

from noria.core.errors import SqlError, not_supported
from noria.core.errors.codes import LOCAL_FILES_DISABLED
from noria.server.mysql import codec
from noria.server.outcomes import Answer, PendingOutcome, RowEncoding, Session
from noria.sql.text.shape import literal_of


async def run(session: Session, sql: bytes, multi: bool, form: RowEncoding) -> Answer:
    """Run a long INSERT with bytes, as dumps have them.  Its text is decoded in a thread."""
    answer = session.query(await to_thread(codec.statement, sql), multi, form)
    if isinstance(answer, PendingOutcome):
        await wait((answer.future,))
        return answer.then(answer.future)
    return await answer if inspect.isawaitable(answer) else answer


# ------------------------------------------------------------------ LOAD DATA LOCAL
FILE_BYTES = 16 * 2**20  # as much as a long INSERT; its rows take ten times as much memory
REQUEST = 0xFB
_LOAD = re.compile(rb"""\s*LOAD\s+DATA\s+(?:LOW_PRIORITY\s+|CONCURRENT\s+)?LOCAL\s+INFILE\s+
                        ('(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")""", re.IGNORECASE | re.DOTALL | re.VERBOSE)


def named_in(sql: bytes) -> bytes | None:
    """The name of the client's file that a statement wants; None for any other statement."""
    found = _LOAD.match(sql)
    return None if found is None else str(literal_of(found[1].decode("utf-8", "replace"))).encode()


def disabled() -> SqlError:
    """The error for a client, or an interface, that sends no files."""
    return SqlError(*LOCAL_FILES_DISABLED, "Loading local data is disabled; this must be enabled on both the client "
                                           "and server sides")


class LocalFile:
    """A file that is being received.  sql: the statement."""

    def __init__(self, sql: bytes) -> None:
        self.sql, self._parts, self._size = sql, list[bytes](), 0

    def add(self, part: bytes, oversized: bool) -> None:
        """Take a part of the file.  oversized: it was too large to be kept."""
        self._size += FILE_BYTES + 1 if oversized else len(part)
        if self._size <= FILE_BYTES:
            self._parts.append(part)
        else:
            self._parts.clear()

    def content(self) -> bytes:
        """The whole file.  Raises SqlError if it is too large."""
        if self._size > FILE_BYTES:
            raise not_supported(f"LOAD DATA LOCAL of more than {FILE_BYTES >> 20} MiB", "use `noria load`")
        return b"".join(self._parts)


__all__ = ["REQUEST", "LocalFile", "disabled", "named_in", "run"]
