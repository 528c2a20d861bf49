"""shard_of: the same for equal values, in every form, process and run."""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from noria.core.keys import folded_texts, hasher, shard_of, shard_of_key
from noria.core.limits import MAX_INT, MIN_INT
from noria.core.plain_symbols import PlainSymbols
from noria.core.symbols import fold
from noria.core.types import BIGINT, DATE, DATETIME, DOUBLE, TEXT, TEXT_BIN, Collation, Kind, SqlType
from noria.core.values import arrow_type, encode, from_arrow


def test_the_answer_never_changes() -> None:
    """It decides where rows lie on disk: these numbers are a promise."""
    ints = pa.array([0, 1, -1, None, 2**62])
    texts = pa.array(["", "a", "Käse", None, "x" * 100])
    assert shard_of([ints], [BIGINT], 1000).tolist() == [652, 368, 366, 526, 745]
    assert shard_of([texts], [TEXT], 1000).tolist() == [132, 838, 863, 276, 336]
    assert shard_of([ints, texts], [BIGINT, TEXT_BIN], 1000).tolist() == [148, 804, 722, 446, 46]


@given(st.lists(st.none() | st.text(), min_size=1), st.integers(1, 9))
def test_codes_and_values_agree_and_folding_decides(texts: list[str | None], workers: int) -> None:
    symbols, other = PlainSymbols(), PlainSymbols()
    other.intern("ids differ here")
    array = pa.array(texts, pa.string())
    shards = shard_of([array], [TEXT], workers)
    for table in (symbols, other):
        codes = np.array([encode(t, TEXT, table) for t in texts], np.int64)
        assert shard_of([codes], [TEXT], workers, table).tolist() == shards.tolist()
        assert (shard_of([codes], [TEXT_BIN], workers, table) == shard_of([array], [TEXT_BIN], workers)).all()
    upper = pa.array([None if t is None else fold(t) for t in texts], pa.string())
    assert shard_of([upper], [TEXT], workers).tolist() == shards.tolist()
    assert folded_texts(array).to_pylist() == upper.to_pylist()
    assert 0 <= shards.min() <= shards.max() < workers


@given(st.lists(st.tuples(st.floats(allow_nan=False), st.dates()), min_size=1))
def test_numbers_and_dates_by_code(rows: list[tuple[float, date]]) -> None:
    floats, dates = (pa.array(c) for c in zip(*rows, strict=True))
    codes = [from_arrow(floats, DOUBLE, PlainSymbols()), from_arrow(dates, DATE, PlainSymbols())]
    assert (shard_of([floats, dates], [DOUBLE, DATE], 5) == shard_of(codes, [DOUBLE, DATE], 5)).all()


LISTED = ("a", "b", "c")
VALUES = {
    BIGINT: st.integers(MIN_INT, MAX_INT), DOUBLE: st.floats(allow_nan=False),
    SqlType(Kind.DECIMAL, precision=18, scale=4): st.decimals(-10**13, 10**13, places=4), DATE: st.dates(),
    DATETIME: st.datetimes(), SqlType(Kind.TIME, scale=6): st.timedeltas(timedelta(-30), timedelta(30)),
    SqlType(Kind.ENUM, members=LISTED): st.sampled_from(LISTED),
    SqlType(Kind.SET, members=LISTED): st.sets(st.sampled_from(LISTED)).map(lambda s: ",".join(sorted(s))),
    TEXT: st.text() | st.text(max_size=200).map(lambda t: t * 3), TEXT_BIN: st.text(),
    SqlType(Kind.TEXT, collation=Collation.BYTES): st.binary() | st.binary().map(lambda b: b * 9),
}


@given(st.data(), st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4), st.integers(1, 9))
def test_one_key_is_where_many_are(data: st.DataObject, types: list[SqlType], workers: int) -> None:
    keys = data.draw(st.lists(st.tuples(*(st.none() | VALUES[t] for t in types)), min_size=1))
    hashers = [hasher(t) for t in types]
    one = [shard_of_key(key, hashers, workers) for key in keys]
    columns = [pa.array(c, arrow_type(t)) for c, t in zip(zip(*keys, strict=True), types, strict=True)]
    symbols = PlainSymbols()
    codes = [np.array([encode(k[i], t, symbols) for k in keys], np.int64) for i, t in enumerate(types)]
    assert one == shard_of(codes, types, workers, symbols).tolist()
    assert one == shard_of(columns, types, workers).tolist()


def test_shards_are_even() -> None:
    counts = np.bincount(shard_of([np.arange(100_000)], [BIGINT], 7))
    assert counts.min() > 0.95 * counts.mean()
