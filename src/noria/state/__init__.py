"""The states of operators (`table.py`, `groups.py`, `ranges.py`), the symbol table, and atomic loads and stores.

A state is one int64 array, its arena.  Kernels are numba functions over arenas.
"""
