"""Decides whether a Spark driver and its JVM are alive, from the number of consecutive unanswered questions.

Keeps true: time is counted in beats of the asking process.  So a machine that slept, or a front end that was stalled,
costs one beat and no more.  A process that waits for a processor or collects garbage may miss SPARK_SILENT_BEATS.  A
process that the kernel reports as stopped may miss SPARK_STOPPED_BEATS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from noria.core.limits import SPARK_SILENT_BEATS, SPARK_STOPPED_BEATS


def is_stopped(pid: int) -> bool:
    """True if the process is stopped by a signal or a debugger."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] in "Tt"


@dataclass
class Liveness:
    """Counts unanswered questions.  verdict: why the driver must be replaced; empty otherwise."""

    stopped: Callable[[int], bool] = is_stopped
    missed: int = 0
    jvm_missed: int = 0
    verdict: str = ""

    def answered(self, jvm_missed: int) -> None:
        self.missed, self.jvm_missed = 0, jvm_missed

    def beat(self, driver: int, jvm: int | None) -> None:
        """Count a question that was sent one beat ago, and judge."""
        self.missed += 1
        if self.missed > self._patience(driver):
            self.verdict = f"it has answered none of {self.missed} questions and was killed"
        elif jvm is not None and self.jvm_missed > self._patience(jvm):
            self.verdict = f"its JVM has answered none of {self.jvm_missed} questions and was killed"

    def _patience(self, pid: int) -> int:
        return SPARK_STOPPED_BEATS if self.stopped(pid) else SPARK_SILENT_BEATS
