"""Spark's Python daemon for workers.  A reserve process loads the workers' code while the JVM starts.

    driver ──► reserve      imports, loads kernels, listens; becomes the daemon on request
    JVM ─────► this module  passes its standard streams, arguments and environment to the reserve, and waits for its end

Without a reserve (on another host, or for a second daemon) this process loads the code and becomes the daemon.

Keeps true: the reserve listens on a random name and accepts only its own user.  It ends with the driver.  Its main
thread forks.  Its only other threads are those of numpy and pyarrow, which are prepared for a fork.
"""

from __future__ import annotations

import array
import contextlib
import gc
import json
import os
import secrets
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator

from noria.runtime.worker.parent_end import end_with_parent

VARIABLE = "NORIA_DAEMON"  # has the name of the reserve's socket, for the daemon that the JVM starts
MODULE = "noria.spark.hosting.daemon"
_SIZE, _CREDENTIALS, _READY = struct.Struct(">I"), struct.Struct("3i"), b"r"


# ---------------------------------------------------------------- the driver's side
def reserve() -> None:
    """Start the reserve and export its name, so that the next JVM of this process finds it."""
    name = f"noria-{secrets.token_hex(16)}"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"\0{name}")
        listening.listen(1)
        subprocess.Popen([sys.executable, "-m", MODULE, "--reserve", str(listening.fileno()), str(os.getpid())],
                         pass_fds=(listening.fileno(),), stdin=subprocess.DEVNULL)
    os.environ[VARIABLE] = name


# ---------------------------------------------------------------- the reserve
def _load() -> None:
    """Import a worker's modules, load its kernels, and exempt these objects from garbage collection."""
    import pandas
    import pyspark.worker

    import noria.runtime.worker.warm
    import noria.spark.hosting.workers
    from noria.kernels import making

    making.load()
    del noria, pandas, pyspark
    gc.collect()
    gc.freeze()


def _wait(listening: socket.socket, driver: int) -> None:
    """Load the code, wait for the first request, and run as the daemon of its sender until the end."""
    end_with_parent()
    if os.getppid() != driver:  # the driver ended before the prctl call
        return
    with contextlib.suppress(Exception):  # on failure each worker loads the code itself
        _load()
    connection = next(_accepted(listening))
    listening.close()
    streams, (arguments, environment) = _received(connection)
    for stream, number in zip(streams, range(3), strict=True):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = arguments
    connection.sendall(_READY)
    os.register_at_fork(after_in_child=connection.close)  # the JVM's process waits for the daemon, not for workers
    _be_daemon()


def _accepted(listening: socket.socket) -> Iterator[socket.socket]:
    while True:
        found, _ = listening.accept()
        _, user, _ = _CREDENTIALS.unpack(found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        if user == os.getuid():
            yield found
        found.close()


def _received(connection: socket.socket) -> tuple[list[int], tuple[list[str], dict[str, str]]]:
    streams = array.array("i")
    head, more, _, _ = connection.recvmsg(_SIZE.size, socket.CMSG_SPACE(3 * streams.itemsize))
    for level, kind, data in more:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            streams.frombytes(data)
    with connection.makefile("rb") as file:
        arguments, environment = json.loads(file.read(_SIZE.unpack(head)[0]))
    return streams.tolist(), (arguments, environment)


def _be_daemon() -> None:
    from pyspark.daemon import manager

    manager()


# ---------------------------------------------------------------- what the JVM starts
def _hand_over(name: str) -> bool:
    """Let the reserve run as the daemon in place of this process.  True when it has ended, False if it did not start.
    """
    with socket.socket(socket.AF_UNIX) as reserve:
        try:
            reserve.connect(f"\0{name}")
            request = json.dumps((sys.argv[1:], dict(os.environ))).encode()
            socket.send_fds(reserve, [_SIZE.pack(len(request))], [0, 1, 2])
            reserve.sendall(request)
            if reserve.recv(1) != _READY:
                return False
        except OSError:
            return False
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):  # the daemon owns these streams, and must see the end of its input
            os.dup2(null, stream)
        with contextlib.suppress(OSError):
            reserve.recv(1)
    return True


def main() -> None:
    if sys.argv[1:2] == ["--reserve"]:
        _wait(socket.socket(fileno=int(sys.argv[2])), int(sys.argv[3]))
    elif not _hand_over(os.environ.pop(VARIABLE, "")):
        _load()
        _be_daemon()


if __name__ == "__main__":
    main()
