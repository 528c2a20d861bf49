"""Records who asked for the current change of the program, and in which words, for the program's history.

The origin is a context variable of the task that makes the change, because the code in between does not need it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta

from noria.core import limits
from noria.core.expressions.coerce import EPOCH
from noria.dataflow.messages.packets import ChangeOrigin

NOBODY = "the server"
_asked: ContextVar[tuple[str, str]] = ContextVar("asked", default=(NOBODY, ""))


@contextmanager
def asked(who: str, text: str) -> Iterator[None]:
    """Within this context, changes are recorded as asked for by `who` in these words."""
    before = _asked.set((who, text[: limits.HISTORY_CHARACTERS]))
    try:
        yield
    finally:
        _asked.reset(before)


@contextmanager
def with_text(text: str) -> Iterator[None]:
    """Within this context, changes have another text and the same author."""
    with asked(_asked.get()[0], text):
        yield


def note() -> ChangeOrigin:
    """The history entry of a change that is made now."""
    now = datetime.now(UTC).replace(tzinfo=None)
    return ChangeOrigin((now - EPOCH) // timedelta(microseconds=1), *_asked.get())
