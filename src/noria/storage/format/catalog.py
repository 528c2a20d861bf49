"""The catalog as JSON: tables, indexes, the program's statements, results of recent writes.

Later versions must read what is on disk.  Hence each field is written out here, whatever the Python classes are.
`FORMAT` grows when an older version could misread what a newer one wrote.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from noria.core.errors import SqlError
from noria.core.expressions.coerce import MICROSECOND
from noria.core.expressions.zero_date import ZERO_DATE, ZERO_DATETIME, ZEROS
from noria.core.statements import WriteResult
from noria.core.types import (
    Action,
    Check,
    Collation,
    Column,
    ForeignKey,
    IndexDef,
    Kind,
    Past,
    SqlType,
    TableDef,
)

FORMAT = 6  # 6: small tables share a column family, and tables have entries of their own in the catalog
FIRST_WITHOUT_PICKLE = 4  # before it, prepared groups were pickles


def family_of(table: TableDef) -> str:
    """The name of the column family that holds the table's rows under its current primary key."""
    return f"t{table.table_id}" + (f"k{table.keyed}" if table.keyed else "")


def index_family_of(table: TableDef, columns: tuple[int, ...], unique: bool) -> str:
    """The name of an index's column family."""
    return f"{family_of(table)}.{'u' if unique else 'i'}{'-'.join(map(str, columns))}"


# ------------------------------------------------------------------ the entries of the catalog
CATALOG, TABLE = b"catalog", b"table:"  # keys in the family meta; the second with a table's id


def table_key(table_id: int) -> bytes:
    return TABLE + str(table_id).encode()


def catalog_to_bytes(recipe: Sequence[str], tables: Iterable[int], last_table_id: int) -> bytes:
    """The entry of the program: its statements and the ids of its tables, each of which has an entry, too."""
    data = {"recipe": list(recipe), "order": list(tables), "last_table_id": last_table_id}
    try:
        return msgspec.json.encode(data)  # ten times as fast
    except UnicodeEncodeError:  # a surrogate by itself, which JSON over HTTP may bring
        return json.dumps(data).encode()


def table_to_bytes(table: TableDef) -> bytes:
    return json.dumps(table_to_json(table)).encode()


def read_catalog(get: Callable[[bytes], bytes | None]) -> tuple[tuple[str, ...], list[TableDef], int]:
    """The program's statements, its tables, and the greatest table id ever used.  get: the value of a key, or None.

    Raises ValueError, KeyError or TypeError if they cannot be read.
    """
    stored = get(CATALOG)
    if stored is None:
        return (), [], 0
    data = json.loads(stored)
    # Before format 6 the tables were a part of this entry.
    tables = data["tables"] if "tables" in data else [_table_entry(get(table_key(id)), id) for id in data["order"]]
    return tuple(data["recipe"]), [table_from_json(t) for t in tables], data["last_table_id"]


def _table_entry(stored: bytes | None, id: int) -> Any:
    if stored is None:
        raise KeyError(f"table {id} has no entry")
    return json.loads(stored)


# ------------------------------------------------------------------ tables
def table_to_json(table: TableDef) -> dict[str, Any]:
    return {
        "name": table.name,
        "id": table.table_id,
        "columns": [_column_to_json(c) for c in table.columns],
        "primary_key": list(table.primary_key),
        "indexes": [{"name": i.name, "columns": list(i.columns), "unique": i.unique,
                     **({"prefix": list(i.prefix)} if i.prefix else {})} for i in table.indexes],
        **({"order": list(table.order)} if table.order else {}),
        **({"past": [[p.before, p.name, p.shown] for p in table.past]} if table.past else {}),
        **({"made": table.made} if table.made else {}),
        **({"keyed": table.keyed} if table.keyed else {}),
        **({"checks": [[c.name, c.text, c.enforced] for c in table.checks]} if table.checks else {}),
        **({"fulltext": [[i.name, list(i.columns)] for i in table.fulltext]} if table.fulltext else {}),
        **({"foreign_keys": [_foreign_key_to_json(k) for k in table.foreign_keys]} if table.foreign_keys else {}),
        **({"comment": table.comment} if table.comment else {}),
    }


def table_from_json(data: dict[str, Any]) -> TableDef:
    return TableDef(
        data["name"],
        tuple(_column_from_json(c) for c in data["columns"]),
        tuple(data["primary_key"]),
        tuple(IndexDef(i["name"], tuple(i["columns"]), i["unique"], tuple(i.get("prefix", ())))
              for i in data["indexes"]),
        data["id"],
        order=tuple(data.get("order", ())),
        past=tuple(Past(before, name, tuple((at, called) for at, called in shown))
                   for before, name, shown in data.get("past", ())),
        made=data.get("made", 0),
        keyed=data.get("keyed", 0),
        checks=tuple(Check(*c) for c in data.get("checks", ())),
        foreign_keys=tuple(map(_foreign_key_from_json, data.get("foreign_keys", ()))),
        fulltext=tuple(IndexDef(n, tuple(columns)) for n, columns in data.get("fulltext", ())),
        comment=data.get("comment", ""),
    )


