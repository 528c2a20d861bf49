"""A ZooKeeper server of its own: Debian's programs, its own directory and port."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from e2e.serving import until
from ports import free_port

JARS = Path("/usr/share/java")
TICK_MS = 500  # a session of two to twenty of them


@contextmanager
def zookeeper(place: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Its address and its process."""
    java = shutil.which("java")
    if java is None or not (JARS / "zookeeper.jar").exists():
        pytest.skip("needs Debian's zookeeper")
    port = free_port()
    place.mkdir()
    config = place / "zoo.cfg"
    config.write_text(f"tickTime={TICK_MS}\ndataDir={place}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
                      "admin.enableServer=false\n")
    with (place / "log").open("wb") as log:
        process = subprocess.Popen([java, "-Xmx128m", "-cp", f"{JARS / 'zookeeper.jar'}",
                                    "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)],
                                   stdout=log, stderr=log)
    try:
        until("ZooKeeper listens", lambda: _listens(port))
        yield f"127.0.0.1:{port}", process
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
