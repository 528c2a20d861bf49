"""Memory that grows in place: a large reserve of addresses, of which the first part is backed.

The memory is anonymous, or a sparse file that other processes map, too.  Growth never moves it, so arrays over it stay
valid.  Keeps true:
* The pages of a file are allocated with posix_fallocate before use.  A full file system is an error here, never a
  SIGBUS later.
* A file is open only while it is mapped or grows, so memory costs a mapping and no descriptor.
* A process that calls `leaving.give_back` returns large unused memory to the system in small parts.
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
from noria.core.errors import SqlError
from noria.core.errors.codes import DISK_FULL, OUT_OF_RESOURCES, TABLE_FULL

_MAP_NORESERVE = 0x4000  # Linux; in the mmap module only from Python 3.13 on
_STEP = 16 * 2**20  # bytes: larger memory grows by this, smaller memory doubles
_PAGE = mmap.PAGESIZE
_HUGE_FROM = 8 * 2**20  # bytes: memory of this size requests huge pages, so random access misses the TLB less often
_FAILED = ctypes.c_void_p(-1).value
_NO_FILES = (errno.EMFILE, errno.ENFILE)
_RETURNED_BYTES = 8 * 2**20  # bytes returned at once: some milliseconds if the file's pages are freed, too

# The C library's mmap, because Python's keeps a descriptor open for each map until version 3.13.
_libc = ctypes.CDLL(None, use_errno=True)
_mmap, _munmap, _madvise = _libc.mmap, _libc.munmap, _libc.madvise
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class _Left(NamedTuple):
    """Mapped addresses that no array uses.

    own: the memory counts as this process's.  deleted: its file was unlinked.
    """

    address: int
    nbytes: int
    own: bool
    deleted: bool


class _Leaving:
    """Unused mapped memory, returned to the system in parts, because the system needs long to free a large file.

    A process that calls `give_back` once must call it again and again.  In other processes, such as programs that only
    read views, memory is unmapped at once.

    A deleted file loses its pages in all processes that still map it.  Readers there read zeros or the old content, and
    STATE is DEAD.
    """

    def __init__(self) -> None:
        self._called = False
        self._waiting: list[_Left] = []

    @property
    def nbytes(self) -> int:
        """The own memory of this process that is not returned yet."""
        return sum(left.nbytes for left in self._waiting if left.own)

    def take(self, left: _Left, used: int) -> None:
        """Unmap unused addresses, at once or later.  used: how many of their first bytes may have been touched."""
        used = -(-used // _PAGE) * _PAGE
        if not self._called or used <= _RETURNED_BYTES:
            _munmap(left.address, left.nbytes)
            return
        if left.nbytes > used:
            _munmap(left.address + used, left.nbytes - used)
        self._waiting.append(left._replace(nbytes=min(left.nbytes, used)))

    def give_back(self, nbytes: int = _RETURNED_BYTES) -> bool:
        """Return about `nbytes` to the system, the latest memory first, from its end.  Return True if more is left."""
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
        """Return everything now.  Until the next call of `give_back`, unused memory is unmapped at once."""
        self.give_back(sys.maxsize)
        self._called = False


leaving = _Leaving()  # one for the process, as its addresses are


class _Map:
    """A mapping.  Numpy's arrays over it hold it, and it is unmapped after the last of them.

    used: how many of its bytes may have been touched.  own: its memory counts as this process's.  deleted: its file was
    unlinked.
    """

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


class GrowingMemory:
    """`reserve` bytes of addresses, of which the first `backed` are usable.  Without a path it is private memory."""

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
        """Return the reserve as an array.  Only the backed part may be touched."""
        return self._bytes.view(dtype)

    @property
    def words(self) -> Codes:
        return self.array(np.int64)

    def back(self, nbytes: int) -> None:
        """Make at least the first `nbytes` usable.

        Raises SqlError 1021 if the disk is full, 1114 if the reserve is too small, and changes nothing then.
        """
        if nbytes <= self.backed:
            return
        if nbytes > self.reserve:
            raise SqlError(*TABLE_FULL, f"'{self.path or 'anonymous memory'}' is full at {self.reserve} bytes")
        target = max(nbytes, self.backed + min(self.backed, _STEP))
        target = min(-(-target // _PAGE) * _PAGE, self.reserve)
        if self.path is not None:
            try:
                self._allocate(self.path, nbytes, target)
            except OSError as e:
                raise no_room(e, self.path, nbytes - self.backed) from None
        else:
            self.backed = target
        self._map.used = max(self._map.used, self.backed)
        if self.backed >= _HUGE_FROM:
            with suppress(OSError):  # a kernel without them
                self._map.advise(mmap.MADV_HUGEPAGE, 0, self.backed)

    def _allocate(self, path: str, nbytes: int, target: int) -> None:
        """Allocate the file's first `target` bytes, or only `nbytes` if there is no room for them."""
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            try:
                os.posix_fallocate(file, self.backed, target - self.backed)
            except OSError:
                target = min(-(-nbytes // _PAGE) * _PAGE, self.reserve)
                os.posix_fallocate(file, self.backed, target - self.backed)
        finally:
            os.close(file)
        self.backed = target

    def release(self, nbytes: int) -> None:
        """Return the complete pages behind the first `nbytes` to the system.  They can be backed again."""
        keep = -(-nbytes // _PAGE) * _PAGE
        if keep >= self.backed:
            return
        try:
            self._map.advise(mmap.MADV_DONTNEED if self.path is None else mmap.MADV_REMOVE, keep, self.backed - keep)
        except OSError:
            return  # a file system without holes keeps them
        self.backed = keep

    def release_range(self, start: int, nbytes: int) -> None:
        """Return the complete pages of a range to the system.  Nobody may read them afterwards."""
        first, end = -(-start // _PAGE) * _PAGE, (start + nbytes) // _PAGE * _PAGE
        if first < end:
            with suppress(OSError):  # a file system without holes keeps them
                self._map.advise(mmap.MADV_DONTNEED if self.path is None else mmap.MADV_REMOVE, first, end - first)

    def unlink(self) -> None:
        """Remove the file's name.  The memory stays mapped until its last array is freed."""
        if self.path is not None:
            with suppress(FileNotFoundError):
                os.unlink(self.path)
            if hasattr(self, "_map"):
                self._map.deleted = True


def no_room(error: OSError, path: str | None, nbytes: int) -> Exception:
    """Translate an OSError that means no space, descriptor or mapping into a SqlError; return any other unchanged."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return SqlError(*DISK_FULL, f"Disk full: no room for {nbytes} more bytes of '{path}'; "
                        "free space there or set a smaller memory limit")
    if error.errno in _NO_FILES:
        return SqlError(*OUT_OF_RESOURCES, f"Out of resources when opening '{path}': "
                        f"{os.strerror(error.errno)}; drop views that are not needed, or raise the limit of open files "
                        "(ulimit -n)")
    if error.errno in (errno.ENOMEM, errno.EAGAIN):
        return SqlError(*OUT_OF_RESOURCES, f"Out of memory: no addresses for {nbytes} bytes of "
                        f"'{path or 'anonymous memory'}'; drop views that are not needed, or raise the limits of the "
                        "system (ulimit -v, sysctl vm.max_map_count)")
    return error


def reserve_words(words: int) -> Codes | None:
    """Reserve words of zeros, which take memory when they are touched.  Return None if there are too few addresses."""
    try:
        reserved = _Map(-1, 8 * words, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, True)
    except OSError:
        return None
    reserved.used = 0  # unmapped in one go: huge pages are quick to free
    with suppress(OSError):  # a kernel without them
        reserved.advise(mmap.MADV_HUGEPAGE, 0, 8 * words)
    return np.asarray(reserved).view(np.int64)


def map_file(path: str, dtype: npt.DTypeLike, writable: bool = False) -> npt.NDArray[Any]:
    """Map a file of another process as an array, without keeping a descriptor.

    Raises OSError if the file is missing, may not be opened or cannot be mapped, ValueError if it is empty.
    """
    file = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
    try:
        about = os.fstat(file)
        if not about.st_size:
            raise ValueError(f"'{path}' is empty")
        mapped = _Map(file, about.st_size, mmap.MAP_SHARED, writable)
        mapped.used = 512 * about.st_blocks  # the allocated part of a reserve; its owner may add more
        return np.asarray(mapped).view(dtype)
    finally:
        os.close(file)


def open_map(path: str) -> mmap.mmap:
    """Map a file as bytes, the fastest type to slice.  Each such map keeps a descriptor: use it for few files."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return mmap.mmap(file, os.fstat(file).st_size, mmap.MAP_SHARED | _MAP_NORESERVE, mmap.PROT_READ)
    finally:
        os.close(file)
