"""Differences to MariaDB that are known and wanted, or MariaDB's own; each with its reason.

`matches(text, noria, mariadb)`: outcomes are `Rows` (play.py), affected rows (an int), or `Error`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from noria.core.symbols import fold


@dataclass(frozen=True)
class Error:
    code: int
    message: str

    def __str__(self) -> str:
        return f"error {self.code}: {self.message}"


@dataclass(frozen=True)
class Known:
    """`goes_on`: the tables are the same afterwards, so that the case can go on after a write."""

    name: str
    reason: str
    matches: Callable[[str, Any, Any], bool]
    goes_on: bool = False


def _error(outcome: Any, *codes: int) -> bool:
    return isinstance(outcome, Error) and (not codes or outcome.code in codes)


def _families(noria: Any, mariadb: Any) -> set[tuple[str, str]]:
    """Pairs of families that differ, of two outcomes with rows."""
    a, b = getattr(noria, "families", ()), getattr(mariadb, "families", ())
    return {pair for pair in zip(a, b, strict=False) if pair[0] != pair[1]}


def _same_values(noria: Any, mariadb: Any) -> bool:
    """Have the outcomes the same rows but for their types, and which of equal texts stands for a group?"""
    def shown(v: Any) -> str:
        if isinstance(v, Decimal | int):
            return f"{Decimal(v).normalize():f}"
        return f"{v + 0.0:.10g}" if isinstance(v, float) else fold(str(v))

    a, b = (Counter(tuple(map(shown, row)) for row in getattr(outcome, "rows", ())) for outcome in (noria, mariadb))
    return a == b


def _a_union_has_digits(text: str, noria: Any, mariadb: Any) -> bool:
    """Is a column DECIMAL in MariaDB, as it is of a UNION, and has what is made of it digits for that?"""
    pairs = _families(noria, mariadb)
    return ("UNION" in text or "EXCEPT" in text or "INTERSECT" in text) and bool(pairs) and all(
        b.startswith("decimal") and (a == "integer" or a.startswith("decimal")) for a, b in pairs) and (
        _same_values(noria, mariadb))


def _pieces_in_another_order(text: str, noria: Any, mariadb: Any) -> bool:
    """Do the outcomes differ only in how an ordered GROUP_CONCAT orders its pieces?"""
    def pieces(outcome: Any) -> list[str]:
        return sorted(repr([sorted(re.split("[,|-]", v)) if isinstance(v, str) else v for v in row])
                      for row in outcome.rows)

    return (re.search(r"GROUP_CONCAT\([^)]*ORDER BY", text) is not None and not _families(noria, mariadb)
            and hasattr(noria, "rows") and hasattr(mariadb, "rows") and pieces(noria) == pieces(mariadb))


def _only_totals_differ(noria: Any, mariadb: Any) -> bool:
    """Are there as many rows, and at least half of them equal?"""
    a, b = (Counter(map(repr, getattr(outcome, "rows", ()))) for outcome in (noria, mariadb))
    return a.total() == b.total() > 0 and 2 * (a & b).total() >= a.total()


def _fewer_rows(noria: Any, mariadb: Any) -> bool:
    """Has MariaDB some of the rows, and no other?"""
    if _families(noria, mariadb) or not (hasattr(noria, "rows") and hasattr(mariadb, "rows")):
        return False
    return not Counter(map(repr, mariadb.rows)) - Counter(map(repr, noria.rows))


KNOWN = (
    Known("unsigned arithmetic", "arithmetic on UNSIGNED is that of BIGINT here, which has the negative result",
          lambda text, noria, mariadb: _error(mariadb, 1690) and "UNSIGNED" in mariadb.message),
    Known("signed beside unsigned", "what may be a signed or an unsigned integer is BIGINT here, as in MySQL; a "
          "DECIMAL without digits in MariaDB", lambda text, noria, mariadb: _same_values(noria, mariadb) and _families(
              noria, mariadb) in ({("integer", "decimal with 0 digits")}, {("integer", "decimal")})),
    Known("signed beside unsigned in a set", "of such a column of a UNION MariaDB goes on with a DECIMAL, "
          "which has digits after TRUNCATE(x, 1) and x / 2", _a_union_has_digits),
    Known("which of several wrong values", "of several wrong values in one statement, which is told of is the server's "
          "choice", lambda text, noria, mariadb: _error(noria) and _error(mariadb) and not text.startswith("SELECT")),
    Known("which of two names", "of an unknown column and a missing FULLTEXT key in one SELECT, which is named is the "
          "server's choice", lambda text, noria, mariadb: _error(noria, 1191) and _error(mariadb, 1054)),
    Known("affected rows of an upsert", "a row that an ON DUPLICATE KEY UPDATE leaves as it was counts 0 as MySQL's "
          "manual says, and a REPLACE by the same row 1; MariaDB counts by how it went about it",
          lambda text, noria, mariadb: isinstance(noria, int) and isinstance(mariadb, int) and (
              "ON DUPLICATE" in text or text.startswith("REPLACE")), goes_on=True),
    Known("IGNORE is for keys", "INSERT IGNORE skips rows that violate a key; wrong values are errors here, not "
          "warnings", lambda text, noria, mariadb: text.startswith("INSERT IGNORE") and _error(noria)),
    Known("NULL within GROUP_CONCAT", "MariaDB's GROUP_CONCAT(… ORDER BY x) places NULL as if it were 0 or ''; NULL "
          "comes first here, as in its own ORDER BY and in MySQL",
          lambda text, noria, mariadb: _pieces_in_another_order(text, noria, mariadb)),
    Known("keys on the way", "UPDATE t SET u = u + 2 of a UNIQUE u is judged by the rows after it; MySQL and "
          "MariaDB go row by row, and a key that is free only in the end is an error, or not, by their order",
          lambda text, noria, mariadb: text.startswith("UPDATE") and isinstance(noria, int) and _error(mariadb, 1062)),
    Known("the total of no rows", "WITH ROLLUP over no rows has its total in MySQL 8; MariaDB has no row",
          lambda text, noria, mariadb: "WITH ROLLUP" in text and getattr(mariadb, "rows", None) == [] and len(
              getattr(noria, "rows", ())) == 1),
    Known("DISTINCT in the total of a ROLLUP", "where a key makes each group one row, MariaDB leaves DISTINCT out, in "
          "the totals too, where values repeat", lambda text, noria, mariadb: (
              re.search(r"(SUM|COUNT|AVG)\(DISTINCT .* WITH ROLLUP", text) is not None and not _families(noria, mariadb)
              and _only_totals_differ(noria, mariadb))),
    Known("BIT_AND of no values", "2**64 - 1, which no BIGINT holds", lambda text, noria, mariadb: (
        "BIT_AND(" in text and _error(noria, 1690))),
    Known("GROUP BY NULLIF", "MariaDB does not recognise a NULLIF of the SELECT list in its GROUP BY",
          lambda text, noria, mariadb: _error(mariadb, 1055) and "GROUP BY" in text and "NULLIF" in text),
    Known("GROUP BY an expression over a view", "MariaDB does not know an expression over a view's column again",
          lambda text, noria, mariadb: _error(mariadb, 1055) and re.search(r" v\d", text) is not None),
    Known("a text beside a number in the WHERE of a write", "a text that is no number counts as the number with "
          "which it begins, as in a SELECT; strict MySQL and MariaDB refuse the write",
          lambda text, noria, mariadb: isinstance(noria, int) and _error(mariadb, 1292) and (
              mariadb.message.startswith("Truncated incorrect"))),
    Known("rows compared after an outer join", "a comparison of rows can be true although one of the values is NULL; "
          "MariaDB takes it to be false then, and makes an inner join of the outer one",
          lambda text, noria, mariadb: re.search(r"(LEFT|RIGHT) JOIN .*\(\w+\.\w+, \w+\.\w+\) (<>|<|>|<=|>=) ",
                                                 text) is not None and _fewer_rows(noria, mariadb)),
    Known("BETWEEN of folded bounds", "over an indexed _bin column MariaDB's range is one point when the bounds are "
          "equal under the connection's collation (BETWEEN 'A' AND 'a'), and rows are lost; its >= and <= find them",
          lambda text, noria, mariadb: not _families(noria, mariadb) and hasattr(noria, "rows") and any(
              a != b and fold(a) == fold(b) for a, b in re.findall(
                  r"BETWEEN (?:BIND\()?'([^']*)'\)? AND (?:BIND\()?'([^']*)'", text))),
)


def known(text: str, noria: Any, mariadb: Any) -> Known | None:
    return next((k for k in KNOWN if k.matches(text, noria, mariadb)), None)

