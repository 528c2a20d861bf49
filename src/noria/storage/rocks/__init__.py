"""RocksDB as this project uses it: families, synced commits, its log, its damage, its errors.

Batches come in; stored bytes go out.
Nothing here knows a table's columns.
"""
