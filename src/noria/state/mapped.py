"""Memory that grows in place: a large reserve of addresses of which the first part is backed.

Anonymous, or a sparse file that other processes map too.  Growing never moves anything, so arrays over the
memory stay good.  Keeps true: backed pages of a file are allocated with posix_fallocate before they are
touched, so a full file system is an error here and never a SIGBUS later; a file is open only while it is mapped
or grows, so memory costs a mapping and no descriptor.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from noria.core.batch import Codes
from noria.core.errors import DISK_FULL, OUT_OF_RESOURCES, SqlError

_MAP_NORESERVE = 0x4000  # Linux; in the mmap module only from Python 3.13 on
_STEP = 64 * 2**20  # bytes; beyond this size memory grows by steps, below it doubles
_PAGE = mmap.PAGESIZE
_HUGE_FROM = 8 * 2**20  # bytes from which on huge pages are asked for: random access then misses the TLB less often
_FAILED = ctypes.c_void_p(-1).value
_NO_FILES = (errno.EMFILE, errno.ENFILE)

# Python's own mmap keeps a descriptor open for each map (until its version 3.13).
_libc = ctypes.CDLL(None, use_errno=True)
_mmap, _munmap, _madvise = _libc.mmap, _libc.munmap, _libc.madvise
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class _Map:
    """Mapped addresses; numpy's arrays over them keep it, and it unmaps them when the last is gone."""

    def __init__(self, file: int, nbytes: int, flags: int, writable: bool):
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        address = _mmap(None, nbytes, protection, flags | _MAP_NORESERVE, file, 0)
        if address == _FAILED:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self.address, self.nbytes = address, nbytes
        self.__array_interface__ = {"data": (address, not writable), "shape": (nbytes,), "typestr": "|u1",
                                    "version": 3}

    def advise(self, what: int, start: int, nbytes: int) -> None:
        if _madvise(self.address + start, nbytes, what):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def __del__(self, unmap: Any = _munmap) -> None:
        if hasattr(self, "address"):
            unmap(self.address, self.nbytes)


class Memory:
    """`reserve` bytes of addresses, `backed` of them usable.  path None: anonymous, private to the process."""

    def __init__(self, path: str | None, reserve: int, backed: int):
        self.path, self.reserve, self.backed = path, reserve, 0
        try:
            self._map = self._make()
        except OSError as e:
            self.unlink()
            raise no_room(e, path, reserve) from None
        self._bytes: npt.NDArray[np.uint8] = np.asarray(self._map)
        self.map = memoryview(self._bytes.data)
        try:
            self.back(backed)
        except SqlError:
            self.unlink()
            raise

    def _make(self) -> _Map:
        if self.path is None:
            return _Map(-1, self.reserve, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, True)
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            os.ftruncate(file, self.reserve)
            return _Map(file, self.reserve, mmap.MAP_SHARED, True)
        finally:
            os.close(file)

    def array(self, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """The whole reserve as an array; only the backed part may be touched."""
        return self._bytes.view(dtype)

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
        if self.path is not None:
            try:
                self._allocate(self.path, nbytes, wanted)
            except OSError as e:
                raise no_room(e, self.path, nbytes - self.backed) from None
        else:
            self.backed = wanted
        if self.backed >= _HUGE_FROM:
            with suppress(OSError):  # a kernel without them
                self._map.advise(mmap.MADV_HUGEPAGE, 0, self.backed)

    def _allocate(self, path: str, nbytes: int, wanted: int) -> None:
        """Up to `wanted` if there is room, else what is needed."""
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            try:
                os.posix_fallocate(file, self.backed, wanted - self.backed)
            except OSError:
                wanted = min(-(-nbytes // _PAGE) * _PAGE, self.reserve)
                os.posix_fallocate(file, self.backed, wanted - self.backed)
        finally:
            os.close(file)
        self.backed = wanted

    def release(self, nbytes: int) -> None:
        """What is behind the first `nbytes` is not needed for now: whole pages of it go back to the system."""
        keep = -(-nbytes // _PAGE) * _PAGE
        if keep >= self.backed:
            return
        try:
            self._map.advise(mmap.MADV_DONTNEED if self.path is None else mmap.MADV_REMOVE, keep, self.backed - keep)
        except OSError:
            return  # a file system without holes keeps it
        self.backed = keep

    def unlink(self) -> None:
        """The file's name goes; the memory stays until its last array is gone."""
        if self.path is not None:
            with suppress(FileNotFoundError):
                os.unlink(self.path)


def no_room(error: OSError, path: str | None, nbytes: int) -> Exception:
    """What a user is told where an OSError means that there is no space, descriptor or mapping; else the error."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return SqlError(DISK_FULL, "HY000", f"Disk full: no room for {nbytes} more bytes of '{path}'; "
                        "free space there or set a smaller memory limit")
    if error.errno in _NO_FILES:
        return SqlError(OUT_OF_RESOURCES, "HY000", f"Out of resources when opening '{path}': "
                        f"{os.strerror(error.errno)}; drop views that are not needed, or raise the limit of open files "
                        "(ulimit -n)")
    if error.errno in (errno.ENOMEM, errno.EAGAIN):
        return SqlError(OUT_OF_RESOURCES, "HY000", f"Out of memory: no addresses for {nbytes} bytes of "
                        f"'{path or 'anonymous memory'}'; drop views that are not needed, or raise the limits of the "
                        "system (ulimit -v, sysctl vm.max_map_count)")
    return error


def map_file(path: str, dtype: npt.DTypeLike, writable: bool = False) -> npt.NDArray[Any]:
    """Another process's memory as an array, without a descriptor; OSError where the file is gone, not ours to open,
    or too much."""
    file = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
    try:
        size = os.fstat(file).st_size
        if not size:
            raise ValueError(f"'{path}' is empty")
        return np.asarray(_Map(file, size, mmap.MAP_SHARED, writable)).view(dtype)
    finally:
        os.close(file)


def open_map(path: str) -> mmap.mmap:
    """The same as bytes, whose pieces are cut fastest, for the few files that a process reads texts from."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return mmap.mmap(file, os.fstat(file).st_size, mmap.MAP_SHARED | _MAP_NORESERVE, mmap.PROT_READ)
    finally:
        os.close(file)
