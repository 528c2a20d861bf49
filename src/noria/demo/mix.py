"""Runs the load: starts client processes, sends all of them what to do, and computes figures of their measurements."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np

from noria.demo.clients import (
    LIBRARIES,
    READY,
    ClientProfile,
    Cut,
    Floats,
    Samples,
    Setup,
    receive_message,
    send_message,
)
from noria.demo.lobsters import Size
from noria.demo.server import DemoFailed
from noria.runtime.worker.parent_end import end_with_parent
from noria.spark.hosting.session import import_path

ANSWER_S = 60  # of a client, which may wait for a worker's restart
PERCENTILES = (50, 95, 99)


@dataclass(frozen=True)
class Figures:
    """Rates and latencies.  Latencies are milliseconds at 50, 95 and 99 %, and empty if no such statement ran."""

    reads_s: float
    writes_s: float
    read_ms: tuple[float, ...]
    write_ms: tuple[float, ...]

    @staticmethod
    def of(samples: Samples, seconds: float) -> Figures:
        wrote = samples.writes == 1
        return Figures(float((~wrote).sum()) / seconds, float(wrote.sum()) / seconds, _tail(samples.took[~wrote]),
                       _tail(samples.took[wrote]))


def _tail(took: Floats) -> tuple[float, ...]:
    return tuple(float(x) * 1000 for x in np.percentile(took, PERCENTILES)) if len(took) else ()


class Mix:
    """The client processes; as a context manager, it ends them.  first: the number of clients that this server had
    before, so that no user votes twice."""

    def __init__(self, port: int, size: Size, clients: int = 4, first: int = 0):
        self._pipes: list[Connection] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._since = 0.0
        try:
            for number in range(first, first + clients):
                self._start(Setup(port, number, size))
            for pipe in self._pipes:
                self._received(pipe, READY)
        except BaseException:
            self.close()
            raise

    def _start(self, setup: Setup) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._processes.append(subprocess.Popen(
                [sys.executable, "-m", "noria.demo.clients", str(theirs.fileno())], pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=end_with_parent,
                env={**os.environ, "PYTHONPATH": import_path()}))
        pipe = Connection(ours.detach())
        self._pipes.append(pipe)
        send_message(pipe, setup)

    @property
    def about(self) -> str:
        names = [LIBRARIES[i % len(LIBRARIES)].name for i in range(len(self._pipes))]
        return " + ".join(f"{names.count(n)} × {n}" for n in dict.fromkeys(names))

    def __len__(self) -> int:
        return len(self._pipes)

    def run(self, *profiles: ClientProfile | None) -> None:
        """Set what the clients do from now on: one profile for all, or one for each."""
        each: Sequence[ClientProfile | None] = profiles if len(profiles) > 1 else profiles * len(self._pipes)
        for pipe, profile in zip(self._pipes, each, strict=True):
            self._tell(pipe, profile)
        self._since = time.monotonic()

    def cut(self) -> tuple[Samples, float]:
        """Return the measurements since `run` or the last cut, and their seconds.  The load continues."""
        until = time.monotonic()
        for pipe in self._pipes:
            self._tell(pipe, Cut())
        parts = [self._samples(pipe) for pipe in self._pipes]
        seconds, self._since = until - self._since, until
        return Samples.joined(parts), seconds

    def measured(self, seconds: float) -> Figures:
        """Return the figures of the next `seconds`."""
        self.cut()
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, 0.5))
        return Figures.of(*self.cut())

    def whole(self, seconds: float) -> Figures:
        """Wait, and return the figures since `run`.  Rates are of the time from the first statement to the end of the
        last one, because the clients may rest afterwards."""
        time.sleep(seconds)
        samples, took = self.cut()
        began = float(samples.starts.min(initial=np.inf))
        return Figures.of(samples, min(took, max(float((samples.starts + samples.took).max(initial=0)) - began, 1e-3)))

    def _tell(self, pipe: Connection, message: object) -> None:
        try:
            send_message(pipe, message)
        except ConnectionError:
            self._received(pipe)  # raises the reason of its end
            raise

    def _samples(self, pipe: Connection) -> Samples:
        samples = self._received(pipe)
        assert isinstance(samples, Samples)
        return samples

    def _received(self, pipe: Connection, wanted: object = None) -> object:
        try:
            if not pipe.poll(ANSWER_S):
                raise DemoFailed(f"a client has been waiting for an answer of the server for {ANSWER_S} s")
            message = receive_message(pipe)
        except (EOFError, ConnectionError) as e:
            raise DemoFailed(f"a client ended ({e}); what it said is above") from e
        if isinstance(message, Samples) and message.error:
            raise DemoFailed(f"a client failed: {message.error}")
        assert wanted is None or message == wanted, message
        return message

    def __enter__(self) -> Mix:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.kill()
            process.wait()
