"""A class archive for Spark's JVMs (AppCDS), with which a JVM starts in half the processor time.

    python -m noria.spark.hosting.archive        makes it once for a Java and a Spark; quick if it exists

The JVM checks an archive against its own build and against the jars' sizes and times, and starts without one that does
not match.  Keeps true: an archive is whole or absent.  It is named after its Java and its jars.  A start never waits
for one that is being made.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from noria.spark.hosting.session import SparkSettings, SparkUnavailable, build_session, find_java

TOLD_S = 2.0
MAKING_S = 600  # at most, then the machine is too busy for it
MODULE = "noria.spark.hosting.archive"
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def found() -> Path | None:
    """The archive, if it is there, as long as its name says: a JVM dies of one that was cut."""
    for directory in _directories():
        for path in directory.glob(f"{_name()}-*.jsa"):
            if path.name == f"{_name()}-{path.stat().st_size}.jsa":
                return path
    return None


def options() -> str:
    """What a JVM is started with."""
    path = found()
    return f'-Xshare:auto {_QUIET} "-XX:SharedArchiveFile={path}"' if path and '"' not in str(path) else ""


def place() -> Path:
    """Where it is made: beside the package if that can be written, else in the user's cache."""
    beside, user = _directories()
    return beside if os.access(beside if beside.exists() else beside.parent, os.W_OK) else user


def _directories() -> tuple[Path, Path]:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(__file__).parents[2] / "__pycache__", home / "noria"


def _name() -> str:
    return f"spark-{digest()}"


def digest() -> str:
    java = find_java().resolve()
    those = jars()
    parts = [str(java), *(f"{p.name} {p.stat().st_size} {p.stat().st_mtime_ns}" for p in (
        java, java.parents[1] / "lib" / "server" / "libjvm.so", *those) if p.exists())]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def jars() -> list[Path]:
    spark = importlib.util.find_spec("pyspark")
    home = os.environ.get("SPARK_HOME") or (spark and spark.origin and Path(spark.origin).parent) or ""
    return sorted((Path(home) / "jars").glob("*.jar"))


# ---------------------------------------------------------------- making
def make(tell: Callable[[float], None] = lambda seconds: None) -> bool:
    """Make the archive, unless it is there or another process makes it; was it made?  In a process of its own: the JVM
    that writes an archive runs what a server's JVMs run, and ends.  tell: is called every TOLD_S."""
    directory = place()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone(directory / f"{_name()}.lock") as mine:
        if not mine or found():
            return False
        with tempfile.TemporaryDirectory(prefix="noria-archive-") as scratch:
            beside = directory / f"{_name()}.{os.getpid()}"
            try:
                _run([sys.executable, "-m", MODULE, "--train", str(beside), scratch], tell)
                os.replace(beside, directory / f"{_name()}-{beside.stat().st_size}.jsa")
            finally:
                beside.unlink(missing_ok=True)
    return True


def _run(command: list[str], tell: Callable[[float], None]) -> None:
    began = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          start_new_session=True) as process:
        try:
            while (code := _ended(process)) is None:
                tell(seconds := time.monotonic() - began)
                if seconds > MAKING_S:
                    raise subprocess.TimeoutExpired(command, MAKING_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and the JVM that it has started
    if code:
        raise subprocess.CalledProcessError(code, command)


def _ended(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(TOLD_S)
    except subprocess.TimeoutExpired:
        return None


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[bool]:
    with lock.open("w") as file:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def _train(archive: str, scratch: str) -> None:
    """What hosting a worker and batch jobs load."""
    settings = SparkSettings(workers=1, scratch_dir=Path(scratch) / "spark").hosting()
    session = build_session(settings, f'{_QUIET} "-XX:ArchiveClassesAtExit={archive}"')
    context = session.sparkContext
    assert context.parallelize([1], 1).barrier().mapPartitions(list).collect() == [1]
    rows = session.range(1_000).selectExpr("id", "id % 7 AS k", "CAST(id AS STRING) AS s")
    rows.write.parquet(f"{scratch}/rows")
    read = session.read.parquet(f"{scratch}/rows")
    read.join(read.groupBy("k").count(), "k").orderBy("id").limit(10).collect()
    read.mapInArrow(lambda batches: batches, read.schema).toArrow()
    gateway, jvm = context._gateway, context._gateway.proc
    session.stop()
    gateway.shutdown()
    jvm.stdin.close()  # then it exits, and writes what it has loaded
    jvm.wait(MAKING_S)


def main() -> None:
    if sys.argv[1:2] == ["--train"]:
        _train(*sys.argv[2:])
        return
    try:
        if not found():
            print("making a class archive for Spark's JVM, once", file=sys.stderr, flush=True)
            make(lambda s: print(f"making a class archive for Spark's JVM: {s:.0f} s", file=sys.stderr, flush=True))
    except (OSError, SparkUnavailable, subprocess.SubprocessError) as e:  # Spark starts without one, too
        print(f"no class archive was made, Spark's JVM starts without one: {e}", file=sys.stderr)


if __name__ == "__main__":
    main()
