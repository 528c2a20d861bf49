"""What a start plans is what a client would get: SELECTs that views answer, each by another view."""

from __future__ import annotations

from noria.sql.commands import Select
from noria.sql.warm_up import ROUNDS, SELECTS, plan_some


def test_each_is_a_select_that_a_view_can_answer() -> None:
    commands = [p.command for p in plan_some()]
    assert len(commands) == ROUNDS * len(SELECTS)
    views = [c.view for c in commands if isinstance(c, Select) and c.view is not None]
    assert len(views) == len(commands)
    assert len({(v.plan, v.key) for v in views}) >= len(SELECTS)
