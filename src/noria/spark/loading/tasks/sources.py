"""Turns the files that a load names into plain files, which can be split.

    s3a://…, hdfs://…, http://…    copied to this host by Spark's connectors, also patterns and directories
    .gz, .zst, .zstd               unpacked by Spark's tasks, one for each file
    JSON that is one array         converted to JSON lines by the same tasks
    another encoding than UTF-8, CSV with an escape character: likewise

So several tasks can sample and read such a file like any other.  Its unpacked size is needed on disk during the load.

Keeps true: new files are below `place`.  Files are in the order in which they were named, those of a pattern or a
directory by name.  A missing or unreadable file raises a `BadFile` with the user's name for it.
"""

from __future__ import annotations

import codecs
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from noria.spark.jobs.progress import Progress, stages
from noria.spark.loading.rows.arrays import Lines, NoArray, begins_array
from noria.spark.loading.rows.files import BadFile, InputFile, escapes_of, format_of
from noria.spark.loading.rows.reading import TextFormat
from noria.spark.loading.tasks.running import collected, numbers
from noria.spark.loading.tasks.tasks import Batches

CODECS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}
OTHER_CODECS = {".bz2", ".xz", ".lz4", ".snappy", ".zip", ".7z", ".br", ".z", ".tgz", ".tar"}
HEAD_BYTES = 64 * 1024  # read to find out whether JSON is an array
BLOCK_BYTES = 1024 * 1024  # unpacked at once
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def gathered(spark: SparkSession, progress: Progress, named: Sequence[str], reading: TextFormat, place: str
             ) -> tuple[InputFile, ...]:
    """Return a plain file for each file that is named, in order.  Raises BadFile.  place: a directory for new files."""
    found: list[tuple[str, str]] = []  # path, the user's name
    for i, name in enumerate(named):
        found += _brought(spark, name, os.path.join(place, f"fetched-{i}")) if URL.match(name) else [(name, name)]
    wanted = [_Making(path, shown, *_kind(path, shown, reading), reading, os.path.join(place, f"plain-{i}"))
              for i, (path, shown) in enumerate(found)]
    _check_options(wanted, reading)
    made = [m for m in wanted if m.needed]
    if made:
        os.makedirs(place, exist_ok=True)
        with stages(spark, progress, "unpacking"):
            collected(numbers(spark, len(made)).mapInArrow(_Unpack(tuple(made)), "number bigint"))
    return tuple(InputFile(m.target if m.needed else m.path, m.shown, m.format, m.lines_before) for m in wanted)


def _check_options(wanted: Sequence[_Making], reading: TextFormat) -> None:
    """Raise BadFile for options that apply to none of the files."""
    forms = {m.format for m in wanted}
    if "csv" not in forms and (csv_options := reading.csv_options()):
        raise BadFile(f"{wanted[0].shown}: {', '.join(csv_options)} is for CSV, and no file is CSV: leave it out, or "
                      "say --format csv")
    if forms == {"parquet"} and not reading.is_utf8:
        raise BadFile(f"{wanted[0].shown}: --encoding is for CSV and JSON; Parquet's texts are UTF-8")


def _kind(path: str, shown: str, reading: TextFormat) -> tuple[str, str, bool]:
    """Return a file's format, its codec ("" for none), and whether it is a JSON array.  Raises BadFile."""
    if not os.path.isfile(path):
        raise BadFile(f"{shown}: there is no such file" if not os.path.exists(path) else f"{shown}: is not a file")
    stem, ending = os.path.splitext(shown)
    if ending.lower() in OTHER_CODECS:
        raise BadFile(f"{shown}: files may be compressed by gzip (.gz) or zstd (.zst), not as '{ending}': unpack it "
                      "first")
    codec = CODECS.get(ending.lower(), "")
    form = format_of(stem if codec else shown, reading)
    if codec and form == "parquet":
        raise BadFile(f"{shown}: a Parquet file is compressed inside and read in parts: unpack it first")
    return form, codec, form == "json" and begins_array(_as_utf8(_head(path, shown, codec), reading))


def _head(path: str, shown: str, codec: str) -> bytes:
    try:
        with _opened(path, codec) as f:
            head: bytes = f.read(HEAD_BYTES)
            return head
    except (OSError, pa.ArrowException) as e:
        raise BadFile(f"{shown}: cannot be read: {e}") from e


def _as_utf8(head: bytes, reading: TextFormat) -> bytes:
    return head if reading.is_utf8 else head.decode(reading.encoding, "ignore").encode()


def _opened(path: str, codec: str) -> Any:
    raw = pa.OSFile(path, "rb")
    return pa.CompressedInputStream(raw, codec) if codec else raw


