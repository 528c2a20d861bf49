"""The moment of a store: of which database, and after which of its writes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stand:
    """Which database it is, and which of its writes was the last."""

    identity: str
    sequence: int
