"""Writes src/noria/kernels/signatures.txt.

The list has the kernels that the warm-up program (`runtime/worker/warm.py`) calls, and the kernels that are listed now
and still exist.

    python scripts/kernels.py [DIR]      also list the kernels that were compiled into DIR, for example by tests
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from noria.kernels import place, signatures
from noria.kernels.jit import kernels_of

# Each call compiles its kernel, since the directory counts as complete.
WARM = ("from noria.kernels import place; place.mark_complete(place.directory()); "
        "from noria.runtime.worker import warm; warm.kernels()")


def main() -> None:
    with tempfile.TemporaryDirectory() as top:
        subprocess.run([sys.executable, "-c", WARM], check=True, env={**os.environ, place.VARIABLE: top})
        (directory,) = Path(top).iterdir()
        found = dict.fromkeys(signatures.kept(directory))
    before = signatures.listed() if signatures.LISTED.exists() else []
    more = signatures.kept(Path(sys.argv[1])) if sys.argv[1:] else []
    found |= dict.fromkeys(c for c in (*before, *more) if c.function in kernels_of(c.module))
    signatures.write(found)
    print(f"{len(found)} kernels are listed")


if __name__ == "__main__":
    main()
