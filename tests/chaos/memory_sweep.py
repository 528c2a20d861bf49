"""Ten times what the memory limit holds, read again and again for ten minutes: what each process has in memory.

    python tests/chaos/memory_sweep.py [--seconds 600] [--limit 16M] [--keys 220000] [--svg FILE] [--samples FILE]

A view by key is read over MySQL, 50 keys a statement, from several connections, in order over the whole table, round
after round, so that what was evicted is always what is asked for next; one connection writes meanwhile.  Every second
the resident memory of front end, worker, driver and JVM and what the server says of itself are written down; the plot
(docs/internals/memory-sweep.svg) is made of these samples.  Answers are checked: a row's text says its key
and how often it was written.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[2] / "src")]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])

import noria  # noqa: E402  # needs the path
from e2e.serving import Served, execute, rows  # noqa: E402  # needs the path

PROCESSES = ("front", "worker", "driver", "jvm")
COLOURS = {"front": "#2b6cb0", "worker": "#c05621", "driver": "#718096", "jvm": "#a0aec0", "state": "#2f855a"}
BATCH, READERS, TEXT = 10_000, 3, 900
SETTLED = 60  # seconds after which memory may not grow any more


def text(key: int, times: int) -> str:
    return f"{key} {times} ".ljust(TEXT, "x") + f"{key:08d}"


def fill(server: Served, keys: int) -> None:
    with server.connect() as connection:
        execute(connection, "CREATE TABLE t (k INT PRIMARY KEY, n INT NOT NULL, body VARCHAR(1000))")
        execute(connection, "CREATE VIEW by_key AS SELECT k, n, body FROM t WHERE k = ?")
    table = noria.connect(server.url).table("t")
    for start in range(0, keys, BATCH):
        some = range(start, min(start + BATCH, keys))
        table.insert({"k": list(some), "n": [0] * len(some), "body": [text(k, 0) for k in some]})


class Sweep:
    def __init__(self, server: Served, keys: int, seconds: float):
        self.server, self.keys, self.end = server, keys, time.monotonic() + seconds
        self.began, self.reads, self.writes, self.wrong = time.monotonic(), 0, 0, list[str]()
        self._next, self._lock = 0, threading.Lock()
        self.first_eviction = 0  # reads until then
        self.samples: list[dict[str, float]] = []
        self.workers: set[int] = set()
        self._paused = threading.Event()  # never set

    def run(self) -> None:
        threads = [threading.Thread(target=self._read) for _ in range(READERS)]
        threads.append(threading.Thread(target=self._write))
        for t in threads:
            t.start()
        while time.monotonic() < self.end and not self.wrong:
            self.samples.append(self._sample())
            self._paused.wait(1)  # a sample a second
        print(f"{len(self.samples)} samples, {self.reads} reads", flush=True)
        for t in threads:
            t.join()

    def _take(self, count: int = 50) -> range:
        with self._lock:
            start, self._next = self._next, (self._next + count) % self.keys
            self.reads += count
        return range(start, min(start + count, self.keys))

    def _read(self) -> None:
        with self.server.connect() as connection:
            while time.monotonic() < self.end and not self.wrong:
                keys = self._take()
                asked = ", ".join(map(str, keys))
                found = rows(connection, f"SELECT k, n, body FROM by_key WHERE k IN ({asked})")
                if sorted(r[0] for r in found) != list(keys) or any(r[2] != text(r[0], r[1]) for r in found):
                    self.wrong.append(f"keys {keys}: {found}")

    def _write(self) -> None:
        chance, times = random.Random(1), dict[int, int]()
        with self.server.connect() as connection:
            while time.monotonic() < self.end and not self.wrong:
                key = chance.randrange(self.keys)
                times[key] = times.get(key, 0) + 1
                execute(connection, f"UPDATE t SET n = {times[key]}, body = '{text(key, times[key])}' WHERE k = {key}")
                found = rows(connection, f"SELECT n FROM by_key WHERE k = {key}")
                if found != [(times[key],)]:
                    self.wrong.append(f"written {times[key]} times, read {found}: key {key}")
                self.writes += 1
                self._paused.wait(0.01)  # a hundred writes a second at most, beside the readers

    def _sample(self) -> dict[str, float]:
        sample = {"s": time.monotonic() - self.began, "reads": float(self.reads)}
        sample.update({p: resident(self.server.pid(p)) for p in PROCESSES})
        self.workers.add(self.server.pid("worker"))
        for name in ("worker_memory", "worker_evictions", "worker_misses"):
            try:
                sample[name] = self.server.metric(name)
            except AssertionError:  # the worker was too busy to tell
                sample[name] = self.samples[-1].get(name, 0.0) if self.samples else 0.0
        if not self.first_eviction and sample["worker_evictions"]:
            self.first_eviction = self.reads
        return sample


def resident(pid: int) -> float:
    """Megabytes; 0 of a process that is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except (OSError, IndexError):
        return 0.0


