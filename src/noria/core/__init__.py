"""Types, values, batches, expressions, statements, limits and errors, which all other packages use.

Keeps true: no module here uses I/O, a clock, a thread or randomness.
"""
