"""A Spark standalone cluster on loopback addresses: a master and worker daemons, each a JVM of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from e2e.serving import alive, until
from noria.spark.hosting.session import find_java
from ports import free_port

HOME = Path(pyspark.__file__).parent
ELSEWHERE = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs none /dev/shm && exec "$@"', "sh")  # another host's memory


class Standalone:
    """url: of its master; daemons: the workers' processes, by their addresses."""

    def __init__(self, place: Path):
        self.place = place
        place.mkdir()
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.master = self._run("master", "127.0.0.1", (), "org.apache.spark.deploy.master.Master", "--host",
                                "127.0.0.1", "--port", str(port), "--webui-port", "0")
        until("the master listens", lambda: "I have been elected leader" in self._log("master"))

    def add(self, host: str, cores: int, within: tuple[str, ...] = ()) -> None:
        """A worker daemon.  within: a command that runs it."""
        self.daemons[host] = self._run(host, host, within, "org.apache.spark.deploy.worker.Worker", "--host", host,
                                       "--cores", str(cores), "--memory", "2g", "--webui-port", "0", "-d",
                                       str(self.place / f"work-{host}"), self.url)
        until(f"the daemon at {host} is registered", lambda: "Successfully registered" in self._log(host))

    def host_of(self, pid: int) -> str:
        """At whose daemon a process runs."""
        of = {p.pid: host for host, p in self.daemons.items()}
        while pid not in of:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return of[pid]

    def kill(self, host: str) -> None:
        self.daemons[host].send_signal(signal.SIGKILL)
        self.daemons[host].wait()

    def lose(self, host: str) -> None:
        """All its processes end at once, as with its power."""
        for pid in [*self.processes_of(host), self.daemons[host].pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.daemons[host].wait()

    def processes_of(self, host: str) -> list[int]:
        """All that the daemon, and what it started, has started; children before their parents."""
        parents: dict[int, list[int]] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(stat.parent.name))
        found, rest = list[int](), [self.daemons[host].pid]
        while rest:
            rest = [child for pid in rest for child in parents.get(pid, ())]
            found += rest
        return found[::-1]

    def python_workers(self) -> int:
        """How many processes Spark has for Python's tasks: what the daemon of each executor has forked."""
        names = [Path(f"/proc/{pid}/cmdline") for host in self.daemons for pid in self.processes_of(host)]
        texts = [n.read_text() for n in names if n.exists()]
        return sum("spark.hosting.daemon" in t for t in texts) - sum("CoarseGrainedExecutorBackend" in t for t in texts)

    def close(self) -> None:
        for process in (*self.daemons.values(), self.master):
            process.terminate()
        for process in (*self.daemons.values(), self.master):
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        assert not any(alive(p.pid) for p in (*self.daemons.values(), self.master))

    def _run(self, name: str, host: str, within: tuple[str, ...], *command: str) -> subprocess.Popen[bytes]:
        java = str(find_java().parents[1])
        with (self.place / f"{name}.log").open("wb") as log:
            return subprocess.Popen([*within, str(HOME / "bin" / "spark-class"), *command], stdout=log, stderr=log,
                                    env={**os.environ, "SPARK_HOME": str(HOME), "JAVA_HOME": java,
                                         "SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m"})

    def _log(self, name: str) -> str:
        return (self.place / f"{name}.log").read_text(errors="replace")


@contextmanager
def standalone(place: Path) -> Iterator[Standalone]:
    cluster = Standalone(place)
    try:
        yield cluster
    finally:
        cluster.close()


def can_hide_memory() -> bool:
    """May a process have a /dev/shm of its own?"""
    return shutil.which("unshare") is not None and subprocess.run([*ELSEWHERE, "true"], capture_output=True,
                                                                  check=False).returncode == 0
