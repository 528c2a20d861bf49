"""Statements about accounts, roles and privileges, and what every statement needs of them.

`accounts.py` and `grants.py` read the statements into those of `noria.accounts`.  `needs.py` says which privileges a
statement needs, from its text alone.
"""