# ---------------------------------------------------------------- what is made of it
def report(sweep: Sweep, limit: str) -> str:
    last = sweep.samples[-1]
    lines = [f"memory limit {limit}, {sweep.keys} keys, evictions began after {sweep.first_eviction} reads of distinct "
             f"keys: {sweep.keys / max(sweep.first_eviction, 1):.1f} times what fits",
             f"{last['s']:.0f} s, {sweep.reads} reads ({sweep.reads / last['s']:.0f}/s), {sweep.writes} writes, "
             f"{last['worker_misses']:.0f} keys pulled, {last['worker_evictions']:.0f} evicted; "
             f"{len(sweep.wrong)} wrong answers, {len(sweep.workers)} worker process(es)"]
    settled = [s for s in sweep.samples if s["s"] >= min(SETTLED, last["s"] / 2)]
    half = len(settled) // 2
    for name, unit in (*((p, 1) for p in PROCESSES), ("worker_memory", 2**20)):
        values = [s[name] / unit for s in settled]
        lines.append(f"{name}: at the start {sweep.samples[0][name] / unit:.0f} MB; then median "
                     f"{statistics.median(values):.0f} MB, least {min(values):.0f}, most {max(values):.0f}; first half "
                     f"{statistics.median(values[:half] or values):.0f}, second half "
                     f"{statistics.median(values[half:]):.0f}")
    return "\n".join(lines)


def plot(samples: list[dict[str, float]], title: str) -> str:
    """Resident memory over time as an SVG."""
    width, height, left, top = 860, 380, 60, 40
    series = {p: [(s["s"], s[p]) for s in samples] for p in PROCESSES}
    series["state"] = [(s["s"], s["worker_memory"] / 2**20) for s in samples]
    far, high = samples[-1]["s"] or 1, max(v for line in series.values() for _, v in line) * 1.1
    x = [left + t / far * (width - left - 150) for t in (s["s"] for s in samples)]

    def y(value: float) -> float:
        return top + (height - top - 40) * (1 - value / high)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
             f'font-size="12"><rect width="{width}" height="{height}" fill="white"/>',
             f'<text x="{left}" y="22" font-size="14">{title}</text>']
    step = next(s for s in (10, 20, 50, 100, 200, 500, 1000) if high / s <= 8)
    for value in range(0, int(high) + 1, step):
        parts.append(f'<line x1="{left}" x2="{width - 150}" y1="{y(value):.0f}" y2="{y(value):.0f}" stroke="#e2e8f0"/>'
                     f'<text x="{left - 6}" y="{y(value) + 4:.0f}" text-anchor="end">{value} MB</text>')
    for minute in range(int(far // 60) + 1):
        at = left + minute * 60 / far * (width - left - 150)
        parts.append(f'<text x="{at:.0f}" y="{height - 18}" text-anchor="middle">{minute} min</text>')
    for i, (name, line) in enumerate(series.items()):
        points = " ".join(f"{a:.1f},{y(v):.1f}" for a, (_, v) in zip(x, line, strict=True))
        what = {"state": "worker's bounded memory", "front": "front end"}.get(name, name)
        parts.append(f'<polyline fill="none" stroke="{COLOURS[name]}" stroke-width="1.5" points="{points}"/>'
                     f'<text x="{width - 142}" y="{top + 18 * i + 12}" fill="{COLOURS[name]}">{what}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--limit", default="16M")
    parser.add_argument("--keys", type=int, default=220_000)
    parser.add_argument("--svg", type=Path, default=HERE.parents[2] / "docs" / "memory-sweep.svg")
    parser.add_argument("--samples", type=Path, help="a CSV file for the samples")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="noria-sweep-") as directory:
        server = Served(Path(directory) / "data", "--memory-limit", given.limit)
        try:
            fill(server, given.keys)
            sweep = Sweep(server, given.keys, given.seconds)
            sweep.run()
            print(server.log())
        finally:
            server.close()
    print(report(sweep, given.limit), *sweep.wrong[:5], sep="\n")
    given.svg.write_text(plot(sweep.samples, f"Resident memory, --memory-limit {given.limit}, "
                                             f"{given.keys} keys read in a round"))
    if given.samples:
        write_csv(given.samples, sweep.samples)
    return bool(sweep.wrong)


def write_csv(path: Path, samples: list[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, samples[0].keys())
        writer.writeheader()
        writer.writerows(samples)


if __name__ == "__main__":
    sys.exit(main())
