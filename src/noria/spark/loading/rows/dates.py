"""Converts dates of a CSV file from the format of `--date-format` to SQL's.

    %d.%m.%Y            31.12.2025             2025-12-31
                        31.12.2025 23:59:30    2025-12-31 23:59:30      (a format without a time copies the time)
    %m/%d/%y %I:%M %p   12/31/25 11:59 PM      25-12-31 23:59:00

Keeps true: a text is a date only if all of it matches the format.  A column is converted at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

PARTS = {"Y": r"\d{4}", "y": r"\d{2}", "m": r"\d{1,2}", "d": r"\d{1,2}", "b": "[A-Za-z]{3}", "B": "[A-Za-z]{3,9}",
         "H": r"\d{1,2}", "I": r"\d{1,2}", "M": r"\d{1,2}", "S": r"\d{1,2}", "f": r"\d{1,6}", "p": "[AaPp][Mm]"}
MEANINGS = ("%Y %y the year, %m %b %B the month (a number, Jan, January), %d the day, %H %I the hour of 24, of 12, %M "
            "%S %f the minute, second and its fraction, %p AM or PM, %% a percent sign")
MONTHS = ["january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
          "december"]
_TIME = set("HIMSfp")
_REST = r"(?P<rest>[T ]\s*\S.*)?"  # a time of day in SQL's format


@dataclass(frozen=True)
class DateFormat:
    """A parsed format.  pattern: an RE2 pattern with a named group for each part.  parts: the letters of the parts."""

    text: str
    pattern: str
    parts: frozenset[str]

    @classmethod
    def of(cls, text: str) -> DateFormat:
        """Parse a format.  Raises ValueError, which says what is wrong with it."""
        parts: list[str] = []
        pattern = ""
        for percent, letter, plain in re.findall(r"(%)(.?)|([^%]+)", text, re.DOTALL):
            if percent and letter not in PARTS and letter != "%":
                raise _wrong(text, f"it has '%{letter}'")
            if percent and letter != "%":
                parts.append(letter)
                pattern += f"(?P<{letter}>{PARTS[letter]})"
            else:
                pattern += re.escape(plain or letter)
        _check(text, parts)
        rest = "" if set(parts) & _TIME else _REST
        return cls(text, rf"^\s*{pattern}{rest}\s*$", frozenset(parts))

    @property
    def has_time(self) -> bool:
        return bool(self.parts & _TIME)

    def dates(self, texts: pa.Array) -> pa.Array:
        """Convert the texts to SQL's format.  NULL, and a text that does not match, become NULL."""
        found = pc.extract_regex(texts, self.pattern)
        day = _joined("-", self._part(found, "Y", "y"), self._month(found), self._part(found, "d"))
        if not self.has_time:
            return pc.binary_join_element_wise(day, pc.struct_field(found, "rest"), "")
        clock = _joined(":", self._hour(found), self._or_zero(found, "M"), self._or_zero(found, "S"))
        fraction = self._part(found, "f") if "f" in self.parts else _like(clock, "0")
        return _joined("", day, _like(day, " "), clock, _like(day, "."), fraction)

    def _part(self, found: pa.Array, *letters: str) -> pa.Array:
        letter = next(x for x in letters if x in self.parts)
        text = pc.struct_field(found, letter)
        return text if letter == "f" else pc.utf8_lpad(text, 2, "0")

    def _or_zero(self, found: pa.Array, letter: str) -> pa.Array:
        return self._part(found, letter) if letter in self.parts else pc.if_else(found.is_valid(), "00", None)

    def _month(self, found: pa.Array) -> pa.Array:
        if "m" in self.parts:
            return self._part(found, "m")
        name = pc.ascii_lower(pc.struct_field(found, "B" if "B" in self.parts else "b"))
        known = [m if "B" in self.parts else m[:3] for m in MONTHS]
        place = pc.index_in(name, pa.array(known, name.type))
        return pc.utf8_lpad(pc.add(place, 1).cast(pa.string()), 2, "0")

    def _hour(self, found: pa.Array) -> pa.Array:
        if "I" not in self.parts:
            return self._or_zero(found, "H")
        hour = self._part(found, "I").cast(pa.int32())
        ok = pc.and_(pc.greater_equal(hour, 1), pc.less_equal(hour, 12))
        late = pc.equal(pc.ascii_lower(self._part(found, "p")), "pm")
        of_24 = pc.add(pc.if_else(pc.equal(hour, 12), 0, hour), pc.if_else(late, 12, 0))
        return pc.if_else(ok, pc.utf8_lpad(of_24.cast(pa.string()), 2, "0"), None)


def _joined(by: str, *parts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*parts, by)


def _like(texts: pa.Array, text: str) -> pa.Array:
    return pc.if_else(texts.is_valid(), text, None)


def _check(text: str, parts: list[str]) -> None:
    if len(set(parts)) < len(parts):
        raise _wrong(text, "it has a part twice")
    for name, letters in (("the year (%Y or %y)", "Yy"), ("the month (%m, %b or %B)", "mbB"), ("the day (%d)", "d")):
        if len(set(parts) & set(letters)) != 1:
            raise _wrong(text, f"it says {name} {'twice' if set(parts) & set(letters) else 'nowhere'}")
    if ("I" in parts) != ("p" in parts) or {"H", "I"} <= set(parts):
        raise _wrong(text, "the hour is %H, or %I with %p")


def _wrong(text: str, why: str) -> ValueError:
    return ValueError(f'--date-format ("date_format") {text!r} is not understood: {why}; {MEANINGS}')


def bad_date(text: Any, kind: str, column: str, wanted: DateFormat) -> str:
    """Return the reject reason for a date that does not match the format."""
    return f"Incorrect {kind} value: '{text}' for column '{column}': it is not as --date-format {wanted.text}"
