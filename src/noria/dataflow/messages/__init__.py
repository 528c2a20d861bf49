"""Packets between a front end and a worker, and messages between workers.

All other packages of the data-flow use these types. No module here knows the graph.
"""
