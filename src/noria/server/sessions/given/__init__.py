"""Rows that a session has for one statement or for itself: those of WITH RECURSIVE and of temporary tables.

In: commands that bring rows.  Out: the same commands as SELECTs beside `constant_row.GivenRows`.
"""
