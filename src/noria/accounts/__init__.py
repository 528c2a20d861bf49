"""Accounts, roles and privileges: who may log in, and what he may do.  Pure.

`Accounts` (`registry.py`) is all of them as data.  `changes.py` applies a statement, `rights.py` answers what an
account may do, and `checks.py` compares that with what a statement needs.  Nothing here knows SQL's text or a network.
"""
