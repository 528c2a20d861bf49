"""Names a moment of a store: the database, and the last of its writes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StorePosition:
    """The identity of a database and the sequence number of its last write."""

    identity: str
    sequence: int
