"""The Spark driver: a child process of the front end with the session, the workers' jobs and batch jobs.

The two exchange messages (`core/codec.py`) over a socket pair that the child inherits.  If one dies, the other sees the
end of the stream at once.  An orphaned driver kills its JVM (and with it the workers) and exits.  A driver whose JVM
died exits, because the same process cannot get another session.

A job is a function named "module:function" that takes the session first, then keyword arguments, and `progress`
if it has such a parameter: a callable whose arguments reach the front end's callback, in order.

Keeps true: when this process has ended, nothing of Spark is running.  A job's failure affects no other job.  A
cancelled job starts nothing more on Spark.  Only its user can read Spark's files.  A `Ping` is answered at once,
whatever the session does, with whether the JVM answers too.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import queue
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from noria.core.codec import Codec, Malformed
from noria.runtime.worker.resources import raise_open_files
from noria.runtime.worker.worker_main import WorkerConfig
from noria.spark.hosting import archive, daemon
from noria.spark.hosting.session import SparkSettings, build_session
from noria.spark.hosting.workers import WorkerEnded, WorkerStarted, cancel_workers, host_workers, short_reason

LENGTH = struct.Struct(">Q")
JVM_DIED, JVM_WITHOUT_MEMORY = 70, 71  # exit codes
JVM_MEMORY_CODES = (3, 52)  # what a JVM ends with for lack of memory: its own number, and Spark's
JVM_PROBE_S = 1.0  # between two questions to the JVM
JVM_ENDS_S = 10.0  # for a JVM that no longer answers a job: has it ended?
STOP_WORKERS_S = 3.0  # for workers that were told to end; then their jobs are cancelled
STOP_SESSION_S = 5.0  # for Spark to stop; then the JVM is killed


# ---------------------------------------------------------------- messages
@dataclass(frozen=True)
class Start:
    """log: what the process and its JVM say is appended to this file."""

    settings: SparkSettings
    log: Path | None = None


@dataclass(frozen=True)
class HostWorkers:
    config: WorkerConfig


@dataclass(frozen=True)
class RunJob:
    """pool: jobs of different pools share the slots fairly."""

    id: int
    function: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    pool: str = "default"


@dataclass(frozen=True)
class CancelJob:
    id: int


@dataclass(frozen=True)
class Ping:
    """Do you live?  Asked at a steady pace: what passes is told in pings, so that a machine that slept is no matter."""


@dataclass(frozen=True)
class Stop:
    """Stop the session, then exit.  Workers should have been told goodbye by their links."""


@dataclass(frozen=True)
class Ready:
    pid: int
    jvm_pid: int
    master: str
    spark_version: str
    seconds: float


@dataclass(frozen=True)
class Pong:
    """jvm_missed: pings since the JVM last answered; 0 before there is a session."""

    jvm_missed: int


@dataclass(frozen=True)
class StartFailed:
    message: str


@dataclass(frozen=True)
class Progress:
    """What the job's function called `progress` with."""

    id: int
    values: tuple[Any, ...]


@dataclass(frozen=True)
class JobDone:
    id: int
    value: Any


@dataclass(frozen=True)
class JobFailed:
    """`error`: the exception itself if it is one of noria's; `text`: one line; `details`: the traceback."""

    id: int
    error: Exception | None
    text: str
    details: str


Command = Start | HostWorkers | RunJob | CancelJob | Ping | Stop
Message = Ready | Pong | StartFailed | Progress | JobDone | JobFailed | WorkerStarted | WorkerEnded


CONTROL = Codec(Start, HostWorkers, CancelJob, Ping, Stop, Ready, Pong, StartFailed, WorkerStarted, WorkerEnded)
_CONTROL, _JOB = b"c", b"j"  # before a message: which codec it is of


def pack(message: Command | Message) -> bytes:
    """TypeError or ValueError where a job's values are no message."""
    if isinstance(message, RunJob | Progress | JobDone | JobFailed):
        body = _JOB + _jobs().encode(message)
    else:
        body = _CONTROL + CONTROL.encode(message)
    return LENGTH.pack(len(body)) + body


