"""Ctrl-C: a command says in one line what is left and what is undone, when that is certain."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

import noria
from e2e.serving import until
from noria.cli import main
from noria.storage.offline import backup

SRC = str(Path(__file__).parents[2] / "src")


class Server(ThreadingHTTPServer):
    """Takes a load, works at it until its client goes, and then says what became of it: a state for each question."""

    daemon_threads = True

    def __init__(self, *states: str):
        super().__init__(("127.0.0.1", 0), Handler)
        self.states, self.asked, self.begun = list(states), list[str](), threading.Event()


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path.startswith("/loads/"):
            self.server.asked.append(self.path.removeprefix("/loads/"))
            state = self.server.states.pop(0)
            if not state:
                self.close_connection = True
                return
            self._answer({"state": state})
        else:
            self._answer({"host": "elsewhere"})

    def _answer(self, body: dict[str, str]) -> None:
        raw = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(request["once"])
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"step": "reading", "done": 0, "total": 9}\n')
        self.server.begun.set()
        self.rfile.read(1)  # until the client goes
        self.close_connection = True


@pytest.fixture
def serving(request: pytest.FixtureRequest) -> Iterator[Server]:
    server = Server(*request.param)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("serving, options, told", [
    (("under way", "under way", "nothing"), (), "nothing was loaded into t"),
    (("nothing",), ("--create",), "nothing was loaded into t; the table t stays if it was made"),
    (("under way", "done"), ("--once", "monday"), "it was too late: the rows are in t"),
    (("nothing",), ("--on-duplicate", "replace"), "the rows that were written before stay in t: load again to write"),
    (("under way", ""), (), "whether rows are in t is not known: "),
], indirect=["serving"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_load(serving: Server, tmp_path: Path, options: tuple[str, ...], told: str, number: signal.Signals) -> None:
    (tmp_path / "t.csv").write_text("id\n1\n")
    command = [sys.executable, "-m", "noria", "load", "t", str(tmp_path / "t.csv"), *options, "--url",
               f"http://127.0.0.1:{serving.server_address[1]}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "PYTHONPATH": SRC})
    assert serving.begun.wait(60)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number and len(err.splitlines()) == 1, err
    assert err.startswith(f"noria load: interrupted: {told}")
    name, *questions = serving.asked
    assert set(questions) == {name} and (name == "monday" if "--once" in options else name.startswith("cli-"))
    assert serving.states == []


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_whole: bool) -> None:
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    make = backup.make

    def made(checkpoint: Path, target: Path, made: str, version: str,
             progress: backup.Progress) -> backup.BackupManifest:
        def interrupted(done: int, total: int) -> None:
            signal.raise_signal(signal.SIGINT)

        about = make(checkpoint, target, made, version, progress if is_whole else interrupted)
        signal.raise_signal(signal.SIGINT)
        return about

    monkeypatch.setattr(backup, "make", made)
    main.register()
    done = CliRunner().invoke(main.app, ["backup", str(tmp_path / "b"), "--data-dir", str(tmp_path / "data")])
    (line,) = [text for text in done.output.splitlines() if text.startswith("noria backup: interrupted: ")]
    assert done.exit_code == 128 + signal.SIGINT
    assert ("it was too late" if is_whole else "there is no backup; what was copied is removed") in line
    assert (tmp_path / "b").exists() == is_whole and not list(tmp_path.glob(".b*"))
    assert not list((tmp_path / "data").glob("backup-*")), "its checkpoint is gone"


@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.parametrize("is_ready", [False, True])
def test_a_server(tmp_path: Path, is_ready: bool) -> None:
    command = [sys.executable, "-m", "noria", "serve", "--data-dir", str(tmp_path / "data"), "--mysql-port", "0",
               "--http-port", "0"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
                                   env={**os.environ, "PYTHONPATH": SRC})
    assert process.stdout is not None
    try:
        if is_ready:
            assert process.stdout.readline().startswith("noria ready")
        else:
            until("it has begun", (tmp_path / "data" / "epoch").exists)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        process.wait(120)
    finally:
        process.kill()
    last = (tmp_path / "log").read_text().splitlines()[-1]
    assert process.returncode == 0 and last.endswith(
        f"stopped{'' if is_ready else ' before it was ready'}: all acknowledged writes are in {tmp_path / 'data'}")
    noria.open(tmp_path / "data").close()  # nobody has it
