"""The examples of README.md and docs/tutorial.md, typed as they are printed, print what the page says.

A `console` block has commands behind `$ ` and below each what it prints; a `sql` block is given to a MySQL client and
to `noria sql`, and a comment line below a SELECT has its row; a `python` block with `>>> ` is a doctest; a block behind
"Save this as `NAME`:" is that file.  `…` stands for any text, and a time in ms or s for any time.  Where another
program has a printed port, a free one is typed in its place.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.serving import START_S, until
from noria.spark.hosting.session import import_path
from ports import free_port

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[3]
SERVERS = ("noria serve", "page.py")  # commands that go on, each in a terminal of its own
PORTS = (3307, 8080, 8000)
_BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
_ANY = {"…": "(?s:.*)", "TIME": r"[\d.]+"}


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    saved_as: str


def blocks(page: str) -> Iterator[Block]:
    for found in _BLOCK.finditer(page):
        before = page[: found.start()].rstrip().rpartition("\n")[2]
        name = re.search(r"Save this as `([\w.]+)`:$", before)
        yield Block(found[1], found[2], name[1] if name else "")


def matches(printed: str, shown: str) -> bool:
    """Is this what the page shows, but for times?

    >>> matches("a\\n1 rows (3.25 ms)\\n", "a\\n1 rows (0.1 ms)\\n"), matches("b", "a"), matches("xay", "…a…")
    (True, False, True)
    """
    pattern = re.sub(r"\d+\.\d(?= (?:ms|s)\b)", "TIME", shown.strip())
    pattern = "".join(_ANY.get(part, re.escape(part)) for part in re.split(r"(…|TIME)", pattern))
    return re.fullmatch(pattern, printed.strip()) is not None


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command and what the page shows below it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


class Typist:
    """A reader with some terminals, in a directory where `.venv` is."""

    def __init__(self, place: Path, page: str):
        self.place, self._running = place, list[subprocess.Popen[str]]()
        variables = {k: v for k, v in os.environ.items() if not k.startswith("NORIA_")}
        self._variables = {**variables, "PYTHONPATH": import_path(), "COLUMNS": "80"}
        for port in PORTS:
            if _taken(port):
                other = free_port()
                page = re.sub(rf"(?<!\d){port}(?!\d)", str(other), page)
                if option := {3307: "--mysql-port", 8080: "--http-port"}.get(port):
                    page = page.replace("noria serve ", f"noria serve {option} {other} ")
                if port == 8080:
                    self._variables["NORIA_URL"] = f"http://127.0.0.1:{other}"
        self.page, self.blocks = page, list(blocks(page))
        (place / ".venv").symlink_to(sys.prefix)

    def close(self) -> None:
        for process in reversed(self._running):
            process.terminate()
        for process in reversed(self._running):
            process.wait(60)

    def run(self, command: str, given: str | None = None) -> str:
        done = subprocess.run(["bash", "-c", command], cwd=self.place, env=self._variables, input=given or "",
                              capture_output=True, text=True, timeout=START_S)
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def console(self, text: str) -> None:
        for command, shown in commands(text):
            printed = self._begin(command) if any(s in command for s in SERVERS) else self.run(command)
            assert matches(printed, shown), f"$ {command}\nprints\n{printed}\nthe page shows\n{shown}"

    def _begin(self, command: str) -> str:
        """The first line of a program that goes on."""
        log = self.place / f"terminal-{len(self._running)}"
        with log.open("w") as out:
            self._running.append(subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=self.place, env=self._variables, stdout=out,
                stderr=subprocess.STDOUT, text=True))
        ready = re.compile(r"^(?:noria ready|http://).*\n", re.MULTILINE)
        found = until(lambda: f"{command} prints {log.read_text()}", lambda: ready.search(log.read_text()), START_S)
        return found[0]

    def saved(self, block: Block) -> None:
        (self.place / block.saved_as).write_text(block.text)

    def doctest(self, text: str) -> None:
        (self.place / "example.txt").write_text(text)
        self.run(".venv/bin/python -m doctest example.txt")


def _taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def of_page(place: Path, name: str) -> Iterator[Typist]:
    typist = Typist(place, (ROOT / name).read_text())
    try:
        yield typist
    finally:
        typist.close()


@pytest.fixture
def readme(tmp_path: Path) -> Iterator[Typist]:
    yield from of_page(tmp_path, "README.md")


@pytest.fixture
def tutorial(tmp_path: Path) -> Iterator[Typist]:
    yield from of_page(tmp_path, "docs/tutorial.md")


def test_the_five_minutes_of_the_readme(readme: Typist) -> None:
    """Its SQL through a MySQL client and, tables made anew, through `noria sql`, both of which it names."""
    (console,), (sql,), (python,) = ([b.text for b in readme.blocks if b.language == w]
                                     for w in ("console", "sql", "python"))
    readme.console(console)
    shown = re.findall(r"^-- (.*)$", sql, re.MULTILINE)
    assert len(shown) == sql.count("SELECT vcount FROM") + sql.count("SELECT title") == 3
    clients = re.findall(r"`(mariadb [^`]*|\.venv/bin/noria sql)`", readme.page)
    assert len(clients) == 2
    if shutil.which("mariadb"):
        assert readme.run(f"{clients[0]} -N", sql).splitlines() == shown
        readme.run(clients[0], "DROP VIEW StoriesWithVC; DROP VIEW VoteCount; DROP TABLE votes; DROP TABLE stories;")
    printed = readme.run(f"{clients[1]} --format json", sql).splitlines()
    assert [re.sub(r'^\{"\w+": "?(.*?)"?\}$', r"\1", line) for line in printed] == shown
    readme.doctest(python)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the tutorial reads its page with curl")
def test_the_tutorial(tutorial: Typist) -> None:
    console = 0
    for block in tutorial.blocks:
        if block.saved_as:
            tutorial.saved(block)
        else:
            assert block.language == "console", f"nobody types this: {block.text}"
            tutorial.console(block.text)
            console += 1
    assert console >= 8

