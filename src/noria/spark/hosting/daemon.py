"""Spark's Python daemon for workers, in a process that loads their code while the JVM starts.

    driver ──► reserve      imports, loads kernels, listens; becomes the daemon on request
    JVM ─────► this module  passes its standard streams, arguments and environment to the reserve, and waits for its end

Without a reserve (on another host, or for a second daemon) this process loads the code, and is the daemon.

Keeps true: the reserve listens under a name that cannot be guessed, and only to its own user.  It ends with the driver.
Beside its one thread, which forks, it runs only threads of numpy and pyarrow, which are prepared for a fork.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import json
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator

VARIABLE = "NORIA_DAEMON"  # the reserve's name, for the JVM's daemon
MODULE = "noria.spark.hosting.daemon"
_SIZE, _CREDENTIALS, _READY = struct.Struct(">I"), struct.Struct("3i"), b"r"
_PR_SET_PDEATHSIG = 1


# ---------------------------------------------------------------- the driver's side
def reserve() -> None:
    """Start the reserve; daemons of JVMs that this process starts from now on find it."""
    name = f"noria-{secrets.token_hex(16)}"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"\0{name}")
        listening.listen(1)
        subprocess.Popen([sys.executable, "-m", MODULE, "--reserve", str(listening.fileno()), str(os.getpid())],
                         pass_fds=(listening.fileno(),), stdin=subprocess.DEVNULL)
    os.environ[VARIABLE] = name


# ---------------------------------------------------------------- the reserve
def _load() -> None:
    """What a worker imports and calls."""
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
    """Load, become the daemon of the first who asks, and be it to the end."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != driver:  # it had ended before
        return
    with contextlib.suppress(Exception):  # then it is loaded by each worker
        _load()
    asking = next(_asking(listening))
    listening.close()
    streams, (arguments, environment) = _received(asking)
    for stream, number in zip(streams, range(3), strict=True):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = arguments
    asking.sendall(_READY)
    os.register_at_fork(after_in_child=asking.close)  # whoever waits is told of the daemon's end, not of its workers'
    _be_daemon()


def _asking(listening: socket.socket) -> Iterator[socket.socket]:
    while True:
        found, _ = listening.accept()
        _, user, _ = _CREDENTIALS.unpack(found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        if user == os.getuid():
            yield found
        found.close()


def _received(asking: socket.socket) -> tuple[list[int], tuple[list[str], dict[str, str]]]:
    streams = array.array("i")
    head, more, _, _ = asking.recvmsg(_SIZE.size, socket.CMSG_SPACE(3 * streams.itemsize))
    for level, kind, data in more:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            streams.frombytes(data)
    with asking.makefile("rb") as file:
        arguments, environment = json.loads(file.read(_SIZE.unpack(head)[0]))
    return streams.tolist(), (arguments, environment)


def _be_daemon() -> None:
    from pyspark.daemon import manager

    manager()


# ---------------------------------------------------------------- what the JVM starts
def _hand_over(name: str) -> bool:
    """Has the reserve become this process's daemon, and ended?"""
    with socket.socket(socket.AF_UNIX) as reserve:
        try:
            reserve.connect(f"\0{name}")
            told = json.dumps((sys.argv[1:], dict(os.environ))).encode()
            socket.send_fds(reserve, [_SIZE.pack(len(told))], [0, 1, 2])
            reserve.sendall(told)
            if reserve.recv(1) != _READY:
                return False
        except OSError:
            return False
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):  # they are the daemon's: an end of its input is for it to see
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
