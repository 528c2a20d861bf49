"""CONVERT_TZ: moments from one time zone to another, by offset or by name.

Keeps true, as in MySQL: a local time that a zone skips is the moment of the skip; of one that occurs twice, the first
is meant.  An unknown zone yields NULL.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from noria.core.expressions.library.declare import ArgumentType, Function

_OFFSET = re.compile(r"([+-])(\d{1,2}):([0-5]\d)")
_MOST = timedelta(hours=14)  # as in MySQL: from -13:59 to +14:00
_NAME = 64  # characters of the longest name that is looked up, and kept
_YEARS = range(1970, 3001)  # of moments that MySQL converts; others stay as they are


def zone_of(name: str) -> tzinfo | None:
    """The zone of an offset such as '+02:00', or of a name such as 'Europe/Berlin' or SYSTEM (UTC); None if unknown."""
    return _zone(name) if len(name) <= _NAME else None


@lru_cache(maxsize=1_000)
def _zone(name: str) -> tzinfo | None:
    if (found := _OFFSET.fullmatch(name.strip())) is not None:
        size = timedelta(hours=int(found[2]), minutes=int(found[3])) * (-1 if found[1] == "-" else 1)
        return timezone(size) if -_MOST < size <= _MOST else None
    if name.upper() in ("SYSTEM", "UTC", "GMT"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # a path, a folder of zones
        return None


def convert(moment: datetime, source: str, target: str) -> datetime | None:
    there, here = zone_of(source), zone_of(target)
    if there is None or here is None:
        return None
    utc = to_utc(moment, there)
    if utc.year not in _YEARS or moment.year not in _YEARS:
        return moment
    return utc.astimezone(here).replace(tzinfo=None)


def to_utc(moment: datetime, zone: tzinfo) -> datetime:
    """The moment at which a clock of the zone shows this time."""
    try:
        utc = moment.replace(tzinfo=zone).astimezone(UTC)
        if utc.astimezone(zone).replace(tzinfo=None) == moment:
            return utc
    except OverflowError:
        return moment.replace(tzinfo=UTC)
    low, high = utc - timedelta(days=1), utc  # the clock skips this time: it goes forward in between
    before = low.astimezone(zone).utcoffset()
    while high - low > timedelta(microseconds=1):
        middle = low + (high - low) / 2
        low, high = (middle, high) if middle.astimezone(zone).utcoffset() == before else (low, middle)
    return high


ZONES = {"convert_tz": Function((ArgumentType.MOMENT, ArgumentType.TEXT, ArgumentType.TEXT), lambda t: t[0],
                                values=convert, nullable=True, internal=True)}
