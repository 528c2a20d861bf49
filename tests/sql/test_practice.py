"""What is planned at a start is planned as it would be for a client: by views, of which each is another one."""

from __future__ import annotations

from noria.sql.commands import Select
from noria.sql.practice import ROUNDS, SELECTS, practise


def test_each_is_a_select_that_a_view_can_answer() -> None:
    commands = [p.command for p in practise()]
    assert len(commands) == ROUNDS * len(SELECTS)
    views = [c.view for c in commands if isinstance(c, Select) and c.view is not None]
    assert len(views) == len(commands)
    assert len({(v.plan, v.key) for v in views}) >= len(SELECTS)
