"""The jobs whose tasks are the workers (DESIGN section 2), and their supervision within the driver.

When a task of a barrier stage fails the whole job is aborted: so each worker is a job of its own, one barrier task
(which Spark never tries again by itself), submitted again whenever it ends while it should not.  A session has slots
for all of them (`session.py`).  A task that comes up takes its shard over from whatever is left of the last one
(`runtime/transport/lineage.py`).

In slots beside the workers', Python processes with a worker's code stand ready: the next worker that must be started
again is one of them, after a tenth of a second instead of the seconds that importing and loading take.

Keeps true: one worker's end is no other's; no worker outlives the Spark daemon that forked it; a worker whose failures
come at once is tried again ever more slowly, and each is reported with what the worker said.
"""

from __future__ import annotations

import ctypes
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
from noria.runtime.worker.remote_hosts import placed
from noria.runtime.worker.worker_main import GOODBYE, WorkerConfig, run_worker

WARM = "noria.spark.hosting.workers:warm_workers"
CANCEL = "noria.spark.hosting.workers:cancel_workers"
POOL = "noria-workers"  # of Spark's scheduler
SPARE_AFTER_S = 10.0  # from the start of the workers; they and what else starts go first
KEEP_WARM_S = 30.0  # between two looks: Spark ends Python processes that were idle for a minute
STEADY_S = 5.0  # workers that lived this long are restarted at once
GOODBYE_S = 30.0  # for the server's own end, after which it is as if it had none
BACKOFF_S = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)  # before the next try, by failures in a row; the last one stays
_PR_SET_PDEATHSIG = 1
_PYTHON_ERROR = r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Violation|Fenced|Busy|Gone|Unavailable|Damaged|InUse): .+)$"


@dataclass(frozen=True)
class WorkerStarted:
    """A worker's job was submitted, for the nth time in this driver."""

    worker: int
    attempt: int


@dataclass(frozen=True)
class WorkerEnded:
    """seconds: from its job's submission."""

    worker: int
    attempt: int
    seconds: float
    why: str


Report = Callable[[WorkerStarted | WorkerEnded], None]


def worker_group(worker: int) -> str:
    """The job group of a worker's job."""
    return f"{POOL}-{worker}"


def host_workers(session: Any, config: WorkerConfig, report: Report, stopping: threading.Event,
                 ready: int = 0) -> None:
    """Run each worker's job, again and again, until `stopping` is set and all have ended.  Blocks.  ready: how many
    processes to keep ready for the next ones."""
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
        except Exception as e:  # there is none then, and workers start as well
            if not stopping.is_set():
                print(f"noria: no process stands ready for a worker: {short_reason(e)}", file=sys.stderr, flush=True)


def _host_worker(session: Any, config: WorkerConfig, report: Report, stopping: threading.Event) -> None:
    context = session.sparkContext
    attempt = failures = 0
    while not stopping.is_set():
        attempt += 1
        report(WorkerStarted(config.worker, attempt))
        started = time.monotonic()
        context.setLocalProperty("spark.scheduler.pool", POOL)  # as much as all batch jobs
        context.setJobGroup(worker_group(config.worker), f"worker {config.worker} of noria", interruptOnCancel=True)
        try:
            numbers = context.parallelize([config.worker], 1)
            (why,) = numbers.barrier().mapPartitions(partial(_task, config)).collect()
        except Exception as e:
            why = short_reason(e)
        lived_s = time.monotonic() - started
        report(WorkerEnded(config.worker, attempt, lived_s, why))
        if why == GOODBYE:  # the server ends: it tells the driver soon, too
            stopping.wait(GOODBYE_S)
        failures = failures + 1 if lived_s < STEADY_S else 0
        stopping.wait(BACKOFF_S[min(failures, len(BACKOFF_S)) - 1] if failures else 0.0)


def cancel_workers(session: Any, workers: Sequence[int]) -> None:
    """End these workers' jobs as Spark's UI does; they are submitted again.  A job function for `run_job`."""
    for worker in workers:
        session.sparkContext.cancelJobGroup(worker_group(worker))


def warm_workers(session: Any, workers: int) -> None:
    """Python processes that have a worker's code loaded and nothing to do: Spark takes such a one for a worker that
    starts.  A job function for `run_job`."""
    session.sparkContext.parallelize(range(workers), workers).barrier().mapPartitions(_warm).collect()


def _warm(numbers: Iterable[int]) -> Iterator[int]:
    warm.kernels()
    return iter(numbers)


def _task(config: WorkerConfig, numbers: Iterable[int]) -> Iterator[str]:
    """A barrier task: one worker, until it ends, and why it did."""
    _die_with_parent()
    for number in numbers:
        mine = config.for_worker(number)
        with placed(mine) as here:
            why = run_worker(here)
        yield why


def _die_with_parent() -> None:
    """The kernel kills this process when the daemon that forked it ends, however that ends."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def short_reason(error: BaseException) -> str:
    """The one line that says what went wrong, out of Spark's pages: the Python error where there is one."""
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
