"""Names of tables and views: they ignore case and share one namespace."""

from __future__ import annotations

import re

from noria.control.catalog.recipe import HistoricalCatalog, TableCatalog
from noria.core.types import BESIDE, COPY
from noria.sql.parse import parse
from noria.sql.query.relations.context import Recorder


def fold(name: str) -> str:
    """The name in lower case: names of tables and views ignore case and share one namespace."""
    return name.lower()


def temporary_name(name: str, number: int) -> str:
    """The temporary name of a thing that is made beside the one of this name."""
    return f"{name}{BESIDE}{number}"


def copy_of(name: str, number: int) -> str:
    """The temporary name of a table that survives the end of its worker."""
    return f"{name}{BESIDE}{COPY}{number}"


def without_numbers(text: str) -> str:
    """A text with temporary names replaced by the final ones."""
    return re.sub(BESIDE + r"\d+", "", text)


def views_named(text: str, catalog: TableCatalog, as_of: int) -> set[str]:
    """The folded names of the views that a text reads, as of this many column changes."""
    recorder = Recorder(HistoricalCatalog(catalog, as_of))
    parse(text, recorder)
    return recorder.views
