"""Compiled kernels: the list, their directory, and that each is compiled once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from noria.kernels import making, njit, place, signatures, target
from noria.kernels.jit import kernels_of
from noria.kernels.signatures import KernelSignature

SOME = "from noria.kernels import making, signatures; making.compiled(signatures.listed()[0])"


def run(code: str, directory: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, place.VARIABLE: str(directory), "PYTHONPATH": os.pathsep.join(sys.path), **more}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300,
                          check=True)


def test_each_listed_kernel_exists_and_is_listed_once() -> None:
    listed = signatures.listed()
    assert len(listed) == len(set(listed)) > 100
    for kernel in listed:
        assert kernel.function in kernels_of(kernel.module), kernel
        assert tuple(map(signatures.text_of, signatures.values(kernel.types))) == kernel.types
        assert listed == listed and signatures.listed() == listed


def test_a_kernel_is_saved_and_loaded_by_the_next_process(tmp_path: Path) -> None:
    run(SOME, tmp_path)
    (directory,) = tmp_path.iterdir()
    assert directory.name == place.name() and signatures.kept(directory) == signatures.listed()[:1]
    files = {p.name: p.stat().st_mtime_ns for p in directory.iterdir() if p.suffix == ".nbc"}
    run(SOME, tmp_path)
    assert signatures.kept(directory) == signatures.listed()[:1]
    assert {p.name: p.stat().st_mtime_ns for p in directory.iterdir() if p.suffix == ".nbc"} == files


def test_a_moved_directory_is_usable(tmp_path: Path) -> None:
    """So a wheel can contain it."""
    run(SOME, tmp_path / "made")
    shutil.move(tmp_path / "made", tmp_path / "moved")
    run(SOME, tmp_path / "moved")
    (directory,) = (tmp_path / "moved").iterdir()
    assert signatures.kept(directory) == signatures.listed()[:1], "it was not compiled again"


def test_a_kernel_that_cannot_be_saved_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "directory", lambda: tmp_path / "nowhere")
    making.ensure()

    @njit
    def doubled(values):
        return values * 2

    assert doubled(np.arange(3)).tolist() == [0, 2, 4]


def test_numba_in_other_code_is_unchanged(tmp_path: Path) -> None:
    theirs = ("import os; before = dict(os.environ); import noria.core.keys, numba; assert dict(os.environ) == before; "
              "from noria.core.keys import part; f = numba.njit(lambda x: x + 1); assert f(1) == 2; "
              "assert type(f._cache).__name__ == 'NullCache', f._cache")
    run(theirs, tmp_path)


def test_the_processor_of_the_environment_is_used(tmp_path: Path) -> None:
    run(SOME, tmp_path, NUMBA_CPU_NAME="generic")
    (directory,) = tmp_path.iterdir()
    assert "-generic-" in directory.name and directory.name != place.name() and target.choose() in place.name()


def test_processes_share_the_work_and_others_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes start at once: each of three kernels is compiled once, and both processes load all of them."""
    few = tmp_path / "few.txt"
    signatures.write(signatures.listed()[:3], few)
    code = (f"from pathlib import Path; from noria.kernels import making, place, signatures; few = Path({str(few)!r}); "
            "listed = signatures.listed; signatures.listed = lambda path=few: listed(path); calls = []; "
            "making.ensure(lambda done, of: calls.append((done, of))); assert place.is_complete(place.directory()); "
            "making.ensure(calls.append); print(calls[-1])")
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
                             env={**os.environ, place.VARIABLE: str(tmp_path / "made"),
                                  "PYTHONPATH": os.pathsep.join(sys.path)}) for _ in range(2)]
    outputs = [p.communicate(timeout=300)[0] for p in both]
    assert [p.returncode for p in both] == [0, 0] and "(3, 3)\n" in outputs
    (directory,) = (tmp_path / "made").iterdir()
    assert set(signatures.kept(directory)) == set(signatures.listed()[:3])


def test_a_kernel_that_cannot_be_compiled_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                        caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(place, "directory", lambda: tmp_path)
    monkeypatch.setenv(place.VARIABLE, str(tmp_path))
    wrong = KernelSignature("noria.core.keys", "_part", ("int64",))
    monkeypatch.setattr(signatures, "listed", lambda: [wrong, wrong])
    making.ensure()
    assert not place.is_complete(tmp_path) and "2 of 2 kernels could not be compiled" in caplog.text


def test_progress_is_printed_in_lines_without_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                              capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(place, "directory", lambda: tmp_path)
    monkeypatch.setattr(signatures, "listed", list)
    making.ensure_shown()
    assert "compiling kernels, once: 0 of 0" in capsys.readouterr().err and place.is_complete(tmp_path)
    making.ensure_shown()
    assert capsys.readouterr().err == ""


def test_the_time_in_which_a_kernel_is_loaded_is_no_requests(tmp_path: Path) -> None:
    run(SOME, tmp_path)
    left_out = ("import time\nfrom noria.kernels import jit\ndef left_out(): return time.thread_time_ns() - "
                "jit.processor_ns() > 0\nprint(left_out())\n" + SOME + "\nprint(left_out())")
    assert run(left_out, tmp_path).stdout.split() == ["False", "True"]
