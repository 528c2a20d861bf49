"""Unused memory is returned to the system in parts, and counts until it is returned."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from noria.state.memory.mapped import GrowingMemory, leaving, map_file

MB = 2**20


@pytest.fixture(autouse=True)
def return_in_parts() -> Iterator[None]:
    leaving.finish()
    leaving.give_back()
    yield
    leaving.finish()


def used(nbytes: int, path: Path | None) -> GrowingMemory:
    """Memory with something in every page, and with the addresses of a reserve behind it."""
    memory = GrowingMemory(None if path is None else str(path), 4 * nbytes, nbytes)
    memory.words[: nbytes // 8 : 512] = 1
    return memory


def test_pages_of_a_deleted_file_are_returned_in_parts(tmp_path: Path) -> None:
    memory = used(64 * MB, tmp_path / "view")
    file = os.open(tmp_path / "view", os.O_RDONLY)
    try:
        memory.unlink()
        del memory
        sizes = [512 * os.fstat(file).st_blocks]
        assert leaving.nbytes == 64 * MB and not os.listdir(tmp_path)
        while leaving.give_back():
            sizes.append(512 * os.fstat(file).st_blocks)
            assert leaving.nbytes == sizes[-1]
        assert sizes == [n * MB for n in range(64, 0, -8)]
        assert os.fstat(file).st_blocks == leaving.nbytes == 0
    finally:
        os.close(file)


def test_a_file_that_was_not_deleted_keeps_its_content(tmp_path: Path) -> None:
    memory = used(32 * MB, tmp_path / "view")
    del memory
    leaving.finish()
    assert map_file(str(tmp_path / "view"), "int64")[: 32 * MB // 8 : 512].all()


def test_memory_that_a_reader_unmaps_is_not_its_own_and_stays_for_others(tmp_path: Path) -> None:
    memory = used(32 * MB, tmp_path / "view")
    words = map_file(str(tmp_path / "view"), "int64")
    assert words[: 32 * MB // 8 : 512].all()
    del words
    assert leaving.nbytes == 0 and leaving.give_back(), "its addresses are unmapped in parts all the same"
    leaving.finish()
    assert memory.words[: 32 * MB // 8 : 512].all()


def test_anonymous_memory_is_returned_in_parts_and_small_memory_at_once() -> None:
    memory, small = used(64 * MB, None), used(MB, None)
    del small
    assert leaving.nbytes == 0
    del memory
    assert leaving.nbytes == 64 * MB
    assert leaving.give_back(60 * MB) and leaving.nbytes == 4 * MB
    assert not leaving.give_back()


def test_memory_in_use_stays_mapped(tmp_path: Path) -> None:
    memory = used(32 * MB, tmp_path / "view")
    words = memory.words[:512]
    memory.unlink()
    del memory
    assert leaving.nbytes == 0 and words[0] == 1


def test_memory_is_returned_at_once_if_no_one_returns_parts() -> None:
    leaving.finish()
    memory = used(32 * MB, None)
    del memory
    assert leaving.nbytes == 0
