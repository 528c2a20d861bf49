"""`/apply` and `/program` over HTTP, and the commands that use them, beside a database of this process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest

from e2e.serving import until
from noria.client.transport import HttpTransport
from noria.core.errors import SqlError
from noria.spark.hosting.session import import_path
from server.local_services import LocalServices

T = "CREATE TABLE t (id INT PRIMARY KEY, a INT);\n"
PROGRAM = T + "CREATE MATERIALIZED VIEW per AS SELECT a, COUNT(*) AS n FROM t GROUP BY a;\n"
ROWS = 60_000


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalServices]:
    with LocalServices(tmp_path) as services:
        yield services


def transport(local: LocalServices) -> HttpTransport:
    return HttpTransport(f"http://127.0.0.1:{local.port}")


def lines(local: LocalServices, text: str, **more: Any) -> list[dict[str, Any]]:
    return list(transport(local).lines("/apply", {"program": text, **more}))


def command(local: LocalServices, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "noria", *arguments, "--url", f"http://127.0.0.1:{local.port}"],
                          capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, "PYTHONPATH": import_path()}, **more)


def fill(local: LocalServices) -> None:
    local.run(T, *(f"INSERT INTO t VALUES {', '.join(f'({i}, {i % 5})' for i in range(at, at + 10_000))}"
                   for at in range(0, ROWS, 10_000)))


def names(local: LocalServices) -> set[str]:
    return {str(v.name) for v in local.program.views()}


def test_shown_then_done(local: LocalServices) -> None:
    (shown,) = lines(local, PROGRAM, dry_run=True)
    assert shown["preview"]["difference"]["created"] == ["t"] and names(local) == set()
    *steps, last = lines(local, PROGRAM, expect=shown["preview"]["digest"])
    assert last["applied"] and last["preview"]["lines"] == shown["preview"]["lines"]
    assert "session" in steps[0] and {"step": "planning"} in steps
    assert transport(local).program().startswith("CREATE TABLE `t`")
    (again,) = lines(local, transport(local).program(), dry_run=True)
    assert again["preview"]["empty"]
    with pytest.raises(SqlError, match="changed by somebody else"):
        lines(local, PROGRAM, expect=shown["preview"]["digest"])


@pytest.mark.parametrize("body", [{}, {"program": 3}, {"program": "", "other": 1}])
def test_wrong_requests(local: LocalServices, body: dict[str, Any]) -> None:
    with pytest.raises(SqlError):
        list(transport(local).lines("/apply", body))


def test_a_locked_table_is_not_altered(local: LocalServices) -> None:
    local.run(T)
    holder = 7
    lock = local.executor.locks.lock(holder, [("t", True)], 1.0, lambda tables: iter(()), lambda *_: nullcontext())
    local.embedded.run(lock)
    with pytest.raises(SqlError, match="locked table 't'"):
        lines(local, T.replace("a INT", "a INT DEFAULT 3"))
    local.executor.locks.unlock(holder)
    assert lines(local, T.replace("a INT", "a INT DEFAULT 3"))[-1]["applied"]


@pytest.fixture
def unending(local: LocalServices, monkeypatch: pytest.MonkeyPatch) -> LocalServices:
    """A first state that is never filled."""
    async def filling(*_: Any) -> None:
        await asyncio.get_running_loop().create_future()

    fill(local)
    monkeypatch.setattr(local.program.first_states, "fill", filling)
    return local


@pytest.mark.parametrize("how", ["hang up", "kill"])
def test_given_up(unending: LocalServices, how: str) -> None:
    local = unending
    with closing(transport(local).lines("/apply", {"program": PROGRAM})) as steps:
        number = next(steps)["session"]
        for step in steps:
            if step.get("step", "").startswith("filling"):
                break
        if how == "kill":
            transport(local).sql(f"KILL QUERY {number}", [])
            with pytest.raises(SqlError) as e:
                list(steps)
            assert e.value.code == 1317
    until("the session has ended", lambda: all(
        r["Id"] != number for r in transport(local).sql("SHOW PROCESSLIST", []).rows.to_pylist()))
    assert names(local) == set()
    assert until("nothing is built", lambda: transport(local).sql("SHOW NORIA MIGRATIONS", []).rows.num_rows == 0)


# ------------------------------------------------------------------ the commands
def test_commands(local: LocalServices, tmp_path: Path) -> None:
    file = tmp_path / "program.sql"
    file.write_text(PROGRAM)
    shown = command(local, "apply", str(file), "--dry-run")
    assert shown.returncode == 0 and "+ view per" in shown.stdout and names(local) == set()
    unasked = command(local, "apply", str(file), stdin=subprocess.DEVNULL)
    assert unasked.returncode == 1 and "give --yes" in unasked.stderr and names(local) == set()
    done = command(local, "apply", str(file), "--yes")
    assert done.returncode == 0 and done.stdout.endswith("the program is what the file says\n"), done
    assert names(local) == {"per"}
    file.write_text(command(local, "export-program").stdout)
    again = command(local, "apply", str(file))
    assert again.returncode == 0 and "nothing to do" in again.stdout
    piped = command(local, "apply", "-", "--yes", "--drop", input=T)
    assert piped.returncode == 0 and "- view per" in piped.stdout and names(local) == set()


def test_mistakes_are_told_with_their_lines(local: LocalServices, tmp_path: Path) -> None:
    file = tmp_path / "program.sql"
    file.write_text(PROGRAM + "\nCREATE VIEW x AS SELECT nosuch FROM t;\nDROP TABLE t;\n")
    done = command(local, "apply", str(file), "--yes")
    assert done.returncode == 1 and "Traceback" not in done.stderr and names(local) == set()
    assert "line 4: Unknown column 'nosuch'" in done.stderr and "line 5: " in done.stderr
    file.write_bytes(b"\xff\xfe")
    assert "is no UTF-8 text" in command(local, "apply", str(file)).stderr


def test_interrupted(unending: LocalServices, tmp_path: Path) -> None:
    """Ctrl-C while the new view is filled: it is told that the program is as it was, and it is."""
    local = unending
    file = tmp_path / "program.sql"
    file.write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, "-m", "noria", "apply", str(file), "--yes", "--url", f"http://127.0.0.1:{local.port}"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": import_path()})
    until("it is filled", lambda: any(str(r["State"]).startswith("filling") and r["Info"] == "noria apply" for r in
                                      transport(local).sql("SHOW PROCESSLIST", []).rows.to_pylist()))
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1 and "interrupted: the program is as it was" in said and names(local) == set(), said
