"""What needs a package that is not installed says so in one line, with what to install."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITHOUT = """
import sys
from noria.cli.main import run
missing, sys.argv = sys.argv[1].split(","), ["noria", *sys.argv[2:]]
sys.modules.update(dict.fromkeys(missing))
run()
"""


@pytest.mark.parametrize("missing, arguments, extra", [
    ("kazoo", ("serve", "--data-dir", "data", "--lease", "zk://127.0.0.1:9/noria"), "zookeeper"),
    ("pymysql,pymysqlreplication", ("follow", "mysql://root@127.0.0.1:9/shop"), "follow"),
    ("pymysqlreplication", ("follow", "mysql://root@127.0.0.1:9/shop"), "follow"),
    ("mysql.connector", ("demo",), "demo"), ("pymysql", ("demo",), "demo")])
def test_a_missing_extra_is_named(tmp_path: Path, missing: str, arguments: tuple[str, ...], extra: str) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT, missing, *arguments], cwd=tmp_path, capture_output=True,
                          text=True, timeout=60, check=False)
    assert done.returncode == 1 and done.stdout == "" and len(done.stderr.splitlines()) == 1, done.stderr
    assert f"needs {missing.split(',')[0]}, which is not installed: pip install 'noria-spark[{extra}]'" in done.stderr
    assert not any(tmp_path.iterdir()), "nothing was made"


def test_the_server_runs_without_any_extra() -> None:
    """No module that a server, a load or an embedded database imports needs one."""
    names = "pymysql,pymysqlreplication,mysql,mysql.connector,kazoo,sqlalchemy"
    code = (f"import sys; sys.modules.update(dict.fromkeys({names!r}.split(',')))\n"
            "import noria.server.node, noria.spark.hosting.workers, noria.client.embedded, noria.dbapi, noria.aio\n"
            "from noria.cli.main import register; register()")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_dev_has_all_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert set(extras) == {"demo", "follow", "sqlalchemy", "zookeeper", "dev"}
    assert "noria-spark[demo,follow,sqlalchemy,zookeeper]" in extras["dev"]
    always = {d.partition("==")[0].lower() for d in project["dependencies"]}
    assert not always & {d.partition("==")[0].lower() for e in extras.values() for d in e}
