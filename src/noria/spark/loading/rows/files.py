"""Reads files to load in splits: CSV, JSON lines and Parquet as Arrow columns, unreadable rows as rejects.

All files are plain: `sources` has fetched and unpacked the others.  The driver plans splits (`plan`), and Spark's tasks
read them (`read`), a chunk at a time.  Text files are split at line ends, Parquet files at row groups.

Keeps true: every row of every file is in exactly one chunk, as a row or as a reject with its text and the reason.  An
unreadable file raises a `BadFile` that names it, before or while it is read.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from noria.core.types import Column, Kind
from noria.spark.loading.rows.escapes import Escapes
from noria.spark.loading.rows.reading import TextFormat

FORMATS = {".csv": "csv", ".tsv": "csv", ".txt": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json",
           ".parquet": "parquet"}
SPLIT_BYTES = 64 * 2**20  # of a text file, for one task
CHUNK_BYTES = 8 * 2**20  # of a text file, parsed at once
CHUNK_ROWS = 128 * 1024  # of a Parquet file, converted at once
SHOWN_CHARS = 2_000  # at most, of a rejected row's text


class BadFile(Exception):
    """A file cannot be read.  The message says which file, why, and what to do."""


@dataclass(frozen=True)
class InputFile:
    """A plain file.  `shown`: the user's name for it.  `lines_before`: the number of lines before the first row, if
    lines here are not lines of the user's file (elements of an array, records with escaped line ends); else None."""

    path: str
    shown: str
    format: str
    lines_before: int | None = None


@dataclass(frozen=True)
class Split:
    """A part of a file: the rows that begin at bytes start..end of a text file, or row groups start..end of Parquet.

    `first_row`: for Parquet, the number of rows before the split.  `nbytes`: the split's size, uncompressed.  `shown`
    and `lines_before` are those of its `InputFile`.
    """

    number: int
    path: str
    format: str
    start: int
    end: int
    names: tuple[str, ...]
    first_row: int
    nbytes: int
    shown: str
    lines_before: int | None


@dataclass(frozen=True)
class Reject:
    """A row that was not loaded.  `row`: its number in the file, from 1, if rows are not lines.  `text`: the row.
    `line`: its line in a text file, from 1; before `rejects.placed`, its line in the split, from 0.  `column`: the
    column whose value does not fit."""

    file: str
    row: int | None
    text: str
    reason: str
    line: int | None = None
    column: str | None = None

    def json(self) -> str:
        return json.dumps({"file": self.file, "line": self.line, "row": self.row, "column": self.column,
                           "text": self.text, "reason": self.reason}, ensure_ascii=False)


@dataclass
class Chunk:
    """Rows as Arrow columns by name.  `first_row`: for Parquet, the number of the first row in the file, from 1.
    `lines`: for text, returns the line of each row in the split, from 0, if known.  It is called only for bad rows."""

    columns: dict[str, Any]  # Arrow arrays, or Loose
    rows: int
    first_row: int | None = None
    rejects: list[Reject] = field(default_factory=list)
    lines: Callable[[], Sequence[int] | None] = lambda: None


# ------------------------------------------------------------------ planning
def format_of(path: str, reading: TextFormat) -> str:
    ending = os.path.splitext(path)[1].lower()
    found = reading.format or FORMATS.get(ending, "")
    if found not in ("csv", "json", "parquet"):
        unknown = f"there is no format '{found}'" if found else f"the format is not known from the ending '{ending}'"
        raise BadFile(f"{path}: {unknown}; give one of csv, json, parquet")
    return found


def plan(sources: Sequence[InputFile], reading: TextFormat, known: Sequence[str] = ()) -> list[Split]:
    """Return the splits of all files, in order.  Raises BadFile.

    known: the table's columns; a file that names no columns has these.
    """
    splits: list[Split] = []
    for source in sources:
        make = {"csv": _plan_csv, "json": _plan_json, "parquet": _plan_parquet}[source.format]
        try:
            for start, end, names, first, nbytes in make(source, reading, tuple(known)):
                splits.append(Split(len(splits), source.path, source.format, start, end, names, first, nbytes,
                                    source.shown, source.lines_before))
        except OSError as e:
            raise BadFile(f"{source.shown}: cannot be read: {e}") from e
    return splits


