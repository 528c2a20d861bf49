"""The plan of a block above its joins: groups, windows and the select list.

Input: a block with all clauses resolved.  Output: the block's `Query`.
"""
