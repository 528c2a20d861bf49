"""Encodes large answers in chunks.

Keeps true: the chunks together equal the reply encoded at once, with the same packet numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache

from noria.core.limits import OFF_LOOP_ROWS
from noria.server.mysql import codec, rows
from noria.server.mysql.codec import MORE_RESULTS
from noria.server.outcomes import NEVER, Encoded, FailedStatement, Ok, Outcome, ResultSet, Stopped, Stream
from noria.server.rows import LargeRows


def is_large(outcome: Outcome) -> bool:
    """True if the outcome must be sent in chunks."""
    if not isinstance(outcome, ResultSet):
        return False
    return len(outcome.rows) > OFF_LOOP_ROWS or isinstance(outcome.rows, LargeRows)


def chunks_of(outcomes: Sequence[Outcome], binary: bool, deprecate_eof: bool, status: int, seq: int = 1,
              sending: AbstractContextManager[Stopped] = NEVER) -> Iterator[bytes]:
    """Yield the packets of an answer, numbered from `seq`.

    sending: entered until the last chunk is encoded or the iterator is closed.  If its `Stopped` returns an error, that
    ends the rows (`outcomes.Session.sending`).
    """
    with sending as stopped:
        for i, outcome in enumerate(outcomes):
            more = MORE_RESULTS if i + 1 < len(outcomes) else 0
            if isinstance(outcome, ResultSet):
                seq = yield from rows.encode_chunks(outcome.fields, outcome.rows, binary, deprecate_eof, status | more,
                                                    len(outcome.warnings), seq, stopped)
                if not seq:
                    return
                continue
            packets = _packets_of(outcome, deprecate_eof, status, more, seq)
            seq += codec.count_packets(packets)
            yield packets


def _packets_of(outcome: Outcome, deprecate_eof: bool, status: int, more: int, seq: int) -> bytes:
    if isinstance(outcome, FailedStatement):
        return codec.frame(codec.error(outcome.error), seq)
    if isinstance(outcome, Encoded):
        packets = outcome.packets if seq == 1 else codec.renumber(outcome.packets, seq)
        return codec.with_more_results(packets, deprecate_eof) if more else packets
    assert isinstance(outcome, Ok)
    return ok_packet(outcome.affected, outcome.last_insert_id, status | more, len(outcome.warnings), outcome.info, seq)


class Renumbered:
    """A stream whose packets are renumbered from `seq`."""

    def __init__(self, stream: Stream, seq: int):
        self._stream, self._seq = stream, seq

    def pull(self, ready: Callable[[bytes | None], None]) -> None:
        self._stream.pull(lambda chunk: ready(None if chunk is None else self._numbered(chunk)))

    def _numbered(self, chunk: bytes) -> bytes:
        numbered = codec.renumber(chunk, self._seq)
        self._seq += codec.count_packets(chunk)
        return numbered

    def close(self) -> None:
        self._stream.close()


@lru_cache(maxsize=1024)
def ok_packet(affected: int, last_insert_id: int, status: int, warnings: int, info: str, seq: int) -> bytes:
    """Return the reply to a statement without rows."""
    return codec.frame(codec.ok(affected, last_insert_id, status, warnings, info), seq)
