"""The durable base tables: RocksDB, one column family per table and index (section 6.1 of the paper)."""
