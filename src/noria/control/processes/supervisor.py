"""Keeps a Spark driver running, sends it jobs, and reports events of the driver and its workers.

The driver (`spark/hosting/driver.py`) is a child process.  When it or its JVM dies or freezes, another one is started,
which submits the workers' jobs again.  Meanwhile the front end serves reads.  Running jobs fail with `DriverGone`, and
their callers repeat them.  New jobs wait for the next driver, for a bounded time.

Keeps true: at most one driver lives.  `stop` leaves no process behind, within seconds, whatever state Spark is in.  A
cancelled job ends in the driver too, or the driver is replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noria.control.processes.liveness import Liveness
from noria.core.limits import SPARK_BEAT_S, SPARK_CANCEL_MOST_S, SPARK_CANCEL_S, SPARK_START_S, SPARK_WAIT_S
from noria.runtime.transport.shard_owner import Process
from noria.runtime.worker.worker_main import WorkerConfig
from noria.spark.hosting import early
from noria.spark.hosting.driver import (
    JVM_WITHOUT_MEMORY,
    LENGTH,
    STOP_SESSION_S,
    STOP_WORKERS_S,
    CancelJob,
    Command,
    HostWorkers,
    JobDone,
    JobFailed,
    JobProgress,
    Ping,
    Pong,
    RunJob,
    SessionFailed,
    SessionReady,
    StartSession,
    StopSession,
    pack,
    unpack,
)
from noria.spark.hosting.session import SparkSettings, SparkUnavailable, import_path
from noria.spark.hosting.workers import WorkerEnded, WorkerStarted

_STORE_ERROR = re.compile(r"Store(?:Error|Damaged): (.+)")
EVENTS = 1_000  # kept for the dashboard and error messages
RESTART_S = (0.0, 1.0, 3.0, 10.0)  # before the next driver, by consecutive failed starts; the last one repeats


class DriverGone(ConnectionError):
    """The Spark driver ended while it ran a job; a new one is being started."""


class NoDriver(DriverGone):
    """There is no Spark driver: the start for which a job waited failed, or took too long."""


class JobError(Exception):
    """A job failed: its name and the reason in a line; `details` is the driver's traceback."""

    def __init__(self, function: str, text: str, details: str):
        super().__init__(f"the Spark job {function} failed: {text}")
        self.details = details


@dataclass(frozen=True)
class Event:
    """Something that happened.  at: seconds since the epoch; what: one word; detail: a sentence."""

    at: float
    what: str
    detail: str


@dataclass
class _Job:
    """A job of the driver.  on_end is called once: when the driver has ended the job, or the driver is gone."""

    function: str
    future: asyncio.Future[Any]
    progress: Callable[..., None] | None
    on_end: Callable[[], None]
    overdue: asyncio.TimerHandle | None = None  # of a cancelled one

    def end(self) -> None:
        if self.overdue is not None:
            self.overdue.cancel()
        self.on_end()


def _nothing() -> None:
    """Do nothing at the end of a job."""


