"""Functions that tests run as jobs in the driver."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from noria.core.errors import unknown_table


def count(session: Any, *, rows: int, progress: Callable[[int, str], None]) -> int:
    progress(1, "counting")
    found: int = session.range(rows).count()
    progress(2, "counted")
    return found


def fail_as_a_user(session: Any) -> None:
    raise unknown_table("nowhere")


def fail_on_spark(session: Any) -> None:
    session.sparkContext.parallelize([1], 1).map(lambda x: x // 0).collect()


def unpicklable(session: Any) -> Any:
    return lambda: None


def never_ends(session: Any, *, mark: str) -> None:
    def task(numbers: Any) -> Any:
        import signal

        Path(mark).write_text(str(os.getpid()))
        signal.pause()
        return numbers

    session.sparkContext.parallelize([1], 1).mapPartitions(task).collect()


def share(session: Any) -> list[str]:
    """Blocks for others to fetch: a broadcast and cached rows; and a Python process."""
    context = session.sparkContext
    kept = context.broadcast(list(range(10_000)))
    rows = context.parallelize(range(100), 1).map(lambda x: x + kept.value[0]).cache()
    assert rows.count() == 100
    session._kept = (kept, rows)
    return [f"rdd_{rows.id()}_0", f"broadcast_{kept._jbroadcast.id()}_piece0"]


def command_line(session: Any) -> str:
    """The session's secret, if it has one that could be on a command line."""
    return str(session.sparkContext._jsc.sc().conf().get("spark.authenticate.secret", ""))


def two_jobs(session: Any, *, mark: str, go: str) -> None:
    """One job of Spark's, a wait in the driver's code, and another one."""
    session.range(1).count()
    waits(session, mark=mark, go=go)
    session.range(1).count()
    Path(mark + ".second").write_text("it went on")


def waits(session: Any, *, go: str, mark: str = "") -> None:
    """In the driver's own code, until a file is there."""
    if mark:
        Path(mark).write_text("waiting")
    while not os.path.exists(go):
        threading.Event().wait(0.01)  # the file is another process's


def takes_all_memory(session: Any) -> None:
    """One row as large as the heap."""
    session.sql("SELECT max(length(x)) FROM (SELECT concat_ws('', collect_list(repeat(cast(id AS string), 1000))) x "
                "FROM range(0, 10000000, 1, 1))").collect()
