"""Encodes typed messages and stored records as bytes, without pickle: decoding builds known classes and runs no code.

    version byte, then one msgpack array of records:  [tag, field, field …] …

A record is one object: a dataclass, a named tuple or an exception.  Its tag has the last name of its module and its
class's name.  A field refers to an object by the number of its earlier record.  So a shared subplan is encoded once,
and a message has neither cycles nor deep nesting.  The last record is the message; a message that is no object is
[null, value].  Values that msgpack lacks are extensions: decimals, dates, collections other than tuples, arrays as raw
bytes, Arrow data as an IPC stream.

A `Codec` knows the classes in the annotations of its root types, and their subclasses.  So a new message type needs
only annotations.  A record is checked by the types of its fields, which are compared with combinations that passed
before.  Only fields with collections or objects are checked further.

Keeps true: decoding any bytes either returns a value that fits the annotations or raises `Malformed`.  Its time and
memory are linear in the length of the bytes.  A record may lack fields that were later added at the end with a default.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Collection, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from itertools import chain
from pathlib import Path, PurePath
from typing import Any

import msgspec
import numpy as np
from msgspec.msgpack import Ext

from noria.core import columns_codec
from noria.core.expressions.zero_date import ZERO_DATE, ZERO_DATETIME, ZeroDate, ZeroDatetime
from noria.core.limits import KEPT_TABLES, MESSAGE_PARTS
from noria.core.message_types import PLAIN, Malformed, MessageLayout, classes_of, fit_of, layouts, plain_parts

__all__ = ["Codec", "Malformed"]

VERSION = 1
(REF, LIST, DICT, SET, FROZENSET, INTEGER, DECIMAL, DATE, DATETIME, TIME, DURATION, DEFAULT, MEMBER, TEXT, PATH,
 COLUMNS, ROWS, ROW_LIST) = range(18)  # codes of extensions: they are on disk, so a number is never reused
MANY_ROWS = 16  # msgspec checks the types of this many rows or more while it reads them
OUT_OF_BAND_BYTES = 65_536  # columns of this size are passed as buffers, without a copy, if the caller accepts them
_ENCODER = msgspec.msgpack.Encoder()
_FLAT_ROWS = msgspec.msgpack.Decoder(tuple[tuple[int | float | str | bool | None, ...], ...])
_RECORDS = msgspec.msgpack.Decoder(list[list[Any]])
_AT = struct.Struct(">I")
_DURATION = struct.Struct(">iii")
_REFS = tuple(Ext(REF, _AT.pack(i)) for i in range(256))
_MARK = {list: Ext(LIST, b""), dict: Ext(DICT, b""), set: Ext(SET, b""), frozenset: Ext(FROZENSET, b"")}
_COLLECTIONS: dict[int, Callable[[Any], Any]] = {
    LIST: list, SET: set, FROZENSET: frozenset,
    DICT: lambda parts: dict(zip(parts[::2], parts[1::2], strict=True))}

Buffers = list[memoryview]
Write = Callable[[Any, "_Encoding"], Any]


class _Encoding:
    """A message that is being encoded."""

    __slots__ = ("buffers", "careful", "codec", "records", "seen")

    def __init__(self, codec: Codec, buffers: Buffers | None, careful: bool):
        self.codec, self.buffers, self.careful = codec, buffers, careful
        self.records: list[Any] = []
        self.seen: dict[Any, int] = {}


class _Decoding:
    """A message that is being decoded.  weights: for each object, how many parts a walk over it visits."""

    __slots__ = ("buffers", "built", "codec", "weight", "weights")

    def __init__(self, codec: Codec, buffers: list[bytes]):
        self.codec, self.buffers = codec, buffers
        self.built: list[Any] = []
        self.weights: list[int] = []
        self.weight = 0


class Codec:
    """Encodes and decodes messages of the root types.  `narrowed`: the precise type of a field whose annotation is
    general, because its class is in a lower layer.  `own_kind`: an `encoded_once` class that this codec encodes."""

    def __init__(self, *roots: Any, narrowed: Mapping[tuple[type, str], Any] | None = None,
                 own_kind: type | None = None):
        self._roots, self._narrowed, self.own_kind = roots, dict(narrowed or {}), own_kind
        self._modules = 0  # the number of imported modules at the last search for classes
        self._layouts: dict[type, MessageLayout] = {}
        self._by_tag: dict[str, MessageLayout] = {}
        self.members: dict[Any, Enum] = {}  # by bytes
        self.writers: dict[type, Write] = {}
        self.decode_cached = lru_cache(KEPT_TABLES)(self._decode)

    def _learn(self) -> None:
        """Find all classes of messages in the modules that are imported by now."""
        modules = len(sys.modules)
        found, enums = layouts(self._roots, self._narrowed)
        by_tag = {layout.tag: layout for layout in found.values()}
        if len(by_tag) < len(found):
            raise TypeError(f"two classes of one tag among {sorted(layout.tag for layout in found.values())}")
        writers: dict[type, Write] = {**_WRITERS, **dict.fromkeys(enums, _member)}
        for kind, layout in found.items():
            layout.readers = [_reader(t) for t in layout.types]
            writers[kind] = (_once_writer(kind, layout.tag) if layout.encoded_once and kind is not self.own_kind
                             else _record_writer(layout))
        self.members = {f"{e.__name__}.{m.name}".encode(): m for e in enums for m in e}
        self._layouts, self._by_tag, self.writers, self._modules = found, by_tag, writers, modules

    def learns_more(self) -> bool:
        """Search for classes again if more modules were imported.  Return True if so."""
        if len(sys.modules) == self._modules:
            return False
        self._learn()
        return True

    def layout_of(self, kind: type) -> MessageLayout | None:
        found = self._layouts.get(kind)
        return self._layouts.get(kind) if found is None and self.learns_more() else found

    def writer_of(self, kind: type) -> Write:
        if not self._layouts:
            self._learn()
        if (found := self.writers.get(kind)) is not None:
            return found
        for base, write in _OF_SUBCLASSES.items():
            if issubclass(kind, base):
                return write
        if self.learns_more() and (found := self.writers.get(kind)) is not None:
            return found
        raise TypeError(f"a {kind.__module__}.{kind.__qualname__} is no part of a message")

    # ------------------------------------------------------------ bytes
    def encode(self, value: Any, buffers: Buffers | None = None) -> bytes:
        """Encode a message.  Raises TypeError or ValueError for a value that is no message.  `buffers`: receives large
        columns, to which the message then refers.  None: the message contains them."""
        try:
            return self._encoded(value, buffers, careful=False)
        except (OverflowError, UnicodeEncodeError):  # rare: an integer beyond 64 bits, or half a surrogate pair
            if buffers is not None:
                buffers.clear()
            return self._encoded(value, buffers, careful=True)

    def _encoded(self, value: Any, buffers: Buffers | None, careful: bool) -> bytes:
        out = _Encoding(self, buffers, careful)
        root = _written(value, out)
        if type(root) is not Ext or root.code != REF:
            out.records.append((None, root))
        return _VERSION_BYTE + _ENCODER.encode(out.records)

    def decode(self, data: bytes | memoryview, buffers: list[bytes] | None = None) -> Any:
        """Decode a message.  buffers: its large columns.  Raises `Malformed` if the bytes are no message."""
        if not self._layouts:
            self._learn()
        try:
            return self._decoded(memoryview(data), buffers or [])
        except Malformed:
            raise
        except Exception as e:  # a class may refuse these fields with any exception
            raise Malformed(f"{type(e).__name__}: {e}") from e

    def plain_field(self, data: bytes | memoryview, names: Collection[str]) -> Any:
        """Return the first plain field with one of these names, or None.  The message itself may be malformed."""
        try:
            tag, *fields = _RECORDS.decode(memoryview(data)[1:])[-1]
            found = [v for name, v in zip(self._by_tag[tag].names, fields, strict=False) if name in names]
        except Exception:  # the records cannot be read
            return None
        return found[0] if found and type(found[0]) in PLAIN else None

    def _decoded(self, data: memoryview, buffers: list[bytes]) -> Any:
        if not data or data[0] != VERSION:
            raise Malformed(f"encoding version {data[0] if data else 'none'}, this program reads {VERSION}")
        into, layouts, root = _Decoding(self, buffers), self._by_tag, None
        built, weights = into.built, into.weights
        for record in _RECORDS.decode(data[1:]):
            tag = record.pop(0)
            into.weight = 1
            if (layout := layouts.get(tag)) is not None:
                root = _object(layout, record, into)
            elif tag is None:
                (value,) = record
                root = _read(value, into)
            elif self.learns_more() and (layout := self._by_tag.get(tag)) is not None:
                layouts = self._by_tag
                root = _object(layout, record, into)
            else:
                raise Malformed(f"unknown type {str(tag)[:80]!r}")
            if into.weight > MESSAGE_PARTS:
                raise Malformed(f"more than {MESSAGE_PARTS} parts")
            built.append(root)
            weights.append(into.weight)
        if not built:
            raise Malformed("no record")
        return root

    def _decode(self, packed: bytes) -> Any:
        return self.decode(packed)


_VERSION_BYTE = bytes([VERSION])


# ---------------------------------------------------------------- encoding
def _written(value: Any, out: _Encoding) -> Any:
    """Translate a value into msgpack's types, and append records for its objects."""
    kind = type(value)
    if kind in PLAIN and not out.careful:
        return value
    if kind is tuple:
        if not out.careful and len(value) >= MANY_ROWS and _are_rows(value):
            return Ext(ROWS, _ENCODER.encode(value))
        if not out.careful and _is_flat(value):
            return value
        return [_written(v, out) for v in value]
    write = out.codec.writers.get(kind) or out.codec.writer_of(kind)
    return write(value, out)


