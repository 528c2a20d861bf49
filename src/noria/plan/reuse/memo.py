"""Caches functions of plans, which are called for each view whenever a view is added or dropped.

Keeps true: a cached result is for exactly the tables that the plan reads, since it may contain them.  Equal plans may
read tables with other names, keys or sharding: after a change of a table, or in two databases of one process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar, cast

from noria.core.limits import KEPT_PLANS

Made = TypeVar("Made", bound=Callable[..., Any])


def memoized(make: Made) -> Made:
    """Cache a function whose first argument is a plan or has `tables_read`; further arguments are hashable."""
    @lru_cache(maxsize=KEPT_PLANS)
    def kept(plan: Any, _: object, *rest: Any) -> Any:
        return make(plan, *rest)

    @wraps(make)
    def of(plan: Any, *rest: Any) -> Any:
        return kept(plan, plan.tables_read, *rest)

    return cast(Made, of)
