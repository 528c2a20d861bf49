"""Formats measurements as the lines and tables that the demo prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from noria.demo.clients import Samples
from noria.demo.mix import Figures
from noria.demo.screen import Screen, megabytes
from noria.demo.server import DemoServer

HEADER = ("", "reads/s", "50 %", "95 %", "99 % ms", "votes/s", "50 %", "95 %", "99 % ms")


def row(what: str, f: Figures) -> list[str]:
    return [what, f"{f.reads_s:,.0f}", *_ms(f.read_ms), f"{f.writes_s:,.0f}", *_ms(f.write_ms)]


def _ms(tail: Sequence[float]) -> list[str]:
    return [f"{x:.2f}" for x in tail] or ["-"] * 3


def show(screen: Screen, rows: Sequence[Sequence[str]]) -> None:
    screen.table(HEADER, rows)


def hits(screen: Screen, before: Mapping[str, float], after: Mapping[str, float]) -> None:
    """Print the share of reads that were answered from memory between two reads of the metrics."""
    reads, kept, found, asked = (after[n] - before[n] for n in (
        "reads_total", "cached_replies_total", "view_hits_total", "upqueries_total"))
    screen.say(f"{100 * (kept + found) / max(1, reads):.1f} % of {reads:,.0f} reads found their page in memory; "
               f"{asked:,.0f} upqueries derived the others from the tables")


# ---------------------------------------------------------------- state
@dataclass(frozen=True)
class MemoryUse:
    """The memory of the worker at a moment: bytes by node, of the strings, and in total; rows of the largest node."""

    nodes: dict[str, int]
    strings: int
    total: int
    rows: int

    @staticmethod
    def of(server: DemoServer) -> MemoryUse:
        kept = [n for n in server.graph() if n["state"] in ("partial", "full")]
        numbers = server.metrics()
        return MemoryUse({n["does"]: n["bytes"] for n in kept}, round(numbers["worker_symbols"]),
                         round(numbers["worker_memory"]), max((n["rows"] for n in kept), default=0))


def sizes(screen: Screen, partial: MemoryUse, full: MemoryUse) -> None:
    """Print the sizes of states after the mix beside those with every key."""
    rows = [[name[:40], megabytes(partial.nodes.get(name, 0)), megabytes(full.nodes[name])] for name in full.nodes]
    rows.append(["strings, each once", megabytes(partial.strings), megabytes(full.strings)])
    rows.append(["all", megabytes(partial.total), megabytes(full.total)])
    screen.table(("state", f"partial: {partial.rows:,} stories", f"full: {full.rows:,}"), rows)


# ---------------------------------------------------------------- a killed worker
@dataclass(frozen=True)
class MeasuredOutage:
    """The clients' measurements between the kill and the answer to the vote that was running."""

    reads: int
    reads_s: float
    p99_ms: float
    slowest_ms: float
    writes_again_s: float

    @staticmethod
    def of(samples: Samples, killed: float) -> MeasuredOutage:
        ends = samples.starts + samples.took
        waited = np.flatnonzero((samples.writes == 1) & (ends > killed))
        again = float(ends[waited[np.argmax(samples.took[waited])]])
        meanwhile = samples.took[(samples.writes == 0) & (ends > killed) & (samples.starts < again)] * 1000
        seconds = max(again - killed, 1e-3)
        if not len(meanwhile):
            return MeasuredOutage(0, 0.0, 0.0, 0.0, seconds)
        return MeasuredOutage(len(meanwhile), len(meanwhile) / seconds, float(np.percentile(meanwhile, 99)),
                              float(meanwhile.max()), seconds)
