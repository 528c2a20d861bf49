"""Random histories of several sessions on Noria and MariaDB: the same answers, errors and rows at each step.

    NORIA_FUZZ_CASES=10000 NORIA_FUZZ_SEED=7 pytest -s tests/differential/test_sessions.py        a longer run
    NORIA_WORKERS=3                            all with three workers; else one, two and three in turn

Where MariaDB alone waits for a lock, as for those of its gaps, the history ends there; `waits` counts such histories.
An INSERT of Noria looks all keys of its rows up at once, and waits for each that is locked.  InnoDB does not look at
those behind the first duplicate.  Nor does it lock the children behind the first that forbids a statement.  With
several workers Noria also keeps the locks of UNIQUE values that a statement did not add in the end, as after INSERT
IGNORE, REPLACE and errors.  ROLLBACK TO keeps the locks of rows whose INSERT it undoes.  INSERT IGNORE
leaves out a row that a CHECK forbids, as in MySQL; MariaDB refuses it.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from differential.known import Error
from differential.play import differs, sent
from differential.sessions import DATABASE, NAMES, SESSIONS, TABLES, Histories, Step
from differential.shrink import fewer
from e2e.local import LocalServer
from e2e.mariadb import INSTALLED, MariaDb
from seeds import cases

CASES = int(os.environ.get("NORIA_FUZZ_CASES") or cases(60))
WORKERS = os.environ.get("NORIA_WORKERS", "")
LOCKED, REFERENCED, CHECK_THERE = 1205, 1451, 4025
VIOLATIONS = (1062, REFERENCED, 1452, 3819, CHECK_THERE)  # of constraints; a statement may violate several
FIRST = (f"CREATE DATABASE IF NOT EXISTS {DATABASE}", *(f"DROP TABLE IF EXISTS {name}" for name in NAMES), *TABLES)
EMPTY = ("SET foreign_key_checks = 0", "DELETE FROM kid", "SET foreign_key_checks = 1", "DELETE FROM side.boss",
         "DELETE FROM acc", "DELETE FROM kv", "TRUNCATE TABLE ai", "DELETE FROM bag")  # ai: its numbers begin anew


class Servers:
    """Both servers, with the connections of all sessions."""

    def __init__(self, directory: Path, mariadb: MariaDb, workers: int):
        self._several, self._made = workers > 1, False
        self.server, self.mariadb = LocalServer(directory, workers=workers), mariadb
        self.both = [(self.server.connect(), mariadb.connect()) for _ in range(SESSIONS + 1)]
        for each in self.both:
            for connection in each:
                sent(connection, "SET SESSION innodb_lock_wait_timeout = 0")

    def close(self) -> None:
        for each in self.both:
            for connection in each:
                connection.close()
        self.server.close()

    def play(self, history: Sequence[Step], seen: Counter[str]) -> str | None:
        """The first difference, or None."""
        self._begin_anew()
        undone = False
        for number, (session, text) in enumerate(history):
            undone = undone or text.startswith("ROLLBACK TO")
            got, want = (sent(connection, text) for connection in self.both[session])
            waits = [_code(each) == LOCKED for each in (got, want)]
            seen[_kind(text, want)] += 1
            more = (undone or self._several or text.startswith(("INSERT", "REPLACE")) or "kid" in text
                    or "boss" in text)
            if waits == [False, True] or (waits == [True, False] and more):
                seen[f"waits: only {'MariaDB' if waits[1] else 'Noria'}"] += 1
                return None
            if text.startswith("INSERT IGNORE") and got == 0 and _code(want) == CHECK_THERE:
                continue
            if not _code(got) and _code(want) == REFERENCED:
                seen["accepted by Noria, whose FOREIGN KEYs hold at the statement's end"] += 1
                return None
            if _code(got) in VIOLATIONS and _code(want) in VIOLATIONS:
                continue
            if differs(text, got, want) is not None:
                return f"step {number}, session {session}: {text}\n  noria:   {got}\n  mariadb: {want}"
        self.server.validate()
        return None

    def _begin_anew(self) -> None:
        for ours, theirs in self.both:
            for connection in (ours, theirs):
                sent(connection, "ROLLBACK")
                sent(connection, "SET autocommit = 1")
                sent(connection, "SELECT RELEASE_ALL_LOCKS()")
                sent(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        for connection in self.both[SESSIONS]:
            for text in EMPTY if self._made else FIRST:
                done = sent(connection, text)
                assert not isinstance(done, Error), (text, done)
        self._made = True


def _code(outcome: Any) -> int:
    return outcome.code if isinstance(outcome, Error) else 0


def _kind(text: str, outcome: Any) -> str:
    return f"{' '.join(text.split()[:2])}: {f'error {outcome.code}' if isinstance(outcome, Error) else 'done'}"


@pytest.mark.mariadb
@pytest.mark.timeout(7200)
@pytest.mark.skipif(not INSTALLED, reason="Debian's MariaDB server is not installed")
@pytest.mark.parametrize("workers", [int(WORKERS)] if WORKERS else [1, 2, 3])
def test_sessions_get_what_they_get_of_mariadb(tmp_path: Path, mariadb: MariaDb, workers: int) -> None:
    given = os.environ.get("NORIA_FUZZ_SEED", "100")
    first = random.randrange(10**6) * 1000 if given == "random" else int(given)
    seen: Counter[str] = Counter()
    servers = Servers(tmp_path / "data", mariadb, workers)
    try:
        for seed in range(first, first + CASES // (1 if WORKERS else 3)):
            history = Histories(seed).history()
            if (found := servers.play(history, seen)) is not None:
                pytest.fail(f"NORIA_WORKERS={workers} NORIA_FUZZ_SEED={seed} NORIA_FUZZ_CASES=1; shrunk:\n"
                            + _shrunk(servers, history, found))
    finally:
        servers.close()
    print(f"{workers} workers: " + ", ".join(f"{kind} {n}" for kind, n in seen.most_common()))


def _shrunk(servers: Servers, history: Sequence[Step], found: str) -> str:
    """The shortest history found that ends with the same kind of difference."""
    def fails(candidate: Sequence[Step]) -> bool:
        other = servers.play(candidate, Counter())
        return other is not None and _what(other) == _what(found)

    small = fewer(list(history), fails)
    return "\n".join(f"{session}: {text};" for session, text in small) + f"\n{servers.play(small, Counter())}"


def _what(difference: str) -> str:
    """The statement that differs, without its step."""
    return difference.split(": ", 1)[1].splitlines()[0]