Range = tuple[int, int, tuple[str, ...], int, int]


def _plan_parquet(source: InputFile, reading: TextFormat, known: tuple[str, ...]) -> Iterator[Range]:
    try:
        file = pq.ParquetFile(source.path)
    except (pa.ArrowInvalid, OSError) as e:
        raise BadFile(f"{source.shown}: is not a readable Parquet file (truncated?): {e}") from e
    names, first = tuple(file.schema_arrow.names), 0
    if not file.num_row_groups:
        yield 0, 0, names, 0, 0
    for group in range(file.num_row_groups):
        about = file.metadata.row_group(group)
        yield group, group + 1, names, first, about.total_byte_size
        first += about.num_rows


def _plan_csv(source: InputFile, reading: TextFormat, known: tuple[str, ...]) -> Iterator[Range]:
    size, start, names = os.path.getsize(source.path), 0, reading.columns or known
    if reading.header:
        with open(source.path, "rb") as f:
            line = f.readline()
            start = f.tell()
        header = _header(line.removeprefix(b"\xef\xbb\xbf"), source, reading)
        names = reading.columns or header
        if len(names) != len(header):
            raise BadFile(f"{source.shown}: its header has {len(header)} fields ({', '.join(header)}), --columns names "
                          f"{len(names)}: name each field, in order")
    step = max(size, 1) if reading.multiline else SPLIT_BYTES
    for at in range(start, max(size, start + 1), step):
        yield at, min(at + step, size), names, 0, min(step, size - at)


def _header(line: bytes, source: InputFile, reading: TextFormat) -> tuple[str, ...]:
    """Return the column names in a file's first line, which is parsed like its other lines."""
    line = line.rstrip(b"\r\n")
    try:
        line.decode()
    except UnicodeDecodeError as e:
        raise BadFile(f"{source.shown}: the header is not {reading.encoding.upper()}: say which --encoding the file has"
                      ) from e
    if not line:
        raise BadFile(f"{source.shown}: has no header line; say that there is none (--no-header), or give the file one")
    try:
        fields = pyarrow.csv.read_csv(
            io.BytesIO(line + b"\n"),
            pyarrow.csv.ReadOptions(use_threads=False, autogenerate_column_names=True, block_size=len(line) + 2),
            _parse_options(reading), pyarrow.csv.ConvertOptions(
                column_types={f"f{i}": pa.string() for i in range(len(line) + 1)}, null_values=[]))
    except pa.ArrowInvalid as e:
        raise BadFile(f"{source.shown}: its header is not CSV: {e}") from e
    escapes = escapes_of(reading)
    return tuple(str((escapes.unescaped(c.chunk(0)) if escapes else c.chunk(0))[0].as_py()) for c in fields.columns)


def _plan_json(source: InputFile, reading: TextFormat, known: tuple[str, ...]) -> Iterator[Range]:
    """Split by bytes.  Each line may name other columns; a column that it does not name gets its default."""
    size = os.path.getsize(source.path)
    for at in range(0, max(size, 1), SPLIT_BYTES):
        yield at, min(at + SPLIT_BYTES, size), known, 0, min(SPLIT_BYTES, size - at)


# ------------------------------------------------------------------ reading
def read(split: Split, reading: TextFormat, columns: Mapping[str, Column]) -> Iterator[Chunk]:
    """Read the split, a chunk at a time.  columns: the table's column for each name in the file."""
    if split.format == "parquet":
        yield from _read_parquet(split)
        return
    for block in _blocks(split, reading):
        if split.format == "csv":
            yield _parse_csv(block, split, reading)
        else:
            yield _parse_json(block, split, columns, reading.encoding)


def _read_parquet(split: Split) -> Iterator[Chunk]:
    row = split.first_row
    try:
        file = pq.ParquetFile(split.path)
        groups = list(range(split.start, split.end))
        for batch in file.iter_batches(CHUNK_ROWS, groups):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            yield Chunk(columns, batch.num_rows, row + 1)
            row += batch.num_rows
    except (pa.ArrowInvalid, OSError) as e:
        raise BadFile(f"{split.shown}: row group {split.start} cannot be read: {e}") from e


