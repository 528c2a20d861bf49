"""Records which tables follow another database, and how far they lag.  Rejects the writes of others to them.

Keeps true: only its follower writes a followed table.  A follower that has sent nothing for FOLLOW_LOST_S, and has no
running request, is shown as lost, whatever state it reported last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from noria.core.errors import SqlError
from noria.core.errors.codes import OPTION_PREVENTS_STATEMENT
from noria.core.limits import FOLLOW_LOST_S

WAITING, FOLLOWING, STOPPED = "waiting for its follower", "following", "stopped"
_writer: ContextVar[str] = ContextVar("follower", default="")


@contextmanager
def written_by(follower: str) -> Iterator[None]:
    """Within this context, writes of this task count as writes of the named follower; "" names no follower."""
    token = _writer.set(follower)
    try:
        yield
    finally:
        _writer.reset(token)


@dataclass
class FollowerStatus:
    """A follower's last report.

    current: the last time (`time.monotonic`) at which the tables equalled the source; None: no report since the server
    started.

    last_request: the time of its last request.  requests: the number of its running requests.  loaded: the number of
    rows of the first load so far.
    """

    source: str
    state: str = WAITING
    position: str = ""
    end: str = ""
    behind_bytes: int = 0
    current: float | None = None
    transactions: int = 0
    rows: int = 0
    error: str = ""
    loaded: int = 0
    last_request: float = 0.0
    requests: int = 0

    def silent_s(self, now: float) -> float:
        """Return the seconds since its last request ended; 0 while one is running."""
        return 0.0 if self.requests else now - self.last_request

    def is_lost(self, now: float) -> bool:
        return self.state not in (WAITING, STOPPED) and self.silent_s(now) >= FOLLOW_LOST_S

    def shown_state(self, now: float) -> str:
        if not self.is_lost(now):
            return self.state
        since = datetime.fromtimestamp(time.time() - self.silent_s(now), UTC)
        return f"lost since {since:%Y-%m-%d %H:%M:%S} UTC"

    def lag_s(self, now: float) -> float | None:
        return None if self.current is None else max(now - self.current, 0.0)


@dataclass
class Followed:
    """The followers and their tables.  tables: folded table name -> follower.  statuses: by follower.  now: reads a
    monotonic clock, in seconds."""

    tables: dict[str, str] = field(default_factory=dict)
    statuses: dict[str, FollowerStatus] = field(default_factory=dict)
    now: Callable[[], float] = time.monotonic

    def follow(self, name: str, source: str, tables: Iterable[str]) -> None:
        self.tables |= {t.lower(): name for t in tables}
        self.statuses.setdefault(name, FollowerStatus(source))

    def release(self, name: str) -> None:
        self.tables = {t: n for t, n in self.tables.items() if n != name}
        self.statuses.pop(name, None)

    def check(self, table: str) -> None:
        """Raise SqlError if the table is followed and this context is not its follower's (`written_by`)."""
        follower = self.tables.get(table.lower())
        if follower is not None and follower != _writer.get():
            source = self.statuses[follower].source
            raise SqlError(*OPTION_PREVENTS_STATEMENT,
                           f"Table '{table}' is read-only: it follows {source}. Write there, or "
                           f"end that with `noria follow {source} --release`")

    def shown(self) -> list[tuple[Any, ...]]:
        """Return a row for each follower, in the form of SHOW NORIA FOLLOWING."""
        now = self.now()
        return [(s.source, ", ".join(t for t, n in sorted(self.tables.items()) if n == name), s.shown_state(now),
                 s.position, s.end, None if (lag := s.lag_s(now)) is None else f"{lag:.1f}", s.behind_bytes,
                 s.transactions, s.loaded + s.rows, s.error)
                for name, s in sorted(self.statuses.items(), key=lambda item: item[1].source)]

    def numbers(self) -> list[Mapping[str, Any]]:
        """Return the numbers of each follower for /metrics."""
        now = self.now()
        return [{"source": s.source, "following": s.state == FOLLOWING and not s.is_lost(now),
                 "lag_seconds": s.lag_s(now), "lag_bytes": s.behind_bytes, "transactions_total": s.transactions,
                 "rows_total": s.loaded + s.rows}
                for s in self.statuses.values()]


COLUMNS = ("Source", "Tables", "State", "Position", "Source_position", "Lag_s", "Lag_bytes", "Transactions", "Rows",
           "Error")
