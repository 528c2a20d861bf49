"""Reads over the MySQL protocol with 1, 2, … front ends: statements a second, and a front end's processor time for a
statement and memory.  The client, sysbench as in `mysql.py`, runs on the same cores.  "far" is one front end without
shared memory, as on another host (`noria front-end`), over TCP on loopback.

    python bench/front_ends.py [--seconds 3] [--front-ends 1,2,far] [--connections 1,8,32] [--stories 4000]
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from mysql import WORKLOADS, Data, NoriaServer, measure

FAR = "far"
TICKS = os.sysconf("SC_CLK_TCK")
WANTED = ("prepared reads, to a stored count", "text reads, to a stored count", "single synced inserts")


def front_ends(server: NoriaServer) -> list[int]:
    """Return the process ids of the server's front ends."""
    at = urlsplit(server.http)
    request = urllib.request.Request(f"http://{at.hostname}:{at.port}/health")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return list(json.loads(answer.read())["front_end_pids"])


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def far_front_end(server: NoriaServer, port: str) -> subprocess.Popen[str]:
    """Start a front end without shared memory, and direct the server's clients to it."""
    secret = server.directory / "data" / "workers.secret"
    process = subprocess.Popen(
        [sys.executable, "-m", "noria", "front-end", "--controller", f"127.0.0.1:{port}", "--secret-file", str(secret),
         "--mysql-port", "0"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    server.port = int(process.stdout.readline().rpartition(":")[2])
    return process


def processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def private_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--front-ends", default="1,2")
    parser.add_argument("--connections", default="1,8,32")
    parser.add_argument("--stories", type=int, default=4_000)
    parser.add_argument("--votes", type=int, default=40_000)
    options = parser.parse_args()
    data = Data.make(options.stories, options.votes)
    for kind in options.front_ends.split(","):
        with tempfile.TemporaryDirectory(prefix="noria-bench-") as directory:
            port = str(free_port())
            more = ("--cluster-host", "127.0.0.1", "--cluster-port", port) if kind == FAR else ("--front-ends", kind)
            server, far = NoriaServer(Path(directory), options=more), None
            try:
                server.start()
                server.load(data)
                if kind == FAR:
                    far = far_front_end(server, port)
                pids = front_ends(server) if far is None else [far.pid]
                for workload in (w for w in WORKLOADS if w.name in WANTED):
                    for connections in map(int, options.connections.split(",")):
                        before = [processor_s(p) for p in pids]
                        found = measure(server, workload.noria, connections, options.seconds, data)
                        used = [processor_s(p) - b for p, b in zip(pids, before, strict=True)]
                        each = sum(used) / (found.per_second * options.seconds)
                        print(f"{kind} front ends   {workload.name:36}{connections:3} conn {found.per_second:9,.0f} "
                              f"a second ({found.p95_ms:.2f} ms)   {each * 1e6:5.1f} us a statement of "
                              f"{' + '.join(f'{u:.1f}' for u in used)} s", flush=True)
                print(f"{kind} front ends   private MB {', '.join(f'{private_mb(p):.0f}' for p in pids)}")
            finally:
                if far is not None:
                    far.terminate()
                    far.wait()
                server.stop()


if __name__ == "__main__":
    main()
