"""Infers the type of a CSV column: the narrowest type that holds all its fields without loss.

    INT, BIGINT      no leading zeros and no plus sign: 01069 and +4930 are texts
    DECIMAL(18,s)    12.50: s is the number of places in the file; the other digits leave space for later rows
    DOUBLE           an exponent, more than 4 places, or more than 18 digits together; no number has more than 17
    DATE, DATETIME   in SQL's format, or in that of --date-format
    TEXT             any other column, and an empty one

`FieldStatistics` about the fields of chunks are numbers, joined by their maximum.  So many tasks can read chunks in
any order.

Keeps true: `checking.field` accepts every field of the files for the inferred type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from noria.core.limits import INFERRED_PLACES, MAX_DECIMAL_DIGITS
from noria.core.types import BIGINT, DATE, DATETIME, DOUBLE, Column, SqlType
from noria.spark.loading.rows import checking
from noria.spark.loading.rows.dates import DateFormat
from noria.spark.loading.rows.fields import prepared
from noria.spark.loading.rows.files import JsonNumber
from noria.spark.loading.rows.reading import TextFormat

DOUBLE_DIGITS = 17  # a number with more digits would lose some
_INTEGER = r"^ *-?(?:0|[1-9]\d*) *$"
_FIXED = r"^ *-?(?P<integer_digits>0|[1-9]\d*|)(?:\.(?P<places>\d*))? *$"
_FLOATING = r"^ *-?(?P<integer_digits>0|[1-9]\d*|)(?:\.(?P<places>\d*))?(?:[eE][+-]?\d+)? *$"
_DATE = r"^\d{4}-\d{2}-\d{2}$"
_MOMENT = r"^\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:\d{2})?)?$"
_NONE: pa.Scalar = pa.scalar(None)


class FieldStatistics(NamedTuple):
    """Facts about the fields of a column.  Those without a maximum below are 0 or 1.

    `some`: a field is not empty.  `no_…`: a field is not of this type.  `wide`: an integer is beyond INT.
    `integer_digits`, `places`: the most digits before and behind a decimal point.  `digits`: the most digits of one
    number, without leading and trailing zeros.  `longest`: the most characters.  `number`, `boolean`, `text`: JSON has
    such values.
    """

    some: int = 0
    no_integer: int = 0
    wide: int = 0
    no_fixed: int = 0
    integer_digits: int = 0
    places: int = 0
    no_double: int = 0
    digits: int = 0
    no_date: int = 0
    no_moment: int = 0
    longest: int = 0
    number: int = 0
    boolean: int = 0
    text: int = 0

    def joined(self, other: FieldStatistics) -> FieldStatistics:
        return FieldStatistics(*map(max, self, other))


def facts(texts: pa.Array, reading: TextFormat) -> FieldStatistics:
    """Return the facts about some fields of a column; NULLs and empty fields do not count."""
    said = texts.drop_null()
    longest = pc.max(pc.utf8_length(said)).as_py() or 0
    said = said.filter(pc.not_equal(said, ""))
    if not len(said):
        return FieldStatistics(longest=longest)
    numbers = _numbers(said, reading)
    day, moment = _moments(said, reading)
    return FieldStatistics(1, longest=longest, no_date=day, no_moment=moment, **numbers)


def json_facts(values: Sequence[Any], reading: TextFormat) -> FieldStatistics:
    """Return the facts about some values of a JSON key: texts, `JsonNumber`s, true and false."""
    numbers = [str(v) for v in values if isinstance(v, JsonNumber)]
    texts = [v for v in values if type(v) is str]
    found = facts(pa.array(numbers, pa.string()), reading)._replace(number=int(bool(numbers)))
    if texts:
        seen, empty = facts(pa.array(texts, pa.string()), reading), int("" in texts)
        found = found.joined(FieldStatistics(1, no_date=seen.no_date | empty, no_moment=seen.no_moment | empty, text=1,
                                             longest=seen.longest))
    return found._replace(boolean=1) if any(isinstance(v, bool) for v in values) else found


def _numbers(said: pa.Array, reading: TextFormat) -> dict[str, int]:
    spelled, _ = prepared(said, Column("", DOUBLE), reading)
    integer = int(not (_all(spelled, _INTEGER) and _takes(said, BIGINT, reading)))
    fixed = int(not _all(spelled, _FIXED) or _all(spelled, r"^ *-?\.? *$", any_=True))
    floating = int(not _all(spelled, _FLOATING) or _all(spelled, r"^ *-?\.?(?:[eE].*)?$", any_=True)
                   or not _takes(said, DOUBLE, reading))
    found = {"no_integer": integer, "no_fixed": fixed, "no_double": floating}
    if not integer:
        found["wide"] = int(_is_wide(spelled))
    if not floating:
        parts = pc.extract_regex(spelled, _FLOATING)
        integer_digits, places = pc.struct_field(parts, "integer_digits"), pc.struct_field(parts, "places")
        before = pc.utf8_ltrim(integer_digits, "0")
        both = pc.binary_join_element_wise(before, pc.utf8_rtrim(places, "0"), "")
        found |= {"integer_digits": _most(before), "places": _most(places), "digits": _most(pc.utf8_ltrim(both, "0"))}
    return found


def _moments(said: pa.Array, reading: TextFormat) -> tuple[int, int]:
    """Return 1 if some field is no DATE, and 1 if some field is no DATETIME, else 0."""
    if reading.date_format:
        wanted = DateFormat.of(reading.date_format)
        spelled = wanted.dates(said)
        is_day = not wanted.has_time and not spelled.null_count and _all(spelled, r"^\d+-\d+-\d+$")
        is_moment = not spelled.null_count
    else:
        is_day, is_moment = _all(said, _DATE), _all(said, _MOMENT)
    return (int(not (is_day and _takes(said, DATE, reading))), int(not (is_moment and _takes(said, MOMENT, reading))))


MOMENT = SqlType(DATETIME.kind, scale=6)


def _takes(said: pa.Array, type: SqlType, reading: TextFormat) -> bool:
    """Whether the load accepts all these fields for a column of this type."""
    _, reasons = checking.field(said, Column("", type), _NONE, reading)
    return not reasons


def _all(texts: pa.Array, pattern: str, any_: bool = False) -> bool:
    """Whether all texts match, or with `any_` whether one does.  NULL does not match."""
    found = pc.fill_null(pc.match_substring_regex(texts, pattern), False)
    return bool((pc.any if any_ else pc.all)(found).as_py())


def _is_wide(spelled: pa.Array) -> bool:
    numbers = pc.utf8_trim(spelled, " ").cast(pa.int64())
    return bool(pc.any(pc.or_(pc.less(numbers, -(2**31)), pc.greater(numbers, 2**31 - 1))).as_py())


def _most(texts: pa.Array) -> int:
    return pc.max(pc.utf8_length(texts)).as_py() or 0


def type_of(found: FieldStatistics) -> T.DataType:
    """Return the inferred type of a CSV column as a Spark type, for `types.sql_type`."""
    if not found.some:
        return T.StringType()
    if not found.no_integer:
        return T.LongType() if found.wide else T.IntegerType()
    if not found.no_fixed and holds(found.integer_digits, found.places):
        return T.DecimalType(MAX_DECIMAL_DIGITS, found.places)
    if not found.no_double and found.digits <= DOUBLE_DIGITS:
        return T.DoubleType()
    if not found.no_date:
        return T.DateType()
    return T.StringType() if found.no_moment else T.TimestampNTZType()


def json_type_of(found: FieldStatistics) -> T.DataType:
    """Return the inferred type of a JSON key.  A text is never a number here; values of several kinds are texts."""
    if found.number + found.boolean + found.text != 1:
        return T.StringType()
    if found.boolean:
        return T.BooleanType()
    return type_of(found if found.number else found._replace(no_integer=1, no_fixed=1, no_double=1))


def holds(integer_digits: int, places: int) -> bool:
    """Whether a DECIMAL holds numbers with so many digits before and behind the point."""
    return places <= INFERRED_PLACES and integer_digits + places <= MAX_DECIMAL_DIGITS
