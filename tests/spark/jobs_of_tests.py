"""Functions that tests run as jobs in the driver."""

from __future__ import annotations

import os
from collections.abc import Callable
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
        from pathlib import Path

        Path(mark).write_text(str(os.getpid()))
        signal.pause()
        return numbers

    session.sparkContext.parallelize([1], 1).mapPartitions(task).collect()