@dataclass(frozen=True)
class TextBlock:
    """Complete lines of a split.  before: the number of lines of the split before them."""

    data: bytes
    before: int = 0

    def lines(self) -> list[int]:
        """Return the numbers of the lines that are not empty, counted in the split from 0."""
        return [n for n, line in enumerate(self.data.split(b"\n"), self.before) if line.rstrip(b"\r")]


def _blocks(split: Split, reading: TextFormat) -> Iterator[TextBlock]:
    """Read the complete lines that begin in the split, about CHUNK_BYTES at a time."""
    before = 0
    with open(split.path, "rb") as f:
        undivided = reading.multiline and split.format == "csv"
        at = split.start
        if at and not undivided:
            f.seek(at - 1)
            at = at - 1 + len(f.readline())  # the previous split has the line that began earlier
        f.seek(at)
        while at < split.end:
            block = f.read(split.end - at if undivided else min(CHUNK_BYTES, split.end - at))
            if not undivided and not block.endswith(b"\n"):
                block += f.readline()
            if not block:
                return
            if at == 0:
                block = block.removeprefix(b"\xef\xbb\xbf")
            at = f.tell()
            yield TextBlock(block, before)
            before += block.count(b"\n")


def _lines(block: TextBlock, split: Split, encoding: str) -> tuple[list[tuple[int, str]], list[Reject]]:
    """Return the block's lines as text, with their numbers in the split.  Lines that are not UTF-8 are rejects."""
    good, bad = [], []
    for number, line in enumerate(block.data.split(b"\n"), block.before):
        line = line.rstrip(b"\r")
        if not line:
            continue
        try:
            good.append((number, line.decode()))
        except UnicodeDecodeError:
            text = line.decode(errors="backslashreplace")
            bad.append(Reject(split.shown, None, text, f"the row is not {encoding.upper()}", number))
    return good, bad


# ------------------------------------------------------------------ CSV
def _parse_csv(block: TextBlock, split: Split, reading: TextFormat) -> Chunk:
    """Parse a block with every column as text.  Rows with another number of fields are rejects."""
    rejects: list[Reject] = []
    wrong: list[Any] = []

    def wrong_arity(row: Any) -> str:
        wrong.append(row)
        return "skip"

    lines: Callable[[], Sequence[int]] = block.lines
    try:
        table = _csv_table(block.data, split, reading, wrong_arity)
    except pa.ArrowInvalid as e:
        good, rejects = _lines(block, split, reading.encoding)
        if not rejects:
            raise BadFile(f"{split.shown}: is not CSV: {e}; rows begin at byte {split.start}") from e
        wrong.clear()
        lines = partial(list, [number for number, _ in good])
        table = _csv_table("\n".join(line for _, line in good).encode(), split, reading, wrong_arity)
    known = () if reading.multiline or not wrong else lines()
    for row in wrong:
        reason = f"the row has {row.actual_columns} fields, {row.expected_columns} are expected"
        line = known[row.number - 1] if known else None
        rejects.append(Reject(split.shown, row.number if reading.multiline else None, row.text, reason, line))
    columns = {n: table.column(i).combine_chunks() for i, n in enumerate(split.names)}
    if escapes := escapes_of(reading):
        columns = {n: escapes.unescaped(c) for n, c in columns.items()}
    skipped = {row.number - 1 for row in wrong}

    def of_rows() -> Sequence[int] | None:
        return None if reading.multiline else [n for i, n in enumerate(lines()) if i not in skipped]

    return Chunk(columns, table.num_rows, rejects=rejects, lines=of_rows)


def _csv_table(block: bytes, split: Split, reading: TextFormat, wrong_arity: Any) -> pa.Table:
    if not block.strip(b"\r\n"):
        return pa.table({n: pa.array([], pa.string()) for n in split.names})
    return pyarrow.csv.read_csv(
        io.BytesIO(block),
        pyarrow.csv.ReadOptions(use_threads=False, column_names=list(split.names), block_size=len(block) + 1),
        _parse_options(reading, wrong_arity),
        pyarrow.csv.ConvertOptions(column_types={n: pa.string() for n in split.names}, strings_can_be_null=True,
                                   null_values=[reading.null], quoted_strings_can_be_null=False),
    )


