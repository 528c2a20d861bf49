"""Requests that wait for rows of other workers: their order, errors and cancellation, and the cost of a step if many
wait."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any, cast

import numpy as np

from noria.core.errors import SqlError
from noria.dataflow.cluster.pending_gathers import LOOKED_AT, Gather, PendingRequests, end
from noria.dataflow.graph.nodes import Node, RemoteRowsNeeded

MANY = 2_000


def test_the_cost_of_a_step_does_not_depend_on_the_number_of_waiting_requests() -> None:
    """Requests that can continue do so in their order; a cancellation is noticed some steps later."""
    waiting, ran, looks, cancelled = PendingRequests(), list[Any](), Counter[int](), set[int]()
    gathers = [Gather(cast(Node, None), (0,), np.array([[n]], np.int64), {}, {}) for n in range(MANY)]

    def is_cancelled(n: int) -> bool:
        looks[n] += 1
        return n in cancelled

    for n, g in enumerate(gathers):
        waiting.wait(RemoteRowsNeeded((g, gathers[n // 2])), n, partial(ran.append, n), lambda e: ran.append(e.code),
                     cancelled=partial(is_cancelled, n))

    def over(*numbers: int) -> list[Any]:
        ran.clear()
        for n in numbers:
            end(gathers[n])
        waiting.run_ready()
        return ran

    assert over(5, 4) == [] and sum(looks.values()) == LOOKED_AT
    assert over(2) == [4, 5]
    gathers[7].error = SqlError(1105, "HY000", "lost")
    assert over(7) == [1105, 1105, 1105], "7, and 14 and 15, which wait for it, too"
    waiting.park(lambda: True, partial(ran.append, "parked"))
    assert over(1, 3) == [2, 3, "parked"], "1 waits for 0, too"
    cancelled.add(MANY - 1)
    ran.clear()
    for _ in range(MANY // LOOKED_AT + 1):
        waiting.run_ready()
    assert ran == [MANY - 1] and max(looks.values()) <= 3


def test_a_request_that_continues_may_wait_again() -> None:
    waiting, ran = PendingRequests(), list[str]()
    first, second = (Gather(cast(Node, None), (0,), np.array([[n]], np.int64), {}, {}) for n in range(2))
    waiting.wait(RemoteRowsNeeded((first,)), 1,
                 lambda: waiting.wait(RemoteRowsNeeded((second,)), 1, lambda: ran.append("both"), print), print)
    end(first)
    waiting.run_ready()
    assert waiting and not ran
    waiting.park(lambda: second.over, lambda: ran.append("parked"))
    waiting.run_ready()
    waiting.wait(RemoteRowsNeeded(()), 2, lambda: end(second), print)
    waiting.run_ready()
    assert ran == ["both", "parked"] and not waiting
