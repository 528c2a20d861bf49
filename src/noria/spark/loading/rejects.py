"""Rejects of all tasks in one file, each with the line of its file.

A task knows the line within its split only.  Where rejects are gathered the lines before each split that has some are
counted.

Keeps true: of a file that has bad rows about as much is read as it has, however many of its splits have them.
"""

from __future__ import annotations

import bisect
import dataclasses
import json
from collections.abc import Sequence

from noria.spark.loading.files import CHUNK_BYTES, SHOWN_CHARS, Reject, Split


def kept(split: int | None, reject: Reject) -> str:
    """A line of a task's own file.  split: in which the reject has its line."""
    short = dataclasses.replace(reject, text=reject.text[:SHOWN_CHARS])
    return json.dumps([split, dataclasses.astuple(short)], ensure_ascii=False) + "\n"


def gather(parts: Sequence[str], splits: Sequence[Split], target: str) -> None:
    """The tasks' files as one: JSON lines of `Reject.json`."""
    first = FirstLines()
    with open(target, "w", encoding="utf-8", errors="backslashreplace") as out:
        for part in parts:
            with open(part, encoding="utf-8") as rows:
                for row in rows:
                    number, values = json.loads(row)
                    reject = Reject(*values)
                    if number is not None:
                        reject = placed(reject, splits[number], first)
                    out.write(reject.json() + "\n")


def placed(reject: Reject, split: Split, first: FirstLines) -> Reject:
    """With its line in the file, or, where lines are no lines of the user's, the number of its row."""
    if reject.line is None:
        return reject
    line = first.of(split) + reject.line
    if split.lines_before is None:
        return dataclasses.replace(reject, line=line)
    return dataclasses.replace(reject, line=None, row=line - split.lines_before)


class FirstLines:
    """The number of the first line that begins in a split, from 1."""

    def __init__(self) -> None:
        self._known: dict[str, list[tuple[int, int]]] = {}  # by path: up to which byte, ascending, how many lines end

    def of(self, split: Split) -> int:
        if not split.start:
            return 1
        known, end = self._known.setdefault(split.path, [(0, 0)]), split.start - 1
        at, lines = known[bisect.bisect_right(known, (end, 2**62)) - 1]
        if at < end:
            lines += _lines_between(split.path, at, end)
            bisect.insort(known, (end, lines))
        return lines + 2  # the line that ends with, or goes on over, the split's beginning is another one's


def _lines_between(path: str, start: int, end: int) -> int:
    found = 0
    with open(path, "rb") as f:
        f.seek(start)
        while start < end:
            some = f.read(min(CHUNK_BYTES, end - start))
            if not some:
                break
            found, start = found + some.count(b"\n"), start + len(some)
    return found
