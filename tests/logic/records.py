"""The sqllogictest format: records of a `.test` file, parsed and printed.

    statement ok | statement error [NUMBER] | statement count N      and the statement below it
    query TYPES [nosort|rowsort|valuesort] [LABEL]                   TYPES: one of I, R, T per column
    SELECT ...
    ----
    one row per line, values apart by tabs; or `N values hashing to MD5`
    hash-threshold N        longer results are given by their hash
    skipif DB | onlyif DB   for the next record; DB is noria or mariadb
    forget                  noria forgets everything partial (a step of ours; other servers have nothing to forget)
    halt                    the rest of the file is not run

Queries with one label in one file must have equal results.  A query's types say how values are shown: I as
integers, R with three decimals, T as MySQL prints them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

SORTS = ("nosort", "rowsort", "valuesort")


@dataclass(frozen=True)
class Record:
    """kind: statement, query, hash-threshold, forget, halt; head: the words after it; line: where it begins."""

    line: int
    kind: str
    head: tuple[str, ...] = ()
    text: str = ""
    expected: tuple[str, ...] = ()
    conditions: tuple[tuple[str, str], ...] = ()
    comment: tuple[str, ...] = field(default=())

    def runs_on(self, server: str) -> bool:
        return all((server == name) == (how == "onlyif") for how, name in self.conditions)

    def with_rows(self, lines: Iterable[str]) -> Record:
        return replace(self, expected=tuple(lines))

    def lines(self) -> list[str]:
        out = [*self.comment, *(" ".join(c) for c in self.conditions)]
        if self.kind == "comment":
            return out
        out.append(" ".join((self.kind, *self.head)))
        out += self.text.splitlines()
        return [*out, "----", *self.expected] if self.kind == "query" else out


def parse(text: str) -> list[Record]:
    records: list[Record] = []
    block: list[str] = []
    start = 1
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.strip():
            block.append(line)
            continue
        if block:
            records.append(_record(start, block))
        block, start = [], number + 1
    return records


def _record(line: int, block: list[str]) -> Record:
    comment: list[str] = []
    conditions: list[tuple[str, str]] = []
    while block and (block[0].startswith("#") or block[0].split()[0] in ("skipif", "onlyif")):
        first, *block = block
        if first.startswith("#"):
            comment.append(first)
        else:
            how, name = first.split()[:2]
            conditions.append((how, name))
    if not block:
        return Record(line, "comment", comment=tuple(comment))
    kind, *head = block[0].split()
    if kind not in ("statement", "query", "hash-threshold", "forget", "halt"):
        raise ValueError(f"line {line}: '{block[0]}' begins no record")
    if kind == "query" and (not head or set(head[0]) - set("IRT") or (len(head) > 1 and head[1] not in SORTS)):
        raise ValueError(f"line {line}: a query needs types of I, R, T and a sort of {', '.join(SORTS)}")
    body, expected = block[1:], []
    if kind == "query" and "----" in body:
        at = body.index("----")
        body, expected = body[:at], body[at + 1:]
    return Record(line, kind, tuple(head), "\n".join(body), tuple(expected), tuple(conditions), tuple(comment))


def show(records: Iterable[Record]) -> str:
    return "\n\n".join("\n".join(r.lines()) for r in records) + "\n"


# ---------------------------------------------------------------- results
def result_lines(record: Record, rows: list[tuple[Any, ...]], threshold: int) -> list[str]:
    """Rows as the record shows them."""
    types = record.head[0]
    if rows and len(rows[0]) != len(types):
        raise AssertionError(f"{len(rows[0])} columns where the types {types} say {len(types)}")
    shown = [[_value(v, t) for v, t in zip(row, types, strict=True)] for row in rows]
    how = record.head[1] if len(record.head) > 1 else "nosort"
    if how == "rowsort":
        shown.sort()
    if how == "valuesort":
        shown = [[v] for v in sorted(v for row in shown for v in row)]
    count = sum(map(len, shown))
    if threshold and count > threshold:
        digest = hashlib.md5("".join(f"{v}\n" for row in shown for v in row).encode()).hexdigest()
        return [f"{count} values hashing to {digest}"]
    return ["\t".join(row) for row in shown]


def _value(value: Any, type_: str) -> str:
    if value is None:
        return "NULL"
    if type_ == "I":
        return str(int(value))
    if type_ == "R":
        return f"{float(value) + 0.0:.3f}"
    return _text(value) or "(empty)"


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, timedelta):
        micros = round(value / timedelta(microseconds=1))
        seconds, rest = divmod(abs(micros), 10**6)
        fraction = f".{rest:06d}" if rest else ""
        return f"{'-' * (micros < 0)}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"
    if isinstance(value, datetime):
        return value.isoformat(" ")
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float):
        return f"{value:.12g}"
    return str(value).replace("\n", "\\n").replace("\t", "\\t")
