"""A real server for tests: `noria serve` in processes of its own, watched from outside.

Keeps true: whatever a test does to it, `close` leaves no process of it behind, and says so if one stayed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pymysql

from noria.spark.hosting.session import import_path
from ports import free_port

T = TypeVar("T")
START_S = 300  # a server may take so long on a busy machine, when its kernels have to be compiled first
READY = re.compile(r"noria ready mysql=127\.0\.0\.1:(\d+) http=((?:127\.0\.0\.1|0\.0\.0\.0):\d+)(?: filling=\S+)?"
                   r"(?: administrator=root password=(\S+))?\n")
SERVE_IN = (
    "import sys; from pathlib import Path; from noria.server.node import serve; "
    "from noria.server.settings import Settings; data, run = map(Path, sys.argv[1:]); "
    "sys.exit(serve(Settings(data, mysql_port=0, http_port=0, run_root=run)))"
)


def until(what: str | Callable[[], str], check: Callable[[], T | None], seconds: float = 60) -> T:
    """The first true answer; fails at the deadline.  Polled, because what is waited for is another process.  what: a
    function is asked at the deadline."""
    end = time.monotonic() + seconds
    paused = threading.Event()
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what if isinstance(what, str) else what()}")
        paused.wait(0.02)


def alive(pid: int) -> bool:
    """Does the process run?  One that waits to be buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


def processes_with(text: str) -> set[int]:
    """Live processes whose command line or environment has the text."""
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            said = (entry / "cmdline").read_bytes() + b"\0" + (entry / "environ").read_bytes()
        except OSError:
            continue
        if text.encode() in said and alive(int(entry.name)):
            found.add(int(entry.name))
    return found


def described(pids: set[int]) -> str:
    """What the processes are at: state, what they wait for in the kernel, threads, open files."""
    told = []
    for pid in sorted(pids):
        told.append(f"{pid}")
        with contextlib.suppress(OSError):  # it has just ended
            place = Path(f"/proc/{pid}")
            command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:120]
            threads = {t.name: f"{(t / 'wchan').read_text()} {(t / 'stat').read_text().rpartition(')')[2].split()[0]}"
                       for t in (place / "task").iterdir()}
            files = [os.readlink(place / "fd" / name) for name in os.listdir(place / "fd") if
                     os.path.lexists(place / "fd" / name)]
            told[-1] += f": {command}\n  threads {threads}\n  files {files}"
    return "\n".join(told)


