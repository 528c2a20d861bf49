"""The zero date, '0000-00-00', which a column may hold where a session's sql_mode lacks NO_ZERO_DATE.

Its code is that of the day before 0001-01-01, which is no date of MySQL.  As Python values, ZERO_DATE and ZERO_DATETIME
stand for it; they are shown with zeros.

Keeps true: it is less than every date, equals itself only, and stays what it is when time is added or taken away.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, tzinfo
from typing import Any, SupportsIndex

_EPOCH = datetime(1970, 1, 1)
_SHOWN = {"Y": "0000", "f": "000000", **dict.fromkeys("mdHMS", "00")}
_TEXT = re.compile(r"\s*0{4}[-/.:]00?[-/.:]00?(?:[T ]\s*00?:00?(?::00?(?:\.0*)?)?)?\s*|\s*0{8}(?:0{6})?(?:\.0*)?\s*")
ZERO_CODE = (0 - _EPOCH.toordinal()) * 86_400_000_000


def is_zero_text(value: object) -> bool:
    """True for a text of the zero date, with or without a time of zeros.

    >>> is_zero_text("0000-00-00 00:00:00"), is_zero_text("0000-00-01")
    (True, False)
    """
    return isinstance(value, str) and _TEXT.fullmatch(value) is not None


def _formatted(form: str) -> str:
    return re.sub("%(.)", lambda part: _SHOWN.get(part[1], ""), form)


class _Zero:
    """What both values have in common: the parts of the date, its order and its texts."""

    _form = "%Y-%m-%d"

    @property
    def year(self) -> int:
        return 0

    @property
    def month(self) -> int:
        return 0

    @property
    def day(self) -> int:
        return 0

    def toordinal(self) -> int:
        return 0

    def strftime(self, form: str) -> str:
        return _formatted(form)

    def __str__(self) -> str:
        return _formatted(self._form)

    def __repr__(self) -> str:
        return str(self)

    def __format__(self, form: str) -> str:
        return _formatted(form or self._form)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Zero)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: object) -> bool:
        return not isinstance(other, _Zero)

    def __le__(self, other: object) -> bool:
        return True

    def __gt__(self, other: object) -> bool:
        return False

    def __ge__(self, other: object) -> bool:
        return isinstance(other, _Zero)

    def __hash__(self) -> int:
        return 0

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[type[_Zero], tuple[()]]:
        return type(self), ()


class ZeroDate(_Zero, date):
    """The zero date as a value of a DATE."""

    def __new__(cls) -> ZeroDate:
        return date.__new__(cls, 1, 1, 1)

    def isoformat(self) -> str:
        return str(self)


class ZeroDatetime(_Zero, datetime):
    """The zero date as a value of a DATETIME or a TIMESTAMP."""

    _form = "%Y-%m-%d %H:%M:%S"

    def __new__(cls) -> ZeroDatetime:
        return datetime.__new__(cls, 1, 1, 1)

    def date(self) -> ZeroDate:
        return ZERO_DATE

    def replace(self, *parts: Any, **named: Any) -> ZeroDatetime:
        return self

    def astimezone(self, tz: tzinfo | None = None) -> ZeroDatetime:
        return self

    def isoformat(self, sep: str = "T", timespec: str = "auto") -> str:
        return str(self).replace(" ", sep)

    def __add__(self, other: timedelta) -> ZeroDatetime:
        return self

    def __sub__(self, other: Any) -> Any:
        """Itself less a span of time; the distance from a moment."""
        return self if isinstance(other, timedelta) else timedelta(microseconds=ZERO_CODE) - (other - _EPOCH)


ZERO_DATE, ZERO_DATETIME = ZeroDate(), ZeroDatetime()
ZEROS = (ZeroDate, ZeroDatetime)