def _is_flat(parts: Any) -> bool:
    """True if all parts are plain values, or all are tuples of plain values."""
    kinds = set(map(type, parts))
    return kinds <= PLAIN or (kinds == _TUPLE and PLAIN.issuperset(map(type, chain.from_iterable(parts))))


def _are_rows(parts: Any) -> bool:
    """True if all parts are tuples of plain values without bytes, which msgspec cannot distinguish from texts."""
    return set(map(type, parts)) == _TUPLE and _IN_ROWS.issuperset(map(type, chain.from_iterable(parts)))


def _record_writer(layout: MessageLayout) -> Write:
    tag, fields_of, checked, by_value = layout.tag, layout.fields_of, [i + 1 for i in layout.checked], layout.by_value

    def write(value: Any, out: _Encoding) -> Any:
        key = value if by_value else id(value)
        at = out.seen.get(key)
        if at is None:
            fields = [tag, *fields_of(value)]
            for i in range(1, len(fields)) if out.careful else checked:
                fields[i] = _written(fields[i], out)
            at = out.seen[key] = len(out.records)
            out.records.append(fields)
        return _REFS[at] if at < 256 else Ext(REF, _AT.pack(at))

    return write


_CODECS: dict[type, Codec] = {}


def _codec_of(kind: type) -> Codec:
    """Return the codec for objects of one class that are encoded by themselves."""
    codec = _CODECS.get(kind)
    if codec is None:
        codec = _CODECS[kind] = Codec(kind, own_kind=kind)
    return codec


