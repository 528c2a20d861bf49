"""Decides which workers a statement or a read concerns, and combines their answers. Pure.

`write_routing.routed` and `scatter_gather.split` return parts by worker.
"""
