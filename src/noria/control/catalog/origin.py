"""Who asked for the change of the program that is under way, and in which words: for the history of the program.

It goes with the task that makes the change (a context variable), since it concerns neither the change nor what is on
the way to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta

from noria.core import limits
from noria.core.expressions.coerce import EPOCH
from noria.dataflow.messages.packets import Note

NOBODY = "the server"
_asked: ContextVar[tuple[str, str]] = ContextVar("asked", default=(NOBODY, ""))


@contextmanager
def asked(who: str, text: str) -> Iterator[None]:
    """Within, changes are asked for by `who`, in these words."""
    before = _asked.set((who, text[: limits.HISTORY_CHARACTERS]))
    try:
        yield
    finally:
        _asked.reset(before)


@contextmanager
def instead(text: str) -> Iterator[None]:
    """Within, something else happens for whoever asked."""
    with asked(_asked.get()[0], text):
        yield


def note() -> Note:
    """Of a change that is made now."""
    now = datetime.now(UTC).replace(tzinfo=None)
    return Note((now - EPOCH) // timedelta(microseconds=1), *_asked.get())