def encoded(value: Any) -> bytes:
    """Encode an object by itself.  Each process makes the same bytes."""
    return _codec_of(type(value)).encode(value)


def packed(value: Any) -> bytes:
    """Encode an object of an `encoded_once` class.  The object caches its bytes."""
    data: bytes | None = value.__dict__.get("_packed")
    if data is None:
        data = value.__dict__["_packed"] = _codec_of(type(value)).encode(value)
    return data


def unpacked(kind: type, data: bytes) -> Any:
    """Decode an object of an `encoded_once` class.  While it is cached, equal bytes return the same object."""
    found = _codec_of(kind).decode_cached(data)
    if type(found) is not kind:
        raise Malformed(f"no {kind.__name__}")
    return found


def _once_writer(kind: type, tag: str) -> Write:
    def write(value: Any, out: _Encoding) -> Any:
        at = out.seen.get(id(value))
        if at is None:
            at = out.seen[id(value)] = len(out.records)
            out.records.append((tag, packed(value)))
        return _REFS[at] if at < 256 else Ext(REF, _AT.pack(at))

    return write


def _collection(value: Any, out: _Encoding) -> Any:
    mark = _MARK[next(k for k in _MARK if isinstance(value, k))]
    if not out.careful and type(value) is list and len(value) >= MANY_ROWS and _are_rows(value):
        return Ext(ROW_LIST, _ENCODER.encode(value))
    if not out.careful and _is_flat(value):
        return [mark, *value]
    return [mark, *[_written(v, out) for v in value]]


