"""Makes a Spark session with noria's settings, and explains why there can be none.

Keeps true: everything of Spark listens on loopback only, and only answers processes that know the session's secret,
which is on no command line.  Python's processes are reached through sockets in a directory of our own.  A session has
slots for all workers and for batch jobs.  A Java that Spark cannot run on is reported before Spark starts.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from noria.core.limits import SPARK_HEAP_BYTES, SPARK_HOST_HEAP_BYTES, SPARK_RESULT_BYTES

MIN_JAVA = 17
DAEMON = "noria.spark.hosting.daemon"  # forks the workers' processes
BULK_SLOTS = 2  # for batch jobs, at least; the workers hold theirs for good
SPARE = 1  # slots beside the workers': for a process that stands ready to be the next one
MOST_BULK_SLOTS = 8  # by default: each has a Python process, and all share one heap
BATCH_NICE = 5  # on a busy machine the workers and the front end go first
EXECUTORS_WAIT_S = 30  # until a cluster's executors have registered
KILL_TIMEOUT = "100ms"  # a cancelled worker still answers until it is killed: not for Spark's default of 2 s
_SOON_LOST = (  # when the slots of a silent host are taken for lost
    ("spark.network.timeout", "20s"), ("spark.network.timeoutInterval", "5s"),
    ("spark.executor.heartbeatInterval", "4s"))
SOCKET_DIR_CHARACTERS = 60  # a socket's path may be 107, and Spark's names take 42


class SparkUnavailable(Exception):
    """No session can be had: what is missing, where it was looked for, what to do."""


@dataclass(frozen=True)
class SparkSettings:
    """master empty: local[workers + batch_slots].  scratch_dir: for shuffles, spills and whatever else the JVM writes
    for a while, ours alone: what is in there when a session starts was left by one that died.  sockets_dir: where
    Python's sockets go, if its path is short enough.  nice: how much its processes give way.  conf goes last and
    wins.  standby_slots: of a cluster, beside the workers'."""

    master: str = ""
    workers: int = 1
    scratch_dir: Path | None = None
    app_name: str = "noria"
    conf: tuple[tuple[str, str], ...] = ()
    batch_slots: int = BULK_SLOTS
    heap_bytes: int = SPARK_HEAP_BYTES
    sockets_dir: Path | None = None
    nice: int = 0
    standby_slots: int = 0

    @property
    def effective_master(self) -> str:
        return self.master or f"local[{self.slots_needed}]"

    @property
    def slots_needed(self) -> int:
        return max(self.workers + self.batch_slots, 1)

    # A server has two sessions, each with a JVM of its own: so no query can take the slot, the memory or the JVM that
    # a worker needs.
    def hosting(self) -> SparkSettings:
        """For the workers' job, and nothing else."""
        _check_local_slots(self)
        only = replace(self, batch_slots=0, heap_bytes=SPARK_HOST_HEAP_BYTES)
        if self.local_slots is not None:
            return replace(only, master=f"local[{self.workers + SPARE}]")
        most = ("spark.cores.max", str(self.workers + self.standby_slots))
        return replace(only, conf=(most, *_SOON_LOST, *self.conf))

    @property
    def processes_ready(self) -> int:
        """How many Python processes stand ready for workers that must be started again."""
        return self.standby_slots if self.local_slots is None else min(self.local_slots - self.workers, SPARE)

    def batch(self) -> SparkSettings:
        """For queries, loads, first states and verifications."""
        slots = min(max(BULK_SLOTS, os.cpu_count() or 1), MOST_BULK_SLOTS)
        if self.master and self.local_slots is not None:
            slots = self.local_slots - self.workers
        scratch = self.scratch_dir and self.scratch_dir.with_name(self.scratch_dir.name + "-batch")
        sockets = self.sockets_dir and self.sockets_dir.with_name(self.sockets_dir.name + "-batch")
        return replace(self, master=self.master if self.local_slots is None else f"local[{slots}]", workers=0,
                       scratch_dir=scratch, sockets_dir=sockets, app_name=f"{self.app_name}-batch", nice=BATCH_NICE)

    @property
    def local_slots(self) -> int | None:
        """The slots of a master within the JVM, None of any other."""
        found = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", self.effective_master)
        text = found and (found[1] or "1")
        return None if not text else os.cpu_count() or 1 if text == "*" else int(text)


def build_session(settings: SparkSettings, java_options: str = "") -> Any:
    """A new session in this process, checked for slots.  One a process: after its JVM died there is no second.
    java_options: more of the JVM's."""
    java = find_java()
    _check_local_slots(settings)
    os.environ["JAVA_HOME"] = str(java.parents[1])
    os.environ.update(PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable,
                      SPARK_LOCAL_IP="127.0.0.1", SPARK_LOCAL_HOSTNAME="localhost",
                      PYTHONPATH=import_path())
    _empty_scratch(settings)
    conf = {**_defaults(settings), **_private(settings), **dict(settings.conf)}
    conf["spark.driver.extraJavaOptions"] += f" {java_options}" * bool(java_options)
    _start_jvm(conf, settings)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(settings.effective_master).appName(settings.app_name)
    for key, value in conf.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        check_slots(session, settings)
    except SparkUnavailable:
        session.stop()
        raise
    return session


def _start_jvm(conf: dict[str, str], settings: SparkSettings) -> None:
    """The JVM with what it must know on its command line, which everybody can read; the rest it is told later."""
    from pyspark import SparkConf, SparkContext

    if SparkContext._jvm is None:
        known = SparkConf(loadDefaults=False)
        for key in ("spark.driver.memory", "spark.driver.extraJavaOptions"):
            known.set(key, conf[key])
        SparkContext._ensure_initialized(conf=known.setMaster(settings.effective_master))


