"""The Spark driver: a child process of the front end with the session, the workers' job and batch jobs.

The two speak pickled messages over a socket pair that the child inherits.  Whoever dies, the other sees the end
of the stream at once: an orphaned driver kills its JVM (and with it the workers) and exits; a driver whose JVM
died exits, because the same process cannot get another session.

A job is a function named "module:function" that takes the session first, then keyword arguments, and `progress`
if it has such a parameter: a callable whose arguments arrive at the front end's callback, in order.

Keeps true: nothing of Spark is left running when this process is gone; a job's failure is its own.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pickle
import queue
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from noria.runtime.resources import raise_open_files
from noria.runtime.worker_main import WorkerConfig
from noria.spark.hosting import JOB_GROUP, WorkersEnded, WorkersStarted, host_workers, short_reason
from noria.spark.session import SparkSettings, build_session

LENGTH = struct.Struct(">Q")
JVM_DIED = 70  # the exit code
STOP_WORKERS_S = 3.0  # for workers that were told to end; then their job is cancelled
STOP_SESSION_S = 5.0  # for Spark to stop; then the JVM is killed


# ---------------------------------------------------------------- messages
@dataclass(frozen=True)
class Start:
    settings: SparkSettings


@dataclass(frozen=True)
class HostWorkers:
    config: WorkerConfig


@dataclass(frozen=True)
class RunJob:
    id: int
    function: str
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CancelJob:
    id: int


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


Command = Start | HostWorkers | RunJob | CancelJob | Stop
Message = Ready | StartFailed | Progress | JobDone | JobFailed | WorkersStarted | WorkersEnded


def pack(message: Command | Message) -> bytes:
    body = pickle.dumps(message, protocol=5)
    return LENGTH.pack(len(body)) + body


# ---------------------------------------------------------------- the process
class Driver:
    """Reads commands in one thread, runs each job in its own."""

    def __init__(self, channel: socket.socket):
        self._channel = channel
        self._sending = threading.Lock()
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._hosting: threading.Thread | None = None
        self._jvm: Any = None  # the JVM's Popen
        self._session: Any = None

    def run(self) -> None:
        threading.Thread(target=self._read, name="commands", daemon=True).start()
        started = time.monotonic()
        start = self._commands.get()
        assert isinstance(start, Start), f"the first command is Start, not {start!r}"
        try:
            self._session = build_session(start.settings)
        except Exception as e:
            self._send(StartFailed(short_reason(e)))
            return
        context = self._session.sparkContext
        self._jvm = context._gateway.proc
        threading.Thread(target=self._watch_jvm, name="jvm", daemon=True).start()
        self._send(Ready(os.getpid(), self._jvm.pid, context.master, context.version, time.monotonic() - started))
        while not isinstance(command := self._commands.get(), Stop):
            self._obey(command)
        self._stop()

    def _obey(self, command: Command) -> None:
        if isinstance(command, HostWorkers):
            self._hosting = self._thread(host_workers, self._session, command.config, self._send, self._stopping)
        elif isinstance(command, RunJob):
            self._thread(self._run_job, command)
        elif isinstance(command, CancelJob):
            self._thread(self._session.sparkContext.cancelJobGroup, _group(command.id))

    @staticmethod
    def _thread(function: Callable[..., Any], *args: Any) -> threading.Thread:
        from pyspark import InheritableThread

        thread: threading.Thread = InheritableThread(function, args=args, daemon=True)
        thread.start()
        return thread

    # ------------------------------------------------------------ the channel
    def _read(self) -> None:
        with self._channel.makefile("rb") as stream:
            while True:
                head = stream.read(LENGTH.size)
                body = stream.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else b""
                if not body:
                    self._exit(0)  # the front end is gone
                self._commands.put(pickle.loads(body))

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
            module, _, name = job.function.partition(":")
            function = getattr(importlib.import_module(module), name)
            more: dict[str, Any] = {}
            if "progress" in inspect.signature(function).parameters:
                more["progress"] = lambda *values: self._send(Progress(job.id, values))
            self._session.sparkContext.setJobGroup(_group(job.id), job.function, interruptOnCancel=True)
            answer: Message = JobDone(job.id, function(self._session, **job.kwargs, **more))
            data = pack(answer)  # a result that cannot travel is this job's failure
        except Exception as e:
            answer = JobFailed(job.id, _portable(e), f"{type(e).__name__}: {short_reason(e)}", traceback.format_exc())
            data = pack(answer)
        with self._sending:
            self._channel.sendall(data)

    # ------------------------------------------------------------ the end
    def _watch_jvm(self) -> None:
        code = self._jvm.wait()
        if not self._stopping.is_set():
            print(f"noria: Spark's JVM ended with code {code}", file=sys.stderr, flush=True)
            self._exit(JVM_DIED)

    def _stop(self) -> None:
        self._stopping.set()
        if self._hosting is not None:
            self._hosting.join(STOP_WORKERS_S)
            if self._hosting.is_alive():
                self._session.sparkContext.cancelJobGroup(JOB_GROUP)
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


def _group(job: int) -> str:
    return f"noria-job-{job}"


def _portable(error: Exception) -> Exception | None:
    """The exception, if it is one of ours (a user's error, say) and survives the journey."""
    if not type(error).__module__.startswith("noria."):
        return None
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:
        return None
    return copy if type(copy) is type(error) else None


def main() -> None:
    raise_open_files()
    Driver(socket.socket(fileno=int(sys.argv[1]))).run()


if __name__ == "__main__":
    from noria.spark.driver import main as run  # messages must have this module's real name, not __main__

    run()
