"""The seed of a test that draws at random: the same in CI every time (a change lands or does not for its own sake),
another one in each other run, printed where the test fails; a variable gives one.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterable, Sequence
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


def cases(many: int) -> int:
    """How many random cases a test tries: so many, in CI a third."""
    return max(many // 3, 1) if os.environ.get("CI") else many


def kinds(*all: T) -> Sequence[T]:
    """Of a test that takes long for each kind: all, in CI the last."""
    return all[-1:] if os.environ.get("CI") else all


def each(seeds: Iterable[int], run: Callable[[int], object]) -> None:
    """All of these, also after one has failed, which is told at once; the first failure is the test's."""
    failed: list[AssertionError] = []
    for number in seeds:
        try:
            run(number)
        except AssertionError as e:
            failed.append(e)
            print(f"seed {number} fails: {str(e)[:500]}", file=sys.__stderr__, flush=True)
    if failed:
        raise failed[0]