def _empty_scratch(settings: SparkSettings) -> None:
    if settings.scratch_dir is not None:
        shutil.rmtree(settings.scratch_dir, ignore_errors=True)
        settings.scratch_dir.mkdir(mode=0o700, parents=True)


def import_path() -> str:
    """What this process can import, its children and Spark's workers can too."""
    return os.pathsep.join(path for path in sys.path if path and "python/lib/py4j" not in path)


def _defaults(settings: SparkSettings) -> dict[str, str]:
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": f"{settings.heap_bytes >> 20}m",
        "spark.driver.maxResultSize": str(SPARK_RESULT_BYTES),
        "spark.driver.extraJavaOptions": _java_options(settings),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.scheduler.mode": "FAIR",
        "spark.pyspark.python": sys.executable,
        "spark.executorEnv.PYTHONPATH": import_path(),
        "spark.python.task.killTimeout": KILL_TIMEOUT,
        "spark.sql.session.timeZone": "UTC",
        "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
    }
    if not settings.batch_slots:
        conf["spark.python.daemon.module"] = DAEMON
    if settings.scratch_dir is not None:
        conf["spark.local.dir"] = str(settings.scratch_dir)
        conf["spark.sql.warehouse.dir"] = str(settings.scratch_dir / "warehouse")
    return conf


def _java_options(settings: SparkSettings) -> str:
    """A JVM without memory ends, so that what asked for it fails and the next one is sound; what it tells of itself
    is not written where others read it.  One that only hosts workers has little to do and stays small."""
    small = "" if settings.batch_slots else " -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    return f"-Duser.timezone=UTC -XX:+ExitOnOutOfMemoryError -XX:-UsePerfData{small}{_temporary(settings)}"


def _temporary(settings: SparkSettings) -> str:
    """Where Spark makes a directory for each session (`artifacts-…`), which a JVM that is killed leaves behind."""
    if settings.scratch_dir is None:
        return ""
    path = str(settings.scratch_dir.absolute()).replace("\\", "\\\\").replace('"', '\\"')
    return f' "-Djava.io.tmpdir={path}"'


def _private(settings: SparkSettings) -> dict[str, str]:
    """What keeps other users of this machine out.  A cluster has its own secret, which its spark-defaults.conf holds;
    its executors may be another user's, who could not reach sockets in our directory."""
    if not settings.effective_master.startswith("local"):
        return {}
    conf = {
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.saslFallback": "false",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(_socket_dir(settings)),
    }
    if settings.local_slots is None:  # executors are processes that must be told; else Spark takes a secret of its own
        conf["spark.authenticate.secret"] = secrets.token_hex(32)
    return conf


def _socket_dir(settings: SparkSettings) -> Path:
    """An empty directory that nobody else can enter, with a path short enough for sockets."""
    wanted = settings.sockets_dir or (settings.scratch_dir and settings.scratch_dir / "sockets")
    if wanted is None or len(str(wanted.absolute())) > SOCKET_DIR_CHARACTERS:
        return Path(tempfile.mkdtemp(prefix="noria-"))
    shutil.rmtree(wanted, ignore_errors=True)
    wanted.mkdir(mode=0o700, parents=True)
    return wanted.absolute()


# ---------------------------------------------------------------- slots
def _check_local_slots(settings: SparkSettings) -> None:
    """What the master's text says already, before a JVM is started."""
    if settings.local_slots is not None:
        _require(settings.local_slots, settings)


def check_slots(session: Any, settings: SparkSettings) -> None:
    """Count the slots that there are; a cluster's executors are given time to register."""
    context = session.sparkContext._jsc.sc()
    deadline = time.monotonic() + EXECUTORS_WAIT_S
    while True:
        slots = context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile())
        if slots >= settings.slots_needed:
            return
        if time.monotonic() > deadline:
            _require(slots, settings)
        time.sleep(0.1)


def _require(slots: int, settings: SparkSettings) -> None:
    if slots < settings.slots_needed:
        raise SparkUnavailable(
            f"the Spark master {settings.effective_master} has {slots} task slots, {settings.slots_needed} are needed: "
            f"{settings.workers} held for good by the workers and {settings.batch_slots} for batch jobs; use "
            f"--master local[{settings.slots_needed}] or a cluster with more cores")


# ---------------------------------------------------------------- Java
def find_java() -> Path:
    """The java program of version 17 or newer: JAVA_HOME's, else the PATH's, else below /usr/lib/jvm."""
    seen: list[str] = []
    for path in _java_candidates():
        version = told_version(path) or java_version(path)
        if version >= MIN_JAVA:
            return path
        seen.append(f"{path} is version {version}" if version else f"{path} does not run")
    raise SparkUnavailable(
        f"Spark needs Java {MIN_JAVA} or newer and there is none ({'; '.join(seen) or 'no java program found'}): "
        f"install one (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME to it")


def _java_candidates() -> list[Path]:
    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    paths = [Path(home) / "bin" / "java"] if home else []
    paths += [Path(on_path).resolve()] if on_path else []
    paths += sorted(Path("/usr/lib/jvm").glob("*/bin/java"), reverse=True)
    return [p for p in dict.fromkeys(paths) if p.exists()]


def java_version(java: Path) -> int:
    """The feature version; 0 when the program does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else 0


def told_version(java: Path) -> int:
    """What the file beside a JDK or JRE says, which is quicker than to start it; 0: it says nothing."""
    try:
        found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', (java.resolve().parents[1] / "release").read_text(), re.M)
    except (OSError, ValueError):
        return 0
    return int(found[1]) if found else 0
