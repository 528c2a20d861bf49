"""WHERE: filters, keys of the lookup, conditions after it, and subqueries as joins of their block.

Input: a block with its FROM resolved, and the terms.  Output: the same block with filters, keys and more relations.
"""
