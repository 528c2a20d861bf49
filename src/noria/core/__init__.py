"""Types, values, batches, expressions, statements, limits, errors: the vocabulary of every other package.

Pure: no I/O, clock, thread or randomness.
"""
