"""The child of `test_fuzz_views.py`: for each line of standard input it damages the views it was given, reads them in
every way, puts back what was there, and says in one line what came of it."""

from __future__ import annotations

import json
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from noria.core.batch import Codes
from noria.views import layout
from noria.views.reader import attach

WAYS = {"by_s": [("text 3",), ("nobody",)], "joined": [(3,), (77,)], "totals": [()], "by_b": [(b"b4",)], "tops": [(2,)]}
EDGES = (0, 1, 2, -1, 2**31, 2**62, -(2**63), 2**63 - 1)
TOLD = (layout.MAGIC, layout.STATE, layout.TICK, layout.READY, layout.EPOCH)  # of the header: not by what one finds


@contextmanager
def damaged(folder: Path, chance: random.Random, everything: bool) -> Iterator[str]:
    """One file of a view, damaged until the end."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix in (".view", ".pool", ".json", ".stamps"))
    path = chance.choice(files)
    undo = chance.choice((_json, _json, _cut)) if path.suffix == ".json" else (
        _words if chance.random() < 0.85 else _cut)
    restore = undo(path, chance, everything)
    try:
        yield f"{path.suffix[1:]} {undo.__name__[1:]}"
    finally:
        restore()


def _json(path: Path, chance: random.Random, everything: bool) -> Callable[[], object]:
    """The description: cut, not JSON, or with another value in a place that is checked."""
    was = path.read_bytes()
    about = json.loads(was)
    what = chance.randrange(4)
    if what == 0:
        path.write_bytes(was[:chance.randrange(len(was))])
    elif what == 1:
        path.write_bytes(chance.randbytes(chance.randrange(200)))
    elif what == 2:
        del about[chance.choice(list(about))]
        path.write_text(json.dumps(about))
    else:
        about[chance.choice(("fields", "symbols", "name", "full"))] = chance.choice((None, 7, "x", [], {}))
        path.write_text(json.dumps(about))
    return lambda: path.write_bytes(was)


def _cut(path: Path, chance: random.Random, everything: bool) -> Callable[[], object]:
    """A file that is shorter than its readers want, from the moment on that they open it."""
    was = path.with_suffix(path.suffix + ".whole")
    os.rename(path, was)
    with was.open("rb") as file:
        path.write_bytes(file.read(chance.choice((0, 1, 7, 8, 64, 8 * layout.INDEX - 8))))
    return lambda: os.replace(was, path)


def _words(path: Path, chance: random.Random, everything: bool) -> Callable[[], object]:
    words = _region(path, np.memmap(path, np.int64, "r+"), chance)
    if path.suffix == ".stamps":
        places = [chance.randrange(len(words))]
    elif everything:
        places = [chance.choice((chance.randrange(layout.INDEX), chance.randrange(min(len(words), 4096))))
                  for _ in range(chance.randrange(1, 5))]
    else:
        places = [chance.choice((*TOLD, *_of_blocks(words)))]
    was = words[places].copy()
    for at in places:
        words[at] = chance.choice((*EDGES, chance.getrandbits(63), int(words[at]) ^ (1 << chance.randrange(63))))

    def restore() -> None:
        words[places] = was

    return restore


def _region(path: Path, words: Codes, chance: random.Random) -> Codes:
    """The memory of one view of a file that several share; the file's where it has one, or none."""
    if path.suffix != ".pool":
        return words
    size = int(path.stem.rpartition("-")[2], 16)
    backed = min(len(words), path.stat().st_blocks * 512 // 8)
    serving = [at for at in range(0, backed, size) if words[at + layout.MAGIC] == layout.FORMAT]
    start = chance.choice(serving or [0])
    return words[start:start + size]


def _of_blocks(words: Codes) -> list[int]:
    """Versions, and the values of rows of the blocks that slots show."""
    slots = words[layout.INDEX:layout.INDEX + int(words[layout.FIRST])]
    found: list[int] = []
    for slot in slots[slots > layout.TOMBSTONE]:
        block = int(slot) & layout.OFFSET
        rows = int(words[block + layout.COUNT]) & layout.COUNT_MASK
        start, width = block + layout.KEY + int(words[layout.KEYS]), int(words[layout.WIDTH])
        found.append(block)
        found += [start + r * (width + 1) + 1 + c for r in range(rows) for c in range(width)]
    return found


def read(folder: Path) -> str:
    """Every view in every way, the kinds of answers."""
    kinds = Counter[str]()
    views = attach(str(folder))
    for name, keys in WAYS.items():
        for key in keys:
            try:
                view = views.view(name)
                found = view.lookup(key)
                view.lookup_entry(key)
                if key:
                    view.lookup_many([key])
                kinds["miss" if found is None else "rows"] += 1
            except Exception as e:
                kinds[type(e).__name__] += 1
    return "+".join(sorted(kinds))


def main() -> None:
    folder = Path(sys.argv[1])
    read(folder)  # kernels are compiled before anything is timed
    print("ready", flush=True)
    for line in sys.stdin:
        seed, everything = line.split()
        with damaged(folder, random.Random(seed), everything == "1") as what:
            found = read(folder)
        print(f"{what}: {found}", flush=True)


if __name__ == "__main__":
    main()
