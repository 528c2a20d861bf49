"""A case played on both servers, statement by statement; the first difference, if there is one.

Compared are affected rows, error numbers, column types (by family), values with their exact types, and order where
the query asks for one.  Left to the server's choice: the last bits of doubles, and which of several texts that are
equal under the collation stands for a group.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pymysql
from pymysql.constants import FIELD_TYPE as T

from differential.known import Error, known
from e2e.local import LocalServer
from noria.core.symbols import fold

REFUSED = 1235
FAMILIES = {**dict.fromkeys((T.TINY, T.SHORT, T.LONG, T.INT24, T.LONGLONG, T.YEAR), "integer"),
            **dict.fromkeys((T.DECIMAL, T.NEWDECIMAL), "decimal"), **dict.fromkeys((T.FLOAT, T.DOUBLE), "double"),
            **dict.fromkeys((T.DATE, T.NEWDATE), "date"), **dict.fromkeys((T.DATETIME, T.TIMESTAMP), "datetime"),
            T.TIME: "time", T.NULL: "null"}


@dataclass(frozen=True)
class Rows:
    families: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def __str__(self) -> str:
        return f"{self.rows} of {', '.join(self.families)}"


@dataclass(frozen=True)
class Difference:
    """what: rows, types, errors or broken; with the error numbers it is what shrinking must keep."""

    step: int
    text: str
    what: tuple[Any, ...]
    noria: Any
    mariadb: Any

    def __str__(self) -> str:
        return f"step {self.step}: {self.text}\n  noria:   {self.noria}\n  mariadb: {self.mariadb}"


@dataclass
class Tally:
    """What cases consisted of."""

    statements: int = 0
    selects: int = 0
    cases: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        refused = "".join(f"\n  {n:6d} {why}" for why, n in self.refused.most_common(25))
        wanted = "".join(f"\n  {n:6d} {why}" for why, n in self.known.most_common())
        return (f"{self.cases} cases, {self.statements} statements, {self.selects} SELECTs, of these refused "
                f"{sum(self.refused.values())}:{refused}\nknown differences:{wanted or ' none'}")


def outcome(connection: Any, text: str) -> Any:
    with connection.cursor() as cursor:
        try:
            affected = cursor.execute(text)
            if cursor.description is None:
                return int(affected)
            families = tuple(_family(d) for d in cursor.description)
            return Rows(families, list(cursor.fetchall()))
        except pymysql.err.MySQLError as e:
            return Error(e.args[0], str(e.args[1]) if len(e.args) > 1 else "")


def _family(description: Any) -> str:
    family = FAMILIES.get(description[1], "text")
    return f"decimal with {description[5]} digits" if family == "decimal" else family


def play(case: Sequence[str], oracle: Any, tally: Tally | None = None) -> Difference | None:
    """`oracle`: a connection to MariaDB, whose database `diff` is made anew."""
    tally = tally or Tally()
    tally.cases += 1
    with oracle.cursor() as cursor:
        cursor.execute("DROP DATABASE IF EXISTS diff")
        cursor.execute("CREATE DATABASE diff")
        cursor.execute("USE diff")
    with tempfile.TemporaryDirectory(dir=_fast()) as directory:
        server = LocalServer(Path(directory) / "data")
        connection = server.connect()
        try:
            return _steps(case, server, connection, oracle, tally)
        finally:
            connection.close()
            server.close()


def _fast() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _steps(case: Sequence[str], server: LocalServer, ours: Any, theirs: Any, tally: Tally) -> Difference | None:
    for number, text in enumerate(case):
        if text.startswith("-- forget"):
            nbytes = text.removeprefix("-- forget").strip()
            server.evict(int(nbytes) if nbytes else None)
            continue
        got, want = outcome(ours, text), outcome(theirs, text)
        tally.statements += 1
        select = text.startswith("SELECT")
        tally.selects += select
        if isinstance(got, Error) and got.code == REFUSED:
            tally.refused[re.sub(r"[;,(]? ?(near )?['(].*", "", got.message)[:100]] += 1
            if select:
                continue
            return None  # what follows would differ
        what = differs(text, got, want)
        if what is None:
            continue
        wanted = known(text, got, want)
        if wanted is None:
            return Difference(number, text, what, got, want)
        tally.known[wanted.name] += 1
        if not (select or wanted.goes_on or (isinstance(got, Error) and isinstance(want, Error))):
            return None  # the tables differ from here on
    try:
        server.validate()
    except Exception as bug:
        return Difference(len(case), "validate", ("broken",), f"{type(bug).__name__}: {bug}", "")
    return None


def differs(text: str, got: Any, want: Any) -> tuple[Any, ...] | None:
    if isinstance(got, Error) or isinstance(want, Error):
        codes = tuple(o.code if isinstance(o, Error) else None for o in (got, want))
        return None if codes[0] == codes[1] else ("errors", *codes)
    if isinstance(got, Rows) and isinstance(want, Rows):
        if len(got.families) != len(want.families) or any(
                a != b and "null" not in (a, b) for a, b in zip(got.families, want.families, strict=True)):
            return ("types",)
        return None if comparable(got.rows, text) == comparable(want.rows, text) else ("rows",)
    return None if got == want else ("affected",)


_CHOICE = re.compile(r"GROUP BY|DISTINCT|MIN\(|MAX\(|UNION|INTERSECT|EXCEPT|GROUP_CONCAT| v\d")


def comparable(rows: list[tuple[Any, ...]], text: str) -> Any:
    folded = _CHOICE.search(text) is not None

    def shown(value: Any) -> Any:
        if isinstance(value, float):
            return f"{value + 0.0:.10g}"
        if isinstance(value, str) and folded:
            return fold(value)
        return str(value) if isinstance(value, Decimal) else value

    found = [tuple((type(v).__name__, shown(v)) for v in r) for r in rows]
    return found if ordered(text) else Counter(found)


def ordered(text: str) -> bool:
    """Has the outermost query an ORDER BY?"""
    depth, at = 0, len(text)
    while (at := text.rfind("ORDER BY", 0, at)) >= 0:
        depth = text.count("(", 0, at) - text.count(")", 0, at)
        if depth == 0:
            return True
    return False
