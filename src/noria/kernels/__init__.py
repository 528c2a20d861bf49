"""Kernels: functions that numba compiles to machine code, and where their code is kept.

In: functions with `@njit` in packages above this one.  Out: dispatchers whose code is loaded from `place.directory()`.
`signatures.txt` lists every kernel with the types that it is called with; `making.py` compiles what is listed.
"""

from noria.kernels.jit import njit as njit
