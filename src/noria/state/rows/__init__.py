"""Rows in an arena: `Table` with its hash indexes, `Ranges` of filled keys, and kernels over deltas.

Input: batches of codes with weights, and keys.  Output: netted changes, the rows of keys, and pairs of joined rows.
"""
