"""Directories of jobs go, whatever still writes into them."""

from __future__ import annotations

import itertools
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from noria.server.bulk import job_directories
from noria.server.bulk.job_directories import remove_directory
from noria.storage.offline.snapshot import open_read_only
from noria.storage.rocks.errors import StoreError


def test_a_directory_into_which_somebody_writes_goes(tmp_path: Path) -> None:
    """As a task of Spark's does a while after its job was cancelled."""
    stop = threading.Event()

    def write(place: Path) -> None:
        for n in itertools.count():
            if stop.is_set():
                return
            with suppress(FileNotFoundError):
                (place / "sst" / str(n)).touch()

    for n in range(20):
        place = tmp_path / f"rewrite-{n}"
        (place / "sst").mkdir(parents=True)
        writing = threading.Thread(target=write, args=(place,))
        writing.start()
        try:
            while len(list((place / "sst").iterdir())) < 100:
                pass
            remove_directory(place)
            assert list(tmp_path.iterdir()) == []
        finally:
            stop.set()
            writing.join()
            stop.clear()


def test_a_task_that_begins_late_leaves_nothing(tmp_path: Path) -> None:
    """As of a driver that was killed, whose Python processes go on for a while."""
    place = tmp_path / "rewrite-1"
    place.mkdir()
    remove_directory(place)
    with pytest.raises(StoreError):
        open_read_only(str(place / "checkpoint"), ["default"])
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_there_is_gone(tmp_path: Path) -> None:
    remove_directory(tmp_path / "never")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_on_its_way_goes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It came after the directory was read and before it was removed, which fails then."""
    place, rmtree, calls = tmp_path / "rewrite-1", job_directories.shutil.rmtree, []

    def late(gone: Path, ignore_errors: bool) -> None:
        calls.append(gone)
        if len(calls) == 1:
            (gone / "late").touch()
        else:
            rmtree(gone, ignore_errors=ignore_errors)

    place.mkdir()
    monkeypatch.setattr(job_directories.shutil, "rmtree", late)
    remove_directory(place)
    assert list(tmp_path.iterdir()) == [] and len(calls) == 2
