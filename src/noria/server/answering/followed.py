"""Which tables follow another database, so that nobody else writes them, and how far behind they are.

Keeps true: a followed table is written by its follower only, whatever way a write comes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from noria.core.errors import SqlError

READ_ONLY = 1290
_writer: ContextVar[str] = ContextVar("follower", default="")


@contextmanager
def written_by(follower: str) -> Iterator[None]:
    """What is written meanwhile, in this task, is written by the follower of this name; "": by anybody."""
    token = _writer.set(follower)
    try:
        yield
    finally:
        _writer.reset(token)


@dataclass
class Status:
    """What a follower last told.  current: the moment (`time.monotonic`) as of whose source the tables are, as far as
    that is known; None: nothing was heard since the server started."""

    source: str
    state: str = "waiting for its follower"
    position: str = ""
    end: str = ""
    behind_bytes: int = 0
    current: float | None = None
    transactions: int = 0
    rows: int = 0
    error: str = ""

    @property
    def lag_s(self) -> float | None:
        return None if self.current is None else max(time.monotonic() - self.current, 0.0)


@dataclass
class Followed:
    """tables: by folded name, its follower; statuses: by follower."""

    tables: dict[str, str] = field(default_factory=dict)
    statuses: dict[str, Status] = field(default_factory=dict)

    def follow(self, name: str, source: str, tables: Iterable[str]) -> None:
        self.tables |= {t.lower(): name for t in tables}
        self.statuses.setdefault(name, Status(source))

    def release(self, name: str) -> None:
        self.tables = {t: n for t, n in self.tables.items() if n != name}
        self.statuses.pop(name, None)

    def check(self, table: str) -> None:
        """SqlError where somebody else than its follower is about to write it."""
        follower = self.tables.get(table.lower())
        if follower is not None and follower != _writer.get():
            source = self.statuses[follower].source
            raise SqlError(READ_ONLY, "HY000", f"Table '{table}' is read-only: it follows {source}. Write there, or "
                                               f"end that with `noria follow {source} --release`")

    def shown(self) -> list[tuple[Any, ...]]:
        """A row for each follower, as SHOW NORIA FOLLOWING has it."""
        return [(s.source, ", ".join(t for t, n in sorted(self.tables.items()) if n == name), s.state, s.position,
                 s.end, None if s.lag_s is None else f"{s.lag_s:.1f}", s.behind_bytes, s.transactions, s.rows, s.error)
                for name, s in sorted(self.statuses.items(), key=lambda item: item[1].source)]

    def numbers(self) -> list[Mapping[str, Any]]:
        """For /metrics."""
        return [{"source": s.source, "following": s.state == "following", "lag_seconds": s.lag_s,
                 "lag_bytes": s.behind_bytes, "transactions_total": s.transactions, "rows_total": s.rows}
                for s in self.statuses.values()]


COLUMNS = ("Source", "Tables", "State", "Position", "Source_position", "Lag_s", "Lag_bytes", "Transactions", "Rows",
           "Error")
