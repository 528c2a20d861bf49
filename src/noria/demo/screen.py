"""Prints the demo's output: numbered sections with short lines and small tables.

Keeps true: moving lines are shown only in a terminal.  A log has only the results.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

LOG_WIDTH = 110  # columns, without a terminal

Tell = Callable[[int, int, str], None]  # progress: done, total (0: unknown), step


class Screen:
    def __init__(self) -> None:
        self.console = Console(highlight=False)
        if not self.console.is_terminal:
            self.console = Console(highlight=False, width=LOG_WIDTH)
        self._sections = 0

    def section(self, title: str) -> None:
        self._sections += 1
        self.console.print(f"\n[bold cyan]{self._sections}  {title}[/]")

    def say(self, text: str, style: str = "") -> None:
        self.console.print(f"   {text}", style=style, markup=False, soft_wrap=True)

    def good(self, text: str) -> None:
        self.say(text, "bold green")

    def bad(self, text: str) -> None:
        self.say(text, "bold red")

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table, with text in the first column and figures in the others."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
        for i, name in enumerate(header):
            table.add_column(name, justify="right" if i else "left", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        with self.console.capture() as shown:
            self.console.print(table)
        for line in shown.get().splitlines():
            if line.strip():
                self.console.out(f"   {line}", highlight=False)

    @contextmanager
    def working(self, what: str) -> Iterator[Tell]:
        """Show a moving line with a bar while the block runs."""
        columns = (TextColumn("  "), SpinnerColumn(), TextColumn("{task.description}"), BarColumn(),
                   TimeElapsedColumn())
        with Progress(*columns, console=self.console, transient=True,
                      disable=not self.console.is_terminal) as progress:
            task = progress.add_task(what, total=None)

            def tell(done: int, total: int, now: str) -> None:
                progress.update(task, description=now or what, completed=done, total=total or None)

            yield tell


class Stopwatch:
    def __init__(self) -> None:
        self._started = time.monotonic()

    def seconds(self) -> float:
        return time.monotonic() - self._started


def megabytes(nbytes: float) -> str:
    return f"{nbytes / 2**20:,.1f} MB"
