"""The relations of a block: the names in scope, FROM and its joins, and the data that all rooms share (`block`).

Input: a FROM clause and a `Context`.  Output: a `Scope`, a graph of relations, and the join plan made from it.
"""