# ------------------------------------------------------------------ tasks
@dataclass(frozen=True)
class _Making:
    path: str
    shown: str
    format: str
    codec: str
    is_array: bool
    reading: TextFormat
    target: str

    @property
    def has_escapes(self) -> bool:
        return self.format == "csv" and bool(self.reading.escape)

    @property
    def transcoded(self) -> bool:
        return self.format != "parquet" and not self.reading.is_utf8

    @property
    def needed(self) -> bool:
        return bool(self.codec) or self.is_array or self.transcoded or self.has_escapes

    @property
    def lines_before(self) -> int | None:
        if self.has_escapes:
            return int(self.reading.header)
        return 0 if self.is_array else None

    def make(self) -> None:
        """Write the plain file.  A second run of the task writes the same file."""
        unfinished = f"{self.target}.{os.getpid()}"
        with _opened(self.path, self.codec) as source, open(unfinished, "wb") as out:
            for block in self._plain(source):
                out.write(block)
        os.replace(unfinished, self.target)

    def _plain(self, source: Any) -> Iterator[bytes]:
        """Convert the file to the lines that are split."""
        lines = Lines() if self.is_array else None
        escapes = escapes_of(self.reading) if self.has_escapes else None
        blocks = self._utf8(source)
        if lines or escapes or self.transcoded:
            blocks = _without_mark(blocks)
        for block in blocks:
            hidden = escapes.of(block) if escapes else block
            yield lines.of(hidden) if lines else hidden
        if escapes:
            yield escapes.of(b"", last=True)
        if lines:
            lines.end()

    def _utf8(self, source: Any) -> Iterator[bytes]:
        blocks = iter(lambda: source.read(BLOCK_BYTES), b"")
        return transcoded(blocks, self.reading.encoding) if self.transcoded else blocks


def _without_mark(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Remove a byte order mark from the beginning."""
    yield next(blocks, b"").removeprefix(b"\xef\xbb\xbf")
    yield from blocks


def _surrogate(error: UnicodeError) -> tuple[str, int]:
    """Decode an invalid byte as a character that UTF-8 cannot encode."""
    assert isinstance(error, UnicodeDecodeError)
    return "\udc80", error.end


def transcoded(blocks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Convert another encoding to UTF-8.  An invalid byte becomes one that is invalid in UTF-8: its row is rejected."""
    codecs.register_error("noria.undecodable", _surrogate)
    decoder = codecs.getincrementaldecoder(encoding)("noria.undecodable")
    for block in blocks:
        yield decoder.decode(block).encode("utf-8", "surrogateescape")
    yield decoder.decode(b"", True).encode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class _Unpack:
    """A task that makes the plain files with the given numbers."""

    files: tuple[_Making, ...]

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                one = self.files[number]
                try:
                    one.make()
                except (OSError, pa.ArrowException, zlib.error) as e:
                    raise BadFile(f"{one.shown}: cannot be unpacked (cut off or damaged?): {e}") from e
                except NoArray as e:
                    raise BadFile(f"{one.shown}: is no array of JSON: {e}") from e
                yield pa.record_batch([pa.array([number], pa.int64())], names=["number"])


# ------------------------------------------------------------------ connectors
def _brought(spark: SparkSession, url: str, place: str) -> Iterator[tuple[str, str]]:
    """Copy the files that a URL names to `place`, and return the path and URL of each.  Raises BadFile."""
    scheme = url.split(":", 1)[0]
    hadoop = spark._jvm.org.apache.hadoop.fs
    try:
        path = hadoop.Path(url)
        system = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        there = list(_files(system, path))
        if not there:
            raise BadFile(f"{url}: nothing is there that matches")
        os.makedirs(place)
        for n, status in enumerate(there):
            shown = str(status.getPath().toString())
            target = os.path.join(place, f"{n}-{os.path.basename(shown)}")
            system.copyToLocalFile(False, status.getPath(), hadoop.Path(f"file://{target}"), True)
            yield target, shown
    except Py4JJavaError as e:
        raise BadFile(f"{url}: {_reason(str(e.java_exception.toString()), scheme)}") from e


def _files(system: Any, path: Any) -> Iterator[Any]:
    """Return the files of a path, pattern or directory.  In a directory, names with a leading _ or . are skipped, as
    in Spark."""
    for status in system.globStatus(path) or ():
        if not status.isDirectory():
            yield status
            continue
        for inner in sorted(system.listStatus(status.getPath()), key=lambda s: str(s.getPath().getName())):
            if not inner.isDirectory() and not str(inner.getPath().getName()).startswith(("_", ".")):
                yield inner


def _reason(said: str, scheme: str) -> str:
    if "No FileSystem for scheme" in said or "ClassNotFoundException" in said:
        return (f"Spark has no connector for {scheme}:// here: give it the connector's jars (spark.jars.packages in "
                "spark-defaults.conf, see docs/how-to/spark.md) and start the server again")
    return f"cannot be read by Spark's connector: {said}"
