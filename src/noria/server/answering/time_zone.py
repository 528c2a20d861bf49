"""The session's time zone: an offset from UTC or a name, in which TIMESTAMP values are shown and read.

A TIMESTAMP is stored in UTC, also in views, which all sessions share.  For a session with an offset, this module
converts the columns of results and the values of statements, including keys.

Keeps true: a statement that computes with a TIMESTAMP column, or compares one with a DATETIME, is rejected.  It never
gets an answer in the wrong zone.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from typing import Any

from noria.core.errors import SqlError, not_supported
from noria.core.expressions.casts import parse_moment
from noria.core.expressions.coerce import EPOCH, MICROSECOND
from noria.core.expressions.expr import Call, Col, Expr, walk
from noria.core.expressions.functions import call, cast, literal
from noria.core.expressions.library.zones import to_utc as local_to_utc
from noria.core.expressions.library.zones import zone_of
from noria.core.expressions.zero_date import ZERO_DATETIME
from noria.core.types import DATETIME
from noria.plan.mir import Join, Mir
from noria.server.outcomes import ResultSet
from noria.sql.commands import AlterTable, Select

_OFFSET = re.compile(r"([+-])(\d{1,2}):(\d{2})")
UTC_NAMES = ("SYSTEM", "UTC", "GMT", "ETC/UTC", "ETC/GMT", "DEFAULT", "+00:00", "-00:00")
_HAS_ZONE = re.compile(r"\d:\d+(?:\.\d+)?\s*(?:Z|[+-]\d{1,2}:\d{2})\s*$")


class NamedZone(timedelta):
    """The offset of a zone such as Europe/Berlin at some moment; other moments may have another one.

    Keeps true: it is true in conditions also if it is zero, so a session in such a zone never counts as one in UTC.
    """

    name: str
    zone: tzinfo

    @staticmethod
    def of(name: str, utc: datetime) -> NamedZone:
        """The zone's offset at this moment."""
        zone = zone_of(name)
        assert zone is not None, "it was checked when the variable was set"
        found = NamedZone(seconds=(utc.replace(tzinfo=UTC).astimezone(zone).utcoffset() or timedelta()).total_seconds())
        found.name, found.zone = name, zone
        return found

    def __bool__(self) -> bool:
        return True


def offset_of(zone: Any) -> timedelta:
    """Return the offset from UTC of a value of time_zone.  SYSTEM is UTC."""
    found = _OFFSET.fullmatch(str(zone))
    if found is None:
        return timedelta() if str(zone).upper() in UTC_NAMES else NamedZone.of(str(zone), EPOCH)
    size = timedelta(hours=int(found[2]), minutes=int(found[3]))
    return -size if found[1] == "-" else size


def at_moment(offset: timedelta, utc: datetime) -> timedelta:
    """The offset as it is at this moment."""
    return NamedZone.of(offset.name, utc) if isinstance(offset, NamedZone) else offset


def _local(utc: datetime, offset: timedelta) -> datetime:
    if isinstance(offset, NamedZone):
        return utc.replace(tzinfo=UTC).astimezone(offset.zone).replace(tzinfo=None)
    return utc + offset


def shown(result: ResultSet, offset: timedelta) -> ResultSet:
    """Return the result with its TIMESTAMPs in the session's time."""
    moved = [i for i, f in enumerate(result.fields) if f.type.timestamp]
    if not moved:
        return result
    rows = []
    for row in result.rows:
        out = list(row)
        for i in moved:
            value = out[i]
            out[i] = _local(value, offset) if isinstance(value, datetime) else value
        rows.append(tuple(out))
    return ResultSet(result.fields, rows, result.warnings)


def in_utc(select: Select, offset: timedelta) -> Select:
    """Return the bound query with its lookup values for TIMESTAMP columns in UTC.  Raises SqlError if the query
    computes with a TIMESTAMP or joins one with a DATETIME."""
    _check(select)
    if select.view is None:
        return select
    move = partial(to_utc, offset=offset)
    lookups = tuple(a.moved(move) if f.type.timestamp else a
                    for a, f in zip(select.lookups, select.view.key_fields, strict=True))
    return dataclasses.replace(select, lookups=lookups)


def _check(select: Select) -> None:
    plans = [select.batch.plan] if select.batch is not None else []
    if select.view is not None:
        plans += [select.view.plan, *([select.view.after] if select.view.after is not None else [])]
    for plan in plans:
        for node in _nodes(plan):
            if isinstance(node, Join) and any(
                    node.left.fields[a].type.timestamp != node.right.fields[b].type.timestamp for a, b in node.on):
                raise _refused("comparing a TIMESTAMP with a DATETIME")
            if any(map(computes, _expressions(node))):
                raise _refused("computing with a TIMESTAMP")


def _refused(what: str) -> SqlError:
    return not_supported(f"{what} in a session whose time_zone is not UTC", "SET time_zone = '+00:00' first, or keep a "
                                                                            "DATETIME")


def computes(e: Expr) -> bool:
    """True if the expression passes a TIMESTAMP column to a function."""
    return any(isinstance(x, Call) and any(isinstance(a, Col) and a.type.timestamp for a in x.args) for x in walk(e))


def _nodes(plan: Mir) -> Iterator[Mir]:
    yield plan
    for i in plan.inputs:
        yield from _nodes(i)


def _expressions(node: Mir) -> Iterator[Expr]:
    for f in dataclasses.fields(node):
        value = getattr(node, f.name)
        for e in value if isinstance(value, tuple) else (value,):
            if isinstance(e, Expr):
                yield e


# ------------------------------------------------------------------ values of statements
def to_utc(value: Any, offset: timedelta) -> Any:
    """Return a value for a TIMESTAMP column in UTC.  A text with its own zone needs no conversion.  A value that is no
    moment is returned for the table to reject."""
    if value is None or (isinstance(value, str) and _HAS_ZONE.search(value)):
        return value
    moment = parse_moment(value)
    if moment is None or moment == ZERO_DATETIME:
        return value
    return local_to_utc(moment, offset.zone).replace(tzinfo=None) if isinstance(offset, NamedZone) else moment - offset


def assigned_in_utc(e: Expr, offset: timedelta) -> Expr:
    """Convert an expression for a TIMESTAMP column to UTC.  The value of another TIMESTAMP column is in UTC already."""
    if isinstance(e, Col) and e.type.timestamp:
        return e
    refuse_computing(e)
    moment = cast(e, dataclasses.replace(DATETIME, scale=6))
    if isinstance(offset, NamedZone):
        return call("convert_tz", moment, literal(offset.name), literal("+00:00"))
    return call("add_micros", moment, literal(offset // MICROSECOND), literal(-1))


def refuse_converting(command: AlterTable) -> None:
    """Raise SqlError if a column becomes TIMESTAMP or ceases to be one: ALTER TABLE would read its values as UTC."""
    was, columns = command.was.columns, command.table.columns
    made = [(was[c.source], c) for c in columns[len(was):] if c.source is not None]
    if any(a.type.timestamp is not b.type.timestamp for a, b in (*zip(was, columns, strict=False), *made)):
        raise not_supported("a change from or to TIMESTAMP in a session whose time_zone is not UTC",
                            "SET time_zone = '+00:00' first, if the values are those of UTC")


def refuse_computing(e: Expr | None) -> None:
    if e is not None and computes(e):
        raise _refused("computing with a TIMESTAMP")
