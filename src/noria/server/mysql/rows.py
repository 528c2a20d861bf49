"""Encodes result sets as packets: column definitions, text rows and binary rows for every type of `core/types`.

Keeps true: the column's type decides how a value is encoded, not its Python type.  A text row has the text that MySQL
would print ('1e15', '0.10', '2024-01-02 03:04:05.000600').
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

from noria.core.expressions.casts import bits_of, show
from noria.core.expressions.coerce import MICROSECOND, show_double, show_time
from noria.core.limits import MAX_ALIAS_CHARS
from noria.core.types import Field, Kind, SqlType
from noria.server.mysql import codec
from noria.server.outcomes import AUTOCOMMIT, Stopped, never
from noria.server.rows import LargeRows

TINY, SHORT, LONG, FLOAT, DOUBLE, NULL, TIMESTAMP, LONGLONG, INT24, DATE = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
TIME, DATETIME, YEAR, BIT = 11, 12, 13, 16
JSON, NEWDECIMAL, BLOB, VAR_STRING, STRING = 245, 246, 252, 253, 254

_KEYS = {"": 0, "primary": 2, "unique": 4, "multiple": 8}
_AUTO_INCREMENT, _NO_DEFAULT, _PART_KEY = 512, 4096, 16384
_NOT_NULL, _BLOB, _UNSIGNED, _ZEROFILL, _BINARY, _ENUM, _TIMESTAMP, _SET = 1, 16, 32, 64, 128, 256, 1024, 2048
_ANY_SCALE = 31  # "decimals" of a DOUBLE: as many as needed
_TEXT_BYTES = 65_535
_LONGEST = 2**32 - 1
_LENGTHS = {"tinytext": 255, "tinyblob": 255, "mediumtext": 16_777_215, "mediumblob": 16_777_215,
            "longtext": _LONGEST, "longblob": _LONGEST, "json": _LONGEST}

CHUNK_ROWS = 500  # rows of one chunk, if they are Python values already

Encoder = Callable[[Sequence[Any]], list[bytes]]
"""Values of one column, none of them NULL, as they stand in rows."""

_INTEGERS = {8: (TINY, 4, "b"), 16: (SHORT, 6, "h"), 24: (INT24, 9, "i"), 32: (LONG, 11, "i"),
             64: (LONGLONG, 20, "q")}  # bits -> wire type, display width, struct format


def encode_result(fields: Sequence[Field], rows: Sequence[Sequence[object]], binary: bool, deprecate_eof: bool,
                  status: int = AUTOCOMMIT, warnings: int = 0, first: int = 1) -> bytes:
    """Encode a complete reply with rows, numbered from `first`.

    binary: the reply to COM_STMT_EXECUTE, else to COM_QUERY.  The bytes can be kept and sent again to any session with
    the same `deprecate_eof` and `status` (`answering.replies`).  It is fastest if `fields` is the same tuple each time.
    """
    form = _form(fields)
    out, seq = _begun(form, deprecate_eof, status, warnings, first)
    if rows:
        seq = _add(out, form, rows, binary, seq)
    out.append(codec.frame(_end(status, warnings, deprecate_eof), seq))
    return b"".join(out)


def encode_chunks(fields: Sequence[Field], rows: Sequence[Sequence[object]], binary: bool, deprecate_eof: bool,
                  status: int = AUTOCOMMIT, warnings: int = 0, first: int = 1, stopped: Stopped = never
                  ) -> Generator[bytes, None, int]:
    """Yield the bytes of `encode_result` in chunks.  Return the number of the next packet.

    stopped: if it returns an error, this ends the rows with the error and returns 0.
    """
    form = _form(fields)
    out, seq = _begun(form, deprecate_eof, status, warnings, first)
    yield b"".join(out)
    each = rows.chunk_rows if isinstance(rows, LargeRows) else CHUNK_ROWS
    for at in range(0, len(rows), each):
        if (why := stopped()) is not None:
            yield codec.frame(codec.error(why), seq)
            return 0
        out = []
        seq = _add(out, form, rows[at:at + each], binary, seq)
        yield b"".join(out)
    yield codec.frame(_end(status, warnings, deprecate_eof), seq)
    return seq + 1


def _begun(form: _Form, deprecate_eof: bool, status: int, warnings: int, first: int) -> tuple[list[bytes], int]:
    """Return the packets before the rows, and the number of the next packet."""
    seq = first + form.packets
    out = [form.header if first == 1 else codec.renumber(form.header, first)]
    if not deprecate_eof:
        out.append(codec.frame(_end(status, warnings, False), seq))
        seq += 1
    return out, seq


def _add(out: list[bytes], form: _Form, rows: Sequence[Sequence[object]], binary: bool, seq: int) -> int:
    """Append the packets of rows, numbered from `seq`.  Return the number of the next packet."""
    payloads = form.binary_rows(rows) if binary else form.text_rows(rows)
    for payload in payloads:
        if len(payload) < codec.MAX_PAYLOAD:
            out += ((len(payload) | (seq & 255) << 24).to_bytes(4, "little"), payload)
            seq += 1
        else:
            out.append(codec.frame(payload, seq))
            seq += len(payload) // codec.MAX_PAYLOAD + 1
    return seq


_end = lru_cache(maxsize=256)(codec.end_of_rows)


class _Form:
    """The column definitions and encoders that all results with the same columns share."""

    def __init__(self, fields: tuple[Field, ...]) -> None:
        payloads = [codec.lenenc_int(len(fields)), *(column_definition(f) for f in fields)]
        self.header, self.packets = codec.frame_all(payloads, 1), len(payloads)
        self._text = tuple(_text_encoder(f.type) for f in fields)
        self._binary = tuple(_binary_encoder(f.type) for f in fields)
        self._no_nulls = bytes(1 + (len(fields) + 9) // 8)  # the header byte and a NULL bitmap without a bit

    def text_rows(self, rows: Sequence[Sequence[object]]) -> Iterator[bytes]:
        columns = zip(self._text, zip(*rows, strict=True), strict=True)
        return map(b"".join, zip(*[_column(encode, values, b"\xfb") for encode, values in columns], strict=True))

    def binary_rows(self, rows: Sequence[Sequence[object]]) -> Iterator[bytes]:
        columns = zip(self._binary, zip(*rows, strict=True), strict=True)
        encoded = [_column(encode, values, b"") for encode, values in columns]
        return map(b"".join, zip(map(self._nulls, rows), *encoded, strict=True))

    def _nulls(self, row: Sequence[object]) -> bytes:
        if None not in row:
            return self._no_nulls
        nulls = bytearray(self._no_nulls)
        for i, value in enumerate(row):
            if value is None:
                nulls[1 + (i + 2) // 8] |= 1 << (i + 2) % 8
        return bytes(nulls)


def _column(encode: Encoder, values: Sequence[object], null: bytes) -> list[bytes]:
    if None not in values:
        return encode(values)
    encoded = iter(encode([value for value in values if value is not None]))
    return [null if value is None else next(encoded) for value in values]


_recent: dict[int, tuple[Sequence[Field], _Form]] = {}  # by identity: a comparison of fields costs more than a row
_RECENT = 4096


def _form(fields: Sequence[Field]) -> _Form:
    found = _recent.get(id(fields))
    if found is not None and found[0] is fields:
        return found[1]
    form = _form_of(tuple(fields))
    if type(fields) is tuple:
        if len(_recent) >= _RECENT:
            _recent.clear()
        _recent[id(fields)] = fields, form
    return form


_form_of = lru_cache(maxsize=1024)(_Form)


# --- Column definitions --------------------------------------------------------------------------------------


def column_definition(column: Field, table: str = "") -> bytes:
    """Encode a column definition.  The name is cut to MAX_ALIAS_CHARS: without an alias it is the expression's text,
    which may have megabytes."""
    wire, charset, length, flags, decimals = _wire_type(column.type)
    if not column.nullable:
        flags |= _NOT_NULL
    names = "", table, table, column.name[:MAX_ALIAS_CHARS], column.name[:MAX_ALIAS_CHARS] if table else ""
    if (origin := column.origin) is not None:
        names = origin.database, origin.alias, origin.table, column.name[:MAX_ALIAS_CHARS], origin.column
        flags |= (_KEYS[origin.key] | _PART_KEY * origin.within_key | _AUTO_INCREMENT * origin.auto_increment
                  | _NO_DEFAULT * origin.required)
    return b"".join((b"\x03def", *(codec.lenenc(name.encode()) for name in names), b"\x0c",
                     struct.pack("<HIBHBH", charset, length, wire, flags, decimals, 0)))


def parameter_definition() -> bytes:
    """Return the definition of a parameter `?`, whose type is unknown."""
    return b"\x03def\0\0\0\x01?\0\x0c" + struct.pack("<HIBHBH", codec.BINARY, 0, VAR_STRING, _BINARY, 0, 0)


@lru_cache(maxsize=1024)
def _wire_type(kind: SqlType) -> tuple[int, int, int, int, int]:
    """Return (wire type, character set, display length, flags, decimals)."""
    unsigned = _UNSIGNED if kind.unsigned else 0
    if kind.declared == "year":
        return YEAR, codec.BINARY, 4, _BINARY | _UNSIGNED | _ZEROFILL, 0
    if kind.is_bit:
        return BIT, codec.BINARY, kind.precision, _UNSIGNED, 0
    if kind.kind is Kind.INT:
        wire, width, _ = _INTEGERS[kind.bits]
        return wire, codec.BINARY, 1 if kind.boolean else width, _BINARY | unsigned, 0
    if kind.kind is Kind.DOUBLE:
        wire, width = (FLOAT, 12) if kind.bits == 32 else (DOUBLE, 22)
        if kind.precision:
            return wire, codec.BINARY, kind.precision, _BINARY | unsigned, kind.scale
        return wire, codec.BINARY, width, _BINARY | unsigned, _ANY_SCALE
    if kind.kind is Kind.DECIMAL:
        width = kind.precision + kind.length + (kind.scale > 0) + (not kind.unsigned)
        return NEWDECIMAL, codec.BINARY, width, _BINARY | unsigned, kind.scale + kind.length
    if kind.kind is Kind.DATE:
        return DATE, codec.BINARY, 10, _BINARY, 0
    if kind.kind is Kind.DATETIME:
        width = 19 + (kind.scale + 1 if kind.scale else 0)
        wire, flags = (TIMESTAMP, _TIMESTAMP) if kind.timestamp else (DATETIME, 0)
        return wire, codec.BINARY, width, _BINARY | flags, kind.scale
    if kind.kind is Kind.TIME:
        return TIME, codec.BINARY, 10 + (kind.scale + 1 if kind.scale else 0), _BINARY, kind.scale
    if kind.is_listed:
        sizes = [len(m) for m in kind.members]
        width = max(sizes) if kind.kind is Kind.ENUM else sum(sizes) + len(sizes) - 1
        return STRING, codec.UTF8MB4, width * 4, _ENUM if kind.kind is Kind.ENUM else _SET, 0
    return _wire_text(kind)


def _wire_text(kind: SqlType) -> tuple[int, int, int, int, int]:
    """As `_wire_type`, for texts and bytes.  JSON is declared as binary, as in MySQL."""
    charset = codec.BINARY if kind.is_bytes else codec.UTF8MB4 if kind.folds else codec.UTF8MB4_BIN
    flags = _BINARY if kind.is_bytes else 0
    if kind.is_json:
        return JSON, codec.BINARY, _LONGEST, _BLOB | _BINARY, 0
    width = 1 if kind.is_bytes else 4
    if kind.length:
        return STRING if kind.declared in ("char", "binary") else VAR_STRING, charset, kind.length * width, flags, 0
    return BLOB, charset, min(_LENGTHS.get(kind.declared, _TEXT_BYTES) * width, _LONGEST), _BLOB | flags, 0


# --- Values --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _text_encoder(kind: SqlType) -> Encoder:
    scale = kind.scale
    if kind.is_bit:
        return lambda values: [codec.lenenc(bits_of(v, kind)) for v in values]
    if kind.declared == "year" or (kind.kind is Kind.DOUBLE and (kind.bits == 32 or kind.precision)):
        return lambda values: [codec.lenenc(show(v, kind).encode()) for v in values]
    if kind.kind is Kind.TIME:
        return lambda values: [codec.lenenc(show_time(v, scale).encode()) for v in values]
    if kind.kind is Kind.INT:
        return _integers
    if kind.kind is Kind.DOUBLE:
        return lambda values: [codec.lenenc(show_double(float(v)).encode()) for v in values]
    if kind.kind is Kind.DECIMAL:
        scale += kind.length
        return lambda values: [codec.lenenc(format_decimal(v, scale).encode()) for v in values]
    if kind.kind is Kind.DATE:
        return lambda values: [codec.lenenc(format_date(v).encode()) for v in values]
    if kind.kind is Kind.DATETIME:
        return lambda values: [codec.lenenc(format_datetime(v, scale).encode()) for v in values]
    return _texts


@lru_cache(maxsize=1024)
def _binary_encoder(kind: SqlType) -> Encoder:
    if kind.kind is Kind.INT and not kind.is_bit:
        code = _INTEGERS[kind.bits][2]
        pack = struct.Struct("<" + (code.upper() if kind.unsigned else code)).pack
        return lambda values: [pack(v) for v in values]
    if kind.kind is Kind.TIME:
        return lambda values: [_binary_time(v) for v in values]
    if kind.kind is Kind.DOUBLE:
        pack_double = struct.Struct("<f" if kind.bits == 32 else "<d").pack
        return lambda values: [pack_double(v) for v in values]
    if kind.kind is Kind.DATE:
        return lambda values: [_binary_date(v) for v in values]
    if kind.kind is Kind.DATETIME:
        return lambda values: [_binary_datetime(v) for v in values]
    return _text_encoder(kind)


def _integers(values: Sequence[int]) -> list[bytes]:
    length = codec.SHORT
    return [length[len(digits)] + digits for digits in [b"%d" % v for v in values]]


def _texts(values: Sequence[str | bytes]) -> list[bytes]:
    length, lenenc = codec.SHORT, codec.lenenc
    return [length[len(data)] + data if len(data) < 251 else lenenc(data)
            for data in [v if isinstance(v, bytes) else v.encode() for v in values]]


def format_decimal(value: object, scale: int) -> str:
    return f"{value if isinstance(value, Decimal) else Decimal(str(value)):.{scale}f}"


def format_date(value: date) -> str:
    return f"{value.year:04}-{value.month:02}-{value.day:02}"


def format_datetime(value: date, scale: int) -> str:
    if not isinstance(value, datetime):
        return format_date(value) + " 00:00:00" + (f".{'0' * scale}" if scale else "")
    fraction = f".{value.microsecond:06}"[:scale + 1] if scale else ""
    return f"{format_date(value)} {value.hour:02}:{value.minute:02}:{value.second:02}{fraction}"


def _binary_time(value: timedelta) -> bytes:
    micros = abs(value) // MICROSECOND
    seconds, fraction = divmod(micros, 1_000_000)
    if not micros:
        return b"\0"
    packed = struct.pack("<BIBBB", value < timedelta(), seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60,
                         seconds % 60)
    return b"\x0c" + packed + struct.pack("<I", fraction) if fraction else b"\x08" + packed


def _binary_date(value: date) -> bytes:
    return struct.pack("<BHBB", 4, value.year, value.month, value.day) if value.month else b"\0"  # the zero date


def _binary_datetime(value: date) -> bytes:
    if not (isinstance(value, datetime) and value.month):
        return _binary_date(value)
    day = (value.year, value.month, value.day)
    time = (value.hour, value.minute, value.second)
    if value.microsecond:
        return struct.pack("<BHBBBBBI", 11, *day, *time, value.microsecond)
    return struct.pack("<BHBBBBB", 7, *day, *time) if any(time) else struct.pack("<BHBB", 4, *day)
