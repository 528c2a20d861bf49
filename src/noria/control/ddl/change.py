"""What each change of the program returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from noria.core.errors import SqlError, is_redefined
from noria.core.errors.codes import BAD_TABLE, UNKNOWN_ERROR
from noria.core.limits import POISON_DEATHS

Warning_ = tuple[str, int, str]


@dataclass(frozen=True)
class ChangeResult:
    """The result of a change: warnings as (level, code, message).  affected: the count that clients show."""

    warnings: tuple[Warning_, ...] = ()
    affected: int = 0


def unknown(names: list[str], if_exists: bool) -> tuple[Warning_, ...]:
    """The notes of a DROP about names that do not exist.  Raises SqlError 1051 without IF EXISTS."""
    if names and not if_exists:
        raise SqlError(*BAD_TABLE, f"Unknown table {quoted(names)}")
    return tuple(("Note", BAD_TABLE.number, f"Unknown table '{n}'") for n in names)


def quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{n}'" for n in names)


async def retried(change: Callable[[], Awaitable[None]], failed: str) -> ChangeResult:
    """Make a change, and again if the worker ends or a definition changes meanwhile.  `failed`: the message of the
    error if that happens too often."""
    for _ in range(POISON_DEATHS):
        try:
            await change()
            return ChangeResult()
        except SqlError as e:
            if not is_redefined(e):
                raise
    raise SqlError(*UNKNOWN_ERROR, failed)
