"""A Spark session as noria wants it, and clear words when there can be none.

Keeps true: everything of Spark listens on loopback only; there are slots for all workers and for batch jobs
beside them, or there is no session; a Java that Spark cannot run on is told before Spark trips over it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MIN_JAVA = 17
BULK_SLOTS = 2  # for batch jobs beside the workers, which hold their slots for good
EXECUTORS_WAIT_S = 30  # until a cluster's executors have registered
KILL_TIMEOUT = "100ms"  # a cancelled worker still answers until it is killed: not for Spark's default of 2 s


class SparkUnavailable(Exception):
    """No session can be had: what is missing, where it was looked for, what to do."""


@dataclass(frozen=True)
class SparkSettings:
    """master empty: local[workers + BULK_SLOTS].  scratch_dir: for shuffles and spills.  conf goes last and wins."""

    master: str = ""
    workers: int = 1
    scratch_dir: Path | None = None
    app_name: str = "noria"
    conf: tuple[tuple[str, str], ...] = ()

    @property
    def effective_master(self) -> str:
        return self.master or f"local[{self.workers + BULK_SLOTS}]"

    @property
    def slots_needed(self) -> int:
        return self.workers + BULK_SLOTS if self.workers else 1


def build_session(settings: SparkSettings) -> Any:
    """A new session in this process, checked for slots.  One a process: after its JVM died there is no second."""
    java = find_java()
    _check_local_slots(settings)
    os.environ["JAVA_HOME"] = str(java.parents[1])
    os.environ.update(PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable,
                      SPARK_LOCAL_IP="127.0.0.1", SPARK_LOCAL_HOSTNAME="localhost",
                      PYTHONPATH=import_path())
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(settings.effective_master).appName(settings.app_name)
    for key, value in (*_defaults(settings).items(), *settings.conf):
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        check_slots(session, settings)
    except SparkUnavailable:
        session.stop()
        raise
    return session


def import_path() -> str:
    """What this process can import, its children and Spark's workers can too."""
    return os.pathsep.join(path for path in sys.path if path and "python/lib/py4j" not in path)


def _defaults(settings: SparkSettings) -> dict[str, str]:
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.pyspark.python": sys.executable,
        "spark.executorEnv.PYTHONPATH": import_path(),
        "spark.python.task.killTimeout": KILL_TIMEOUT,
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
    }
    if settings.scratch_dir is not None:
        settings.scratch_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        conf["spark.local.dir"] = str(settings.scratch_dir)
        conf["spark.sql.warehouse.dir"] = str(settings.scratch_dir / "warehouse")
    return conf


# ---------------------------------------------------------------- slots
def _check_local_slots(settings: SparkSettings) -> None:
    """What the master's text says already, before a JVM is started."""
    found = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", settings.effective_master)
    if found:
        text = found[1] or "1"
        _require(os.cpu_count() or 1 if text == "*" else int(text), settings)


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
            f"{settings.workers} held for good by the workers and {BULK_SLOTS} for batch jobs; use "
            f"--master local[{settings.slots_needed}] or a cluster with more cores")


# ---------------------------------------------------------------- Java
def find_java() -> Path:
    """The java program of version 17 or newer: JAVA_HOME's, else the PATH's, else below /usr/lib/jvm."""
    seen: list[str] = []
    for path in _java_candidates():
        version = java_version(path)
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
