"""The shard's lock, fence and owner record, with processes that hold, freeze and die."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from noria.control.processes.leases import CannotClaim, Claim
from noria.runtime.transport import wire
from noria.runtime.transport.shard_owner import Fence, Fenced, LockBusy, Process, ShardOwner
from noria.runtime.worker.worker_main import WorkerConfig
from runtime.processes import DEADLINE_S, config, finish, spawn

HOLDER = """
import sys
from pathlib import Path
from noria.runtime.transport.shard_owner import ShardOwner
held = ShardOwner(Path(sys.argv[1]), int(sys.argv[2]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the shard."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    child = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path), "1"], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True, env=env)
    assert child.stdout is not None and child.stdout.readline() == "held\n"
    yield child
    child.kill()
    child.communicate()


@pytest.mark.parametrize("frozen", [False, True])
def test_a_newcomer_kills_the_left_over(tmp_path: Path, holder: subprocess.Popen[str], frozen: bool) -> None:
    if frozen:
        os.kill(holder.pid, signal.SIGSTOP)
    said: list[str] = []
    mine = ShardOwner(tmp_path, epoch=1, note=said.append)
    assert holder.wait(DEADLINE_S) == -signal.SIGKILL
    assert mine.incarnation == 2 and str(holder.pid) in said[0]
    mine.release()


def test_a_stranger_is_not_killed(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    """A record whose start time is another's: the number was used again."""
    owner = tmp_path / "owner"
    owner.write_text(owner.read_text().replace('"started": ', '"started": 1'))
    with pytest.raises(LockBusy, match="not one of ours"):
        ShardOwner(tmp_path, epoch=1, wait_ms=0)
    assert holder.poll() is None


def test_this_process_is_not_killed(tmp_path: Path) -> None:
    first = ShardOwner(tmp_path, epoch=1)
    with pytest.raises(LockBusy, match="open in this process"):
        ShardOwner(tmp_path, epoch=1)
    first.release()
    again = ShardOwner(tmp_path, epoch=1)
    assert again.incarnation == 3
    again.release()


def test_the_fence_only_rises(tmp_path: Path) -> None:
    old = Fence(tmp_path / "fence", epoch=5)
    old.check()
    new = Fence(tmp_path / "fence", epoch=6)
    new.check()
    with pytest.raises(Fenced, match="incarnation 1 of this worker was replaced by 2"):
        old.check()
    with pytest.raises(Fenced, match="started by front end 5, but 6 has taken over"):
        Fence(tmp_path / "fence", epoch=5)
    new.check()


def test_a_process_is_more_than_its_number() -> None:
    here = Process.of(os.getpid())
    assert here is not None and here.alive
    assert not Process(here.pid, here.started + 1, here.space).alive
    assert not Process(here.pid, here.started, "another boot").alive


def test_one_front_end_a_directory_and_epochs_that_grow(tmp_path: Path) -> None:
    first = Claim(tmp_path / "data")
    with pytest.raises(CannotClaim, match=f"in use by process {os.getpid()}"):
        Claim(tmp_path / "data")
    first.release()
    second = Claim(tmp_path / "data")
    assert (first.next_epoch(), second.next_epoch(), second.next_epoch()) == (1, 2, 3)
    (tmp_path / "data" / "epoch").write_text("garbage")
    with pytest.raises(CannotClaim, match="holds no number"):
        second.next_epoch()
    second.release()
    (tmp_path / "none").write_text("")
    with pytest.raises(CannotClaim, match="none cannot be used: File exists"):
        Claim(tmp_path / "none")


@contextmanager
def connected(what: WorkerConfig) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """A worker process, and its connection to a front end that sends nothing."""
    with socket.socket(socket.AF_UNIX) as front:
        front.bind(wire.socket_path(what.endpoint))
        front.listen()
        child = spawn(what)
        connection, _ = front.accept()
        with connection:
            yield child, connection


def test_a_worker_that_receives_nothing_ends_with_its_lease_and_frees_the_lock(tmp_path: Path) -> None:
    """A front end that is connected and reads, but is stuck."""
    what = config(tmp_path, lease_ms=500)
    with connected(what) as (child, _):
        code, said, _ = finish(child)
    assert (code, said) == (0, "lease")
    ShardOwner(what.shard_dir, epoch=1, wait_ms=0).release()


def test_a_worker_whose_front_end_is_lost_ends_at_once(tmp_path: Path) -> None:
    with connected(config(tmp_path, lease_ms=60_000)) as (child, connection):
        connection.recv(1)
        connection.close()
        code, said, _ = finish(child)
    assert code == 0 and "front end" in said


def test_a_worker_without_a_front_end_reports_it(tmp_path: Path) -> None:
    code, _, err = finish(spawn(config(tmp_path)))
    assert code == 1 and "StoreError" in err and "--cluster-host" in err and str(tmp_path) in err
