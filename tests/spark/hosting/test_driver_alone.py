"""A driver whose front end has ended, however it ended, ends too."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from noria.spark.hosting.driver import LENGTH, Cancelled, Driver, Ping, pack
from noria.spark.hosting.session import import_path

ENDS_S = 20


@pytest.mark.parametrize("how", ["closed", "answers unread", "in the midst of a message", "out of order"])
def test_it_ends_with_its_front_end(how: str) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        process = subprocess.Popen([sys.executable, "-m", "noria.spark.hosting.driver", str(theirs.fileno())],
                                   pass_fds=(theirs.fileno(),), env={**os.environ, "PYTHONPATH": import_path()})
        theirs.close()
        try:
            ours.sendall(pack(Ping()))
            ours.settimeout(ENDS_S)
            assert ours.recv(1, socket.MSG_PEEK)  # its answer stays unread: its next read fails, instead of ending
            if how != "answers unread":
                (size,) = LENGTH.unpack(ours.recv(LENGTH.size, socket.MSG_WAITALL))
                ours.recv(size, socket.MSG_WAITALL)
            if how == "in the midst of a message":
                ours.sendall(pack(Ping())[:-3])
            if how == "out of order":
                ours.sendall(LENGTH.pack(5) + b"junk!")
            else:
                ours.close()
            assert process.wait(ENDS_S) == 0
        finally:
            process.kill()
            process.wait()


def test_a_cancelled_job_ends_where_it_tells_of_its_progress() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        driver = Driver(theirs)
        tell = driver._progress_of(1)
        tell(0, 2, "the first view")
        assert ours.recv(1)
        driver._cancelled.add(1)
        with pytest.raises(Cancelled):
            tell(1, 2, "the next view")
        assert not issubclass(Cancelled, Exception)
