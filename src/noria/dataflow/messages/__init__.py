"""Packets between a front end and a worker, and messages between workers.

Every other room of the data-flow takes and returns these.
Nothing here knows the graph.
"""
