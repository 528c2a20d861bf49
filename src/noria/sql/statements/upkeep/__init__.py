"""Statements of administrators: ANALYZE, OPTIMIZE, CHECK, REPAIR and CHECKSUM TABLE.

In: the words of a statement.  Out: its command.
"""
