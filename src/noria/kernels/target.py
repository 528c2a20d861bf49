"""Chooses the processor for which kernels are compiled.

Keeps true: each processor with the instruction set `x86-64-v3` (Haswell of 2013 and later, Zen) uses the same compiled
code.  On others numba compiles for the host.
"""

from __future__ import annotations

import platform
from functools import cache
from typing import Any

import llvmlite.binding as llvm
from numba.core import config

_config: Any = config  # its attributes come from the environment
COMMON = "x86-64-v3"
_NEEDED = ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "sse4.2", "popcnt", "xsave")


@cache
def choose() -> str:
    """Set numba's target before it compiles anything, and return its name.  A target set in the environment stays."""
    if _config.CPU_NAME is None and _config.CPU_FEATURES is None and _has_common():
        _config.CPU_NAME, _config.CPU_FEATURES = COMMON, ""
    return str(_config.CPU_NAME or "native")


def _has_common() -> bool:
    features: dict[str, bool] = llvm.get_host_cpu_features()
    return platform.machine() == "x86_64" and all(features.get(name, False) for name in _NEEDED)
