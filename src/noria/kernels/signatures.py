"""`signatures.txt`: every kernel with the types that it is called with, callees first.

    noria.state.probe pairs int64[:, ::1]; int64[:, ::1]

Keeps true: a signature is written as it is read.  `r:` before an array: it cannot be written to; `[:]` without `::1`:
it need not lie in one piece.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from numba import types

LISTED = Path(__file__).with_suffix(".txt")
RECORD = "compiled.txt"  # beside the code that was compiled
_ARRAY = re.compile(r"(r:)?(\w+)\[([:, 1]+)\]")


class Compiled(NamedTuple):
    module: str
    function: str
    types: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.module} {self.function} {'; '.join(self.types)}".rstrip()


def listed(path: Path = LISTED) -> list[Compiled]:
    """In the order of the file."""
    return [parsed(line) for line in path.read_text().splitlines()]


def parsed(line: str) -> Compiled:
    """What `Compiled` is as a text."""
    module, function, rest = (*line.split(" ", 2), "")[:3]
    return Compiled(module, function, tuple(rest.split("; ")) if rest else ())


def text_of(kind: Any) -> str:
    """A type as the file has it.  ValueError: a literal, which only other kernels pass."""
    if isinstance(kind, types.Array):
        dims = ", ".join([":"] * (kind.ndim - 1) + ["::1" if kind.layout == "C" else ":"])
        return f"{'' if kind.mutable else 'r:'}{kind.dtype}[{dims}]"
    if isinstance(kind, types.Literal):
        raise ValueError(f"a literal: {kind}")
    return str(kind)


def type_of(text: str) -> Any:
    found = _ARRAY.fullmatch(text)
    if found is None:
        return getattr(types, text)
    kind, layout = getattr(types, found[2]), "C" if "::1" in found[3] else "A"
    return types.Array(kind, found[3].count(",") + 1, layout, readonly=bool(found[1]))


def record(directory: Path, what: Compiled) -> None:
    """Note what was compiled into a directory."""
    with (directory / RECORD).open("a") as file:
        file.write(f"{what}\n")


def kept(directory: Path) -> list[Compiled]:
    """What was compiled into a directory, in that order: a kernel after those that it calls."""
    path = directory / RECORD
    return listed(path) if path.exists() else []


def unlisted(directory: Path) -> list[Compiled]:
    """What was compiled there and is not in the file: somebody waited for it."""
    known = set(listed())
    return list(dict.fromkeys(c for c in kept(directory) if c not in known and c.module.startswith("noria.")))


def write(found: Iterable[Compiled], path: Path = LISTED) -> None:
    path.write_text("".join(f"{c}\n" for c in found))


def values(kinds: Sequence[str]) -> tuple[Any, ...]:
    return tuple(map(type_of, kinds))
