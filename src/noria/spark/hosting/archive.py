"""Makes a class archive for Spark's JVMs (AppCDS): with it, a JVM needs half the processor time to start.

    python -m noria.spark.hosting.archive        makes it once for a Java and a Spark; quick if it exists

The JVM compares an archive with its own build and with the jars' sizes and times.  If they differ, it starts without
the archive.  Keeps true: an archive is complete or absent.  Its name has a digest of its Java and its jars.  A start
never waits while an archive is made.
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
from collections.abc import Callable
from pathlib import Path

from noria.kernels.place import locked
from noria.runtime.worker.parent_end import end_with_parent
from noria.spark.hosting.session import SparkSettings, SparkUnavailable, build_session, find_java

REPORT_S = 2.0
MAKING_S = 600  # after this time the attempt ends: the machine is too busy
MODULE = "noria.spark.hosting.archive"
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def found() -> Path | None:
    """Return the archive's path, or None.  Its name states its size: a JVM crashes on a truncated archive."""
    for directory in _directories():
        for path in directory.glob(f"{name()}-*.jsa"):
            if path.name == f"{name()}-{path.stat().st_size}.jsa":
                return path
    return None


def options() -> str:
    """Return the JVM's command line options that load the archive, "" if there is none."""
    path = found()
    return f'-Xshare:auto {_QUIET} "-XX:SharedArchiveFile={path}"' if path and '"' not in str(path) else ""


def place() -> Path:
    """Return the directory for a new archive: beside the package if writable, else the user's cache."""
    beside, user = _directories()
    return beside if os.access(beside if beside.exists() else beside.parent, os.W_OK) else user


def _directories() -> tuple[Path, Path]:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(__file__).parents[2] / "__pycache__", home / "noria"


def name() -> str:
    """Return the beginning of the archive's file name."""
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
def make(report: Callable[[float], None] = lambda seconds: None) -> bool:
    """Make the archive, unless it exists or another process is making it.  Returns whether this call made it.

    A child process runs the JVM: it runs what a server's JVMs run, and writes the archive when it exits.  report:
    called every REPORT_S with the seconds since the start.
    """
    directory = place()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(directory, f"{name()}.lock", wait=False) as mine:
        if not mine or found():
            return False
        for left in directory.glob(f"{name()}.[0-9]*"):  # of attempts whose process was killed
            left.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(prefix="noria-archive-") as scratch:
            beside = directory / f"{name()}.{os.getpid()}"
            try:
                _run([sys.executable, "-m", MODULE, "--train", str(beside), scratch], report)
                os.replace(beside, directory / f"{name()}-{beside.stat().st_size}.jsa")
            finally:
                beside.unlink(missing_ok=True)
    return True


def _run(command: list[str], report: Callable[[float], None]) -> None:
    began = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          start_new_session=True) as process:
        try:
            while (code := _ended(process)) is None:
                report(seconds := time.monotonic() - began)
                if seconds > MAKING_S:
                    raise subprocess.TimeoutExpired(command, MAKING_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also ends its JVM
    if code:
        raise subprocess.CalledProcessError(code, command)


def _ended(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(REPORT_S)
    except subprocess.TimeoutExpired:
        return None


def _train(archive: str, scratch: str) -> None:
    """Run a worker's task and a batch job, so that the JVM loads their classes and archives them on exit."""
    end_with_parent()  # its JVM reads the end of its input then, and exits
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
    jvm.stdin.close()  # the JVM then writes the archive and exits
    jvm.wait(MAKING_S)


def main() -> None:
    if sys.argv[1:2] == ["--train"]:
        _train(*sys.argv[2:])
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the JVM, too
    try:
        if not found():
            print("making a class archive for Spark's JVM, once", file=sys.stderr, flush=True)
            make(lambda s: print(f"making a class archive for Spark's JVM: {s:.0f} s", file=sys.stderr, flush=True))
    except (OSError, SparkUnavailable, subprocess.SubprocessError) as e:  # Spark starts without an archive, too
        print(f"no class archive was made, Spark's JVM starts without one: {e}", file=sys.stderr)


if __name__ == "__main__":
    main()
