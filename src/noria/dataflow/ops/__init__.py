"""The operators, one file each.  `lowering/operators.py` has the registry from plan nodes to operators."""
