"""Runs `noria serve` as a child process, and sends it the demo's HTTP requests.

Keeps true: the server ends when the demo ends for any reason.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from noria.client.transport import HttpTransport
from noria.runtime.worker.parent_end import end_with_parent
from noria.spark.hosting.session import import_path

READY_S = 300  # a first start compiles the kernels, on a busy machine
STOP_S = 60
ANSWER_S = 60
LOOK_S = 0.2  # between two reads of the log while the server starts


class DemoFailed(Exception):
    """The demo cannot continue.  The message says what happened, and where to look."""


class DemoServer:
    """A running server; as a context manager, it stops the server."""

    def __init__(self, data_dir: Path, log: Path, options: list[str]):
        self.log = log
        command = [sys.executable, "-m", "noria", "serve", "--data-dir", str(data_dir), "--mysql-port", "0",
                   "--http-port", "0", *options]
        with log.open("ab") as out:
            # In its own session, an interrupt at the terminal reaches only the demo, which then stops the server.
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=out, text=True,
                start_new_session=True, preexec_fn=partial(end_with_parent, signal.SIGTERM),
                env={**os.environ, "PYTHONPATH": import_path()})
        self.mysql_port, self.url = 0, ""

    def await_ready(self) -> Iterator[str]:
        """Yield the server's present step until it serves.  Raises DemoFailed after READY_S."""
        assert self.process.stdout is not None
        until = time.monotonic() + READY_S
        while not select.select([self.process.stdout], [], [], LOOK_S)[0]:
            if time.monotonic() > until:
                raise self.failed(f"the server was not ready within {READY_S} s")
            yield self._last_step()
        line = self.process.stdout.readline()
        found = re.fullmatch(r"noria ready mysql=127\.0\.0\.1:(\d+) http=(\S+)(?: filling=\S+)?\n", line)
        if found is None:
            self.process.wait(STOP_S)
            raise self.failed("the server did not start")
        self.mysql_port, self.url = int(found[1]), f"http://{found[2]}"

    def _last_step(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return lines[-1].split(": ", 1)[-1][:70] if lines else "starting"

    def failed(self, what: str) -> DemoFailed:
        return DemoFailed(f"{what}; its log ends:\n{self.log.read_text(errors='replace')[-3000:]}")

    def __enter__(self) -> DemoServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    # ------------------------------------------------------------ requests
    def health(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._ask("/health"))
        return found

    def graph(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self._ask("/graph"))
        return found

    def metrics(self) -> dict[str, float]:
        """Return the server's metrics by name, without the prefix `noria_`."""
        lines = re.findall(r"^noria_(\w+) (\S+)$", self._ask("/metrics"), re.MULTILINE)
        return {name: float(value) for name, value in lines}

    def set_limit(self, nbytes: int) -> None:
        self._ask("/limit", {"memory_limit": str(nbytes)})

    def job(self, path: str, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Run a bulk job and yield its steps."""
        transport = HttpTransport(self.url)
        return transport.load(request) if path == "/load" else transport.lines(path, request)

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> str:
        request = urllib.request.Request(self.url + path, None if body is None else json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as e:
            text = e.read().decode("utf-8", "replace")
            if e.code == 503:  # /health of a server that is recovering
                return text
            raise DemoFailed(f"the server answered {e.code} to {path}: {text}") from e
        except OSError as e:
            raise self.failed(f"the server did not answer {path} ({e})") from e
