"""A case played on both servers, statement by statement; the first difference, if there is one.

Compared are affected rows, error numbers, column types (by family), values with their exact types, and order where
the query asks for one.  Left to the server's choice: the last bits of doubles, and which of several texts that are
equal under the collation stands for a group.

Each SELECT is answered twice: as the policy has it, and then by a view if that was a one-shot, or by a one-shot if it
was a view.
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
from mysql.connector.errors import Error as ConnectorError
from pymysql.constants import FIELD_TYPE as T

from differential.known import Error, known
from e2e.local import LocalServer
from e2e.mariadb import MariaDb
from noria.core.symbols import fold

REFUSED = 1235
BINARY = 63  # the character set of bytes; the driver has bytes for texts of utf8mb4_bin too
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

    cases: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)

    def count(self, text: str, outcome: Any) -> None:
        """One statement, by its first word and what came of it."""
        way = "error" if isinstance(outcome, Error) else "no rows" if getattr(outcome, "rows", True) == [] else "done"
        self.kinds[f"{text.split()[0]}{', prepared' if 'BIND(' in text else ''}: {way}"] += 1

    def __str__(self) -> str:
        def listed(counts: Counter[str]) -> str:
            return "".join(f"\n  {n:6d} {what}" for what, n in counts.most_common(40)) or " none"

        return (f"{self.cases} cases, {self.kinds.total()} statements:{listed(self.kinds)}\nrefused "
                f"{self.refused.total()}:{listed(self.refused)}\nknown differences:{listed(self.known)}")


_BOUND = re.compile(r"BIND\(('(?:[^']|'')*'|[^()']*)\)")


def outcome(connection: Any, text: str) -> Any:
    """`connection`: a `Client`.  A text with `BIND(…)` goes as a prepared statement with parameters."""
    bound = _BOUND.findall(text)
    return connection.prepared(_BOUND.sub("?", text), [argument(b) for b in bound]) if bound else connection.text(text)


def argument(literal: str) -> Any:
    """A parameter's value: whole numbers as int, with a point as Decimal, with an exponent as float."""
    if literal.startswith("'"):
        return literal[1:-1].replace("''", "'")
    if literal == "NULL":
        return None
    return float(literal) if "e" in literal else Decimal(literal) if "." in literal else int(literal)


def sent(connection: Any, text: str) -> Any:
    """The outcome of a text over a connection of PyMySQL."""
    with connection.cursor() as cursor:
        try:
            affected = cursor.execute(text)
            if cursor.description is None:
                return int(affected)
            families = tuple(_family(d) for d in cursor.description)
            return Rows(families, list(cursor.fetchall()))
        except pymysql.err.MySQLError as e:
            return Error(e.args[0], str(e.args[1]) if len(e.args) > 1 else "")


class Client:
    """Texts by one driver, prepared statements by another, over connections to the same server and database."""

    def __init__(self, plain: Any, prepared: Any):
        self._plain, self._prepared = plain, prepared

    def text(self, text: str) -> Any:
        return sent(self._plain, text)

    def prepared(self, text: str, arguments: Sequence[Any]) -> Any:
        cursor = self._prepared.cursor(prepared=True)
        try:
            cursor.execute(text, tuple(arguments))
            if cursor.description is None:
                return int(cursor.rowcount)
            described = cursor.description
            rows = [tuple(v.decode() if isinstance(v, bytes | bytearray) and d[8] != BINARY else v
                          for v, d in zip(row, described, strict=True)) for row in cursor.fetchall()]
            return Rows(tuple(_family(d) for d in described), rows)
        except ConnectorError as e:
            return Error(e.errno, str(e.msg))
        finally:
            cursor.close()

    def close(self) -> None:
        self._plain.close()
        self._prepared.close()


def _family(description: Any) -> str:
    family = FAMILIES.get(description[1], "text")
    return f"decimal with {description[5]} digits" if family == "decimal" and description[5] is not None else family


def play(case: Sequence[str], oracle: MariaDb, tally: Tally | None = None) -> Difference | None:
    """On a MariaDB, whose database `diff` is made anew."""
    tally = tally or Tally()
    tally.cases += 1
    theirs = Client(oracle.connect(None), oracle.connector())
    for text in ("DROP DATABASE IF EXISTS diff", "CREATE DATABASE diff", "USE diff"):
        theirs.text(text)
    theirs.prepared("USE diff", ())
    with tempfile.TemporaryDirectory(dir=_fast()) as directory:
        ours = Ours(Path(directory) / "data")
        try:
            return _steps(case, ours, theirs, tally)
        finally:
            theirs.close()
            ours.stop()


class Ours:
    """A Noria of this process and its client."""

    def __init__(self, directory: Path):
        self._directory = directory
        self.start()

    def start(self) -> None:
        self.server = LocalServer(self._directory)
        self.client = Client(self.server.connect(), self.server.connector())

    def stop(self) -> None:
        self.client.close()
        self.server.close()

    def handle(self, step: str) -> bool:
        """Is this a step for Noria alone?  Then it is done."""
        if step.startswith("-- forget"):
            nbytes = step.removeprefix("-- forget").strip()
            self.server.evict(int(nbytes) if nbytes else None)
        elif step.startswith("-- restart"):
            self.stop()
            self.start()
        return step.startswith("--")

    def selected(self, text: str) -> tuple[Any, Any]:
        """What a SELECT gives, and what it gives the other way."""
        before = self.server.one_shots()
        found = outcome(self.client, text)
        with self.server.answering(one_shot=self.server.one_shots() == before):
            return found, outcome(self.client, text)


def _fast() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _steps(case: Sequence[str], ours: Ours, theirs: Client, tally: Tally) -> Difference | None:
    for number, text in enumerate(case):
        if ours.handle(text):
            continue
        select = text.startswith(("SELECT", "WITH"))
        each = ours.selected(text) if select else (outcome(ours.client, text),)
        want = outcome(theirs, text)
        tally.count(text, want)
        for got in each:
            judged = _judged(number, text, got, want, tally)
            if isinstance(judged, Difference):
                return judged
            if not judged and not select:
                return None  # the tables differ from here on
    try:
        ours.server.validate()
    except Exception as bug:
        return Difference(len(case), "validate", ("broken",), f"{type(bug).__name__}: {bug}", "")
    return None


def _judged(number: int, text: str, got: Any, want: Any, tally: Tally) -> Difference | bool:
    """The difference; or are the tables, after a write, the same?"""
    if isinstance(got, Error) and got.code == REFUSED:
        tally.refused[f"{text.split()[0]}: " + re.sub(r"[;,(]? ?(near )?['(].*", "", got.message)[:100]] += 1
        return False
    what = differs(text, got, want)
    if what is None:
        return True
    wanted = known(text, got, want)
    if wanted is None:
        return Difference(number, text, what, got, want)
    tally.known[wanted.name] += 1
    return wanted.goes_on or (isinstance(got, Error) and isinstance(want, Error))


def differs(text: str, got: Any, want: Any) -> tuple[Any, ...] | None:
    if isinstance(got, Error) or isinstance(want, Error):
        codes = tuple(o.code if isinstance(o, Error) else None for o in (got, want))
        return None if codes[0] == codes[1] else ("errors", *codes)
    if isinstance(got, Rows) and isinstance(want, Rows):
        if len(got.families) != len(want.families) or any(
                a != b and "null" not in (a, b) for a, b in zip(got.families, want.families, strict=True)):
            return ("types",)
        return None if comparable(got.rows, text) == comparable(want.rows, text) else ("rows",)
    return None if got == want or text.startswith("ALTER") else ("affected",)  # theirs counts the rows that it copied


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
