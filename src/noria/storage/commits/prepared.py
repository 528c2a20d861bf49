"""What was prepared here and is not decided, and what was decided here for others (DESIGN section 7).

    prepared:<group>    the CRC of what follows; then a `Group`: the bound statements and the worker that decides
    decided:<group>     this worker has committed its part: so will the others; also what is done once (`Write.once`)

Keeps true: both are there as long as somebody may ask; `prepared` goes in the commit that does the statements,
`decided` comes in it.  The statements are run again then: as nothing was written since, they do what they did when they
were tried.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rocksdict import WriteBatch

from noria.core.codec import Codec
from noria.core.errors import SqlError
from noria.core.statements import Statement, WriteResult
from noria.storage.format import older_groups
from noria.storage.rocks.engine import META, Engine
from noria.storage.rocks.errors import StoreError
from noria.storage.tables import meta

_CRC = struct.Struct("<I")
_PREPARED, _DECIDED = b"prepared:", b"decided:"


@dataclass(frozen=True)
class Group:
    """coordinator: the worker that decides; results: what the statements did when they were tried."""

    coordinator: int
    statements: tuple[Statement, ...]
    results: tuple[WriteResult, ...]


GROUPS = Codec(Group)


@dataclass
class Groups:
    """Of one store, by name."""

    prepared: dict[str, Group] = field(default_factory=dict)
    decided: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, engine: Engine) -> Groups:
        prepared = {_name(key, _PREPARED): _read(value) for key, value in engine.items_with_prefix(META, _PREPARED)}
        return cls(prepared, {_name(key, _DECIDED) for key, _ in engine.items_with_prefix(META, _DECIDED)})


def undecided(group: str) -> SqlError:
    """Why nothing else may be changed here."""
    return SqlError(1105, "HY000", f"the group {group} is prepared and not decided: until then nothing else is changed "
                                   "here")


def put_prepared(engine: Engine, batch: WriteBatch, name: str, group: Group) -> None:
    data = GROUPS.encode(group)
    meta.put(engine, batch, _PREPARED + name.encode(), _CRC.pack(zlib.crc32(data)) + data)


def _read(value: bytes) -> Group:
    """ValueError where it is not what was written."""
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
    """As formats before `catalog.FIRST_WITHOUT_PICKLE` have it."""
    return _group(GROUPS.decode(GROUPS.encode(Group(*older_groups.read(_checked(value))))))


def renew(engine: Engine, batch: WriteBatch) -> None:
    """Groups of an older format are encoded anew.  `StoreError` for one that this version does not read."""
    for key, value in engine.items_with_prefix(META, _PREPARED):
        try:
            group = _read_older(value)
        except (ValueError, TypeError) as e:
            raise StoreError(f"the group {_name(key, _PREPARED)} was prepared by an older version and cannot be read "
                             f"({e}): start that version once, so that it is decided, or restore a backup") from e
        put_prepared(engine, batch, _name(key, _PREPARED), group)


def damage_in(items: Mapping[bytes, bytes], older: bool) -> list[str]:
    """What is wrong with the prepared groups among the entries of the family `meta`."""
    read = _read_older if older else _read
    found = []
    for key, value in items.items():
        if key.startswith(_PREPARED):
            try:
                read(value)
            except (ValueError, TypeError) as e:
                found.append(f"the prepared group {_name(key, _PREPARED)} cannot be read: {e}")
    return found


def put_decided(engine: Engine, batch: WriteBatch, names: Sequence[str], forget: Sequence[str]) -> None:
    """forget: groups that nobody will ask for any more."""
    for old in forget:
        batch.delete(_DECIDED + old.encode(), engine.handle(META))
    for name in filter(None, names):
        meta.put(engine, batch, _DECIDED + name.encode(), b"")


def done_once(engine: Engine) -> list[bytes]:
    """The keys of what was done once, by its own name and not a group's."""
    return [key for key, _ in engine.items_with_prefix(META, _DECIDED) if b":" in key[len(_DECIDED) :]]


def forget_prepared(engine: Engine, batch: WriteBatch, name: str) -> None:
    batch.delete(_PREPARED + name.encode(), engine.handle(META))


def _name(key: bytes, prefix: bytes) -> str:
    return key[len(prefix) :].decode()
