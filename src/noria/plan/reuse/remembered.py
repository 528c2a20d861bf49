"""What is made of a plan, remembered: it is asked for each view whenever one comes or goes.

Keeps true: what is remembered is of the very tables that the asked plan reads.  Equal plans may be over tables that are
called, keyed or spread over the workers otherwise, before and after a change of a table or in two databases of one
process; what is made of a plan holds its tables.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar, cast

from noria.core.limits import KEPT_PLANS

Made = TypeVar("Made", bound=Callable[..., Any])


def remembered(make: Made) -> Made:
    """make: a function of a plan, or of what tells the tables of one (`tables_read`), and of what else is hashed."""
    @lru_cache(maxsize=KEPT_PLANS)
    def kept(plan: Any, _: object, *rest: Any) -> Any:
        return make(plan, *rest)

    @wraps(make)
    def of(plan: Any, *rest: Any) -> Any:
        return kept(plan, plan.tables_read, *rest)

    return cast(Made, of)
