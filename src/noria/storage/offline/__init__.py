"""Tools for a stopped store: backups, checks, snapshots for Spark, another number of workers.

A stopped store or a checkpoint comes in; a copy or a report goes out.
"""
