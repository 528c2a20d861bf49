"""The durable base tables: RocksDB, with parts of its column families for tables and indexes (section 6.1)."""
