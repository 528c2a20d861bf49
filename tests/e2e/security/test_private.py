"""Another user of the machine gets nothing from a running server that he was not offered: no port of Spark's answers,
no file of the data directory, of the run directory or of Spark's scratch can be read, even where the data directory
itself is open to all."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from e2e.serving import Served, execute, rows, until
from spark import attack

pytestmark = [pytest.mark.spark, pytest.mark.skipif(os.getuid() != 0, reason="only root can try as another user")]


def files_below(*directories: Path) -> list[Path]:
    return [Path(where) / name for directory in directories for where, _, names in os.walk(directory)
            for name in names]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_another_user_reads_nothing_and_asks_nothing() -> None:
    top = Path(tempfile.mkdtemp(prefix="noria-open-", dir="/var/tmp"))
    (top / "data").mkdir()
    for directory in (top, top / "data"):
        directory.chmod(0o755)
    served = None
    try:
        served = Served(top / "data", "--batch-spark", "at-start")
        with served.connect() as connection:
            execute(connection, "CREATE TABLE t (id INT PRIMARY KEY, secret VARCHAR(20))")
            execute(connection, "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        until("the batch driver is there", lambda: "batch-ready" in served.log() or None, 300)
        checked = served.run("verify")
        assert checked.returncode == 0, checked.stderr
        with served.connect() as connection:
            assert rows(connection, "SELECT secret FROM t WHERE id = 2") == [("b",)]
        pids = attack.tree([served.process.pid])
        offered = {served.mysql_port, int(served.url.rpartition(":")[2])}
        ports = {p: a for p, a in attack.listening(pids).items() if p not in offered}
        assert len(ports) >= 6 and all(map(attack.is_loopback, ports.values())), ports
        blocks = [f"broadcast_{i}_piece0" for i in range(12)]
        assert attack.as_nobody(lambda: [g for p in ports for g in attack.attempts(p, blocks)]) == []
        found = files_below(served.data, *Path("/dev/shm").glob(f"noria-{os.getuid()}-*"))
        assert len(found) > 20
        assert attack.as_nobody(lambda: attack.readable(found)) == []
    finally:
        if served is not None:
            served.close()
        shutil.rmtree(top, ignore_errors=True)