def _foreign_key_to_json(key: ForeignKey) -> list[Any]:
    return [key.name, list(key.columns), key.parent, list(key.parent_columns), key.on_delete.value, key.on_update.value]


def _foreign_key_from_json(data: list[Any]) -> ForeignKey:
    name, columns, parent, parent_columns, on_delete, on_update = data
    return ForeignKey(name, tuple(columns), parent, tuple(parent_columns), Action(on_delete), Action(on_update))


def _column_to_json(column: Column) -> dict[str, Any]:
    type = column.type
    return {
        "name": column.name,
        "type": [type.kind.value, type.bits, type.unsigned, type.precision, type.scale, type.length,
                 type.collation.value, type.timestamp, type.boolean, type.declared, list(type.members)],
        "nullable": column.nullable,
        "default": _value_to_json(column.default) if column.has_default else None,
        "auto_increment": column.auto_increment,
        "default_now": column.default_now,
        "update_now": column.update_now,
        **({"initial": _value_to_json(column.initial), "added": column.added} if column.added else {}),
        **({"dropped": column.dropped} if column.dropped else {}),
        **({} if column.source is None else {"source": column.source}),
        **({"computed": [column.computed, column.expression]} if column.computed else {}),
        **({"comment": column.comment} if column.comment else {}),
    }


def _column_from_json(data: dict[str, Any]) -> Column:
    kind, bits, unsigned, precision, scale, length, collation, timestamp, boolean, *more = data["type"]
    declared, members = more or ("", ())  # the first catalogs lack both
    type = SqlType(Kind(kind), bits, unsigned, precision, scale, length, Collation(collation), timestamp, boolean,
                   declared, tuple(members))
    default, (computed, expression) = data["default"], data.get("computed", ("", ""))
    return Column(
        data["name"], type, data["nullable"], default is not None,
        None if default is None else _value_from_json(default), data["auto_increment"], data["default_now"],
        data.get("update_now", False), _value_from_json(data.get("initial", ["plain", None])), data.get("added", 0),
        data.get("dropped", 0), data.get("source"), computed, expression, data.get("comment", ""))


def _value_to_json(value: Any) -> list[Any]:
    """A default as [the name of its reader, text]."""
    if value is None or isinstance(value, (bool, int, str)):
        return ["plain", value]
    if isinstance(value, float):
        return ["float", value.hex()]
    if isinstance(value, Decimal):
        return ["decimal", str(value)]
    if isinstance(value, datetime):
        return ["datetime", "" if isinstance(value, ZEROS) else value.isoformat()]
    if isinstance(value, date):
        return ["date", "" if isinstance(value, ZEROS) else value.isoformat()]
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    if isinstance(value, timedelta):
        return ["time", str(value // MICROSECOND)]
    raise TypeError(f"no default can be {value!r}")


_READERS: dict[str, Callable[[str], Any]] = {
    "float": float.fromhex, "decimal": Decimal,
    "datetime": lambda text: datetime.fromisoformat(text) if text else ZERO_DATETIME,
    "date": lambda text: date.fromisoformat(text) if text else ZERO_DATE,
    "bytes": bytes.fromhex, "time": lambda micros: timedelta(microseconds=int(micros))}


def _value_from_json(data: list[Any]) -> Any:
    how, value = data
    return value if how == "plain" else _READERS[how](value)


# ------------------------------------------------------------------ results of writes
@dataclass(frozen=True)
class CommittedWrite:
    """A committed write, with the results that a resend of (epoch, seq) gets."""

    epoch: int
    seq: int
    results: tuple[WriteResult, ...] = ()

    def to_bytes(self) -> bytes:
        results = ",".join([_result_to_json(r) for r in self.results])
        return f"[{self.epoch},{self.seq},[{results}]]".encode()

    @staticmethod
    def from_bytes(data: bytes) -> CommittedWrite:
        epoch, seq, results = json.loads(data)
        return CommittedWrite(epoch, seq, tuple(_result_from_json(r) for r in results))


def _result_to_json(result: WriteResult) -> str:
    numbers, error = f"{result.affected},{result.last_insert_id},{result.matched}", result.error
    if error is None:
        return f"[{numbers},{result.row_id}]" if result.row_id else f"[{numbers}]"
    return f"[{numbers},{json.dumps([error.code, error.state, error.message])[1:-1]}]"


def _result_from_json(data: list[Any]) -> WriteResult:
    affected, last_insert_id, matched, *more = data
    if len(more) == 1:
        return WriteResult(affected, last_insert_id, matched, row_id=more[0])
    return WriteResult(affected, last_insert_id, matched, SqlError(*more) if more else None)
