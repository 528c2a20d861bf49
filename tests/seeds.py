"""The seed of a test that draws at random: the same in CI every time (a change lands or does not for its own sake),
another one in each other run, printed where the test fails; a variable gives one.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
IN_CI = 6


def seed(variable: str = "NORIA_SEED", in_ci: int = IN_CI) -> int:
    given = os.environ.get(variable) or (in_ci if os.environ.get("CI") else random.randrange(10**6))
    print(f"{variable}={given}")
    return int(given)


def crash_rounds() -> int:
    """How often each kind of process is killed: `NORIA_CRASH_ROUNDS`, else twice, in CI once."""
    return int(os.environ.get("NORIA_CRASH_ROUNDS") or ("1" if os.environ.get("CI") else "2"))


def kinds(*all: T) -> Sequence[T]:
    """Of a test that takes long for each kind: all, in CI the last."""
    return all[-1:] if os.environ.get("CI") else all
