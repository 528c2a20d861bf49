"""Groups that are prepared here and not decided, and groups that were decided here (design/decisions.md, 7).

    prepared:<group>    the CRC of what follows; then a `Group`: the bound statements and the worker that decides
    decided:<group>     this worker has committed its part, so the others will; also idempotency keys (`Write`)

Keeps true: an entry stays as long as a worker may ask for it.  The coordinator's commit adds `decided`; a participant's
commit deletes `prepared`.  A participant runs the statements again at its commit: nothing was written since they were
tried, so they have the same effects.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from rocksdict import WriteBatch

from noria.core.codec import Codec
from noria.core.errors import SqlError
from noria.core.errors.codes import UNKNOWN_ERROR
from noria.core.statements import Statement, WriteResult
from noria.storage.format import older_groups
from noria.storage.rocks.engine import META, RocksEngine
from noria.storage.rocks.errors import StoreError
from noria.storage.tables import meta
from noria.storage.tables.open_tables import OpenTables

_CRC = struct.Struct("<I")
_PREPARED, _DECIDED = b"prepared:", b"decided:"


@dataclass(frozen=True)
class Group:
    """A prepared group.  coordinator: the worker that decides; results: those of the trial of its statements."""

    coordinator: int
    statements: tuple[Statement, ...]
    results: tuple[WriteResult, ...]


GROUPS = Codec(Group)


@dataclass
class PreparedGroups:
    """The prepared and the decided groups of one store, by name.

    earlier: those that an earlier life prepared.  Nobody holds locks for them.
    """

    prepared: dict[str, Group] = field(default_factory=dict)
    decided: set[str] = field(default_factory=set)
    earlier: frozenset[str] = frozenset()

    @classmethod
    def read(cls, engine: RocksEngine) -> PreparedGroups:
        prepared = {_name(key, _PREPARED): _read(value) for key, value in engine.items_with_prefix(META, _PREPARED)}
        decided = {_name(key, _DECIDED) for key, _ in engine.items_with_prefix(META, _DECIDED)}
        return cls(prepared, decided, frozenset(prepared))

    def refuse_undecided(self, tables: OpenTables, names: Collection[str] | None = None) -> None:
        """Raise an error if a prepared group concerns these tables.

        names: those to be written; None: all.  A group that a damaged file blocks is ignored: nothing can write its
        table anyway.
        """
        for name, group in self.prepared.items():
            if names is not None and all(s.table not in names for s in group.statements):
                continue
            if all(tables.there(s.table) is not None and tables.damage_of(s.table) is None for s in group.statements):
                raise undecided(name)

    def refuse_unlocked(self, tables: OpenTables, name: str) -> None:
        """Raise an error if a group of an earlier life, which holds no locks here, concerns the table."""
        if self.earlier and not self.earlier.isdisjoint(self.prepared):
            self.refuse_undecided(tables, {name})

    def put_dropped(self, engine: RocksEngine, batch: WriteBatch, tables: Collection[str]) -> list[str]:
        """Forget the groups that concern only these dropped tables; return their names."""
        gone = [n for n, g in self.prepared.items() if all(s.table in tables for s in g.statements)]
        for name in gone:
            forget_prepared(engine, batch, name)
        return gone

    def listed(self) -> tuple[tuple[tuple[str, int], ...], tuple[str, ...]]:
        """The prepared groups with their coordinators, and the decided ones."""
        return tuple((name, g.coordinator) for name, g in self.prepared.items()), tuple(sorted(self.decided))


def undecided(group: str) -> SqlError:
    """The error for any other change while a group is undecided."""
    return SqlError(*UNKNOWN_ERROR,
                    f"the group {group} is prepared and not decided: until then nothing else is changed "
                    "here")


def put_prepared(engine: RocksEngine, batch: WriteBatch, name: str, group: Group) -> None:
    data = GROUPS.encode(group)
    meta.put(engine, batch, _PREPARED + name.encode(), _CRC.pack(zlib.crc32(data)) + data)


def _read(value: bytes) -> Group:
    """Decode a stored group.  Raises ValueError if the bytes are damaged."""
    return _group(GROUPS.decode(_checked(value)))


def _checked(value: bytes) -> bytes:
    data = value[_CRC.size :]
    if len(value) < _CRC.size or _CRC.unpack_from(value)[0] != zlib.crc32(data):
        raise ValueError("a prepared group is damaged")
    return data


def _group(found: object) -> Group:
    if not isinstance(found, Group):
        raise ValueError("a prepared group is something else")
    return found


def _read_older(value: bytes) -> Group:
    """Decode a group of a format before `catalog.FIRST_WITHOUT_PICKLE`."""
    return _group(GROUPS.decode(GROUPS.encode(Group(*older_groups.read(_checked(value))))))


def renew(engine: RocksEngine, batch: WriteBatch) -> None:
    """Encode groups of an older format anew.  Raises StoreError for one that this version cannot read."""
    for key, value in engine.items_with_prefix(META, _PREPARED):
        try:
            group = _read_older(value)
        except (ValueError, TypeError) as e:
            raise StoreError(f"the group {_name(key, _PREPARED)} was prepared by an older version and cannot be read "
                             f"({e}): start that version once, so that it is decided, or restore a backup") from e
        put_prepared(engine, batch, _name(key, _PREPARED), group)


def damage_in(items: Mapping[bytes, bytes], older: bool) -> list[str]:
    """Describe each unreadable prepared group among the entries of the family `meta`."""
    read = _read_older if older else _read
    found = []
    for key, value in items.items():
        if key.startswith(_PREPARED):
            try:
                read(value)
            except (ValueError, TypeError) as e:
                found.append(f"the prepared group {_name(key, _PREPARED)} cannot be read: {e}")
    return found


def put_decided(engine: RocksEngine, batch: WriteBatch, names: Sequence[str], forget: Sequence[str]) -> None:
    """Record decided groups by name.  forget: older groups for which no worker will ask any more."""
    for old in forget:
        batch.delete(_DECIDED + old.encode(), engine.handle(META))
    for name in filter(None, names):
        meta.put(engine, batch, _DECIDED + name.encode(), b"")


def done_once(engine: RocksEngine) -> list[bytes]:
    """The keys of the statements done once (`Write.idempotency_key`), which have names of their own."""
    return [key for key, _ in engine.items_with_prefix(META, _DECIDED) if b":" in key[len(_DECIDED) :]]


def forget_prepared(engine: RocksEngine, batch: WriteBatch, name: str) -> None:
    batch.delete(_PREPARED + name.encode(), engine.handle(META))


def _name(key: bytes, prefix: bytes) -> str:
    return key[len(prefix) :].decode()
