"""Transactions over several statements, before their commit: what they have written here, and what they may see.

In: statements with the name of their transaction.  Out: staged effects, their rows for reads, locks.  Nothing here is
durable: a worker that ends forgets its open transactions.
"""
