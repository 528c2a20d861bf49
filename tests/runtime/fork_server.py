"""Processes for workers in tests, forked from one that has imported the code and loaded the kernels, as Spark's daemon
does in a server.  Call `forked`.

Keeps true: the server has one thread, so a fork is safe.  A child has the environment, directory and import path of the
moment of the call, and its own random numbers.  The server ends with this process.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import pickle
import random
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from typing import Any

from noria.kernels import making
from noria.runtime.worker.remote_hosts import local_config
from noria.runtime.worker.worker_main import WorkerConfig, run_worker

_SIZE, _ANSWER = struct.Struct(">I"), struct.Struct(">q")


class ForkedProcess:
    """A worker's process, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, pid: int, out: int, err: int):
        self.pid = pid
        self.returncode: int | None = None
        self._end = os.pidfd_open(pid)
        self.stdout, self.stderr = os.fdopen(out, "rb"), os.fdopen(err, "rb")
        self._read: tuple[bytes, bytes] | None = None

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._end], [], [], 0)[0]:
            self._reap()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            waiting = select.poll()
            waiting.register(self._end, select.POLLIN)
            if not waiting.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(f"worker process {self.pid}", timeout or 0)
            self._reap()
        assert self.returncode is not None
        return self.returncode

    def _reap(self) -> None:
        with _lock:
            if self.returncode is None:
                self.returncode = os.waitstatus_to_exitcode(_server().ask({"reap": self.pid}))

    def communicate(self, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Wait for the end, and return what the process has written to its standard output and error."""
        if self._read is None:
            until = None if timeout is None else time.monotonic() + timeout
            parts: dict[Any, list[bytes]] = {self.stdout: [], self.stderr: []}
            with selectors.DefaultSelector() as selector:
                for stream in parts:
                    selector.register(stream, selectors.EVENT_READ)
                while selector.get_map():
                    left = None if until is None else max(until - time.monotonic(), 0)
                    ready = selector.select(left)
                    if not ready:
                        raise subprocess.TimeoutExpired(f"worker process {self.pid}", timeout or 0)
                    for key, _ in ready:
                        data = os.read(key.fd, 65_536)
                        parts[key.fileobj].append(data)
                        if not data:
                            selector.unregister(key.fileobj)
            out, err = (b"".join(some) for some in parts.values())
            self._read = out, err
            self.stdout.close()
            self.stderr.close()
        self.wait(timeout)
        return self._read

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._end, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __del__(self) -> None:
        os.close(self._end)


class _Server:
    """The server process, and the end of its channel in this process."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "runtime.fork_server", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
        self._channel = ours

    def ask(self, request: Any, streams: tuple[int, ...] = ()) -> int:
        data = pickle.dumps(request)
        socket.send_fds(self._channel, [_SIZE.pack(len(data))], streams)
        self._channel.sendall(data)
        answer = self._channel.recv(_ANSWER.size, socket.MSG_WAITALL)
        if len(answer) < _ANSWER.size:
            raise RuntimeError("the fork server has ended")
        (number,) = _ANSWER.unpack(answer)
        return int(number)


@functools.cache
def _server() -> _Server:
    return _Server()


_lock = threading.Lock()


def forked(what: WorkerConfig) -> ForkedProcess:
    """Run `run_worker` in a process of its own, which prints why it ended."""
    (out, theirs), (err, their_err) = os.pipe(), os.pipe()
    try:
        with _lock:
            pid = _server().ask({"config": what, "environment": dict(os.environ), "directory": os.getcwd(),
                                 "path": list(sys.path)}, (theirs, their_err))
    finally:
        os.close(theirs)
        os.close(their_err)
    return ForkedProcess(pid, out, err)


# ---------------------------------------------------------------- the server process
def _serve(channel: socket.socket) -> None:
    while True:
        head, streams, _, _ = socket.recv_fds(channel, _SIZE.size, 2)
        if len(head) < _SIZE.size:
            return
        request = pickle.loads(channel.recv(_SIZE.unpack(head)[0], socket.MSG_WAITALL))
        if "reap" in request:
            answer = os.waitpid(request["reap"], 0)[1]
        else:
            answer = os.fork()
            if not answer:
                channel.close()
                _be_worker(request, streams)
        for stream in streams:
            os.close(stream)
        channel.sendall(_ANSWER.pack(answer))


def _be_worker(request: Any, streams: list[int]) -> None:
    code = 1
    try:
        for stream, number in zip(streams, (1, 2), strict=True):
            os.dup2(stream, number)
            os.close(stream)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["directory"])
        sys.path[:] = request["path"]
        random.seed()
        with local_config(request["config"]) as config:
            print(run_worker(config), flush=True)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _main() -> None:
    importlib.import_module("noria.runtime.worker.warm")
    making.load()
    gc.collect()
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    _main()