def unpack(body: bytes) -> Any:
    """`Malformed` for what is no message."""
    if body[:1] == _JOB:
        return _jobs().decode(memoryview(body)[1:])
    if body[:1] == _CONTROL:
        return CONTROL.decode(memoryview(body)[1:])
    raise Malformed("neither control nor job")


@cache
def _jobs() -> Codec:
    from noria.spark.hosting.job_codec import ROOTS  # with the first job: it imports pyspark

    return Codec(RunJob, Progress, JobDone, JobFailed, *ROOTS)


# ---------------------------------------------------------------- the process
class Cancelled(BaseException):
    """The job was cancelled.  It is no Exception: a job that goes on after the failure of a part must not catch it."""


class Driver:
    """Reads commands in one thread, runs each job in its own."""

    def __init__(self, channel: socket.socket):
        self._channel = channel
        self._sending = threading.Lock()
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._hosting: threading.Thread | None = None
        self._workers = range(0)
        self._processes_ready = 0
        self._jvm: Any = None  # the JVM's Popen
        self._session: Any = None
        self._pings = 0  # since the JVM answered
        self._cancelled: set[int] = set()

    def run(self) -> None:
        threading.Thread(target=self._read, name="commands", daemon=True).start()
        started = time.monotonic()
        start = self._commands.get()
        assert isinstance(start, Start), f"the first command is Start, not {start!r}"
        os.umask(0o077)
        _log_to(start.log)
        self._processes_ready = start.settings.processes_ready
        if not start.settings.batch_slots:
            daemon.reserve()
        try:
            self._session = build_session(start.settings, archive.options())
        except Exception as e:
            self._send(StartFailed(short_reason(e)))
            return
        context = self._session.sparkContext
        self._jvm = context._gateway.proc
        _give_way(start.settings.nice)
        threading.Thread(target=self._watch_jvm, name="jvm", daemon=True).start()
        self._thread(self._probe_jvm)
        self._send(Ready(os.getpid(), self._jvm.pid, context.master, context.version, time.monotonic() - started))
        while not isinstance(command := self._commands.get(), Stop):
            self._obey(command)
        self._stop()

    def _obey(self, command: Command) -> None:
        if isinstance(command, HostWorkers):
            self._workers = range(command.config.workers)
            self._hosting = self._thread(host_workers, self._session, command.config, self._send, self._stopping,
                                         self._processes_ready)
        elif isinstance(command, RunJob):
            self._thread(self._run_job, command)
        elif isinstance(command, CancelJob):
            self._cancelled.add(command.id)
            self._thread(self._cancel, command.id)

    @staticmethod
    def _thread(function: Callable[..., Any], *args: Any) -> threading.Thread:
        from pyspark import InheritableThread

        thread: threading.Thread = InheritableThread(function, args=args, daemon=True)
        thread.start()
        return thread

    # ------------------------------------------------------------ the channel
    def _read(self) -> None:
        """Until the stream ends, or is out of order: whoever cannot be heard from any more is gone."""
        try:
            self._take_all()
        except Exception:
            traceback.print_exc()
        finally:
            self._exit(0)

    def _take_all(self) -> None:
        with self._channel.makefile("rb") as stream:
            while len(head := stream.read(LENGTH.size)) == LENGTH.size:
                (size,) = LENGTH.unpack(head)
                body = stream.read(size)
                if len(body) < size:  # the front end ended in its midst
                    return
                command = unpack(body)
                if isinstance(command, Ping):
                    self._pings += self._session is not None
                    self._send(Pong(self._pings))
                else:
                    self._commands.put(command)

    def _send(self, message: Message) -> None:
        data = pack(message)
        with self._sending:
            try:
                self._channel.sendall(data)
            except OSError:
                self._exit(0)

    # ------------------------------------------------------------ jobs
    def _run_job(self, job: RunJob) -> None:
        try:
            answer: Message = JobDone(job.id, self._result(job))
            data = pack(answer)  # a result that cannot travel is this job's failure
        except Exception as e:
            if not self._jvm_answers():
                return  # this process ends: the supervisor says why
            answer = JobFailed(job.id, _portable(e), f"{type(e).__name__}: {short_reason(e)}", traceback.format_exc())
            data = pack(answer)
        except Cancelled:
            data = pack(JobFailed(job.id, None, "it was cancelled", ""))
        finally:
            self._cancelled.discard(job.id)
        with self._sending:
            self._channel.sendall(data)

    def _result(self, job: RunJob) -> Any:
        module, _, name = job.function.partition(":")
        function = getattr(importlib.import_module(module), name)
        more: dict[str, Any] = {}
        if "progress" in inspect.signature(function).parameters:
            more["progress"] = self._progress_of(job.id)
        context = self._session.sparkContext
        context.setJobGroup(_group(job.id), job.function, interruptOnCancel=True)
        context.setLocalProperty("spark.scheduler.pool", job.pool)
        if job.id in self._cancelled:
            raise InterruptedError("the job was cancelled before it began")
        return function(self._session, **job.kwargs, **more)

    def _progress_of(self, number: int) -> Callable[..., None]:
        """Sends what a job tells.  The call ends a job that was cancelled, if its own thread makes it."""
        own = threading.get_ident()

        def tell(*values: Any) -> None:
            if number not in self._cancelled:
                self._send(Progress(number, values))
            elif threading.get_ident() == own:
                raise Cancelled

        return tell

    def _cancel(self, number: int) -> None:
        """What of the job runs on Spark, and what it would still start there."""
        self._session.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(_group(number))

    def _jvm_answers(self) -> bool:
        """False when the JVM has ended, or is about to."""
        try:
            self._session.sparkContext._jvm.java.lang.System.nanoTime()
            return True
        except Exception:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._jvm.wait(JVM_ENDS_S)
            return self._jvm.poll() is None

    def _probe_jvm(self) -> None:
        """Ask the JVM for the time, again and again; a frozen one leaves this thread waiting."""
        clock = self._session.sparkContext._jvm.java.lang.System
        while not self._stopping.wait(JVM_PROBE_S):
            clock.nanoTime()
            self._pings = 0

    # ------------------------------------------------------------ the end
    def _watch_jvm(self) -> None:
        code = self._jvm.wait()
        if not self._stopping.is_set():
            print(f"noria: Spark's JVM ended with code {code}", file=sys.stderr, flush=True)
            self._exit(JVM_WITHOUT_MEMORY if code in JVM_MEMORY_CODES else JVM_DIED)

    def _stop(self) -> None:
        self._stopping.set()
        if self._hosting is not None:
            self._hosting.join(STOP_WORKERS_S)
            if self._hosting.is_alive():
                cancel_workers(self._session, self._workers)
                self._hosting.join(STOP_WORKERS_S)
        stop = self._thread(self._session.stop)
        stop.join(STOP_SESSION_S)
        self._exit(0)

    def _exit(self, code: int) -> None:
        """Leave nothing behind: the JVM's end ends its Python daemon and the workers."""
        if self._jvm is not None:
            self._jvm.kill()
            self._jvm.wait()
        os._exit(code)


def _log_to(path: Path | None) -> None:
    if path is None:
        return
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    for said in (1, 2):
        os.dup2(file, said)
    os.close(file)


def _give_way(nice: int) -> None:
    """Lower the priority of this process and its JVM.  Only a driver that is ready does so: people wait for its start,
    which takes minutes on a busy machine at a lower priority."""
    if nice:
        os.setpriority(os.PRIO_PGRP, 0, nice)


def _group(job: int) -> str:
    return f"noria-job-{job}"


def _portable(error: Exception) -> Exception | None:
    """The exception, if it is one of ours (a user's error, say) that the codec knows."""
    if not type(error).__module__.startswith("noria."):
        return None
    try:
        pack(JobFailed(0, error, "", ""))
    except (TypeError, ValueError):
        return None
    return error


def main() -> None:
    raise_open_files()
    Driver(socket.socket(fileno=int(sys.argv[1]))).run()


if __name__ == "__main__":
    from noria.spark.hosting.driver import (
        main as run,  # messages must have this module's real name, not __main__
    )

    run()