def _parse_options(reading: TextFormat, wrong_arity: Any = None) -> pyarrow.csv.ParseOptions:
    """Return the parser's options, without an escape character: `Escapes` handles that."""
    return pyarrow.csv.ParseOptions(delimiter=reading.delimiter, quote_char=reading.quote or False,
                                    newlines_in_values=reading.multiline, invalid_row_handler=wrong_arity)


def escapes_of(reading: TextFormat) -> Escapes | None:
    return Escapes(reading.escape, reading.delimiter, reading.quote) if reading.escape else None


# ------------------------------------------------------------------ JSON lines
_JSON = {Kind.INT: pa.int64(), Kind.DOUBLE: pa.float64(), Kind.TEXT: pa.string(), Kind.DATE: pa.string(),
         Kind.DATETIME: pa.string()}


def _parse_json(block: TextBlock, split: Split, columns: Mapping[str, Column], encoding: str) -> Chunk:
    """Parse a block at once if every line is an object with the table's names and types, else line by line."""
    if all(c.type.kind in _JSON for c in columns.values()):  # decimals would lose digits
        schema = pa.schema([(n, _JSON[columns[n].type.kind]) for n in split.names])
        try:
            table = pyarrow.json.read_json(
                io.BytesIO(block.data), pyarrow.json.ReadOptions(use_threads=False, block_size=len(block.data) + 1),
                pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"))
        except pa.ArrowInvalid:
            return _parse_json_lines(block, split, encoding)
        if not any(table.column(n).null_count and _fills(columns[n]) for n in split.names):
            return Chunk({n: table.column(n).combine_chunks() for n in split.names}, table.num_rows, lines=lambda: [
                number for number, line in _lines(block, split, encoding)[0] if not line.isspace()])
    return _parse_json_lines(block, split, encoding)


def _fills(c: Column) -> bool:
    """Whether a missing value becomes a default other than NULL."""
    return c.default_now or (c.has_default and c.default is not None)


def _parse_json_lines(block: TextBlock, split: Split, encoding: str) -> Chunk:
    """Parse line by line: decimals keep their digits, keys ignore case, and each bad line is a reject."""
    lines, rejects = _lines(block, split, encoding)
    known = {n.lower(): n for n in split.names}
    values: dict[str, list[Any]] = {n: [] for n in split.names}
    rows: list[int] = []
    for number, line in lines:
        if line.isspace():  # such lines are around an array's elements
            continue
        row, reason = _json_row(line, known)
        if reason:
            rejects.append(Reject(split.shown, None, line, reason, number))
            continue
        rows.append(number)
        for n, column in values.items():
            column.append(row.get(n, MISSING))
    return Chunk({n: MixedColumn(v) for n, v in values.items()}, len(rows), rejects=rejects, lines=lambda: rows)


def objects(split: Split, reading: TextFormat) -> Iterator[list[dict[str, Any]]]:
    """Read the objects of a JSON split, a block at a time.  Numbers are `JsonNumber`s; lines without an object are
    skipped.
    """
    for block in _blocks(split, reading):
        lines, _ = _lines(block, split, reading.encoding)
        yield [o for o in (_object(line) for _, line in lines) if o is not None]


def _object(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line, parse_float=JsonNumber, parse_int=JsonNumber, parse_constant=lambda _: None)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


class JsonNumber(str):
    """A number of JSON as it is spelled in the file."""


def _json_row(line: str, known: dict[str, str]) -> tuple[dict[str, Any], str]:
    """Return the line's values by column and "", or {} and the reason why the line is rejected."""
    try:
        found = json.loads(line, parse_float=Decimal)
    except ValueError as e:
        return {}, f"the line is not JSON: {e}"
    if not isinstance(found, dict):
        return {}, "the line is not a JSON object"
    row: dict[str, Any] = {}
    for key, value in found.items():
        name = known.get(key.lower())
        if name is None:
            return {}, f"unknown column '{key}'"
        if isinstance(value, (dict, list)):
            value = json.dumps(value, ensure_ascii=False, default=str)
        row[name] = value
    return row, ""


MISSING = object()  # in a Loose column: the row has no value for it


class MixedColumn:
    """A column of Python values of several types, which no Arrow type can hold."""

    def __init__(self, values: list[Any]):
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def to_pylist(self) -> list[Any]:
        return self.values
