"""Another user of the machine gets nothing out of Spark: no port answers, no file can be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from noria.control.processes.supervisor import Supervisor
from noria.spark.hosting.session import SparkSettings
from runtime.processes import run, within
from seeds import kinds
from spark import attack
from spark.hosted import START_S

pytestmark = [pytest.mark.long, pytest.mark.spark,
              pytest.mark.skipif(os.getuid() != 0, reason="only root can try as another user")]


@pytest.mark.parametrize("master", kinds("local[2]", "local-cluster[1,2,1024]"))
def test_ports_of_a_driver_give_nothing_to_nobody(tmp_path: Path, master: str) -> None:
    async def test() -> None:
        settings = SparkSettings(master, workers=0, scratch_dir=tmp_path / "scratch")
        supervisor = Supervisor(settings, log_path=tmp_path / "log")
        try:
            ready = await within(supervisor.start(), START_S)
            blocks = await within(supervisor.run_job("spark.jobs_of_tests:share"), START_S)
            key = await within(supervisor.run_job("spark.jobs_of_tests:command_line"), START_S)
            pids = attack.tree([ready.pid])
            ports = attack.listening(pids)
            assert len(ports) >= 3, "the JVM's own endpoints at least"
            assert all(map(attack.is_loopback, ports.values())), ports
            got = attack.as_nobody(lambda: [g for p in ports for g in attack.attempts(p, blocks)])
            assert got == []
            said = [Path(f"/proc/{pid}/cmdline").read_text() for pid in pids]
            assert bool(key) == (master != "local[2]")
            assert not key or not any(key in text for text in said)
        finally:
            await supervisor.stop()

    run(test, 240)
