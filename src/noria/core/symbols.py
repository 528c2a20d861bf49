"""The symbol table's interface: each distinct string once, as a small non-negative id.

The implementation is `state/symbols.py`.  Ids are of one worker and one life of it; what leaves the worker
leaves as text.  Keeps true: an id's text, folded twin and sort key never change while the id is in use
(held by a state, or by whoever runs between two ticks).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import pyarrow as pa

from noria.core.batch import Codes
from noria.core.types import Collation


def fold(text: str) -> str:
    """The collation's equality: case and accents do not count (no padding: 'a' <> 'a ')."""
    if text.isascii():
        return text.lower()
    import unicodedata

    decomposed = unicodedata.normalize("NFD", text.casefold())
    return unicodedata.normalize("NFC", "".join(c for c in decomposed if not unicodedata.combining(c)))


class Symbols(Protocol):
    @property
    def fold_table(self) -> Codes:
        """id -> id of its folded twin; at least as long as the ids in use (kernels index it)."""

    sweeps: int
    """How often `sweep` ran."""

    def intern(self, text: str) -> int: ...

    def intern_many(self, texts: pa.Array) -> Codes:
        """Ids of a string or large_string array; null becomes NULL_CODE.  Vectorised."""

    def find(self, text: str) -> int | None:
        """The id, without interning."""

    def text(self, code: int) -> str: ...

    def texts(self, codes: Codes) -> pa.Array:
        """A large_string array; NULL_CODE becomes null.  Vectorised."""

    def folded(self, codes: Codes) -> Codes:
        """Ids of the folded twins; NULL_CODE stays.  Vectorised."""

    def sort_keys(self, codes: Codes, collation: Collation) -> pa.Array:
        """large_binary keys whose byte order is the collation's order (CI: UTF-8 of the folded text)."""

    def memory(self) -> int: ...

    def wants_sweep(self) -> bool:
        """Is it time to look which strings nobody holds?"""

    def sweep(self, held: Iterable[Codes]) -> int:
        """Free every string but the held ones and their folded twins; the bytes freed."""
