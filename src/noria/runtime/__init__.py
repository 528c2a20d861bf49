"""Runs workers and carries packets to them: links, transactions, routing, transport, the worker's process."""
