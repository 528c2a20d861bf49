"""RocksDB's options: how much memory and disk it may use, and how its files look."""

from __future__ import annotations

from dataclasses import dataclass

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    DBRecoveryMode,
    Options,
)

from noria.core.limits import STORE_SHARE
from noria.storage.rocks.shared import PART_ENTRIES

_BYTES_PER_SYNC = 2**20  # of table files: else commits wait while megabytes of them are synced
_FAMILY_BUFFERS = 4  # per family: with two, all commits wait if one buffer fills while the other is flushed
BLOOM_BITS = 10  # per key: about one look-up of an absent key in a hundred reads a block


@dataclass(frozen=True)
class RocksMemory:
    """How much memory RocksDB may use, and how much disk it must leave free."""

    cache_bytes: int = 64 * 2**20
    write_buffer_bytes: int = 64 * 2**20  # of all families together
    family_buffer_bytes: int = 32 * 2**20  # of one family before it is flushed
    wal_bytes: int = 256 * 2**20  # bounds the log to replay at a start
    reserve_bytes: int = 32 * 2**20  # commits are rejected when less disk is free, so that compaction can continue
    part_entries: int = PART_ENTRIES  # at most, of a table or index in the shared family; 0: none is there

    @classmethod
    def within(cls, limit: int) -> RocksMemory:
        """The store's part of a memory limit for the whole process (0: no limit), halved, at most the defaults."""
        share = max(int(limit * STORE_SHARE / 2), 2**20) if limit else cls.cache_bytes
        return cls(min(cls.cache_bytes, share), min(cls.write_buffer_bytes, share),
                   min(cls.family_buffer_bytes, share // 2))


def table_options(options: Options | None = None, cache: Cache | None = None) -> Options:
    """The options that determine how files on disk look; Spark's tasks write theirs with the same.

    Filters and indexes are partitioned.  As one block, the filter of a file with two million keys (2.5 MB) would exceed
    a shard of the cache, and each look-up would read it anew.
    """
    options = options or Options(raw_mode=True)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_bytes_per_sync(_BYTES_PER_SYNC)
    blocks = BlockBasedOptions()
    if cache is not None:
        blocks.set_block_cache(cache)
    blocks.set_bloom_filter(BLOOM_BITS, False)
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_index_type(BlockBasedIndexType.two_level_index_search())
    blocks.set_partition_filters(True)
    options.set_block_based_table_factory(blocks)
    return options


def engine_options(memory: RocksMemory, cache: Cache, fresh: bool = False, base: Options | None = None) -> Options:
    """Options of a column family, or with `base` those of the database."""
    options = table_options(base, cache)
    options.create_if_missing(fresh)
    options.set_db_write_buffer_size(memory.write_buffer_bytes)
    options.set_write_buffer_size(memory.family_buffer_bytes)
    options.set_max_write_buffer_number(_FAMILY_BUFFERS)
    options.set_max_total_wal_size(memory.wal_bytes)
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_keep_log_file_num(2)
    # A torn record at the log's end is a commit that never returned; anywhere else it is damage to report.
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    return options
