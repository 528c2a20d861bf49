"""The operators, one file each.  `lowering/lower.py` has the registry from plan nodes to operators."""
