"""Where numba keeps compiled kernels: a directory named after the kernels' sources.

Numba notices an edit in a function's own file only, not in what it calls, so after an update a stale caller
could run.  The name holds a digest of every source that kernels are made of: other sources, other directory.
Imported before numba is; an explicit NUMBA_CACHE_DIR is left alone.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

SOURCES = ("core/limits.py", "state/*.py", "views/*.py", "storage/kernels.py")


def choose() -> None:
    """Set NUMBA_CACHE_DIR, beside the package if that can be written, else in the user's cache."""
    if "NUMBA_CACHE_DIR" in os.environ:
        return
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for pattern in SOURCES:
        for source in sorted(package.glob(pattern)):
            digest.update(source.read_bytes())
    name = f"noria-kernels-{digest.hexdigest()[:16]}"
    for root in (package / "__pycache__", Path.home() / ".cache" / "noria"):
        try:
            (root / name).mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(root / name, os.W_OK):
            os.environ["NUMBA_CACHE_DIR"] = str(root / name)
            return
