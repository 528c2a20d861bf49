"""Moments from one time zone to another."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.core.expressions.library.zones import convert, zone_of

CASES = (
    ("2024-07-01 12:00:00", "UTC", "Europe/Berlin", "2024-07-01 14:00:00"),
    ("2024-01-01 12:00:00", "Europe/Berlin", "America/New_York", "2024-01-01 06:00:00"),
    ("2024-03-31 02:30:00", "Europe/Berlin", "UTC", "2024-03-31 01:00:00"),  # a time that is skipped
    ("2024-10-27 02:30:00", "Europe/Berlin", "UTC", "2024-10-27 00:30:00"),  # a time that occurs twice
    ("2024-10-27 01:30:00", "UTC", "Europe/Berlin", "2024-10-27 02:30:00"),
    ("2024-03-31 02:30:00", "+02:00", "-03:30", "2024-03-30 21:00:00"),
    ("2024-01-01 00:00:00", "SYSTEM", "Asia/Kolkata", "2024-01-01 05:30:00"),
    ("1900-01-01 00:00:00", "UTC", "Asia/Tokyo", "1900-01-01 00:00:00"),  # MySQL converts from 1970 on
    ("0001-01-01 00:00:00", "+14:00", "UTC", "0001-01-01 00:00:00"),
    ("9999-12-31 23:59:59", "UTC", "+14:00", "9999-12-31 23:59:59"),
)


@pytest.mark.parametrize("moment, source, target, wanted", CASES)
def test_conversion(moment: str, source: str, target: str, wanted: str) -> None:
    assert str(convert(datetime.fromisoformat(moment), source, target)) == wanted


@pytest.mark.parametrize("name", ["Nowhere/X", "", "../etc/passwd", "/etc/passwd", "Europe", "+15:00", "-14:00",
                                  "+1:60", "Europe/Berlin\0", "x" * 5_000])
def test_unknown_zones_yield_null(name: str) -> None:
    assert zone_of(name) is None and convert(datetime(2024, 1, 1), name, "UTC") is None
    assert convert(datetime(2024, 1, 1), "UTC", name) is None


@given(st.datetimes(datetime(1970, 1, 3), datetime(2999, 12, 1)),
       st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata",
                        "Africa/Casablanca"]))
def test_utc_to_a_zone_and_back(moment: datetime, zone: str) -> None:
    there = convert(moment, "UTC", zone)
    assert there is not None and abs(there - moment) < timedelta(hours=16)
    back = convert(there, zone, "UTC")
    assert back is not None
    twice = moment - back  # a time that occurs twice means its first occurrence
    assert twice in (timedelta(), timedelta(minutes=30), timedelta(hours=1), timedelta(hours=2))
    assert moment.replace(tzinfo=UTC).astimezone(zone_of(zone)).replace(tzinfo=None) == there
