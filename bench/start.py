"""The cost of a start: wall time to the ready line and processor time by process, compared with a bare Spark session.

Each line has the processor seconds and the memory in MB of the processes of one kind, when the server is ready and
SETTLED_S later.  Shared memory counts once.  `bare Spark` is a local SparkSession in Python that runs one Python task
and stays open.  `MariaDB` is the time until it answers a query, on an existing and empty data directory.

--save adds the medians to starts.csv, under the revision of the checkout, and redraws docs/internals/starts.svg.

    python bench/start.py [--starts 3] [--options "--batch-spark at-start"] [--save]
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import start_plot

SETTLED_S = 25.0
TICKS = os.sysconf("SC_CLK_TCK")
KINDS = (("org.apache.spark", "JVM"), ("hosting.driver", "driver"), ("daemon", "worker"), ("-m noria", "front end"))
BARE = """
import sys, time
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[1]").config("spark.driver.host", "127.0.0.1")
         .config("spark.driver.bindAddress", "127.0.0.1").config("spark.ui.enabled", "false").getOrCreate())
spark.sparkContext.setLogLevel("ERROR")
assert spark.sparkContext.parallelize([1], 1).map(lambda x: x + 1).collect() == [2]
print("noria ready", flush=True)
sys.stdin.read()
"""


class Sample:
    """The processor seconds and resident MB, by kind, of the processes with a tag in their environment."""

    def __init__(self, tag: str):
        self.seconds: dict[str, float] = defaultdict(float)
        self.resident: dict[str, float] = defaultdict(float)
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                environ = (entry / "environ").read_bytes()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                rollup = (entry / "smaps_rollup").read_text()
            except OSError:
                continue
            if tag.encode() not in environ or stat[0] == "Z":
                continue
            kind = next((name for text, name in KINDS if text in command), "other")
            self.seconds[kind] += (int(stat[11]) + int(stat[12]) + int(stat[13]) + int(stat[14])) / TICKS
            self.resident[kind] += int(re.findall(r"^Pss: +(\d+) kB", rollup, re.M)[0]) / 2**10


def started(command: list[str], ready: str) -> tuple[float, Sample, Sample]:
    """Run a command.  Return the seconds until a line begins with `ready`, and samples then and SETTLED_S later."""
    tag = f"NORIA_BENCH_{os.getpid()}_{time.monotonic_ns()}"
    begun = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               text=True, env={**os.environ, tag: "1"}, start_new_session=True)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith(ready):
                break
        wall = time.monotonic() - begun
        at_ready = Sample(tag)
        time.sleep(SETTLED_S)
        return wall, at_ready, Sample(tag)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


Runs = list[tuple[float, Sample, Sample]]  # wall seconds, at ready, later


def show(name: str, runs: Runs) -> None:
    walls = [wall for wall, _, _ in runs]
    print(f"\n{name}: ready after {statistics.median(walls):.1f} s ({', '.join(f'{w:.1f}' for w in walls)})")
    print(f"  {'':12}{'s at ready':>12}{'s later':>10}{'MB at ready':>13}{'MB later':>10}")
    kinds = sorted({k for _, a, b in runs for k in (*a.seconds, *b.seconds)})
    of: Callable[[dict[str, float], str], float]
    for kind in (*kinds, "together"):
        of = (lambda d, k: sum(d.values())) if kind == "together" else (lambda d, k: d.get(k, 0.0))
        row = [statistics.median(of(getattr(s, what), kind) for s in samples)
               for what in ("seconds", "resident") for samples in ([r[1] for r in runs], [r[2] for r in runs])]
        print(f"  {kind:12}{row[0]:12.1f}{row[1]:10.1f}{row[2]:13.0f}{row[3]:10.0f}")


def medians(ours: Runs, bare: Runs) -> dict[str, str]:
    """Return a line of starts.csv."""
    def of(value: Callable[[tuple[float, Sample, Sample]], float], runs: Runs) -> str:
        return f"{statistics.median(map(value, runs)):.1f}"

    def ready(run: tuple[float, Sample, Sample]) -> float:
        return sum(run[1].seconds.values())

    revision = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True,
                              cwd=start_plot.TOP).stdout.strip()
    return {"version": revision, "day": time.strftime("%Y-%m-%d"), "wall_s": of(lambda run: run[0], ours),
            "processor_s": of(ready, ours), "settled_s": of(lambda run: sum(run[2].seconds.values()), ours),
            "bare_wall_s": of(lambda run: run[0], bare), "bare_processor_s": of(ready, bare)}


def mariadb() -> None:
    program = shutil.which("mariadbd") or "/usr/sbin/mariadbd"
    if not Path(program).exists():
        return
    with tempfile.TemporaryDirectory() as top:
        data = Path(top) / "data"
        subprocess.run(["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=root"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        walls = []
        for _ in range(3):
            begun = time.monotonic()
            socket = Path(top) / "s"
            process = subprocess.Popen([program, "--no-defaults", f"--datadir={data}", f"--socket={socket}",
                                        "--skip-networking", "--user=root"], stderr=subprocess.DEVNULL)
            while subprocess.run(["mariadb", "--no-defaults", f"--socket={socket}", "-e", "SELECT 1"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
                time.sleep(0.01)
            walls.append(time.monotonic() - begun)
            process.terminate()
            process.wait()
    print(f"\nMariaDB: answers after {statistics.median(walls):.2f} s")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--starts", type=int, default=3)
    options.add_argument("--options", default="", help="more of `noria serve`")
    options.add_argument("--save", action="store_true", help="into starts.csv and docs/internals/starts.svg")
    asked = options.parse_args()
    noria = [sys.executable, "-m", "noria", "serve", "--mysql-port", "0", "--http-port", "0",
             *shlex.split(asked.options)]
    ours, bare = [], []
    with tempfile.TemporaryDirectory() as top:
        for n in range(asked.starts):
            ours.append(started([*noria, "--data-dir", f"{top}/{n}"], "noria ready"))
            bare.append(started([sys.executable, "-c", BARE], "noria ready"))
    show("noria serve", ours)
    show("bare Spark", bare)
    mariadb()
    if asked.save:
        start_plot.save(medians(ours, bare))
        start_plot.PLOT.write_text(start_plot.plot(start_plot.read()))


if __name__ == "__main__":
    main()
