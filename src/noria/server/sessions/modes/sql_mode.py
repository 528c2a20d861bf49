"""What the value of sql_mode says about writes and about the dialect of texts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from noria.sql.sql_modes import TRANSLATED

STRICT = frozenset({"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES", "TRADITIONAL"})


@dataclass(frozen=True)
class SqlMode:
    """strict: a value that does not fit its column is an error.  zero_dates: '0000-00-00' may be stored.

    division_errors: a division by zero is an error if the mode is strict, otherwise a warning.  numbers_zero: 0 in an
    AUTO_INCREMENT column requests a number.

    dialect: the modes that change it, with commas between them; "" for none.  escapes: a backslash in a string escapes
    the next character.
    """

    strict: bool
    zero_dates: bool
    division_errors: bool
    numbers_zero: bool
    dialect: str
    escapes: bool

    @property
    def is_default(self) -> bool:
        """Whether each error of a value stands."""
        return self.strict and self.division_errors


@lru_cache(256)
def mode_of(text: str) -> SqlMode:
    """Read a session's sql_mode: names with commas between them, as SET has checked them."""
    modes = set(text.split(","))
    return SqlMode(bool(STRICT & modes), not {"NO_ZERO_DATE", "TRADITIONAL"} & modes,
                   bool({"ERROR_FOR_DIVISION_BY_ZERO", "TRADITIONAL"} & modes), "NO_AUTO_VALUE_ON_ZERO" not in modes,
                   ",".join(mode for mode in TRANSLATED if mode in modes), "NO_BACKSLASH_ESCAPES" not in modes)
