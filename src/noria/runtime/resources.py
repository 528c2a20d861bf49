"""What this process may take of the system."""

from __future__ import annotations

import contextlib
import resource


def raise_open_files() -> None:
    """As many descriptors as the system lets this process have: the soft limit is often 1,024, for programs that use
    `select`, which none of ours do."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # what a container forbids
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
