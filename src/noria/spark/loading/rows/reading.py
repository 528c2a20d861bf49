"""The options of a load that describe how its text files are written, checked once for the command, HTTP and the tasks.

Keeps true: `of_request` returns a valid `TextFormat`: its special characters differ, its date format is valid and its
encoding exists.  For an invalid option it raises ValueError, which names the option.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from noria.spark.loading.rows.dates import DateFormat

TAB = "\\t"  # a tab as a user writes it in a shell
ENCODINGS = {"utf8mb4": "utf-8", "utf8mb3": "utf-8"}  # MySQL's names that Python lacks
CSV_ONLY = {"delimiter": "--delimiter", "header": "--no-header", "columns": "--columns", "null": "--null",
            "decimal": "--decimal", "date_format": "--date-format", "quote": "--quote", "escape": "--escape",
            "multiline": "--multiline"}


@dataclass(frozen=True)
class TextFormat:
    """How to read text files.  All options but `format` and `encoding` are for CSV only.

    `header`: the first line names the columns.  `columns`: names of the fields, in order, instead of a header's.
    `null`: the unquoted field that means NULL.  `quote`, `escape`: "" for none.  `decimal`: the decimal point.
    `date_format`: "" for SQL's own.  `multiline`: quoted fields may hold line ends, so the file is one split."""

    format: str = ""
    header: bool = True
    columns: tuple[str, ...] = ()
    delimiter: str = ","
    null: str = "\\N"
    quote: str = '"'
    escape: str = ""
    decimal: str = "."
    date_format: str = ""
    encoding: str = "utf-8"
    multiline: bool = False

    def csv_options(self) -> list[str]:
        """Return the options for CSV only that differ from their defaults."""
        plain = TextFormat()
        return [said for name, said in CSV_ONLY.items() if getattr(self, name) != getattr(plain, name)]

    @property
    def is_utf8(self) -> bool:
        return codecs.lookup(self.encoding).name in ("utf-8", "ascii")


def of_request(request: Mapping[str, Any]) -> TextFormat:
    """Make the `TextFormat` of a request, whose values already have the right types.  Raises ValueError."""
    said = {f.name: request[f.name] for f in fields(TextFormat) if request.get(f.name) is not None}
    said["columns"] = tuple(str(c).strip() for c in said.get("columns", ()))
    said["delimiter"] = said["delimiter"].replace(TAB, "\t") if "delimiter" in said else _by_ending(request)
    if said.get("escape") and said["escape"] == said.get("quote", '"'):
        said["escape"] = ""  # a quote that escapes itself is a doubled quote, which the parser reads anyway
    reading = TextFormat(**said)
    _check_characters(reading)
    _check_columns(reading.columns)
    if reading.decimal not in (".", ","):
        raise ValueError(f'--decimal ("decimal") is . or , and not {reading.decimal!r}')
    if reading.date_format:
        DateFormat.of(reading.date_format)
    return _with_encoding(reading)


def _by_ending(request: Mapping[str, Any]) -> str:
    """Return the default delimiter: a tab if all files are .tsv, else a comma."""
    files = [str(f).lower().removesuffix(".gz").removesuffix(".zst") for f in request.get("files", ())]
    return "\t" if files and all(f.endswith(".tsv") for f in files) else ","


def _check_characters(reading: TextFormat) -> None:
    characters = {"delimiter": reading.delimiter, "quote": reading.quote, "escape": reading.escape}
    for name, text in characters.items():
        if len(text) > 1 or not text.isascii() or text in ("\r", "\n") or (name == "delimiter" and not text):
            may = "or \\t for a tab" if name == "delimiter" else "or nothing for none"
            raise ValueError(f'--{name} ("{name}") is one character of ASCII, {may}, and no line end; '
                             f"not {text!r}")
    some = [text for text in characters.values() if text]
    if len(set(some)) < len(some):
        raise ValueError(f"--delimiter, --quote and --escape are different characters, not {' '.join(map(repr, some))}")
    if any(c in reading.null for c in ("\r", "\n", reading.delimiter)):
        raise ValueError(f'--null ("null") is a field without line ends and delimiters, not {reading.null!r}')


def _check_columns(columns: tuple[str, ...]) -> None:
    if not all(columns):
        raise ValueError('--columns ("columns") has a name that is empty: name each field of the file')
    names = [c.lower() for c in columns]
    if twice := next((c for c in columns if names.count(c.lower()) > 1), ""):
        raise ValueError(f'--columns ("columns") names {twice} twice')


def _with_encoding(reading: TextFormat) -> TextFormat:
    wanted = ENCODINGS.get(reading.encoding.lower(), reading.encoding)
    try:
        "".encode(wanted)  # refuses codecs that are no encodings of text (base64, rot13)
        codecs.getincrementaldecoder(wanted)
    except (LookupError, ValueError):
        raise ValueError(f'--encoding ("encoding") is an encoding that Python knows, as utf-8, latin-1, windows-1252 '
                         f"or utf-16; not {reading.encoding!r}") from None
    return TextFormat(**{**vars(reading), "encoding": wanted})
