"""The states of operators, the symbol table, and memory that several processes map.

    memory      arrays that grow in place; atomic loads and stores
    rows        `Table`: rows with hash indexes; kernels over deltas
    grouping    `Groups`: one row for each group, with exact accumulators
    symbols     `SymbolTable`: each distinct string once

A state is one int64 array, its arena.  Kernels are numba functions over arenas.
"""