class Served:
    """One data directory and the server on it, which may be started again after it was killed."""

    def __init__(self, data: Path, *options: str, run_root: Path | None = None,
                 environment: dict[str, str] | None = None):
        self.data, self.options, self.run_root, self.environment = data, options, run_root, environment or {}
        if "--batch-spark" not in options:  # most tests need no second JVM
            self.options = (*options, "--batch-spark", "when-needed")
        self.log_path = data.parent / f"{data.name}.log"
        self.tag = f"NORIA_TEST_{os.getpid()}_{time.monotonic_ns()}"  # inherited by every process of it
        self._port = free_port()  # its clients find the next one where this one was
        self.start()

    # ------------------------------------------------------------ life
    def start(self) -> None:
        if self.run_root is None:
            command = ["-m", "noria", "serve", "--data-dir", str(self.data), "--mysql-port", str(self._port),
                       "--http-port", "0", *self.options]
        else:
            command = ["-c", SERVE_IN, str(self.data), str(self.run_root)]
        self._log_from = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, stderr=log, text=True,
                                            env={**os.environ, **self.environment, "PYTHONPATH": import_path(),
                                                 self.tag: "1"})
        self.wait_ready()

    def wait_ready(self) -> None:
        late = threading.Timer(START_S, self.process.kill)
        late.start()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        late.cancel()
        self.ready_line, found = line, READY.fullmatch(line)
        if found is None:
            self._kill_all()
            raise AssertionError(f"no ready line but {line!r}; the log ends:\n{self.log()[-4000:]}")
        self.mysql_port, self.url = int(found[1]), f"http://{found[2].replace('0.0.0.0', '127.0.0.1')}"
        self.password: str | None = found[3]  # of the administrator that this start made

    def stop(self) -> None:
        """As an operator does; fails if anything of it stays."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.log()[-3000:]
        self.nothing_left()

    def nothing_left(self) -> None:
        try:
            until("every process of the server ends", lambda: not processes_with(self.tag), 30)
        except AssertionError as e:
            raise AssertionError(f"{e}; left: {described(processes_with(self.tag))}") from None

    def close(self) -> None:
        """Stop it whatever its state; what does not go is killed and reported."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        try:
            self.nothing_left()
        finally:
            self._kill_all()

    def _kill_all(self) -> None:
        for pid in processes_with(self.tag):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    # ------------------------------------------------------------ what is known of it
    def log(self) -> str:
        """What this start has logged so far."""
        with self.log_path.open("rb") as f:
            f.seek(self._log_from)
            return f.read().decode(errors="replace")

    def get(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data, headers = None if body is None else json.dumps(body).encode(), {"Content-Type": "application/json"}
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers), timeout=60) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as e:  # an answer too: /health says 503 while the worker is away
            return json.loads(e.read())

    def health(self) -> dict[str, Any]:
        return dict(self.get("/health"))

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(self.url + "/metrics", timeout=30) as answer:
            found = re.search(rf"^noria_{name} (\S+)$", answer.read().decode(), re.MULTILINE)
        assert found is not None, f"no metric noria_{name}"
        return float(found[1])

    def pid(self, which: str) -> int:
        """Of "worker", "driver", "jvm" or "front" end; of one of several: "worker 1", "front end 0"."""
        kind, _, number = which.rpartition(" ")
        if which == "front":
            return self.process.pid
        if which == "worker" or kind == "worker":
            return int(self.health()["worker_pids"][int(number) if kind else 0])
        if kind == "front end":
            return int(self.health()["front_end_pids"][int(number)])
        found = re.findall(r"driver process (\d+), JVM process (\d+)", self.log())
        return int(found[-1][which == "jvm"])

    def kill(self, *which: str) -> None:
        """SIGKILL, all at once; a front end that was killed is waited for."""
        pids = [self.pid(w) for w in which]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        if "front" in which:
            self.process.wait(30)

    def wait_up(self, seconds: float = 90) -> None:
        until("the worker is up", lambda: self.health()["worker"] == "up", seconds)

    def connect(self, **options: Any) -> Any:
        return pymysql.connect(**{"host": "127.0.0.1", "port": self.mysql_port, "user": "root", "autocommit": True,
                                  "read_timeout": 120, "write_timeout": 120,
                                  "ssl_disabled": "ssl" not in options, **options})

    def run(self, *arguments: str, timeout_s: float = 180) -> subprocess.CompletedProcess[str]:
        """A command of `noria` that talks to this server."""
        return subprocess.run([sys.executable, "-m", "noria", *arguments, "--url", self.url], capture_output=True,
                              text=True, timeout=timeout_s, check=False,
                              env={**os.environ, "PYTHONPATH": import_path()})


def rows(connection: Any, text: str, values: Any = None) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(text, values)
        return list(cursor.fetchall())


def execute(connection: Any, text: str, values: Any = None) -> int:
    """Affected rows."""
    with connection.cursor() as cursor:
        return int(cursor.execute(text, values))


@contextlib.contextmanager
def serving(data: Path, *texts: str, run_root: Path | None = None, workers: str = "") -> Iterator[Served]:
    """A server in which these statements were run."""
    server = Served(data, *(("--workers", workers) if workers else ()), run_root=run_root)
    try:
        with server.connect() as connection:
            for text in texts:
                execute(connection, text)
        yield server
    finally:
        server.close()
