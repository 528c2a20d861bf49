"""Strategies that merge groupings of the same rows: other conditions, finer groups, other aggregates.

Input: groupings that `grouped` has taken apart.  Output: for each replaced node, the node instead of it.
"""
