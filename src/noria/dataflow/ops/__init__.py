"""The operators, one file each.  `lowering/operators.py` has the registry from plan nodes to operators.

    stateless    store no rows; some read the states above
    stateful     have a state in memory, in the store or in a view
"""
