"""What makes a start short: Java's class archive, a process that becomes Spark's daemon, a driver that begins early."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from noria.control.processes.supervisor import Supervisor
from noria.kernels.place import locked
from noria.spark.hosting import archive, daemon, early
from noria.spark.hosting.session import SparkSettings, java_version, release_version

HOST = SparkSettings(workers=1).hosting()


def session(code: str, tmp_path: Path, **environment: str) -> str:
    """Standard output and error of a process that has built the session of a host."""
    text = ("import sys; from pathlib import Path; from noria.spark.hosting import archive, daemon, session as s\n"
            f"settings = s.SparkSettings(workers=1, scratch_dir=Path({str(tmp_path / 'scratch')!r})).hosting()\n{code}")
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=300, check=False,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


# ---------------------------------------------------------------- the class archive
LOADED = ("import noria.spark.hosting.session as s\nspark = s.build_session(settings, archive.options() + ' {more}')\n"
          "print('options', spark.sparkContext._jvm.System.getProperty('user.timezone'), archive.options())")


def test_a_session_starts_from_the_archive(tmp_path: Path) -> None:
    archive.make()
    said = session(LOADED.format(more="-Xlog:class+load:file=" + str(tmp_path / "classes")), tmp_path)
    assert "options UTC -Xshare:auto" in said and "[cds]" not in said
    lines = (tmp_path / "classes").read_text().splitlines()
    shared = sum("shared objects file (top)" in line for line in lines)
    assert shared > 3_000, f"{shared} of {len(lines)} classes came from the archive"


@pytest.mark.long
@pytest.mark.parametrize("spoiled", ["cut", "of other jars", "no archive"])
def test_a_session_starts_without_an_archive_that_does_not_fit(tmp_path: Path, spoiled: str) -> None:
    archive.make()
    made = archive.found()
    assert made is not None
    data = made.read_bytes()
    other = tmp_path / made.name
    if spoiled == "of other jars":  # the class path that it was made with stands in it
        jar = next((Path(os.environ.get("SPARK_HOME", "")) / "jars").glob("*.jar"), None) or archive.jars()[0]
        data = data.replace(jar.name.encode(), jar.name[::-1].encode())
    other.write_bytes({"cut": data[: len(data) // 2], "of other jars": data, "no archive": b"no archive"}[spoiled])
    said = session(f"archive._directories = lambda: [Path({str(tmp_path)!r})]\n" + LOADED.format(more=""), tmp_path)
    assert "options UTC" in said and (str(other) in said) == (spoiled == "of other jars") and "[cds" not in said


def test_the_archive_is_named_after_java_and_the_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = archive.digest()
    jar = tmp_path / "jars" / "one.jar"
    jar.parent.mkdir()
    jar.write_bytes(b"1")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    one = archive.digest()
    jar.write_bytes(b"22")
    assert len({before, one, archive.digest()}) == 3


def test_one_process_makes_it_and_no_start_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_directories", lambda: (tmp_path, tmp_path))
    monkeypatch.setattr(archive, "_run", lambda command, tell: Path(command[4]).write_text("made"))
    with locked(tmp_path, f"{archive.name()}.lock", wait=False) as mine:
        assert mine and not archive.make() and archive.options() == ""
    assert archive.make() and not archive.make()
    assert {p.name for p in tmp_path.iterdir()} == {f"{archive.name()}.lock", f"{archive.name()}-4.jsa"}
    assert f"{archive.name()}-4.jsa" in archive.options()


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_directories", lambda: (tmp_path, tmp_path))
    monkeypatch.setattr(archive, "MODULE", "noria.no_such_module")
    with pytest.raises(subprocess.CalledProcessError):
        archive.make()
    assert [p.name for p in tmp_path.iterdir()] == [f"{archive.name()}.lock"]


def test_what_killed_attempts_have_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_directories", lambda: (tmp_path, tmp_path))
    monkeypatch.setattr(archive, "_run", lambda command, tell: Path(command[4]).write_text("made"))
    (tmp_path / f"{archive.name()}.4711").write_text("half of an archive")
    assert archive.make()
    assert {p.name for p in tmp_path.iterdir()} == {f"{archive.name()}.lock", f"{archive.name()}-4.jsa"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_goes_on_when_the_one_that_makes_it_is_killed(tmp_path: Path, number: int) -> None:
    """SIGTERM: also what it has written is removed."""
    text = ("import sys; from pathlib import Path; from noria.spark.hosting import archive\n"
            f"archive._directories = lambda: (Path({str(tmp_path)!r}),) * 2\narchive.main()")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", text], env=environment) as maker:
        while not (jvms := _jvms_of(maker.pid)):
            assert maker.poll() is None
            os.sched_yield()
        maker.send_signal(number)
        maker.wait(60)
    while any(Path(f"/proc/{pid}").exists() for pid in jvms):
        os.sched_yield()
    if number == signal.SIGTERM:
        assert [p.name for p in tmp_path.iterdir()] == [f"{archive.name()}.lock"]


def _jvms_of(maker: int) -> list[int]:
    """The JVM below a process that makes an archive, and the process between; none before it runs."""
    below = _children(maker)
    found = [jvm for pid in below for jvm in _children(pid)]
    return below + found if found else []


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # it has just ended
        return []


def test_what_a_java_says_of_itself_is_what_is_written_beside_it() -> None:
    from noria.spark.hosting.session import find_java

    assert release_version(find_java()) in (0, java_version(find_java())) and release_version(Path("/no/bin/java")) == 0


# ---------------------------------------------------------------- the reserve
TASK = ("{first}\nspark = s.build_session(settings)\n"
        "def task(rows):\n    import os, sys\n    path = '/proc/' + str(os.getppid()) + '/cmdline'\n"
        "    yield os.getppid(), open(path).read().split(chr(0)), 'noria.runtime.worker.warm' in sys.modules\n"
        "for n in range(2):\n    print(spark.sparkContext.parallelize([1], 1).mapPartitions(task).collect())")


@pytest.mark.long
def test_a_worker_is_forked_from_the_process_that_has_loaded_its_code(tmp_path: Path) -> None:
    said = session(TASK.format(first="daemon.reserve()"), tmp_path)
    assert said.count("'--reserve'") == 2 and said.count("True)") == 2


@pytest.mark.long
@pytest.mark.parametrize("first", [
    "pass", "import os; os.environ[daemon.VARIABLE] = 'noria-of-nobody'",
    "daemon.MODULE = 'noria.no_such_module'; daemon.reserve()"],
    ids=["none was started", "it has not started", "it has ended"])
def test_without_a_reserve_the_daemon_loads_the_code_itself(tmp_path: Path, first: str) -> None:
    said = session(TASK.format(first=first), tmp_path)
    assert said.count("'pyspark.worker'") == 2 and "'--reserve'" not in said and said.count("True)") == 2


def test_the_reserve_ends_with_the_driver(tmp_path: Path) -> None:
    said = session("import os\ndaemon.reserve()\nname = os.environ[daemon.VARIABLE]\n"
                   "print(open('/proc/net/unix').read().count(name), name)", tmp_path)
    count, name = said.split()
    assert count == "1"
    while name in Path("/proc/net/unix").read_text():
        os.sched_yield()


# ---------------------------------------------------------------- the early driver
def test_a_driver_that_began_early_is_the_first_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And logs where it is told to; the next one is started as any."""
    async def run() -> None:
        early.begin()
        (begun,) = early._begun
        supervisor = Supervisor(HOST, log_path=tmp_path / "spark.log")
        ready: Any = await supervisor.start()
        try:
            assert ready.pid == begun.pid and early.take_driver() is None
            assert os.readlink(f"/proc/{ready.pid}/fd/2") == str(tmp_path / "spark.log")
            os.kill(ready.pid, 9)
            while supervisor.ready is ready or supervisor.ready is None:
                await asyncio.sleep(0)
            assert supervisor.ready.pid != begun.pid
        finally:
            await supervisor.stop()

    asyncio.run(asyncio.wait_for(run(), 120))


def test_a_batch_driver_is_none_of_the_early_ones(tmp_path: Path) -> None:
    async def run() -> None:
        early.begin()
        (begun,) = early._begun
        supervisor = Supervisor(SparkSettings(workers=1).batch(), name="batch")
        ready: Any = await supervisor.start()
        try:
            assert ready.pid != begun.pid
        finally:
            await supervisor.stop()
            found = early.take_driver()
            assert found is not None
            found.channel.close()
            assert await found.wait() == 0, "nobody takes it: it ends"

    asyncio.run(asyncio.wait_for(run(), 120))


def test_the_reserve_serves_its_user_only(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("\0")
        listening.listen(2)
        monkeypatch.setattr(daemon.os, "getuid", lambda: 65_534)
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(listening.getsockname())
            listening.settimeout(0.2)
            with pytest.raises(TimeoutError):
                next(daemon._accepted(listening))
            assert stranger.recv(1) == b"", "it is hung up on"
