"""Infers a CREATE TABLE statement from files: from Parquet's types, all fields of CSV, or all values of JSON.

The load and this module parse text files with the same code (`files`), and Spark's tasks read all of them (`guessing`).
The types of Parquet are Arrow's, as in the load.  Call `infer`.

Keeps true: the new table has the files' columns, by name.  A column whose type no table can have is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_type

from noria.spark.jobs.progress import Progress, ignore_progress, stages
from noria.spark.loading.rows import files as reading_files
from noria.spark.loading.rows.files import BadFile, InputFile, Split
from noria.spark.loading.rows.guessing import FieldStatistics, facts, json_facts, json_type_of, type_of
from noria.spark.loading.rows.reading import TextFormat
from noria.spark.loading.tasks.running import collected, numbers
from noria.spark.loading.tasks.sources import gathered
from noria.spark.loading.tasks.tasks import Batches, LoadRefused, each
from noria.spark.source.types import KEY_CHARACTERS, NoSuchType
from noria.spark.source.writer import created

LOOKED = "name string, facts string"  # a row for each column of a split
NAMED = "give the table its columns with CREATE TABLE, and load without --create"


@dataclass(frozen=True)
class Inferred:
    """The result of `infer`.  statement: the CREATE TABLE.  sources: the plain files that were read."""

    statement: str
    sources: tuple[InputFile, ...]


def infer(spark: SparkSession, progress: Progress = ignore_progress, *, table: str, files: Sequence[str],
          reading: TextFormat, keys: Sequence[str], place: str) -> Inferred:
    """Infer the CREATE TABLE of `table` with the primary key `keys`.  Raises BadFile or LoadRefused.

    place: a directory for the plain files."""
    sources = gathered(spark, progress, files, reading, place)
    with stages(spark, progress, "looking at the files"):
        schema = _schema(spark, sources, reading, {k.lower() for k in keys})
    if not schema.fields:
        raise BadFile(f"{sources[0].shown}: no columns are found in it: {NAMED}")
    names = {n.lower() for n in schema.names}
    if len(names) < len(schema.names):
        raise LoadRefused(f"two columns of the files have one name ({', '.join(schema.names)}): {NAMED}")
    if missing := [k for k in keys if k.lower() not in names]:
        raise LoadRefused(f"--primary-key names '{missing[0]}', which is no column of the files: "
                          f"{', '.join(schema.names)}")
    try:
        text = created(table, schema, keys)
    except NoSuchType as e:
        raise LoadRefused(f"{e}; or {NAMED}") from e
    return Inferred(text.replace("CREATE TABLE IF NOT EXISTS", "CREATE TABLE", 1), sources)


def _schema(spark: SparkSession, sources: Sequence[InputFile], reading: TextFormat, keys: set[str]) -> T.StructType:
    """Return the schema of the files.  Raises LoadRefused if they have several formats: no schema is right for all."""
    forms = {s.format for s in sources}
    if len(forms) > 1:
        raise LoadRefused(f"the files are of several formats ({', '.join(sorted(forms))}): {NAMED}")
    (form,) = forms
    if form == "csv":
        return _of_csv(spark, sources, reading, keys)
    return _of_parquet(sources) if form == "parquet" else _of_json(spark, sources, reading, keys)


# ------------------------------------------------------------------ CSV
def _of_csv(spark: SparkSession, sources: Sequence[InputFile], reading: TextFormat, keys: set[str]) -> T.StructType:
    if not reading.header and not reading.columns:
        raise LoadRefused(f"{sources[0].shown}: no line names the columns (--no-header): name them with --columns")
    splits = reading_files.plan(sources, reading)
    _check_names(splits)
    names, found = _inspected(spark, _Inspect(tuple(splits), reading, _csv_facts))
    return T.StructType([T.StructField(n, _kept(type_of(found[low]), found[low], low in keys))
                         for low, n in names.items()])


def looked(found: Mapping[str, FieldStatistics]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(list(found), pa.string()),
                            pa.array([json.dumps(f) for f in found.values()], pa.string())], names=["name", "facts"])


@dataclass(frozen=True)
class _Inspect:
    """A task that maps numbers of splits to the facts about their columns.  look: finds the facts of a split."""

    splits: tuple[Split, ...]
    reading: TextFormat
    look: Callable[[Split, TextFormat], Mapping[str, FieldStatistics]]

    def __call__(self, batches: Batches) -> Batches:
        for number in each(batches):
            yield looked(self.look(self.splits[number], self.reading))


def _inspected(spark: SparkSession, task: _Inspect) -> tuple[dict[str, str], dict[str, FieldStatistics]]:
    """Run the task.  Returns names in the order of the files, and facts, both by the name's lower case."""
    names: dict[str, str] = {}
    found: dict[str, FieldStatistics] = {}
    for row in collected(numbers(spark, len(task.splits)).mapInArrow(task, LOOKED)):
        low = row["name"].strip().lower()
        names.setdefault(low, row["name"].strip())
        found[low] = found.get(low, FieldStatistics()).joined(FieldStatistics(*json.loads(row["facts"])))
    return names, found


