"""The frontier of a worker: for each peer, the number of the last message whose effects are visible in its views.

It is stored in a mapped file, so that the front end reads it without a message.

Keeps true: the effects of a message are in the worker's views before its number is here. While a state of the
worker lacks rows, its numbers are 0.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from noria.core.batch import Codes
from noria.kernels import njit
from noria.state.memory.atomics import load_acquire, store_release


def frontier_path(run_dir: Path, worker: int) -> Path:
    return run_dir / f"worker-{worker}.frontier"


class Frontier:
    """The worker's side. An existing file is reused and set to zeros, because a front end may have mapped it."""

    def __init__(self, path: Path, workers: int):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._words = _mapped(path, workers, os.O_RDWR | os.O_CREAT)
        self._published: Sequence[int] = ()
        self((0,) * workers)

    def __call__(self, numbers: Sequence[int]) -> None:
        if numbers != self._published:
            _store(self._words, np.array(numbers, np.int64))
            self._published = numbers


class FrontierReader:
    """The front end's side: `reader(w)` is the number of the last message of worker w whose effects this worker
    has; 0 if unknown."""

    def __init__(self, path: Path, workers: int):
        self._path, self._workers = path, workers
        self._words: Codes | None = None

    def __call__(self, worker: int) -> int:
        if self._words is None:
            try:
                self._words = _mapped(self._path, self._workers, os.O_RDWR)
            except (OSError, ValueError):  # the worker has not created it yet
                return 0
        return int(_load(self._words, worker))


def _mapped(path: Path, words: int, flags: int) -> Codes:
    file = os.open(path, flags, 0o600)
    try:
        if flags & os.O_CREAT:
            os.ftruncate(file, 8 * words)
        return np.frombuffer(mmap.mmap(file, 8 * words), np.int64)
    finally:
        os.close(file)


@njit
def _store(words: Codes, numbers: Codes) -> None:
    for i in range(len(words)):
        store_release(words, i, numbers[i])


@njit
def _load(words: Codes, at: int) -> int:
    number: int = load_acquire(words, at)
    return number
