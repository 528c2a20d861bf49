"""What `make wheel` makes, installed into an empty environment outside the checkout: nobody waits for a compiler."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
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
