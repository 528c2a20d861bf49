"""Descriptions of plan nodes and operators, with names instead of column numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from noria.core.types import Field

_COLUMN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|#(\d+)""")


def named(text: str, fields: Sequence[Field]) -> str:
    """Replace column numbers by names in a description, except in quoted text."""
    return _COLUMN.sub(lambda m: fields[int(m[1])].name if m[1] and int(m[1]) < len(fields) else m[0], text)
