"""Memory that grows in place: a large reserve of addresses of which the first part is backed.

Anonymous, or a sparse file that other processes map too.  Growing never moves anything, so arrays over the
memory stay good.  Keeps true: backed pages of a file are allocated with posix_fallocate before they are
touched, so a full file system is an error here and never a SIGBUS later.
"""

from __future__ import annotations

import errno
import mmap
import os
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from noria.core.batch import Codes
from noria.core.errors import SqlError

_MAP_NORESERVE = 0x4000  # Linux; in the mmap module only from Python 3.13 on
_STEP = 64 * 2**20  # bytes; beyond this size memory grows by steps, below it doubles
_PAGE = mmap.PAGESIZE
_HUGE_FROM = 8 * 2**20  # bytes from which on huge pages are asked for: random access then misses the TLB less often


class Memory:
    """`reserve` bytes of addresses, `backed` of them usable.  path None: anonymous, private to the process."""

    def __init__(self, path: str | None, reserve: int, backed: int):
        self.path, self.reserve, self.backed = path, reserve, 0
        self._file: int | None = None
        if path is None:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
            self.map = mmap.mmap(-1, reserve, flags)
        else:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            os.ftruncate(self._file, reserve)
            self.map = mmap.mmap(self._file, reserve, mmap.MAP_SHARED | _MAP_NORESERVE)
        try:
            self.back(backed)
        except SqlError:
            self.unlink()
            raise

    def array(self, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """The whole reserve as an array; only the backed part may be touched."""
        return np.frombuffer(self.map, dtype)

    @property
    def words(self) -> Codes:
        return self.array(np.int64)

    def back(self, nbytes: int) -> None:
        """At least the first `nbytes` become usable; SqlError 1021 where there is no space, and no change."""
        if nbytes <= self.backed:
            return
        if nbytes > self.reserve:
            raise SqlError(1114, "HY000", f"'{self.path or 'anonymous memory'}' is full at {self.reserve} bytes")
        wanted = max(nbytes, self.backed + min(self.backed, _STEP))
        wanted = min(-(-wanted // _PAGE) * _PAGE, self.reserve)
        if self._file is not None:
            try:
                self._allocate(nbytes, wanted)
            except OSError as e:
                raise no_space(e, self.path, nbytes - self.backed) from None
        else:
            self.backed = wanted
        if self.backed >= _HUGE_FROM:
            with suppress(OSError):  # a kernel without them
                self.map.madvise(mmap.MADV_HUGEPAGE, 0, self.backed)

    def _allocate(self, nbytes: int, wanted: int) -> None:
        """Up to `wanted` if there is room, else what is needed."""
        assert self._file is not None
        try:
            os.posix_fallocate(self._file, self.backed, wanted - self.backed)
        except OSError:
            wanted = min(-(-nbytes // _PAGE) * _PAGE, self.reserve)
            os.posix_fallocate(self._file, self.backed, wanted - self.backed)
        self.backed = wanted

    def release(self, nbytes: int) -> None:
        """What is behind the first `nbytes` is not needed for now: whole pages of it go back to the system."""
        keep = -(-nbytes // _PAGE) * _PAGE
        if keep >= self.backed:
            return
        try:
            self.map.madvise(mmap.MADV_DONTNEED if self._file is None else mmap.MADV_REMOVE, keep, self.backed - keep)
        except OSError:
            return  # a file system without holes keeps it
        self.backed = keep

    def unlink(self) -> None:
        """The file's name goes; the memory stays until its last array is gone."""
        if self.path is not None and self._file is not None:
            os.close(self._file)
            self._file = None
            if os.path.exists(self.path):
                os.unlink(self.path)

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            os.close(self._file)  # type: ignore[arg-type]  # not None: see above
            self._file = None


def no_space(error: OSError, path: str | None, nbytes: int) -> Exception:
    """What a user is told where an OSError means that there is no space; else the error."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return error
    return SqlError(1021, "HY000", f"Disk full: no room for {nbytes} more bytes of '{path}'; "
                    "free space there or set a smaller memory limit")


def map_file(path: str, dtype: npt.DTypeLike, writable: bool = False) -> npt.NDArray[Any]:
    """Another process's memory as an array; OSError where the file is gone or not ours to open."""
    return np.frombuffer(open_map(path, writable), dtype)


def open_map(path: str, writable: bool = False) -> mmap.mmap:
    file = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
    try:
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        return mmap.mmap(file, os.fstat(file).st_size, mmap.MAP_SHARED | _MAP_NORESERVE, protection)
    finally:
        os.close(file)
