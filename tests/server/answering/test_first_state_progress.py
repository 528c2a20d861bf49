"""What is told of views that are not filled."""

from __future__ import annotations

from typing import Any

from noria.core.limits import FILL_ROWS_S
from noria.server.answering.first_state_progress import FillRate, FirstStateProgress


def build(rows: int, of: int, *views: str, state: str = "runs") -> dict[str, Any]:
    return {"what": "first state", "views": list(views), "rows": rows, "of": of, "state": state}


def test_how_long_a_view_takes_is_told_by_how_fast_it_was_so_far() -> None:
    now = [0.0]
    progress = FillRate(lambda: now[0])
    of = 10 * FILL_ROWS_S
    assert progress.progress_of([build(0, of, "a")]) == [FirstStateProgress("a", 0, of, 10)]
    now[0] = 2.0
    assert progress.progress_of([build(of // 2, of, "a"), build(0, 0, "b")]) == [
        FirstStateProgress("a", of // 2, of, 2), FirstStateProgress("b", 0, 0, 0)]
    now[0] = 3.0
    assert progress.progress_of([build(of // 2, of, "a")]) == [FirstStateProgress("a", of // 2, of, 3)], "slower since"
    assert progress.progress_of([]) == []
    assert progress.progress_of([build(of // 2, of, "a")]) == [
        FirstStateProgress("a", of // 2, of, 5)], "another build than before"


def test_all_that_a_view_waits_for_counts_but_what_has_failed() -> None:
    progress = FillRate(lambda: 0.0)
    builds = [build(10, 20, "a", "b"), build(0, 30, "a"), build(1, 9, "c", state="failed"), build(3, 4)]
    found = progress.progress_of(builds)
    assert [(f.view, f.rows, f.of) for f in found] == [("a", 10, 50), ("b", 10, 20)]
    assert FillRate.line(found) == " filling=a:20%:1s,b:50%:1s"
    assert FillRate.line([FirstStateProgress(f"v{i}", 0, 0, 0) for i in range(5)]).endswith(",v2:0%:0s,and-2-more")
    assert FillRate.line([FirstStateProgress("a b,é", 0, 0, 0)]) == " filling=a%20b%2C%C3%A9:0%:0s"
    assert FillRate.line([]) == ""
