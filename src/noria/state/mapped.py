"""Memory that grows in place: a large reserve of addresses of which the first part is backed.

Anonymous, or a sparse file that other processes map too.  Growing never moves anything, so arrays over the
memory stay good.  Keeps true: backed pages of a file are allocated with posix_fallocate before they are
touched, so a full file system is an error here and never a SIGBUS later; a file is open only while it is mapped
or grows, so memory costs a mapping and no descriptor; large memory that nobody uses any more goes back to the system in
pieces, where somebody calls `leaving.give_back`.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from noria.core.batch import Codes
from noria.core.errors import DISK_FULL, OUT_OF_RESOURCES, SqlError

_MAP_NORESERVE = 0x4000  # Linux; in the mmap module only from Python 3.13 on
_STEP = 16 * 2**20  # bytes; beyond this size memory grows by steps, below it doubles
_PAGE = mmap.PAGESIZE
_HUGE_FROM = 8 * 2**20  # bytes from which on huge pages are asked for: random access then misses the TLB less often
_FAILED = ctypes.c_void_p(-1).value
_NO_FILES = (errno.EMFILE, errno.ENFILE)
_PIECE = 8 * 2**20  # bytes given back at once: some milliseconds where the file's pages go with them

# Python's own mmap keeps a descriptor open for each map (until its version 3.13).
_libc = ctypes.CDLL(None, use_errno=True)
_mmap, _munmap, _madvise = _libc.mmap, _libc.munmap, _libc.madvise
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class _Left(NamedTuple):
    """Addresses that no array is over.  own: their memory counts as this process's; deleted: its file has no name."""

    address: int
    nbytes: int
    own: bool
    deleted: bool


class _Leaving:
    """Mapped memory that nobody uses any more, given back piece by piece: the pages of a large file take the system
    longer than anybody should wait.  Who has called `give_back` once calls it again and again; where nobody has, as in
    a program that only reads views, memory goes at once.

    Keeps true: what has been deleted goes page by page from all processes that still map it.  They find its STATE dead,
    whatever else they read there: zeros or what it was.
    """

    def __init__(self) -> None:
        self._called = False
        self._waiting: list[_Left] = []

    @property
    def nbytes(self) -> int:
        """Memory still to be given back."""
        return sum(left.nbytes for left in self._waiting if left.own)

    def take(self, left: _Left, used: int) -> None:
        """Nobody uses these addresses any more, of which the first `used` bytes may have been touched."""
        used = -(-used // _PAGE) * _PAGE
        if not self._called or used <= _PIECE:
            _munmap(left.address, left.nbytes)
            return
        if left.nbytes > used:
            _munmap(left.address + used, left.nbytes - used)
        self._waiting.append(left._replace(nbytes=min(left.nbytes, used)))

    def give_back(self, nbytes: int = _PIECE) -> bool:
        """About so many bytes, from the end of what came last; whether more is left."""
        self._called = True
        while self._waiting and nbytes > 0:
            left = self._waiting.pop()
            keep = max(0, left.nbytes - nbytes) // _PAGE * _PAGE
            address, size = left.address + keep, left.nbytes - keep
            if left.deleted:
                _madvise(address, size, mmap.MADV_REMOVE)  # a file system without holes frees all of it in the end
            _munmap(address, size)
            if keep:
                self._waiting.append(left._replace(nbytes=keep))
            nbytes -= size
        return bool(self._waiting)

    def finish(self) -> None:
        """Everything, now; and so it stays until `give_back` is called again."""
        self.give_back(sys.maxsize)
        self._called = False


leaving = _Leaving()  # one for the process, as its addresses are


class _Map:
    """Mapped addresses; numpy's arrays over them keep it, and lets go of them when the last is gone.  used: how
    many of their bytes may have been touched; own: they are this process's to free; deleted: their file has no name."""

    def __init__(self, file: int, nbytes: int, flags: int, writable: bool):
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        address = _mmap(None, nbytes, protection, flags | _MAP_NORESERVE, file, 0)
        if address == _FAILED:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self.address, self.nbytes, self.used = address, nbytes, nbytes
        self.own = self.deleted = False
        self.__array_interface__ = {"data": (address, not writable), "shape": (nbytes,), "typestr": "|u1",
                                    "version": 3}

    def advise(self, what: int, start: int, nbytes: int) -> None:
        if _madvise(self.address + start, nbytes, what):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def __del__(self, leaving: _Leaving = leaving) -> None:
        if hasattr(self, "address"):
            leaving.take(_Left(self.address, self.nbytes, self.own, self.deleted), self.used)


class Memory:
    """`reserve` bytes of addresses, `backed` of them usable.  path None: anonymous, private to the process."""

    def __init__(self, path: str | None, reserve: int, backed: int):
        self.path, self.reserve, self.backed = path, reserve, 0
        try:
            self._map = self._make()
        except OSError as e:
            self.unlink()
            raise no_room(e, path, reserve) from None
        self._map.used, self._map.own = 0, True
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
        self._map.used = max(self._map.used, self.backed)
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

    def let_go(self, start: int, nbytes: int) -> None:
        """Nobody looks there any more: whole pages of it go back to the system, for good."""
        first, end = -(-start // _PAGE) * _PAGE, (start + nbytes) // _PAGE * _PAGE
        if first < end:
            with suppress(OSError):  # a file system without holes keeps it
                self._map.advise(mmap.MADV_DONTNEED if self.path is None else mmap.MADV_REMOVE, first, end - first)

    def unlink(self) -> None:
        """The file's name goes; the memory stays until its last array is gone."""
        if self.path is not None:
            with suppress(FileNotFoundError):
                os.unlink(self.path)
            if hasattr(self, "_map"):
                self._map.deleted = True


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


def reserve_words(words: int) -> Codes | None:
    """So many words of zeros, which take memory when they are touched; None where there are not so many addresses."""
    try:
        reserved = _Map(-1, 8 * words, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, True)
    except OSError:
        return None
    reserved.used = 0  # unmapped in one go: huge pages are quick to free
    with suppress(OSError):  # a kernel without them
        reserved.advise(mmap.MADV_HUGEPAGE, 0, 8 * words)
    return np.asarray(reserved).view(np.int64)


def map_file(path: str, dtype: npt.DTypeLike, writable: bool = False) -> npt.NDArray[Any]:
    """Another process's memory as an array, without a descriptor; OSError where the file is gone, not ours to open,
    or too much."""
    file = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
    try:
        about = os.fstat(file)
        if not about.st_size:
            raise ValueError(f"'{path}' is empty")
        mapped = _Map(file, about.st_size, mmap.MAP_SHARED, writable)
        mapped.used = 512 * about.st_blocks  # of a reserve; more if it grows
        return np.asarray(mapped).view(dtype)
    finally:
        os.close(file)


def open_map(path: str) -> mmap.mmap:
    """The same as bytes, whose pieces are cut fastest, for the few files that a process reads texts from."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return mmap.mmap(file, os.fstat(file).st_size, mmap.MAP_SHARED | _MAP_NORESERVE, mmap.PROT_READ)
    finally:
        os.close(file)
