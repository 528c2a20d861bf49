"""Lets Linux end a process when its parent ends for any reason, SIGKILL included."""

from __future__ import annotations

import ctypes
import signal

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)  # loaded before any fork


def end_with_parent(number: int = signal.SIGKILL) -> None:
    """Let Linux send this process a signal when its parent ends. Compare `os.getppid()` afterwards: it may have ended
    before."""
    _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
