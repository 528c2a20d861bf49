"""Kernels: functions that numba compiles to machine code, and the directory that stores this code.

In: functions with `@njit` in other packages.  Out: dispatchers that load their code from `place.directory()`.
`signatures.txt` lists each kernel with its argument types.  `making.py` compiles the list.
"""

from noria.kernels.jit import njit as njit
