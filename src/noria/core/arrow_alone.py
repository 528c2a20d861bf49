"""Arrow in a server's process without pandas.

PyArrow imports pandas at its first conversion of a NumPy array, to recognise values of pandas.  A server has no such
values, and pandas takes 55 MB and a third of a second.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any

import numpy as np
import pyarrow as pa


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("a server does not use pandas", name=fullname)


def use_arrow_without_pandas() -> None:
    """Let PyArrow look for pandas now and not find it.  Call it first in a process that is the server's own: PyArrow
    does not look again, but `to_pandas` and a program's own `import pandas` work."""
    if "pandas" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array(np.zeros(1)).to_numpy()  # each of the two directions looks once
    finally:
        sys.meta_path.remove(finder)
