"""State kept by operators: slabs with hash indexes, partial presence, groups; the symbol table; atomics.

Kernels are numba functions over plain int64 arrays, all in this package.
"""
