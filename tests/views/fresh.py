"""Compiles kernel modules again, unchanged or with changed source, for tests of their code."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType


def fresh(name: str, *changes: tuple[str, str]) -> ModuleType:
    """The module with each (text, replacement) applied, which must occur; its code is not saved."""
    source = inspect.getsource(importlib.import_module(name))
    for text, replacement in (*changes, ("from noria.kernels import njit", "from numba import njit")):
        assert text in source, f"{name} no longer contains {text!r}"
        source = source.replace(text, replacement)
    module = ModuleType(name + "_fresh")
    exec(compile(source, f"<{name} for a test>", "exec"), module.__dict__)
    return module
