"""Functions of dates and times.  Codes are microseconds since 1970, of a DATE at midnight; a TIME is microseconds.

Parts and sums are computed over arrays with numpy's calendar, formats once for each distinct value.  A result outside
the years 1 to 9999 is NULL.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from functools import lru_cache

import numpy as np

from noria.core.batch import Codes
from noria.core.expressions.library.declare import ArgumentType, Function
from noria.core.expressions.zero_date import ZEROS
from noria.core.limits import NULL_CODE
from noria.core.types import BIGINT, DATE, TEXT, Kind, SqlType

SECOND = 1_000_000
DAY = 86_400 * SECOND
FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31 in days since 1970
YEAR_ZERO_DAYS = 719_528  # TO_DAYS of 1970-01-01
LONGEST_TIME = (838 * 3600 + 59 * 60 + 59) * SECOND
MICROS = SqlType(Kind.DATETIME, scale=6)
TIME6 = SqlType(Kind.TIME, scale=6)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
          "November", "December")


# ------------------------------------------------------------------ the calendar over arrays
def calendar(codes: Codes) -> tuple[Codes, Codes, Codes]:
    """Return the year, month and day of each moment."""
    days = (codes // DAY).astype("M8[D]")
    months, years = days.astype("M8[M]"), days.astype("M8[Y]")
    return (years.astype(np.int64) + 1970, (months - years).astype(np.int64) + 1,
            (days - months.astype("M8[D]")).astype(np.int64) + 1)


def _limited(codes: Codes) -> Codes:
    """Make moments outside the calendar NULL."""
    days = codes // DAY
    return np.where((days < FIRST_DAY) | (days > LAST_DAY), NULL_CODE, codes)


def add_micros(codes: Codes, count: Codes, unit: Codes) -> Codes:
    """Add `count` units of `unit` microseconds."""
    far = np.abs(count.astype(np.float64) * unit.astype(np.float64)) > 2.0 * LAST_DAY * DAY
    moved = (codes + np.where(far, np.int64(0), count) * unit).astype(np.int64)
    return np.where(far, NULL_CODE, _limited(moved))


def add_months(codes: Codes, months: Codes) -> Codes:
    """Add months.  The result is the same day of the month, or the month's last day."""
    years, month, day = calendar(codes)
    far = np.abs(months) > 120_000
    total = years * 12 + month - 1 + np.where(far, 0, months)
    start = (total - 1970 * 12).astype("M8[M]")
    length = ((start + 1).astype("M8[D]") - start.astype("M8[D]")).astype(np.int64)
    days = start.astype("M8[D]").astype(np.int64) + np.minimum(day, length) - 1
    moved = _limited(days * DAY + codes % DAY)
    return np.where(far | (total < 12) | (total >= 120_000), NULL_CODE, moved)


def diff_months(a: Codes, b: Codes) -> Codes:
    """Return the number of months from a to b, rounded towards zero."""
    (ya, ma, da), (yb, mb, db) = calendar(a), calendar(b)
    months = (yb - ya) * 12 + mb - ma
    rest_a, rest_b = da * DAY + a % DAY, db * DAY + b % DAY
    months -= (months > 0) & (rest_b < rest_a)
    months += (months < 0) & (rest_b > rest_a)
    return np.asarray(months, np.int64)


