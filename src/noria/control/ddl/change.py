"""What each change of the program returns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from noria.core.errors import SqlError
from noria.core.errors.codes import BAD_TABLE

Warning_ = tuple[str, int, str]


@dataclass(frozen=True)
class Change:
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
