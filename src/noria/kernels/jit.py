"""`@njit`: numba's decorator, with compiled code stored in `place.directory()`.

Keeps true: of numba's settings in the importing program, only the target processor changes.  Code that cannot be saved
is compiled again by the next process.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
import time
from collections.abc import Callable
from typing import Any, overload

import numba
from numba import types
from numba.core import caching
from numba.core.dispatcher import Dispatcher

from noria.kernels import place, target
from noria.kernels.signatures import KernelSignature, record, text_of

Function = Callable[..., Any]
_caching: Any = caching  # numba has no types


class _Locator(_caching._CacheLocator):
    """Names a kernel's files after its module and line.  The directory's name identifies the sources."""

    def __init__(self, function: Callable[..., Any]):
        self._name, self._line = function.__module__, function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Locator:
        return cls(py_func)

    def get_cache_path(self) -> str:
        return str(place.directory())

    def get_source_stamp(self) -> str:
        return place.name()

    def get_disambiguator(self) -> str:
        return f"{self._name}-{self._line}"


class _Impl(_caching.CompileResultCacheImpl):
    _locator_classes = (_Locator,)


class _Cache(_caching.FunctionCache):
    _impl_class = _Impl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        began = time.thread_time_ns()
        try:
            return super().load_overload(sig, target_context)
        finally:
            _loading.ns += time.thread_time_ns() - began

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save compiled code, one process at a time, because numba rewrites its index.  Disk errors are ignored."""
        path, function = place.directory(), self._py_func
        with contextlib.suppress(OSError), place.locked(path, "index.lock"):
            super().save_overload(sig, data)
            if not any(isinstance(kind, types.Literal) for kind in sig):  # only other kernels pass literals
                record(path, KernelSignature(function.__module__, function.__name__, tuple(map(text_of, sig))))


class _Loading(threading.local):
    ns: int = 0


_loading = _Loading()


def processor_ns() -> int:
    """The processor time of this thread, without that in which it has loaded kernels: that is no request's."""
    return time.thread_time_ns() - _loading.ns


@overload
def njit(function: Function) -> Function: ...


@overload
def njit(*, inline: str = "never", nogil: bool = False) -> Callable[[Function], Function]: ...


def njit(function: Function | None = None, *, inline: str = "never", nogil: bool = False) -> Any:
    """Make a function a kernel.  A decorator with or without arguments."""
    def kernel(python: Function) -> Any:
        target.choose()
        dispatcher: Any = numba.njit(inline=inline, nogil=nogil)(python)
        dispatcher._cache = _Cache(python)
        return dispatcher

    return kernel if function is None else kernel(function)


def kernels_of(module: str) -> dict[str, Any]:
    """Import a module and return its kernels by name."""
    members = vars(importlib.import_module(module)).values()
    return {k.py_func.__name__: k for k in members if isinstance(k, Dispatcher) and k.py_func.__module__ == module}
