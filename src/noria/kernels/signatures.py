"""Reads and writes `signatures.txt`: each kernel with its argument types, callees before their callers.

    noria.state.rows.probe pairs int64[:, ::1]; int64[:, ::1]

`r:` marks a read-only array.  `::1` marks a C-contiguous array; one without it may have any strides.
Keeps true: `parsed` reads the lines that `KernelSignature.__str__` writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from numba import types

LISTED = Path(__file__).with_suffix(".txt")
RECORD = "compiled.txt"  # in the directory of the compiled code
_ARRAY = re.compile(r"(r:)?(\w+)\[([:, 1]+)\]")


class KernelSignature(NamedTuple):
    """One kernel for one set of argument types."""

    module: str
    function: str
    types: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.module} {self.function} {'; '.join(self.types)}".rstrip()


def listed(path: Path = LISTED) -> list[KernelSignature]:
    """Read the listed kernels, in the order of the file."""
    return [parsed(line) for line in path.read_text().splitlines()]


def parsed(line: str) -> KernelSignature:
    """Parse one line of the file."""
    module, function, rest = (*line.split(" ", 2), "")[:3]
    return KernelSignature(module, function, tuple(rest.split("; ")) if rest else ())


def text_of(kind: Any) -> str:
    """Write a numba type as in the file.  Raises ValueError for a literal type, which only other kernels pass."""
    if isinstance(kind, types.Array):
        dims = ", ".join([":"] * (kind.ndim - 1) + ["::1" if kind.layout == "C" else ":"])
        return f"{'' if kind.mutable else 'r:'}{kind.dtype}[{dims}]"
    if isinstance(kind, types.Literal):
        raise ValueError(f"a literal: {kind}")
    return str(kind)


def type_of(text: str) -> Any:
    match = _ARRAY.fullmatch(text)
    if match is None:
        return getattr(types, text)
    kind, layout = getattr(types, match[2]), "C" if "::1" in match[3] else "A"
    return types.Array(kind, match[3].count(",") + 1, layout, readonly=bool(match[1]))


def record(directory: Path, what: KernelSignature) -> None:
    """Append a kernel to the directory's record of compiled kernels."""
    with (directory / RECORD).open("a") as file:
        file.write(f"{what}\n")


def kept(directory: Path) -> list[KernelSignature]:
    """The kernels compiled into a directory, in the order of compilation: callees first."""
    path = directory / RECORD
    return listed(path) if path.exists() else []


def unlisted(directory: Path) -> list[KernelSignature]:
    """The kernels compiled into a directory but missing in `signatures.txt`: a caller waited for each."""
    known = set(listed())
    return list(dict.fromkeys(c for c in kept(directory) if c not in known and c.module.startswith("noria.")))


def write(kernels: Iterable[KernelSignature], path: Path = LISTED) -> None:
    path.write_text("".join(f"{c}\n" for c in kernels))


def values(kinds: Sequence[str]) -> tuple[Any, ...]:
    return tuple(map(type_of, kinds))