def _check_names(splits: Sequence[Split]) -> None:
    for split in splits:
        if "" in (names := [n.strip() for n in split.names]):
            raise LoadRefused(f"{split.shown}: field {names.index('') + 1} of its header has no name: name all fields "
                              "with --columns")
        low = [n.lower() for n in names]
        if len(set(low)) < len(low):
            raise LoadRefused(f"{split.shown}: two columns of the header have one name ({', '.join(names)}): name the "
                              "fields with --columns")


def _kept(kind: T.DataType, seen: FieldStatistics, is_key: bool) -> T.DataType:
    """Return the column's type: for a text of the key that is too long by default, a VARCHAR of the longest text."""
    long = is_key and isinstance(kind, T.StringType) and seen.longest > KEY_CHARACTERS
    return T.VarcharType(seen.longest) if long else kind


def _csv_facts(split: Split, reading: TextFormat) -> dict[str, FieldStatistics]:
    found = dict.fromkeys(split.names, FieldStatistics())
    for chunk in reading_files.read(split, reading, {}):
        found = {n: found[n].joined(facts(texts, reading)) for n, texts in chunk.columns.items()}
    return found


# ------------------------------------------------------------------ Parquet
def _of_parquet(sources: Sequence[InputFile]) -> T.StructType:
    schemas = [_parquet_schema(s) for s in sources]
    try:
        unified = pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as e:
        raise LoadRefused(f"the files have different types for one column ({e}): {NAMED}") from e
    return T.StructType([T.StructField(f.name, _of_arrow(f)) for f in unified])


def _parquet_schema(source: InputFile) -> pa.Schema:
    try:
        return pq.read_schema(source.path)
    except (pa.ArrowException, OSError) as e:
        raise BadFile(f"{source.shown}: is not a readable Parquet file (truncated?): {e}") from e


_LARGER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.int64(),
           pa.float16(): pa.float32(), pa.null(): pa.string()}


def _of_arrow(field: pa.Field) -> T.DataType:
    """Return the Spark type of an Arrow column.  A time of day is an interval, which becomes a TIME."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return T.DayTimeIntervalType()
    try:
        spark: T.DataType = from_arrow_type(_LARGER.get(kind, kind))
        return spark
    except PySparkException as e:
        raise LoadRefused(f"the column '{field.name}' is {kind}, which no column can be here; {NAMED}") from e


# ------------------------------------------------------------------ JSON
def _of_json(spark: SparkSession, sources: Sequence[InputFile], reading: TextFormat, keys: set[str]) -> T.StructType:
    """Return the schema of JSON files, with columns in the order of their names."""
    splits = reading_files.plan(sources, reading)
    names, found = _inspected(spark, _Inspect(tuple(splits), reading, _json_facts))
    return T.StructType([T.StructField(names[low], _kept(json_type_of(found[low]), found[low], low in keys))
                         for low in sorted(names, key=lambda low: names[low])])


def _json_facts(split: Split, reading: TextFormat) -> dict[str, FieldStatistics]:
    """As `_csv_facts`, for JSON.  Raises LoadRefused for a column of arrays or objects."""
    found: dict[str, FieldStatistics] = {}
    for objects in reading_files.objects(split, reading):
        for name in dict.fromkeys(n for o in objects for n in o):
            values = [o[name] for o in objects if name in o]
            if any(isinstance(v, dict | list) for v in values):
                raise LoadRefused(f"the column '{name}' has arrays or objects, which no column that --create "
                                  f"makes can hold: {NAMED}, of the type JSON or TEXT")
            found[name] = found.get(name, FieldStatistics()).joined(json_facts(values, reading))
    return found