def _dict(value: Any, out: _Encoding) -> Any:
    if set(map(type, value)) <= {str} and not out.careful:
        return {k: _written(v, out) for k, v in value.items()}
    return [_MARK[dict], *[_written(v, out) for v in chain.from_iterable(value.items())]]


def _integer(value: int, out: _Encoding) -> Any:
    if -(2**63) <= value < 2**64:
        return int(value)
    return Ext(INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def _text(value: str, out: _Encoding) -> Any:
    try:
        value.encode()
        return str(value)
    except UnicodeEncodeError:
        return Ext(TEXT, value.encode("utf-8", "surrogatepass"))


@lru_cache(maxsize=1_024)
def _member_ext(value: Enum) -> Ext:
    return Ext(MEMBER, f"{type(value).__name__}.{value.name}".encode())


def _member(value: Enum, out: _Encoding) -> Any:
    return _member_ext(value)


def _sentinel(value: type, out: _Encoding) -> Any:
    """Encode `statements.DEFAULT`, the only class that is a value."""
    if value is not object:
        raise TypeError(f"the class {value.__qualname__} is no part of a message")
    return Ext(DEFAULT, b"")


def _columns(value: Any, out: _Encoding) -> Any:
    data = columns_codec.encode(value)
    if out.buffers is None or len(data) < OUT_OF_BAND_BYTES:
        return Ext(COLUMNS, bytes(data))
    out.buffers.append(memoryview(data))
    return [Ext(COLUMNS, b""), len(out.buffers) - 1]


def _exception(value: Exception, out: _Encoding) -> Any:
    """Encode an exception as the class to which it reduces, if the codec knows that class."""
    reduced: Any = value.__reduce__()
    made, args = reduced[:2]
    layout = out.codec.layout_of(made)
    if layout is None:
        raise TypeError(f"the exception {type(value).__qualname__} is no part of a message")
    if made is type(value):
        args = layout.fields_of(value)
    out.records.append([layout.tag, *[_written(a, out) for a in args]])
    return Ext(REF, _AT.pack(len(out.records) - 1))


_WRITERS: dict[type, Write] = {
    **dict.fromkeys((list, set, frozenset), _collection), dict: _dict,
    **dict.fromkeys((type(None), bool, float, bytes), lambda v, out: v),
    int: _integer, str: _text, type: _sentinel,
    bytearray: lambda v, out: bytes(v), memoryview: lambda v, out: bytes(v),
    range: lambda v, out: [_MARK[list], *v],
    Decimal: lambda v, out: Ext(DECIMAL, str(v).encode()),
    date: lambda v, out: Ext(DATE, v.isoformat().encode()),
    datetime: lambda v, out: Ext(DATETIME, v.isoformat().encode()),
    ZeroDate: lambda v, out: Ext(DATE, b""), ZeroDatetime: lambda v, out: Ext(DATETIME, b""),
    time: lambda v, out: Ext(TIME, v.isoformat().encode()),
    timedelta: lambda v, out: Ext(DURATION, _DURATION.pack(v.days, v.seconds, v.microseconds)),
    **dict.fromkeys(columns_codec.KINDS, _columns),
}
_OF_SUBCLASSES: dict[type, Write] = {
    columns_codec.ARRAYS: _columns, np.generic: lambda v, out: _written(v.item(), out),
    PurePath: lambda v, out: Ext(PATH, str(v).encode()),
    Exception: _exception, dict: _dict, list: _collection, float: lambda v, out: float(v), int: _integer,
    str: _text, bytes: lambda v, out: bytes(v)}


# ---------------------------------------------------------------- decoding
def _object(layout: MessageLayout, fields: list[Any], into: _Decoding) -> Any:
    if layout.encoded_once and into.codec.own_kind is not layout.kind:
        (data,) = fields
        return unpacked(layout.kind, data)
    kinds = tuple(map(type, fields))
    inside = layout.known.get(kinds)
    if inside is None:
        inside = layout.examined(kinds)
    for i in inside:
        fields[i] = layout.readers[i](fields[i], into)
    if len(fields) < layout.width:
        fields += layout.defaults(len(fields))
    return layout.make(fields)


def _reader(t: Any) -> Callable[[Any, _Decoding], Any]:
    """Return the function that reads and checks a field of type t if its value is not plain."""
    fit, plain = fit_of(t), plain_parts(t)
    if fit is None:
        return _read
    if kinds := classes_of(t):
        return _instance_reader(kinds, fit)
    if plain is None:
        return lambda value, into: fit(_read(value, into)) if value != [] else fit(())

    def read(value: Any, into: _Decoding) -> Any:
        if type(value) is list and plain.issuperset(map(type, value)):
            return tuple(value)
        return fit(_read(value, into))

    return read


def _instance_reader(kinds: tuple[type, ...], fit: Callable[[Any], Any]) -> Callable[[Any, _Decoding], Any]:
    """Return the reader of a field with an object of some classes: mostly a reference or a member of an enum."""

    def read(value: Any, into: _Decoding) -> Any:
        if type(value) is not Ext:
            return fit(_read(value, into))
        if value.code == REF:
            at = int.from_bytes(value.data, "big")
            into.weight += into.weights[at]
            found = into.built[at]
        elif value.code == MEMBER:
            found = into.codec.members[value.data]
        else:
            found = _read(value, into)
        return found if isinstance(found, kinds) else fit(found)

    return read


def _read(value: Any, into: _Decoding) -> Any:
    """Return the value that `_written` translated."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is Ext:
        if value.code == REF:
            (at,) = _AT.unpack(value.data)  # later records do not exist yet
            into.weight += into.weights[at]
            return into.built[at]
        if (read := _READERS.get(value.code)) is not None:
            return read(value.data, into)
    elif kind is list:
        return _read_list(value, into)
    elif kind is dict and PLAIN.issuperset(map(type, value)):
        return {k: _read(v, into) for k, v in value.items()}
    raise Malformed(f"a value of no known kind: {value!r}"[:200])


def _read_list(value: list[Any], into: _Decoding) -> Any:
    kinds = set(map(type, value))
    if kinds <= PLAIN:
        return tuple(value)
    if len(value) == 1 and kinds == _EXT and value[0].code == REF:
        return (_read(value[0], into),)
    if kinds == _LISTS and PLAIN.issuperset(map(type, chain.from_iterable(value))):
        return tuple(map(tuple, value))
    first = value[0]
    if type(first) is Ext and first.code in _MARKS:
        return _marked(first.code, value, into)
    return tuple([_read(v, into) for v in value])


def _marked(code: int, value: list[Any], into: _Decoding) -> Any:
    if code == COLUMNS and value[0].data:
        return tuple([_read(v, into) for v in value])
    if code == COLUMNS:
        return columns_codec.decode(into.buffers[_place(value[1], len(into.buffers))])
    found = _read_list(value[1:], into) if len(value) > 1 else ()
    return _COLLECTIONS[code](found)


def _place(at: Any, count: int) -> int:
    if type(at) is not int or not 0 <= at < count:
        raise Malformed(f"a reference to {at!r} of {count}")
    return at


_TUPLE, _LISTS, _EXT = {tuple}, {list}, {Ext}
_IN_ROWS = PLAIN - {bytes}
_MARKS = {LIST, DICT, SET, FROZENSET, COLUMNS}
_READERS: dict[int, Callable[[bytes, _Decoding], Any]] = {
    ROWS: lambda data, into: _FLAT_ROWS.decode(data), ROW_LIST: lambda data, into: list(_FLAT_ROWS.decode(data)),
    INTEGER: lambda data, into: int.from_bytes(data, "big", signed=True),
    DECIMAL: lambda data, into: Decimal(data.decode()),
    DATE: lambda data, into: date.fromisoformat(data.decode()) if data else ZERO_DATE,
    DATETIME: lambda data, into: datetime.fromisoformat(data.decode()) if data else ZERO_DATETIME,
    TIME: lambda data, into: time.fromisoformat(data.decode()),
    DURATION: lambda data, into: timedelta(*_DURATION.unpack(data)),
    DEFAULT: lambda data, into: object,
    MEMBER: lambda data, into: into.codec.members[data],
    TEXT: lambda data, into: data.decode("utf-8", "surrogatepass"),
    PATH: lambda data, into: Path(data.decode()),
    COLUMNS: lambda data, into: columns_codec.decode(data),
}
