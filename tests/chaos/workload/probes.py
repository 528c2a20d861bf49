"""One row at each worker, written again and again: how long a worker's keys are away, and how others are served then.

Keeps true: what a client of one worker waits is not what it waits for another: each has a client of its own.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from chaos.workload.clients import Client, Text, World
from chaos.workload.places import places

PROBED = "CREATE TABLE probes (place INT PRIMARY KEY, n BIGINT NOT NULL)"
PAUSE_S = 0.02


class Probe(Client):
    """A client of one worker.  waits: when it asked, and when it had the answer."""

    def __init__(self, world: World, worker: int):
        super().__init__(world, f"client of worker {worker} only")
        self.worker, self._way, self._n = worker, Text(world, straight=True), 0
        self._place = places(0, world.workers)[worker]
        self.waits: list[tuple[float, float]] = []

    def turn(self) -> None:
        self._n += 1
        text, began = f"REPLACE INTO probes VALUES ({self._place}, {self._n})", time.monotonic()
        self.patiently(text, self._way, lambda: self._way.execute(text))
        self.waits.append((began, time.monotonic()))
        self.world.stop.wait(PAUSE_S)

    def longest(self, since: float) -> float:
        """Of the answers since then."""
        return max((end - max(began, since) for began, end in self.waits if end > since), default=0.0)

    def answers(self, since: float, until: float) -> int:
        return sum(since < end <= until for _, end in self.waits)

    def forget(self) -> None:
        self.waits = self.waits[-1:]


@dataclass
class Losses:
    """What was seen when one worker of several was hit: seconds that its keys were away, the longest wait of those who
    needed another one only, and how many answers these had meanwhile."""

    away: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    others: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    answers: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def seen(self, fault: str, hit: int, since: float, probes: Sequence[Probe]) -> None:
        away = probes[hit].longest(since)
        self.away[fault].append(away)
        self.others[fault].append(max(p.longest(since) for p in probes if p.worker != hit))
        self.answers[fault] += sum(p.answers(since, since + away) for p in probes if p.worker != hit)

    def lines(self) -> Iterator[str]:
        for name, away in sorted(self.away.items()):
            others = self.others[name]
            yield (f"  {name}: its keys away {statistics.median(away):.2f} s at the median, {max(away):.2f} s at most; "
                   f"clients of others meanwhile {self.answers[name]} answers, longest wait "
                   f"{statistics.median(others):.2f} s at the median, {max(others):.2f} s at most")
