"""Statements that an embedded database must refuse."""

from __future__ import annotations

from typing import Any

import pytest

from noria.client import Database
from noria.core.errors import SqlError


def refusal(db: Database, text: str, *values: Any) -> tuple[int, str]:
    """The number and the message of the statement's error."""
    with pytest.raises(SqlError) as error:
        db.sql(text, list(values))
    return error.value.code, error.value.message


def refused(db: Database, text: str, *values: Any) -> int:
    """The number of the statement's error."""
    return refusal(db, text, *values)[0]
