"""Counters of a node, for EXPLAIN, /graph and /metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class NodeStats:
    """Counters since the node was created.

    `requested`: keys that pulls and reads requested from its partial state. `pull_depth`: the length of the longest
    chain of states that one of its misses filled. `timed_*`: of the ticks that were timed. `filled_ahead`: percent of
    the rows whose keys were filled before a read; these are not counted as misses.
    """

    rows_in: int = 0
    rows_out: int = 0
    ticks: int = 0
    requested: int = 0
    misses: int = 0
    evictions: int = 0
    pull_depth: int = 0
    timed_ticks: int = 0
    timed_ns: int = 0
    filled_ahead: float = 0.0

    def tick_ms(self) -> float:
        """Estimate of the time of all ticks, from those that were timed."""
        return self.timed_ns * self.ticks / max(self.timed_ticks, 1) / 1e6
