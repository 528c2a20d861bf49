"""Serves the entries of a new UNIQUE index for comparison with other workers' while the table is written
(`runtime/transactions/unique.py`).

    begin           record new entries from now on
    edge, within    the entries in order: the key at which a slice of them ends, and their hashes
    like            the entry that has a hash
    noted           some of the recorded entries, once, and how many are left
    held, named     which entries are stored here; error 1062 for the row of one

Keeps true: an answer covers at most COMPARED_ENTRIES entries.  An entry added after `begin` is reported, unless it was
deleted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from noria.core.errors import SqlError, view_changed
from noria.core.errors.codes import UNKNOWN_ERROR
from noria.core.limits import COMPARED_ENTRIES, COMPARED_NOTED
from noria.storage.rocks.engine import RocksEngine
from noria.storage.tables.table import Index


class UniqueComparison:
    """Answers the questions about one index.  named: makes error 1062 for the row that has a key."""

    def __init__(self, engine: RocksEngine, index: Index, named: Callable[[bytes], SqlError]):
        self._engine, self.index, self._named = engine, index, named
        self._noted: dict[bytes, None] | None = None

    def note(self, entries: Iterable[bytes]) -> None:
        if self._noted is None:
            return
        self._noted.update(dict.fromkeys(entries))
        if len(self._noted) > COMPARED_NOTED:
            raise SqlError(*UNKNOWN_ERROR, f"The values of UNIQUE key '{self.index.name}' are written faster than they "
                                           "can be compared with those of other workers: try again when less is "
                                           "written")

    def answer(self, what: str, arguments: tuple[bytes, ...]) -> Any:
        """Answer a question.  Raises SqlError 1412 if `begin` was not sent before."""
        if what == "begin":
            self._noted = {}
        elif self._noted is None:
            raise view_changed(self.index.name)
        return None if what == "begin" else _QUESTIONS[what](self, *arguments)

    def edge(self, after: bytes) -> bytes:
        """The key at which the next slice ends; empty if fewer than COMPARED_ENTRIES entries are left."""
        entries = self._from(after, COMPARED_ENTRIES)
        return entries[-1] if len(entries) == COMPARED_ENTRIES else b""

    def within(self, after: bytes, edge: bytes) -> bytes:
        """The hashes of the entries up to the edge, included; to the end if it is empty."""
        return b"".join(map(_hash, self._range(after, edge)))

    def like(self, after: bytes, edge: bytes, hash: bytes) -> bytes:
        """The entry with this hash; empty if it was deleted."""
        return next((e for e in self._range(after, edge) if _hash(e) == hash), b"")

    def noted(self) -> tuple[tuple[bytes, ...], int]:
        assert self._noted is not None
        some = tuple(islice(self._noted, COMPARED_ENTRIES))
        for entry in some:
            del self._noted[entry]
        return some, len(self._noted)

    def held(self, *entries: bytes) -> tuple[int, ...]:
        found = self._engine.get(self.index.family, list(entries)) if entries else []
        return tuple(n for n, key in enumerate(found) if key is not None)

    def named(self, entry: bytes) -> None:
        key = self._engine.get(self.index.family, entry)
        if key is not None:
            raise self._named(key)

    def _from(self, after: bytes, most: int) -> list[bytes]:
        first = after + b"\0" if after else None  # the least key above it
        return [entry for entry, _ in self._engine.items(self.index.family, most, first)]

    def _range(self, after: bytes, edge: bytes) -> Iterator[bytes]:
        while some := self._from(after, COMPARED_ENTRIES):
            for entry in some:
                if edge and entry > edge:
                    return
                yield entry
            if len(some) < COMPARED_ENTRIES or some[-1] == edge:
                return
            after = some[-1]


def _hash(entry: bytes) -> bytes:
    return hashlib.blake2b(entry, digest_size=16).digest()


_QUESTIONS: dict[str, Callable[..., Any]] = {
    "edge": UniqueComparison.edge, "within": UniqueComparison.within, "like": UniqueComparison.like,
    "noted": UniqueComparison.noted, "held": UniqueComparison.held, "named": UniqueComparison.named}
