"""Translates scalar expressions of a syntax tree to typed expressions (`core.expressions.expr`).

    scalars     the resolver: translates a tree node by its type
    functions   SQL's functions by name
    types       type names of columns and of CAST
    leaves      aggregates and window functions as leaves, which only `sql.query` understands
    over        OVER (…) as such a leaf
    clock       SELECTs that read the clock: the time becomes a value of the statement

Make a `Resolver` and call it with a node.
"""
