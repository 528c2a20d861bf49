"""The interface of the symbol table, which represents each distinct string by a small non-negative id.

`state/symbols/symbols.py` implements it.  An id is valid in one life of one worker; a message to another worker has
the text.
Keeps true: the text, folded twin and sort key of an id do not change while a state or a running tick uses the id.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, cast

import pyarrow as pa

from noria.core.batch import Codes
from noria.core.types import Collation


def fold(text: str) -> str:
    """Fold a text: texts that differ only in case and accents become equal.  Trailing spaces count: 'a' <> 'a '."""
    if text.isascii():
        return text.lower()
    import unicodedata

    decomposed = unicodedata.normalize("NFD", text.casefold())
    return unicodedata.normalize("NFC", "".join(c for c in decomposed if not unicodedata.combining(c)))


class Symbols(Protocol):
    @property
    def fold_table(self) -> Codes:
        """For each id, the id of its folded twin.  It covers all ids in use, because kernels index it."""

    sweeps: int
    """How often `sweep` ran."""

    def intern(self, text: str) -> int: ...

    def intern_many(self, texts: pa.Array) -> Codes:
        """Return the ids of a string or large_string array.  Null becomes NULL_CODE."""

    def find(self, text: str) -> int | None:
        """Return the id of a text that was interned, or None."""

    def text(self, code: int) -> str: ...

    def texts(self, codes: Codes) -> pa.Array:
        """Return the texts as a large_string array.  NULL_CODE becomes null."""

    def folded(self, codes: Codes) -> Codes:
        """Return the ids of the folded twins.  NULL_CODE stays."""

    def sort_keys(self, codes: Codes, collation: Collation) -> pa.Array:
        """Return large_binary keys whose byte order is the collation's order: for CI, the folded texts in UTF-8."""

    def memory(self) -> int: ...

    def sweep_is_due(self) -> bool:
        """True if the table has grown enough for a sweep."""

    def sweep(self, held: Iterable[Codes]) -> int:
        """Free all strings except the held ones and their folded twins.  Returns the number of freed bytes."""


NO_SYMBOLS = cast(Symbols, None)  # for values of types without strings: numbers, moments and times
