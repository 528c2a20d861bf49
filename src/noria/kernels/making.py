"""Compiles all listed kernels in one process for each core, so that no request waits for a compiler.

    python -m noria.kernels.making          with a progress bar, into `place.directory()`
    python -m noria.kernels.making DIR      into a directory below DIR, for a wheel

Keeps true: one command at a time compiles into a directory.  Others wait for it and load its code.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from noria.kernels import place, signatures
from noria.kernels.jit import kernels_of
from noria.kernels.signatures import KernelSignature

log = logging.getLogger("noria")
Progress = Callable[[int, int], None]  # number of compiled kernels, number of all
REPORT_S = 0.2  # the longest time between two calls of it
WAIT_S = 0.5  # between two checks of another process's progress
PROCESSES = 8  # at most
LINES_S = 2.0  # between two progress lines, if standard error is no terminal


def ensure(progress: Progress | None = None) -> None:
    """Compile all listed kernels, unless that was done before.

    If the directory is read-only or the compiler fails, each kernel is compiled at its first call instead.
    """
    path = place.directory()
    if place.is_complete(path) or not os.access(path, os.W_OK):
        return
    if progress is None:
        log.warning("kernels are being compiled, once for this installation: that takes half a minute on two cores")
    report, all_of = progress or (lambda done, of: None), len(signatures.listed())
    while not place.is_complete(path):
        with place.locked(path, wait=False) as mine:
            if mine and not place.is_complete(path) and not _compile(path, report):
                return
        if not mine:
            report(min(sum(1 for _ in signatures.kept(path)), all_of), all_of)
            time.sleep(WAIT_S)


def _compile(path: Path, report: Progress) -> bool:
    """Compile the kernels that are not compiled yet.  Return True if all succeeded."""
    known = set(signatures.kept(path))
    uncompiled = [c for c in signatures.listed() if c not in known]
    of = len(uncompiled)
    report(0, of)
    processes = [subprocess.Popen([sys.executable, "-m", "noria.kernels.making", "--some"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True, bufsize=1,
                                  env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)})
                 for _ in range(min(os.cpu_count() or 1, PROCESSES, of))]
    done = _deal(uncompiled, processes, report)
    if done == of:
        place.mark_complete(path)
    else:
        log.error("%d of %d kernels could not be compiled", of - done, of)
    return done == of


def _deal(uncompiled: list[KernelSignature], processes: list[subprocess.Popen[str]], report: Progress) -> int:
    """Send each process its next kernel whenever it has compiled one.  Return the number of compiled kernels."""
    left, done, of = list(reversed(uncompiled)), 0, len(uncompiled)
    with selectors.DefaultSelector() as selector:
        for process in processes:
            assert process.stdout is not None
            selector.register(process.stdout, selectors.EVENT_READ, process)
            _next(left, process)
        while selector.get_map():
            for key, _ in selector.select(REPORT_S):
                process = key.data
                assert process.stdout is not None
                if not process.stdout.readline():
                    selector.unregister(process.stdout)
                    process.stdout.close()
                    process.wait()
                    continue
                done += 1
                _next(left, process)
            report(done, of)
    return done


def _next(left: list[KernelSignature], process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # the process has ended: the count will be too low
        if left:
            process.stdin.write(f"{left.pop()}\n")
        else:
            process.stdin.close()


def compiled(what: KernelSignature) -> None:
    """Compile or load one kernel in this process."""
    kernels_of(what.module)[what.function].compile(signatures.values(what.types))


def load() -> None:
    """Load all public kernels, so that processes forked from this one have them."""
    for what in signatures.listed():
        if not what.function.startswith("_"):
            compiled(what)


def _some() -> None:
    """Compile the kernels named on standard input, one on each line, and print a line for each."""
    for line in sys.stdin:
        compiled(signatures.parsed(line.rstrip("\n")))
        print("compiled", flush=True)


def ensure_shown() -> None:
    """Call `ensure` with a progress bar on standard error, or with a line every two seconds if it is no terminal."""
    if place.is_complete(place.directory()):
        return
    if not sys.stderr.isatty():
        ensure(_Lines())
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("compiling kernels, once"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None)
        ensure(lambda done, of: bar.update(task, completed=done, total=of))


class _Lines:
    def __init__(self) -> None:
        self._next, self._over = 0.0, False

    def __call__(self, done: int, of: int) -> None:
        if not self._over and (done == of or time.monotonic() >= self._next):
            self._next, self._over = time.monotonic() + LINES_S, done == of
            print(f"compiling kernels, once: {done} of {of}", file=sys.stderr, flush=True)


def main() -> None:
    if sys.argv[1:] == ["--some"]:
        _some()
        return
    if sys.argv[1:]:
        os.environ[place.VARIABLE] = sys.argv[1]
    ensure_shown()


if __name__ == "__main__":
    main()
