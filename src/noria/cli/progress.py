"""Shows the progress of long work: of a copy in bytes, on standard error, or of a server's job in steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def copying(what: str) -> Iterator[Callable[[int, int], object]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def steps(reports: Iterable[dict[str, Any]], console: Console) -> tuple[dict[str, Any], float]:
    """Show a job's steps, and the statements that it ran.  Returns the last step and the elapsed seconds."""
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    started = time.monotonic()
    last: dict[str, Any] = {}
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(),
               TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task, step = progress.add_task("starting", total=None), "starting"
        for last in reports:
            if "statement" in last:
                console.print(f"{last['statement']};", markup=False, highlight=False, soft_wrap=True)
            if str(last.get("step", "")) != step:  # the remaining time is estimated by the speed of this step
                step = str(last.get("step", ""))
                progress.remove_task(task)
                task = progress.add_task(step, total=None)
            progress.update(task, description=str(last.get("step", "")), total=last.get("total"),
                            completed=last.get("done", 0))
    return last, time.monotonic() - started
