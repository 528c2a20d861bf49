"""The processor time of a worker's steps while it makes the changes of change.py.

A worker runs one step at a time, so a request waits for the running step.  Here the worker runs in this process, and
processor time is measured: unlike in change.py, other processes of the machine do not matter.  One client votes and
reads from a view, another one makes the changes.

    python bench/steps.py [--votes 2000000] [--stories 40000] [--only WORD] [--workers N] [--profile]

--workers: the number of workers.  They share this process, and the steps of all count.
--profile: print the functions of the longest step of each change.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import pstats
import tempfile
import time
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa

import noria
from change import CHANGES, Change
from mysql import STORIES, VIEWS, VOTES, Data
from noria.core.errors import SqlError
from noria.runtime.link.inprocess import InProcessLink

ROWS = 50_000  # of one insert while tables are filled
LATER = 10_000_000_000  # users who vote while a change is made
SHOWN = 25  # lines of a profile


@dataclass
class Steps:
    """The processor time of each step, in ms, and the profile of the longest."""

    profiled: bool
    took: list[float] = field(default_factory=list)
    longest: cProfile.Profile | None = None

    def clear(self) -> None:
        self.took, self.longest = [], None

    def measured(self, step: Any) -> Any:
        def measure(link: InProcessLink) -> None:
            profile = cProfile.Profile(time.thread_time) if self.profiled else None
            start = time.thread_time()
            if profile is None:
                step(link)
            else:
                profile.runcall(step, link)
            took = 1e3 * (time.thread_time() - start)
            if took > max(self.took, default=0):
                self.longest = profile
            self.took.append(took)

        return measure

    def line(self, name: str, seconds: float, error: str) -> str:
        took = np.array(self.took or [0.0])
        longest = ", ".join(f"{t:.0f}" for t in np.sort(took)[:-4:-1])
        over = (took > 50).sum()
        return (f"{name:28}{seconds:8.2f} s   {len(took):7} steps, {took.sum() / 1e3:7.2f} s of processor time; "
                f"longest {longest} ms, 99.9 % {np.quantile(took, 0.999):.1f} ms, {over} over 50 ms{error}")

    def functions(self) -> str:
        if self.longest is None:
            return ""
        out = io.StringIO()
        pstats.Stats(self.longest, stream=out).sort_stats("cumulative").print_stats(SHOWN)
        return out.getvalue()


def make(db: noria.Database, change: Change, steps: Steps, stories: int, rng: np.random.Generator, user: int) -> int:
    """Make a change in a thread, and run the load in this one.  Return the next user."""
    errors: list[str] = []

    def run() -> None:
        try:
            for text in change.statements:
                db.sql(text)
        except SqlError as e:
            errors.append(f"   refused: {e}")

    for text in change.first:
        db.sql(text)
    thread, start = Thread(target=run), time.perf_counter()
    steps.clear()
    thread.start()
    while thread.is_alive():
        db.sql("INSERT INTO votes (story_id, user) VALUES (?, ?)", (int(rng.integers(1, stories + 1)), user))
        db.view("StoriesWithVC").lookup(int(rng.integers(1, stories + 1)))
        user += 1
    print(steps.line(change.name, time.perf_counter() - start, "".join(errors)), flush=True)
    if steps.profiled:
        print(steps.functions(), flush=True)
    for text in change.undo:
        db.sql(text)
    return user


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--votes", type=int, default=2_000_000)
    parser.add_argument("--stories", type=int, default=40_000)
    parser.add_argument("--only", default="", help="changes whose name contains this")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--profile", action="store_true")
    a = parser.parse_args()
    data, rng, user = Data.make(a.stories, a.votes), np.random.default_rng(1), LATER
    steps = Steps(False)
    InProcessLink._step = steps.measured(InProcessLink._step)
    place = tempfile.TemporaryDirectory(prefix="noria-bench-")
    with place as directory, noria.open(directory, workers=a.workers) as db:
        for text in (STORIES, VOTES, *VIEWS):
            db.sql(text)
        db.table("stories").insert([data.story(i) for i in range(1, data.stories + 1)])
        for at in range(0, a.votes, ROWS):
            some = data.votes[at:at + ROWS]
            db.table("votes").insert(pa.table({"story_id": some, "user": np.arange(at, at + len(some))}))
        for some in data.shares():
            db.view("StoriesWithVC").lookup_many(some)
        print(f"{a.votes:,} votes for {a.stories:,} stories", flush=True)
        steps.profiled = a.profile
        wanted = [a.only in change.name for change in CHANGES]
        for at, change in enumerate(CHANGES):
            if wanted[at]:
                user = make(db, change, steps, a.stories, rng, user)
            elif any(wanted[at:]):  # later changes need it
                for text in (*change.first, *change.statements, *change.undo):
                    db.sql(text)


if __name__ == "__main__":
    main()
