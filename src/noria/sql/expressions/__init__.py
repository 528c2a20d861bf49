"""Scalar expressions of a syntax tree as typed expressions (`core.expr`).

    scalars     the resolver: a tree node to an expression, by the node's type
    functions   the names under which SQL has its functions
    types       type names, of columns and of CAST
    leaves      aggregates and window functions as leaves, which only the query room understands
    over        OVER (…) as such a leaf
    clock       SELECTs that ask for the time: a value of the statement
"""
