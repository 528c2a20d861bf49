"""Makes a Spark session with noria's settings, or reports what is missing.

Keeps true: Spark listens on loopback only, and answers only processes that know the session's secret.  The secret is on
no command line.  The JVM reaches Python's processes through sockets in a private directory.  A session has slots for
all workers and for batch jobs.  A Java that is too old for Spark is reported before Spark starts.
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
BULK_SLOTS = 2  # at least, for batch jobs; the workers never release theirs
SPARE = 1  # slots beside the workers': for a process that waits to replace a worker
MOST_BULK_SLOTS = 8  # by default: each has a Python process, and all share one heap
BATCH_NICE = 5  # on a busy machine the workers and the front end have priority
EXECUTORS_WAIT_S = 30  # wait for a cluster's executors to register
KILL_TIMEOUT = "100ms"  # a cancelled worker answers until it is killed; Spark's default of 2 s is too long
_SOON_LOST = (  # Spark counts the slots of a silent host as lost after these times
    ("spark.network.timeout", "20s"), ("spark.network.timeoutInterval", "5s"),
    ("spark.executor.heartbeatInterval", "4s"))
SOCKET_DIR_CHARACTERS = 60  # a socket's path may be 107, and Spark's names take 42


class SparkUnavailable(Exception):
    """No session can be made.  The message says what is missing, where it was looked for, and what to do."""


@dataclass(frozen=True)
class SparkSettings:
    """Settings of a session.

    `master`: if empty, local[workers + batch_slots].  `scratch_dir`: for the JVM's temporary files; no other program
    may use it, because each new session empties it.  `sockets_dir`: for Python's sockets, if its path is short enough.
    `nice`: the niceness of the processes.  `conf`: overrides all other settings.  `standby_slots`: of a cluster, beside
    the workers'.
    """

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

    # A server has two sessions, each with its own JVM.  So no query can use the slot, the memory or the JVM that a
    # worker needs.
    def hosting(self) -> SparkSettings:
        """Return the settings of the session that runs only workers."""
        _check_local_slots(self)
        only = replace(self, batch_slots=0, heap_bytes=SPARK_HOST_HEAP_BYTES)
        if self.local_slots is not None:
            return replace(only, master=f"local[{self.workers + SPARE}]")
        most = ("spark.cores.max", str(self.workers + self.standby_slots))
        return replace(only, conf=(most, *_SOON_LOST, *self.conf))

    @property
    def processes_ready(self) -> int:
        """The number of Python processes that wait to replace a worker."""
        return self.standby_slots if self.local_slots is None else min(self.local_slots - self.workers, SPARE)

    def batch(self) -> SparkSettings:
        """Return the settings of the session for queries, loads, first states and verifications."""
        slots = min(max(BULK_SLOTS, os.cpu_count() or 1), MOST_BULK_SLOTS)
        if self.master and self.local_slots is not None:
            slots = self.local_slots - self.workers
        scratch = self.scratch_dir and self.scratch_dir.with_name(self.scratch_dir.name + "-batch")
        sockets = self.sockets_dir and self.sockets_dir.with_name(self.sockets_dir.name + "-batch")
        return replace(self, master=self.master if self.local_slots is None else f"local[{slots}]", workers=0,
                       scratch_dir=scratch, sockets_dir=sockets, app_name=f"{self.app_name}-batch", nice=BATCH_NICE)

    @property
    def local_slots(self) -> int | None:
        """The slots of a master within the JVM (`local[n]`); None for any other master."""
        found = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", self.effective_master)
        text = found and (found[1] or "1")
        return None if not text else os.cpu_count() or 1 if text == "*" else int(text)


def build_session(settings: SparkSettings, java_options: str = "") -> Any:
    """Make the session of this process.  A process can make only one, even after its JVM died.

    java_options: further options of the JVM.  Raises SparkUnavailable if Java or slots are missing.
    """
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
    """Start the JVM.  Everybody can read its command line, so only options without secrets are on it."""
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
    """Return the PYTHONPATH with which child processes and Spark's workers can import what this process can."""
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
    """Return the JVM's options.  It exits if it runs out of memory: the job fails and the next JVM starts sound.  It
    writes no performance data, which others could read.  A JVM that only hosts workers is kept small."""
    small = "" if settings.batch_slots else " -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    return f"-Duser.timezone=UTC -XX:+ExitOnOutOfMemoryError -XX:-UsePerfData{small}{_temporary(settings)}"


def _temporary(settings: SparkSettings) -> str:
    """Return the option that puts the session's directory (`artifacts-…`) into ours: a killed JVM leaves it behind."""
    if settings.scratch_dir is None:
        return ""
    path = str(settings.scratch_dir.absolute()).replace("\\", "\\\\").replace('"', '\\"')
    return f' "-Djava.io.tmpdir={path}"'


def _private(settings: SparkSettings) -> dict[str, str]:
    """Return the settings that exclude other users of this machine; none for a cluster.  A cluster has its own secret
    in spark-defaults.conf.  Its executors may run as another user, who cannot reach sockets in our directory."""
    if not settings.effective_master.startswith("local"):
        return {}
    conf = {
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.saslFallback": "false",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(_socket_dir(settings)),
    }
    if settings.local_slots is None:  # executors are processes that need the secret; else Spark makes its own
        conf["spark.authenticate.secret"] = secrets.token_hex(32)
    return conf


def _socket_dir(settings: SparkSettings) -> Path:
    """Make an empty directory that only this user can enter, with a path short enough for sockets."""
    wanted = settings.sockets_dir or (settings.scratch_dir and settings.scratch_dir / "sockets")
    if wanted is None or len(str(wanted.absolute())) > SOCKET_DIR_CHARACTERS:
        return Path(tempfile.mkdtemp(prefix="noria-"))
    shutil.rmtree(wanted, ignore_errors=True)
    wanted.mkdir(mode=0o700, parents=True)
    return wanted.absolute()


# ---------------------------------------------------------------- slots
def _check_local_slots(settings: SparkSettings) -> None:
    """Check the number of slots in a local master's name, before a JVM is started."""
    if settings.local_slots is not None:
        _require(settings.local_slots, settings)


def check_slots(session: Any, settings: SparkSettings) -> None:
    """Raise SparkUnavailable if slots are missing.  Waits up to EXECUTORS_WAIT_S for a cluster's executors."""
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
            f"{settings.workers} held for good by the workers and {settings.batch_slots} for batch jobs. Use "
            f"--master local[{settings.slots_needed}] or a cluster with more cores")


# ---------------------------------------------------------------- Java
def find_java() -> Path:
    """Return the first java of version 17 or newer: from JAVA_HOME, the PATH or /usr/lib/jvm, in this order.

    Raises SparkUnavailable if none is found.
    """
    seen: list[str] = []
    for path in _java_candidates():
        version = release_version(path) or java_version(path)
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
    """Return the feature version that the program prints; 0 if it does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else 0


def release_version(java: Path) -> int:
    """Return the version in the `release` file of a JDK or JRE, 0 without one.  This is quicker than a start of Java.
    """
    try:
        found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', (java.resolve().parents[1] / "release").read_text(), re.M)
    except (OSError, ValueError):
        return 0
    return int(found[1]) if found else 0
