"""Gathers the rejects of all tasks in one file, each with its line in the user's file.

A task knows only the line within its split.  `gather` counts the lines before each split that has rejects.

Keeps true: counting reads a file about once, however many of its splits have rejects.
"""

from __future__ import annotations

import bisect
import dataclasses
import json
from collections.abc import Sequence

from noria.spark.loading.rows.files import CHUNK_BYTES, SHOWN_CHARS, Reject, Split


def kept(split: int | None, reject: Reject) -> str:
    """Encode a reject as a line of the task's file.  split: the number of the split in which its line is counted."""
    short = dataclasses.replace(reject, text=reject.text[:SHOWN_CHARS])
    return json.dumps([split, dataclasses.astuple(short)], ensure_ascii=False) + "\n"


def gather(parts: Sequence[str], splits: Sequence[Split], target: str) -> None:
    """Write the rejects in the tasks' files to one file, as JSON lines of `Reject.json`."""
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
    """Return the reject with its line in the user's file, or with its row if lines are not the user's."""
    if reject.line is None:
        return reject
    line = first.of(split) + reject.line
    if split.lines_before is None:
        return dataclasses.replace(reject, line=line)
    return dataclasses.replace(reject, line=None, row=line - split.lines_before)


class FirstLines:
    """Counts lines: `of` returns the number of the first line that begins in a split, from 1."""

    def __init__(self) -> None:
        self._known: dict[str, list[tuple[int, int]]] = {}  # by path, ascending: a byte position, the lines before it

    def of(self, split: Split) -> int:
        if not split.start:
            return 1
        known, end = self._known.setdefault(split.path, [(0, 0)]), split.start - 1
        at, lines = known[bisect.bisect_right(known, (end, 2**62)) - 1]
        if at < end:
            lines += _lines_between(split.path, at, end)
            bisect.insort(known, (end, lines))
        return lines + 2  # the line with the byte before the split belongs to the previous split


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
