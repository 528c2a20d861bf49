"""Operators that store no rows: maps of single rows, unions, joins, and functions of all rows of a group.

Input: a delta, and rows that the states above return.  Output: a delta, or the rows of a pull.
"""
