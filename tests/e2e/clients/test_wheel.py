"""What `make wheel` makes, installed into an empty environment outside the checkout: nobody waits for a compiler.

Where there is no network a user who is not root installs it, too, and plays `noria demo`.  What noria depends on is the
tests' own there; `make offline` installs that as well, from a directory of wheels.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e import apart
from e2e.local_index import local_index

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
EMBEDDED = """
import noria
from noria.kernels import place, signatures
with noria.open("data") as db:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    db.table("t").insert([(1, 2), (2, 2)])
    db.sql("CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM t WHERE a = ? GROUP BY a")
    assert db.view("v").lookup(2) == [(2, 2)]
print(noria.__file__, place.directory())
"""
WHOLE = os.environ.get("NORIA_OFFLINE") == "1"
SMALL = ("--stories", "4000", "--users", "500", "--votes", "20000", "--seconds", "1")
NO_NETWORK = """
import os, socket
assert os.getuid() or open("/proc/self/uid_map").read().split()[1] != "0", "root"
try:
    socket.create_connection(("192.0.2.1", 80), 1)
except OSError as e:
    print(e.strerror)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Its environment; what noria depends on is the tests' own."""
    top = tmp_path_factory.mktemp("wheel")
    made = subprocess.run(["make", "wheel", f"DIST={top / 'dist'}", f"BUILT={top / 'checkout'}"], cwd=ROOT,
                          capture_output=True, text=True, timeout=600, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    (wheel,) = (top / "dist").glob("*.whl")
    assert "-cp3" in wheel.name, "a wheel with machine code is of one Python"
    venv.create(top / "env", with_pip=False)
    place = Path(sysconfig.get_path("purelib", vars={"base": str(top / "env")}))
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(place)], check=True)
    (place / "theirs.pth").write_text(sysconfig.get_path("purelib"))
    yield top


def run(installed: Path, *arguments: str) -> str:
    home = installed / "home"
    home.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NORIA"))}
    done = subprocess.run([installed / "env" / "bin" / "python", *arguments], cwd=home, text=True, capture_output=True,
                          timeout=300, check=False, env={**kept, "HOME": str(home)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "compil" not in done.stderr, done.stderr
    return done.stdout


def test_an_embedded_database_runs_on_the_kernels_of_the_wheel(installed: Path) -> None:
    package, kernels = run(installed, "-c", EMBEDDED).split()
    assert Path(package).is_relative_to(installed / "env") and Path(kernels).is_relative_to(Path(package).parent)
    assert not any((installed / "home").rglob("*.nbc"))


def test_the_command_is_there(installed: Path) -> None:
    assert re.search(r"[0-9]+\.[0-9]+", run(installed, "-m", "noria", "version"))


def apart_from_all(home: Path, *words: str) -> str:
    done = subprocess.run(apart.command(*words), cwd=home, env=apart.environment(home), text=True, capture_output=True,
                          timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done.stdout + done.stderr


@pytest.mark.spark
@pytest.mark.timeout(1800 if WHOLE else 900)
@pytest.mark.skipif(apart.python() is None, reason="no network namespace, or no Python that another user may run")
def test_without_a_network_and_without_root_it_plays_the_demo(installed: Path, tmp_path: Path) -> None:
    ours, python = Path(sysconfig.get_path("purelib")), apart.python()
    assert python is not None
    index = tmp_path / "index"
    if WHOLE:
        local_index(["noria-spark[demo]"], index)
    with apart.home() as home:
        shutil.copytree(installed / "dist", home / "index")
        if WHOLE:
            shutil.copytree(index, home / "index", dirs_exist_ok=True)
        shutil.copytree(ours / "pip", home / "pip")
        assert "unreachable" in apart_from_all(home, python, "-c", NO_NETWORK)
        apart_from_all(home, python, "-m", "venv", "--without-pip", "env")
        if not WHOLE:
            (place,) = (home / "env" / "lib").glob("python*/site-packages")
            (place / "theirs.pth").write_text(str(ours))
        apart_from_all(home, str(home / "env/bin/python"), "pip", "install", "--no-index", "--find-links", "index",
                       "--no-compile", *(
                           ["noria-spark[demo]"] if WHOLE else ["--no-deps", "--ignore-installed", "noria-spark"]))
        where = apart_from_all(home, str(home / "env/bin/python"), "-c", "import noria; print(noria.__file__)")
        assert where.startswith(str(home / "env"))
        told = apart_from_all(home, str(home / "env/bin/noria"), "demo", *SMALL)
        assert "every view equals its query recomputed by Spark" in told and "compil" not in told, told
