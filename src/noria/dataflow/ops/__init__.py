"""The operators, one file each.  `plan/lower.py` has the registry from plan nodes to operators."""
