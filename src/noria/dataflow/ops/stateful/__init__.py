"""Operators with states (`stateful`), and the gates through which a state is built in slices (`gate`).

Input: a delta, or the rows that fill keys.  Output: a delta, or the rows of a pull; a reader publishes its rows.
"""
