"""The Spark driver: a child process of the front end that holds the session, the workers' jobs and batch jobs.

The two exchange messages (`core/codec.py`) over a socket pair that the child inherits.  If one dies, the other sees the
end of the stream at once.  An orphaned driver kills its JVM (and with it the workers) and exits.  A driver whose JVM
died exits, because a process cannot start a second session.

A job names a function as "module:function".  The driver calls it with the session and the job's keyword arguments.  If
the function has a parameter `progress`, it can call it: the arguments reach the front end's callback, in order.

Keeps true: when this process has ended, no process of Spark runs.  A job's failure affects no other job.  A cancelled
job starts no more Spark tasks.  Only its user can read Spark's files.  The driver answers a `Ping` at once, whatever
the session does.  The answer says whether the JVM responds.
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
JVM_MEMORY_CODES = (3, 52)  # exit codes of a JVM that ran out of memory: its own, and Spark's
JVM_PROBE_S = 1.0  # between two calls that test the JVM
JVM_ENDS_S = 10.0  # wait for the exit of a JVM that no longer answers a job
STOP_WORKERS_S = 3.0  # wait for workers to end; then their jobs are cancelled
STOP_SESSION_S = 5.0  # wait for Spark to stop; then the JVM is killed


# ---------------------------------------------------------------- messages
@dataclass(frozen=True)
class StartSession:
    """Make the session; answered by `SessionReady` or `SessionFailed`.  log: the output of driver and JVM is
    appended to it."""

    settings: SparkSettings
    log: Path | None = None


@dataclass(frozen=True)
class HostWorkers:
    """Host the workers.  `WorkerStarted` and `WorkerEnded` report on them until `StopSession`."""

    config: WorkerConfig


@dataclass(frozen=True)
class RunJob:
    """Run a function; answered by `JobDone` or `JobFailed`.  pool: jobs of different pools share the slots fairly."""

    id: int
    function: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    pool: str = "default"


@dataclass(frozen=True)
class CancelJob:
    """Cancel a job, which then ends with `JobFailed`, or with `JobDone` if it was already complete."""

    id: int


@dataclass(frozen=True)
class Ping:
    """Answered by `Pong`.  Pings come at a steady pace, and time is counted in pings: a suspended machine sends none.
    """


@dataclass(frozen=True)
class StopSession:
    """Stop the session, then exit.  Before this, the links should send their goodbye to the workers."""


@dataclass(frozen=True)
class SessionReady:
    """The session exists.  seconds: the duration of its start."""

    pid: int
    jvm_pid: int
    master: str
    spark_version: str
    seconds: float


@dataclass(frozen=True)
class Pong:
    """jvm_missed: pings since the JVM last answered; 0 before the session exists."""

    jvm_missed: int


@dataclass(frozen=True)
class SessionFailed:
    """No session could be made, and the driver exits."""

    message: str


@dataclass(frozen=True)
class JobProgress:
    """The arguments of one call of `progress` by a job's function."""

    id: int
    values: tuple[Any, ...]


@dataclass(frozen=True)
class JobDone:
    id: int
    value: Any


@dataclass(frozen=True)
class JobFailed:
    """error: the exception itself if it is one of noria's.  text: one line.  details: the traceback."""

    id: int
    error: Exception | None
    text: str
    details: str


Command = StartSession | HostWorkers | RunJob | CancelJob | Ping | StopSession
Message = SessionReady | Pong | SessionFailed | JobProgress | JobDone | JobFailed | WorkerStarted | WorkerEnded


CONTROL = Codec(StartSession, HostWorkers, CancelJob, Ping, StopSession, SessionReady, Pong, SessionFailed,
                WorkerStarted, WorkerEnded)
_CONTROL, _JOB = b"c", b"j"  # the first byte of a message: its codec


def pack(message: Command | Message) -> bytes:
    """Encode a message behind its length.  Raises TypeError or ValueError if the codec cannot encode a job's values."""
    if isinstance(message, RunJob | JobProgress | JobDone | JobFailed):
        body = _JOB + _jobs().encode(message)
    else:
        body = _CONTROL + CONTROL.encode(message)
    return LENGTH.pack(len(body)) + body


def unpack(body: bytes) -> Any:
    """Decode a message without its length.  Raises `Malformed` if it is none."""
    if body[:1] == _JOB:
        return _jobs().decode(memoryview(body)[1:])
    if body[:1] == _CONTROL:
        return CONTROL.decode(memoryview(body)[1:])
    raise Malformed("neither control nor job")


@cache
def _jobs() -> Codec:
    from noria.spark.hosting.job_codec import ROOTS  # only for the first job: it imports pyspark

    return Codec(RunJob, JobProgress, JobDone, JobFailed, *ROOTS)


# ---------------------------------------------------------------- the process
class Cancelled(BaseException):
    """The job was cancelled.  It is no Exception: a job that catches the failure of a part must not catch this."""


class Driver:
    """Reads commands in one thread and runs each job in its own (see the module)."""

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
        assert isinstance(start, StartSession), f"the first command is Start, not {start!r}"
        os.umask(0o077)
        _log_to(start.log)
        self._processes_ready = start.settings.processes_ready
        if not start.settings.batch_slots:
            daemon.reserve()
        try:
            self._session = build_session(start.settings, archive.options())
        except Exception as e:
            self._send(SessionFailed(short_reason(e)))
            return
        context = self._session.sparkContext
        self._jvm = context._gateway.proc
        _lower_priority(start.settings.nice)
        threading.Thread(target=self._watch_jvm, name="jvm", daemon=True).start()
        self._thread(self._probe_jvm)
        self._send(SessionReady(os.getpid(), self._jvm.pid, context.master, context.version,
                                time.monotonic() - started))
        while not isinstance(command := self._commands.get(), StopSession):
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
        """Receive commands.  When the stream ends or is malformed, the front end is lost and this process exits."""
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
                if len(body) < size:  # the front end died within a message
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
            data = pack(answer)  # a result that cannot be encoded fails this job only
        except Exception as e:
            if not self._jvm_answers():
                return  # this process exits soon, and the supervisor reports why
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
        """Return the callback that sends a job's progress.  Called by the thread of a cancelled job, it raises
        `Cancelled`."""
        own = threading.get_ident()

        def send_progress(*values: Any) -> None:
            if number not in self._cancelled:
                self._send(JobProgress(number, values))
            elif threading.get_ident() == own:
                raise Cancelled

        return send_progress

    def _cancel(self, number: int) -> None:
        """Cancel the job's running Spark jobs, and those that it would still start."""
        self._session.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(_group(number))

    def _jvm_answers(self) -> bool:
        """Whether the JVM runs.  If it does not answer, wait up to JVM_ENDS_S for its exit."""
        try:
            self._session.sparkContext._jvm.java.lang.System.nanoTime()
            return True
        except Exception:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._jvm.wait(JVM_ENDS_S)
            return self._jvm.poll() is None

    def _probe_jvm(self) -> None:
        """Call the JVM at intervals and reset the count of pings.  A frozen JVM blocks this thread, so the count grows.
        """
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
        """Kill the JVM, which ends its Python daemon and the workers, and exit."""
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


def _lower_priority(nice: int) -> None:
    """Lower the priority of this process and its JVM.  The driver calls this after its start: people wait for the
    start, which takes minutes on a busy machine at a lower priority."""
    if nice:
        os.setpriority(os.PRIO_PGRP, 0, nice)


def _group(job: int) -> str:
    return f"noria-job-{job}"


def _portable(error: Exception) -> Exception | None:
    """Return the exception if it is one of noria's and the codec can encode it, else None."""
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