class Supervisor:
    """Supervises one driver, from the event loop that started it.

    workers: None for batch jobs only.  name: the driver's name in events and messages.
    """

    def __init__(self, settings: SparkSettings, workers: WorkerConfig | None = None, *,
                 log_path: Path | None = None, on_event: Callable[[Event], None] | None = None,
                 name: str = "driver"):
        self.settings, self.workers, self.name = settings, workers, name
        self.title = "Spark driver" if name == "driver" else f"Spark {name} driver"
        self.events: deque[Event] = deque(maxlen=EVENTS)
        self.state = "stopped"  # starting | up | down | stopping | stopped
        self.ready: SessionReady | None = None
        self.restarts = 0
        self._log_path, self._on_event = log_path, on_event
        self._jobs: dict[int, _Job] = {}
        self._next_job = 0
        self._up = asyncio.Event()
        self._waiting: set[asyncio.Future[None]] = set()  # jobs that wait for a driver
        self.unusable: asyncio.Future[str] | None = None  # why a worker cannot open its store, once that happens
        self._keeper: asyncio.Task[None] | None = None
        self._when_needed = False  # does the first job start the driver?
        self._process: asyncio.subprocess.Process | early.StartedDriver | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._jvm: Process | None = None
        self._liveness = Liveness()
        self._last_end = ""

    @property
    def is_up(self) -> bool:
        """True if a driver accepts jobs."""
        return self._up.is_set()

    def processes(self) -> list[int]:
        """The process ids of the driver and its JVM, if they run."""
        return [p.pid for p in (self._process, self._jvm) if p is not None]

    # ------------------------------------------------------------ life
    async def start(self) -> SessionReady:
        """Start the driver and wait until its session is ready.  Raises `SparkUnavailable` if it cannot start."""
        first: asyncio.Future[SessionReady] = asyncio.get_running_loop().create_future()
        self.unusable = asyncio.get_running_loop().create_future()
        self._keeper = asyncio.create_task(self._keep(first))
        try:
            return await first
        except SparkUnavailable:
            await self.stop()
            raise

    def start_soon(self) -> None:
        """Start the driver without waiting; jobs wait for it."""
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep(None))

    def start_when_needed(self) -> None:
        """Let the first job start the driver and wait for it."""
        self._when_needed = True

    def host(self, workers: WorkerConfig) -> None:
        """Let this driver and its successors run these workers."""
        self.workers = workers
        if self.ready is not None:
            self._send(HostWorkers(workers))

    async def stop(self) -> None:
        """Stop the driver.  The links should have stopped the workers before."""
        self._when_needed = False
        if self._keeper is None:
            return
        self.state = "stopping"
        if self.ready is not None:
            self._send(StopSession())
        process = self._process
        if process is not None:
            try:
                await asyncio.wait_for(process.wait(), (2 * STOP_WORKERS_S + STOP_SESSION_S) * (self.ready is not None))
            except TimeoutError:
                self._kill()
        self._keeper.cancel()
        await asyncio.gather(self._keeper, return_exceptions=True)
        self._keeper = None
        self._fail_jobs(DriverGone("the front end is stopping"))
        self._notify_waiting(SparkUnavailable("the server is stopping"))
        self.state = "stopped"

    async def _keep(self, first: asyncio.Future[SessionReady] | None) -> None:
        """Run one driver after the other.  first: gets the first start's result; if it fails, none follows."""
        failures = 0
        while self.state != "stopping":
            self.state = "starting"
            try:
                await self._one_driver(first)
                failures = 0
            except SparkUnavailable as e:
                failures += 1
                self._last_end = str(e)
                self._event("failed", str(e))
                self._notify_waiting(e)
                if first is not None and not first.done():
                    first.set_exception(e)
                    return
            finally:
                await self._bury()
            if self.state != "stopping":
                self.state = "down"
                self.restarts += 1
                await asyncio.sleep(RESTART_S[min(failures, len(RESTART_S) - 1)])

    async def _one_driver(self, first: asyncio.Future[SessionReady] | None) -> None:
        reader = await self._spawn()
        self._send(StartSession(self.settings, self._log_path))
        liveness = self._liveness = Liveness()
        watch = asyncio.create_task(self._watch(liveness))
        try:
            await self._listen(reader, liveness, first)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            watch.cancel()
        assert self._process is not None
        code = await self._process.wait()
        if self.state == "stopping":
            return
        why = liveness.verdict or ("it ran out of memory" if code == JVM_WITHOUT_MEMORY
                                   else f"it ended with code {code}")
        if self.ready is None:
            raise SparkUnavailable(f"the {self.title} was not ready: {why}{self._log_tail()}")
        self._last_end = why
        self._event("ended", f"process {self._process.pid}: {why}; starting another")

    async def _listen(self, reader: asyncio.StreamReader, liveness: Liveness,
                      first: asyncio.Future[SessionReady] | None) -> None:
        """Process the driver's messages until the stream ends."""
        while True:
            head = await reader.readexactly(LENGTH.size)
            message = unpack(await reader.readexactly(LENGTH.unpack(head)[0]))
            if isinstance(message, Pong):
                liveness.answered(message.jvm_missed)
            elif isinstance(message, SessionFailed):
                raise SparkUnavailable(message.message)
            elif isinstance(message, SessionReady):
                self._became_ready(message)
                if first is not None and not first.done():
                    first.set_result(message)
            else:
                self._take(message)

    async def _watch(self, liveness: Liveness) -> None:
        """Ask the driver periodically whether it is alive; kill it if it is frozen or never becomes ready."""
        assert self._process is not None
        beats = 0
        while not liveness.verdict:
            self._send(Ping())
            await asyncio.sleep(SPARK_BEAT_S)
            beats += 1
            liveness.beat(self._process.pid, None if self._jvm is None else self._jvm.pid)
            if self.ready is None and beats * SPARK_BEAT_S > SPARK_START_S:
                liveness.verdict = f"it had no session after {SPARK_START_S} s and was killed"
        self._event("frozen", f"process {self._process.pid}: {liveness.verdict}")
        self._kill()

    async def _spawn(self) -> asyncio.StreamReader:
        begun = None if self.settings.batch_slots else early.take_driver()
        ours = await self._spawned() if begun is None else begun.channel
        self._process = self._process if begun is None else begun
        assert self._process is not None
        self._event("started", f"process {self._process.pid}")
        reader, self._writer = await asyncio.open_connection(sock=ours)
        return reader

    async def _spawned(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        log = os.open(self._log_path, flags, 0o600) if self._log_path else None
        try:
            # A session of its own: an interrupt at the terminal reaches the front end, which then stops the driver.
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "noria.spark.hosting.driver", str(theirs.fileno()), pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "PYTHONPATH": import_path()})
        finally:
            theirs.close()
            if log is not None:
                os.close(log)
        return ours

    def _became_ready(self, ready: SessionReady) -> None:
        self.ready, self.state, self._jvm = ready, "up", Process.of(ready.jvm_pid)
        self._event("ready", f"Spark {ready.spark_version} at {ready.master} after {ready.seconds:.1f} s, "
                             f"{self.name} process {ready.pid}, JVM process {ready.jvm_pid}")
        if self.workers is not None:
            self._send(HostWorkers(self.workers))
        self._up.set()
        self._notify_waiting()

    async def _bury(self) -> None:
        """Remove the last driver: its process, its JVM (and so its workers), and its jobs."""
        self._up.clear()
        self._kill()
        jvm, self._jvm = self._jvm, None
        if self._writer is not None:
            self._writer.close()
        self._writer, self.ready = None, None
        self._fail_jobs(DriverGone(f"the {self.title} ended while the job was running"
                                   f"{f' ({self._last_end})' if self._last_end else ''}; another one is starting: "
                                   "run it again"))
        if jvm is not None:
            await asyncio.to_thread(jvm.kill)  # and wait for its end

    def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):  # its process group includes a JVM that it is starting
                os.killpg(self._process.pid, signal.SIGKILL)
        if self._jvm is not None:
            end = self._jvm.send_kill()
            if end is not None:
                os.close(end)

    # ------------------------------------------------------------ jobs
    async def run_job(self, function: str, progress: Callable[..., None] | None = None, *, pool: str = "default",
                      on_end: Callable[[], None] = _nothing, **kwargs: Any) -> Any:
        """The result of "module:function"(session, **kwargs) in the driver.

        Raises noria's own errors, such as `SqlError`, as they are, and others as `JobError`.  Raises `DriverGone` when
        the driver dies, and `NoDriver` when the next one cannot be started, or not within SPARK_WAIT_S.  Cancelling the
        call cancels the job, wherever it is.  `on_end` is called when nothing of the job runs any more, which may be
        after the call.
        """
        try:
            await self._driver()
        except BaseException:
            on_end()
            raise
        self._next_job += 1
        number = self._next_job
        job = self._jobs[number] = _Job(function, asyncio.get_running_loop().create_future(), progress, on_end)
        self._send(RunJob(number, function, kwargs, pool))
        try:
            return await job.future
        except asyncio.CancelledError:
            if number in self._jobs:
                self._send(CancelJob(number))
                self._set_deadline(job, SPARK_CANCEL_MOST_S)
            raise

    async def _driver(self) -> None:
        """Wait for a driver that accepts jobs."""
        if self._when_needed:
            self.start_soon()
        if self._keeper is None:
            raise NoDriver(f"the {self.title} is not started")
        if self._up.is_set():
            return
        start: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(start)
        try:
            await asyncio.wait_for(start, SPARK_WAIT_S)
        except TimeoutError:
            why = f"; the last one: {self._last_end}" if self._last_end else ""
            raise NoDriver(f"the {self.title} is still being started after {SPARK_WAIT_S} s{why}: try again") from None
        finally:
            self._waiting.discard(start)

    def _notify_waiting(self, failed: Exception | None = None) -> None:
        """Notify waiting jobs that a start has succeeded, or failed with this error."""
        for start in self._waiting:
            if start.done():
                continue
            if failed is None:
                start.set_result(None)
            else:
                start.set_exception(NoDriver(f"the {self.title} could not be started: {failed}; it is tried again"))

    def _set_deadline(self, job: _Job, left: float) -> None:
        job.overdue = asyncio.get_running_loop().call_later(SPARK_CANCEL_S, self._overdue, job, left - SPARK_CANCEL_S)

    def _overdue(self, job: _Job, left: float) -> None:
        """Replace the driver, because a cancelled job does not end: nothing interrupts its code.

        While jobs of others run, this waits up to `left` seconds.
        """
        if left > 0 and any(not j.future.done() for j in self._jobs.values()):
            self._set_deadline(job, left)
        else:
            self._liveness.verdict = (f"the cancelled job {job.function} still ran after {SPARK_CANCEL_S} s or more, "
                                      f"so "
                                   "it was killed")

    def _take(self, message: Any) -> None:
        if isinstance(message, WorkerStarted):
            self._event("worker-started", f"worker {message.worker}: attempt {message.attempt} of this driver")
        elif isinstance(message, WorkerEnded):
            self._event("worker-ended", f"worker {message.worker}: after {message.seconds:.1f} s: {message.why}")
            self._judge(message)
        elif isinstance(message, JobProgress):
            job = self._jobs.get(message.id)
            if job is not None and job.progress is not None and not job.future.done():
                job.progress(*message.values)
        elif isinstance(message, JobDone | JobFailed):
            self._end_job(message)

    def _judge(self, message: WorkerEnded) -> None:
        """Report a store that no restart will open."""
        broken = _STORE_ERROR.match(message.why)
        if broken and self.workers is not None and self.unusable is not None and not self.unusable.done():
            whose = f"worker {message.worker}: " if self.workers.workers > 1 else ""
            self.unusable.set_result(whose + broken[1])

    def _end_job(self, message: JobDone | JobFailed) -> None:
        job = self._jobs.pop(message.id, None)
        if job is None:
            return
        if job.future.done():  # cancelled
            pass
        elif isinstance(message, JobDone):
            job.future.set_result(message.value)
        else:
            job.future.set_exception(message.error or JobError(job.function, message.text, message.details))
        job.end()

    def _fail_jobs(self, error: Exception) -> None:
        jobs, self._jobs = self._jobs, {}
        for job in jobs.values():
            if not job.future.done():
                job.future.set_exception(error)
            job.end()

    def _send(self, command: Command) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(pack(command))

    # ------------------------------------------------------------ events
    def _event(self, what: str, detail: str) -> None:
        event = Event(time.time(), what if what.startswith("worker-") else f"{self.name}-{what}", detail)
        self.events.append(event)
        if self._on_event is not None:
            self._on_event(event)

    def _log_tail(self) -> str:
        if self._log_path is None or not self._log_path.exists():
            return ""
        return "; its log ends: " + self._log_path.read_text(errors="replace")[-500:].strip()
