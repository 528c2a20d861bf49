"""Statements of administrators: ANALYZE, OPTIMIZE, CHECK, REPAIR and CHECKSUM TABLE, SHOW GRANTS.

In: the words of a statement.  Out: its command.
"""
