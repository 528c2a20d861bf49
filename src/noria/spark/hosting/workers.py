"""Runs the workers as Spark jobs and supervises them within the driver (design/decisions.md, 2).

Spark aborts a whole job if a task of a barrier stage fails.  So each worker is a job with one barrier task, which Spark
never retries by itself.  The driver submits the job again whenever it ends too early.  A session has slots for all
workers (`session.py`).  A new task takes its shard over from its predecessor (`runtime/transport/shard_owner.py`).

In slots beside the workers', Python processes wait with a worker's code loaded.  The next worker to restart uses one of
them: this takes a tenth of a second instead of several.

Keeps true: the end of one worker does not affect another one.  No worker outlives the Spark daemon that forked it.  A
worker that fails repeatedly is retried at growing intervals, and each failure is reported with its reason.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from noria.runtime.worker import warm
from noria.runtime.worker.parent_end import end_with_parent
from noria.runtime.worker.remote_hosts import local_config
from noria.runtime.worker.worker_main import GOODBYE, WorkerConfig, run_worker

WARM = "noria.spark.hosting.workers:warm_workers"
CANCEL = "noria.spark.hosting.workers:cancel_workers"
POOL = "noria-workers"  # of Spark's scheduler
SPARE_AFTER_S = 10.0  # after the start of the workers, so that other processes start first
KEEP_WARM_S = 30.0  # between two uses of the waiting processes: Spark ends them after an idle minute
STEADY_S = 5.0  # workers that lived this long are restarted at once
GOODBYE_S = 30.0  # wait for the server's own end; then the worker is restarted
BACKOFF_S = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)  # before the next attempt, by failures in a row; the last one repeats
_PYTHON_ERROR = r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Violation|Fenced|Busy|Gone|Unavailable|Damaged|InUse): .+)$"


@dataclass(frozen=True)
class WorkerStarted:
    """A worker's job was submitted, for the nth time in this driver."""

    worker: int
    attempt: int


@dataclass(frozen=True)
class WorkerEnded:
    """A worker's job ended.  seconds: since the submission of the job."""

    worker: int
    attempt: int
    seconds: float
    why: str


Report = Callable[[WorkerStarted | WorkerEnded], None]


def worker_group(worker: int) -> str:
    """Return the name of the Spark job group of a worker's job."""
    return f"{POOL}-{worker}"


def host_workers(session: Any, config: WorkerConfig, report: Report, stopping: threading.Event,
                 ready: int = 0) -> None:
    """Run each worker's job, and repeat it when it ends, until `stopping` is set.  Blocks until all have ended.

    ready: the number of processes to keep waiting for restarts.
    """
    from pyspark import InheritableThread

    if ready:
        InheritableThread(_keep_ready, args=(session, stopping, ready), daemon=True).start()
    threads = [InheritableThread(_host_worker, args=(session, config.for_worker(w), report, stopping))
               for w in range(config.workers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def _keep_ready(session: Any, stopping: threading.Event, processes: int) -> None:
    wait = SPARE_AFTER_S
    while not stopping.wait(wait):
        wait = KEEP_WARM_S
        try:
            warm_workers(session, processes)
        except Exception as e:  # workers start without a waiting process, too
            if not stopping.is_set():
                print(f"noria: no process stands ready for a worker: {short_reason(e)}", file=sys.stderr, flush=True)


def _host_worker(session: Any, config: WorkerConfig, report: Report, stopping: threading.Event) -> None:
    context = session.sparkContext
    attempt = failures = 0
    while not stopping.is_set():
        attempt += 1
        report(WorkerStarted(config.worker, attempt))
        started = time.monotonic()
        context.setLocalProperty("spark.scheduler.pool", POOL)  # the same share as all batch jobs together
        context.setJobGroup(worker_group(config.worker), f"worker {config.worker} of noria", interruptOnCancel=True)
        try:
            numbers = context.parallelize([config.worker], 1)
            (why,) = numbers.barrier().mapPartitions(partial(_task, config)).collect()
        except Exception as e:
            why = short_reason(e)
        lived_s = time.monotonic() - started
        report(WorkerEnded(config.worker, attempt, lived_s, why))
        if why == GOODBYE:  # the server is ending, and will soon send `StopSession` to the driver
            stopping.wait(GOODBYE_S)
        failures = failures + 1 if lived_s < STEADY_S else 0
        stopping.wait(BACKOFF_S[min(failures, len(BACKOFF_S)) - 1] if failures else 0.0)


def cancel_workers(session: Any, workers: Sequence[int]) -> None:
    """Cancel these workers' jobs as Spark's UI does; the driver submits them again.  A job function for `run_job`."""
    for worker in workers:
        session.sparkContext.cancelJobGroup(worker_group(worker))


def warm_workers(session: Any, workers: int) -> None:
    """Make Spark's Python processes load a worker's code.  They stay idle, and Spark reuses one for a worker that
    starts.  A job function for `run_job`."""
    session.sparkContext.parallelize(range(workers), workers).barrier().mapPartitions(_warm).collect()


def _warm(numbers: Iterable[int]) -> Iterator[int]:
    warm.kernels()
    return iter(numbers)


def _task(config: WorkerConfig, numbers: Iterable[int]) -> Iterator[str]:
    """Run a worker as a barrier task until it ends, and yield the reason of its end."""
    _die_with_parent()
    for number in numbers:
        mine = config.for_worker(number)
        with local_config(mine) as here:
            why = run_worker(here)
        yield why


def _die_with_parent() -> None:
    """Let Linux kill this process when the daemon that forked it ends for any reason."""
    parent = os.getppid()
    end_with_parent()
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def short_reason(error: BaseException) -> str:
    """Return one line with the cause out of Spark's long message: the Python error if it contains one."""
    text = str(error)
    python: list[str] = re.findall(_PYTHON_ERROR, text, re.MULTILINE)
    own = [line for line in python if not line.startswith(("SparkException", "PythonException", "Py4JJavaError"))]
    if own:
        return own[-1]
    cancelled = re.search(r"cancelled[^\n]*", text)
    if cancelled and "cancel" in text:
        return f"the job was {cancelled[0]}"
    text = re.sub(r"^An error occurred while calling [^\n]*\n: ", "", text)  # py4j's line before Java's own
    failure = re.search(r"(?:Most recent failure: |Job aborted[^\n]*?: )([^\n]+)", text)
    return (failure[1] if failure else text.strip().splitlines()[0] if text.strip() else repr(error))[:500]