def _last_day(codes: Codes) -> Codes:
    months = (codes // DAY).astype("M8[D]").astype("M8[M]") + 1
    return (months.astype("M8[D]").astype(np.int64) - 1).astype(np.int64) * DAY


def _day_of_year(codes: Codes) -> Codes:
    days = (codes // DAY).astype("M8[D]")
    return (days.astype(np.int64) - days.astype("M8[Y]").astype("M8[D]").astype(np.int64)).astype(np.int64) + 1


def _weekday(codes: Codes) -> Codes:
    return (codes // DAY + 3) % 7  # Monday is 0; 1970-01-01 was a Thursday


def _unix(codes: Codes) -> Codes:
    """Return microseconds since 1970; 0 for moments before 1970 or from 3001-01-19 on, for which MySQL returns 0."""
    return np.where((codes < 0) | (codes >= 32_536_771_200 * SECOND), 0, codes)


def week(day: date, mode: int) -> tuple[int, int]:
    """Return the year and the week of a day.

    Bits of mode, as in MySQL.  1: weeks start on Monday, not on Sunday.  2: weeks are numbered from 1, never 0.
    4: the other rule for the first week.  Without it, a first week that starts on Monday has four days of the year; one
    that starts on Sunday begins with the first Sunday of the year.
    """
    monday_first, year_wanted, first_weekday = bool(mode & 1), bool(mode & 2), bool(mode & 4)
    if not monday_first:
        first_weekday = not first_weekday
    year, number = day.year, day.timetuple().tm_yday - 1
    first = date(year, 1, 1)
    start = (first.weekday() + (0 if monday_first else 1)) % 7
    if day.month == 1 and day.day <= 7 - start:
        if not year_wanted and ((first_weekday and start != 0) or (not first_weekday and start >= 4)):
            return year, 0
        if (first_weekday and start != 0) or (not first_weekday and start >= 4):
            year_wanted, year = True, year - 1
            length = 366 if _leap(year) else 365
            number += length
            start = (start + 53 * 7 - length) % 7
    days = number - (7 - start) if (first_weekday and start != 0) or (not first_weekday and start >= 4) \
        else number + start
    if year_wanted and days >= 52 * 7:
        start = (start + (366 if _leap(year) else 365)) % 7
        if (not first_weekday and start < 4) or (first_weekday and start == 0):
            return year + 1, 1
    return year, days // 7 + 1


def _leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _yearweek(day: date, mode: int = 0) -> int:
    year, number = week(day, mode | 2)
    return year * 100 + number


# ------------------------------------------------------------------ formats
def _suffix(n: int) -> str:
    return "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")


_PARTS: dict[str, Callable[[datetime], str]] = {
    "Y": lambda m: f"{m.year:04}", "y": lambda m: f"{m.year % 100:02}", "m": lambda m: f"{m.month:02}",
    "c": lambda m: str(m.month), "M": lambda m: MONTHS[m.month - 1], "b": lambda m: MONTHS[m.month - 1][:3],
    "d": lambda m: f"{m.day:02}", "e": lambda m: str(m.day), "D": lambda m: f"{m.day}{_suffix(m.day)}",
    "H": lambda m: f"{m.hour:02}", "k": lambda m: str(m.hour), "h": lambda m: f"{m.hour % 12 or 12:02}",
    "I": lambda m: f"{m.hour % 12 or 12:02}", "l": lambda m: str(m.hour % 12 or 12),
    "i": lambda m: f"{m.minute:02}", "s": lambda m: f"{m.second:02}", "S": lambda m: f"{m.second:02}",
    "f": lambda m: f"{m.microsecond:06}", "p": lambda m: "AM" if m.hour < 12 else "PM",
    "T": lambda m: f"{m:%H:%M:%S}", "r": lambda m: f"{m.hour % 12 or 12:02}:{m:%M:%S} {'AM' if m.hour < 12 else 'PM'}",
    "W": lambda m: DAYS[m.weekday()], "a": lambda m: DAYS[m.weekday()][:3], "w": lambda m: str(m.isoweekday() % 7),
    "j": lambda m: f"{m.timetuple().tm_yday:03}",
    "U": lambda m: f"{week(m.date(), 0)[1]:02}", "u": lambda m: f"{week(m.date(), 1)[1]:02}",
    "V": lambda m: f"{week(m.date(), 2)[1]:02}", "v": lambda m: f"{week(m.date(), 3)[1]:02}",
    "X": lambda m: f"{week(m.date(), 2)[0]:04}", "x": lambda m: f"{week(m.date(), 3)[0]:04}",
}


_OF_ZERO = {"Y": "0000", "y": "00", **dict.fromkeys("mdHis", "00"), **dict.fromkeys("cek", "0"), "D": "0th", "S": "00",
            "h": "12", "I": "12", "l": "12", "f": "000000", "p": "AM", "T": "00:00:00", "r": "12:00:00 AM"}


def formatted(moment: date, form: str) -> str | None:
    """Format a moment as DATE_FORMAT does.  The zero date has neither a weekday nor the name of a month."""
    if isinstance(moment, ZEROS):
        return None if set(re.findall("%(.)", form)) & set("MbWawjUuVvXx") else re.sub(
            r"%(.)", lambda f: _OF_ZERO.get(f[1], f[1]), form, flags=re.DOTALL)
    m = moment if isinstance(moment, datetime) else datetime(moment.year, moment.month, moment.day)
    return re.sub(r"%(.)", lambda f: _PARTS[f[1]](m) if f[1] in _PARTS else f[1], form, flags=re.DOTALL)


def time_formatted(time: timedelta, form: str) -> str:
    """Format a time as TIME_FORMAT does.  There may be more than 24 hours."""
    micros = abs(time) // timedelta(microseconds=1)
    hours, within = divmod(micros, 3600 * SECOND)
    m = datetime(1970, 1, 1, hours % 24) + timedelta(microseconds=within)
    parts: dict[str, str] = {"H": f"{hours:02}", "k": str(hours), "T": f"{hours:02}:{m:%M:%S}"}
    sign = "-" if time < timedelta() else ""
    return sign + re.sub(r"%(.)", lambda f: parts.get(f[1]) or (_PARTS[f[1]](m) if f[1] in "hIlisSfpr" else f[1]), form)


_READ = {"Y": r"(?P<Y>\d{1,4})", "y": r"(?P<y>\d{1,2})", "m": r"(?P<m>\d{1,2})", "c": r"(?P<m>\d{1,2})",
         "d": r"(?P<d>\d{1,2})", "e": r"(?P<d>\d{1,2})", "D": r"(?P<d>\d{1,2})(?:st|nd|rd|th)",
         "H": r"(?P<H>\d{1,2})", "k": r"(?P<H>\d{1,2})", "h": r"(?P<h>\d{1,2})", "I": r"(?P<h>\d{1,2})",
         "l": r"(?P<h>\d{1,2})", "i": r"(?P<i>\d{1,2})", "s": r"(?P<s>\d{1,2})", "S": r"(?P<s>\d{1,2})",
         "f": r"(?P<f>\d{1,6})", "p": r"(?P<p>[AaPp][Mm])", "M": r"(?P<M>[A-Za-z]+)", "b": r"(?P<M>[A-Za-z]{3})",
         "W": r"[A-Za-z]+", "a": r"[A-Za-z]{3}", "j": r"(?P<j>\d{1,3})",
         "T": r"(?P<H>\d{1,2}):(?P<i>\d{1,2}):(?P<s>\d{1,2})",
         "r": r"(?P<h>\d{1,2}):(?P<i>\d{1,2}):(?P<s>\d{1,2})\s*(?P<p>[AaPp][Mm])"}


@lru_cache(maxsize=256)
def _reader(form: str) -> re.Pattern[str] | None:
    out = r"\s*"
    for m in re.finditer(r"%(.)|(\s+)|([^%\s]+)", form, re.DOTALL):
        out += r"\s*" + (_READ.get(m[1], re.escape(m[1])) if m[1] else "" if m[2] else re.escape(m[3]))
    try:
        return re.compile(out)
    except re.error:  # the format has a part twice
        return None


def read(text: str, form: str) -> datetime | None:
    """Read a text as STR_TO_DATE does.  Return None if it does not fit the format."""
    reader = _reader(form)
    found = None if reader is None else reader.match(text)
    if found is None:
        return None
    part = found.groupdict()
    try:
        return _built(part)
    except (ValueError, OverflowError):
        return None


def _built(part: dict[str, str | None]) -> datetime | None:
    year = int(part.get("Y") or 0)
    if part.get("y"):
        year = int(part["y"] or 0) + (2000 if int(part["y"] or 0) < 70 else 1900)
    month = int(part.get("m") or 0)
    if part.get("M"):
        names = [i for i, name in enumerate(MONTHS, 1) if name.lower().startswith(str(part["M"]).lower())]
        month = names[0] if len(names) == 1 else 0
    hour = int(part.get("H") or 0)
    if part.get("h"):
        hour = int(part["h"] or 0) % 12 + (12 if str(part.get("p")).lower() == "pm" else 0)
    clock = hour, int(part.get("i") or 0), int(part.get("s") or 0), int((part.get("f") or "").ljust(6, "0"))
    if part.get("j"):
        return datetime(year, 1, 1, *clock) + timedelta(days=int(part["j"] or 0) - 1)
    if not (year or month or part.get("d")):
        return datetime(1970, 1, 1, *clock)
    return datetime(year, month, int(part.get("d") or 0), *clock)


def parts_of(form: str) -> tuple[bool, bool, bool]:
    """Return three flags: whether a format has a date, a time, a fraction."""
    letters = set(re.findall(r"%(.)", form))
    return bool(letters & set("YymcMbdeDj")), bool(letters & set("HkhIlisSfTrp")), "f" in letters


# ------------------------------------------------------------------ times
def _made_time(hour: int, minute: int, second: float) -> timedelta | None:
    if not (0 <= minute < 60 and 0 <= second < 60):
        return None
    size = timedelta(hours=abs(hour), minutes=minute, microseconds=round(second * SECOND))
    size = min(size, timedelta(microseconds=LONGEST_TIME))
    return -size if hour < 0 else size


def _clipped(codes: Codes) -> Codes:
    return np.clip(codes, -LONGEST_TIME, LONGEST_TIME)


def _part_of_time(unit: int, within: int) -> Callable[[Codes], Codes]:
    """Return the function that computes a part of a time.  The sign is ignored."""
    return lambda codes: np.abs(codes) // unit % within


def _made_date(year: int, day: int) -> date | None:
    if day < 1 or not 0 <= year <= 9999:
        return None
    year += 2000 if year < 70 else 1900 if year < 100 else 0
    try:
        return date(year, 1, 1) + timedelta(days=day - 1)
    except OverflowError:
        return None


def _period_months(period: int) -> int:
    """Return the months of a period YYYYMM since year 0; 0 for period 0.  Raises OverflowError if it is negative."""
    if period < 0:
        raise OverflowError(period)
    if not period:
        return 0
    year, month = divmod(period, 100)
    return (year + (2000 if year < 70 else 1900 if year < 100 else 0)) * 12 + month - 1


def _add_period(period: int, months: int) -> int:
    total = _period_months(period) + months
    if not period:
        return 0
    if total < 0:
        raise OverflowError(total)
    return total // 12 * 100 + total % 12 + 1


def _part(f: Callable[[Codes], Codes], want: ArgumentType = ArgumentType.MOMENT, of_zero: int | None = 0) -> Function:
    return Function((want,), BIGINT, codes=f, of_zero=of_zero, nullable=of_zero is None)


A, D, W, T, X = ArgumentType.MOMENT, ArgumentType.DATE, ArgumentType.INT, ArgumentType.TIME, ArgumentType.TEXT
DATES: dict[str, Function] = {
    "year": _part(lambda c: calendar(c)[0]), "month": _part(lambda c: calendar(c)[1]),
    "day": _part(lambda c: calendar(c)[2]), "quarter": _part(lambda c: (calendar(c)[1] + 2) // 3),
    "hour": _part(lambda c: np.abs(c) // (3600 * SECOND), T), "minute": _part(_part_of_time(60 * SECOND, 60), T),
    "second": _part(_part_of_time(SECOND, 60), T), "microsecond": _part(_part_of_time(1, SECOND), T),
    "dayofweek": _part(lambda c: (_weekday(c) + 1) % 7 + 1, of_zero=None), "weekday": _part(_weekday, of_zero=None),
    "dayofyear": _part(_day_of_year, of_zero=None),
    "week": Function((D, W), BIGINT, values=lambda d, mode=0: week(d, mode & 7)[1], least=1, nullable=True),
    "yearweek": Function((D, W), BIGINT, values=_yearweek, least=1, nullable=True),
    "dayname": Function((D,), TEXT, values=lambda d: DAYS[d.weekday()], nullable=True),
    "monthname": Function((D,), TEXT, values=lambda d: MONTHS[d.month - 1], nullable=True),
    "last_day": Function((D,), DATE, codes=_last_day, nullable=True),
    "to_days": _part(lambda c: c // DAY + YEAR_ZERO_DAYS, of_zero=None), "to_seconds": _part(
        lambda c: c // SECOND + YEAR_ZERO_DAYS * 86_400, of_zero=None),
    "from_days": Function((W,), DATE, codes=lambda n: _limited((np.clip(n, 0, 4_000_000) - YEAR_ZERO_DAYS) * DAY),
                          nullable=True),
    "makedate": Function((W, W), DATE, values=_made_date, nullable=True),
    "maketime": Function((W, W, ArgumentType.DOUBLE), TIME6, values=_made_time, nullable=True),
    "datediff": Function((D, D), BIGINT, codes=lambda a, b: a // DAY - b // DAY, nullable=True),
    "add_micros": Function((A, W, W), MICROS, codes=add_micros, nullable=True, internal=True),
    "add_months": Function((A, W), lambda t: t[0], codes=add_months, nullable=True, internal=True),
    "diff_micros": Function((A, A), BIGINT, codes=lambda a, b: b - a, nullable=True, internal=True),
    "diff_months": Function((A, A), BIGINT, codes=diff_months, nullable=True, internal=True),
    "time_sum": Function((T, T), TIME6, codes=lambda a, b: _clipped(a + b), internal=True),
    "time_difference": Function((T, T), TIME6, codes=lambda a, b: _clipped(a - b), internal=True),
    "moment_difference": Function((A, A), TIME6, codes=lambda a, b: _clipped(a - b), nullable=True, internal=True),
    "time_to_sec": _part(lambda c: np.where(c < 0, -(-c // SECOND), c // SECOND), T),
    "micros_to_time": Function((W,), TIME6, codes=_clipped, internal=True),
    "unix_micros": Function((A,), BIGINT, codes=_unix, internal=True, of_zero=0),
    "micros_to_moment": Function((W,), MICROS, codes=lambda c: np.where(c < 0, NULL_CODE, _limited(c)), nullable=True,
                                 internal=True),
    "date_format": Function((A, X), TEXT, values=formatted, nullable=True, sees_zero=True),
    "time_format": Function((T, X), TEXT, values=time_formatted),
    "str_to_date": Function((X, X), MICROS, values=read, nullable=True),
    "period_add": Function((W, W), BIGINT, values=_add_period),
    "period_diff": Function((W, W), BIGINT, values=lambda a, b: _period_months(a) - _period_months(b)),
}
