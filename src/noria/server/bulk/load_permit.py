"""Decides which files a request to load may name.

Anybody may name files below the directories of `--load-dir`.  A client that can read a token in the data directory may
name any file that the server's user may use.

The token is never sent.  A client sends an HMAC of its request under the token, so a program that poses as the server
learns nothing that it could use.

This module replaces a directory by its files, and a pattern by the matching files, in the order of their names.  A URL
is for Spark's connectors, which read with the server's rights; only a client with the token may name one.

Keeps true:

* A path is resolved (links, ..) before it is checked, and the resolved path is used.
* A reject file replaces a reject file or nothing.
* A client does not learn whether a file exists that it may not read.  A match that links to another place is ignored.
* A pattern visits each directory once for each path to it, and never a parent.  The checks run in a thread, since they
  may visit many files.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import hmac
import itertools
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from noria.core.errors import SqlError, view_changed
from noria.core.errors.codes import (
    ACCESS_DENIED,
    FILE_EXISTS,
    NOT_SUPPORTED_YET,
    OPTION_PREVENTS_STATEMENT,
    UNKNOWN_ERROR,
)
from noria.core.limits import LOAD_FILES
from noria.core.types import TableDef
from noria.spark.loading.rows.reading import of_request
from noria.sql.query.relations.context import Catalog

TOKEN_FILE = "load.token"
PROOF_HEADER = "Noria-Proof"
LOAD_KEYS = {
    "table": "the table's name", "database": "the name of its database",
    "files": "a list of paths, directories, patterns and URLs",
    "format": "csv, json or parquet",
    "header": "true or false", "columns": "a list of names for the fields", "delimiter": "one character",
    "null": "the field that means NULL", "quote": "one character, or nothing", "escape": "one character, or nothing",
    "decimal": ". or ,", "date_format": "a format as %d.%m.%Y", "encoding": "the name of an encoding",
    "multiline": "true or false",
    "reject": "a path for the rows that do not fit", "max_rejects": "a number",
    "create": "true or false", "primary_key": "a list of columns",
    "on_duplicate": "error, ignore or replace", "once": "a name",
}
ON_DUPLICATE = ("error", "ignore", "replace")
EXPORT_KEYS = {"what": "a table, a view or a SELECT", "to": "parquet, csv or json", "directory": "a path",
               "overwrite": "true or false"}
_TYPES: dict[str, type] = {"table": str, "database": str, "format": str, "header": bool, "multiline": bool,
                           "delimiter": str, "columns": list, "quote": str, "escape": str, "decimal": str,
                           "date_format": str, "encoding": str, "null": str, "reject": str, "max_rejects": int,
                           "create": bool, "primary_key": list, "on_duplicate": str, "once": str}
_MAY_BE_EMPTY = ("null", "quote", "escape")  # options for which "" is a value
_MARK = {"file", "row", "text", "reason"}  # the keys of a reject file's lines (spark/loading/rows/files.py Reject)
_MARKS = (_MARK, _MARK | {"line", "column"})  # of earlier versions, and of this one
_TOKEN_BYTES = 32
_LINE_BYTES = 64 * 1024  # a reject file's first line is shorter
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def make_token(data_dir: Path) -> bytes:
    """Write a new token to a file that only the server's user can read, and return it."""
    path, token = data_dir / TOKEN_FILE, secrets.token_hex(_TOKEN_BYTES)
    path.unlink(missing_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "w") as out:
        out.write(token)
    return token.encode()


def proof(token: bytes, body: bytes) -> str:
    """Return the value of the header PROOF_HEADER for a request with this body."""
    return hmac.new(token, body, hashlib.sha256).hexdigest()


class LoadPermit:
    """Checks the requests to load and to export, by the rules of this module.  directories: those of `--load-dir`."""

    def __init__(self, directories: Sequence[Path], token: bytes):
        self._directories = [os.path.realpath(d) for d in directories]
        self._token = token

    def check(self, request: dict[str, Any], raw: bytes, received_proof: str | None) -> dict[str, Any]:
        """Return the request to load with resolved paths.  raw: its body, which the proof signs.  Raises SqlError if a
        field is malformed, a path is not allowed or matches no file, or the proof is wrong."""
        trusted = received_proof is not None and self._is_proven(raw, received_proof)
        found = _well_formed(request)
        found["files"] = [path for f in found["files"] for path in self._expanded(f, trusted)]
        if "reject" in found:
            head, tail = os.path.split(found["reject"])
            found["reject"] = os.path.join(self._resolved(head, trusted, found["reject"]), tail)
            check_reject_file(found["reject"])
        return found

    def check_export(self, request: dict[str, Any], raw: bytes, received_proof: str | None) -> dict[str, Any]:
        """Return the request to export with a resolved directory.  Raises SqlError as `check` does."""
        trusted = received_proof is not None and self._is_proven(raw, received_proof)
        for key, meaning in EXPORT_KEYS.items():
            kind = bool if key == "overwrite" else str
            if not isinstance(request.get(key, False if kind is bool else None), kind):
                raise SqlError(*UNKNOWN_ERROR, f'"{key}" is {meaning}')
        if is_url(request["directory"]):
            raise SqlError(*NOT_SUPPORTED_YET,
                           f"'{request['directory']}' is a URL: export into a directory of the server's "
                           "host, or write with the Spark source \"noria\" (docs/how-to/spark.md)")
        return {**request, "directory": self._resolved(request["directory"], trusted)}

    def _is_proven(self, raw: bytes, received: str) -> bool:
        if not hmac.compare_digest(proof(self._token, raw).encode(), received.encode("utf-8", "replace")):
            raise SqlError(*ACCESS_DENIED, f"the header {PROOF_HEADER} does not prove this request: the server has "
                                           f"another {TOKEN_FILE} (it makes a new one at each start)")
        return True

    def _expanded(self, name: str, trusted: bool) -> list[str]:
        """Return the paths of a file, of a directory's files, or of a pattern's matches.  A URL remains unchanged."""
        name = re.sub(r"^file://(?=/)", "", name, flags=re.IGNORECASE)
        if is_url(name):
            if not trusted:
                raise SqlError(*OPTION_PREVENTS_STATEMENT,
                               f"'{name}' is no path: URLs are read only for `noria load` on the "
                               "server's host, as its user")
            return [name]
        fixed = fixed_part(name)
        if fixed == name or (_is_there(name) and self._resolved(name, trusted)):
            path = self._resolved(name, trusted)
            return self._inside(path, trusted) if os.path.isdir(path) else [path]
        start = self._resolved(fixed, trusted, name)
        found = self._allowed(_matching(start, name[len(fixed):].lstrip("/"), name), trusted)
        if not found:
            raise SqlError(*UNKNOWN_ERROR, f"'{name}' matches no file")
        return found

    def _inside(self, directory: str, trusted: bool) -> list[str]:
        found = self._allowed(_bounded(_listed(directory), directory), trusted)
        if not found:
            raise SqlError(*UNKNOWN_ERROR, f"there is no file in the directory '{directory}'")
        return found

    def _allowed(self, paths: Sequence[str], trusted: bool) -> list[str]:
        real = [os.path.realpath(p) for p in paths]
        return [p for p in real if os.path.isfile(p) and (trusted or self._may(p))]

    def _may(self, real: str) -> bool:
        return any(_is_below(real, d) for d in self._directories)

    def _resolved(self, path: str, trusted: bool, shown: str = "") -> str:
        if not os.path.isabs(path):
            raise SqlError(*UNKNOWN_ERROR, f"the path '{shown or path}' is not absolute")
        try:
            real = os.path.realpath(path)
        except (OSError, ValueError) as e:
            raise SqlError(*UNKNOWN_ERROR, f"the path '{shown or path}' cannot be: {e}") from None
        if not trusted and not self._may(real):
            where = ", ".join(self._directories) or "none was given"
            raise SqlError(*OPTION_PREVENTS_STATEMENT,
                           f"the path '{shown or path}' is below no directory of --load-dir ({where}): "
                           "no other can be read or written over HTTP, except by `noria load` on the "
                           "server's host, as its user")
        return real


def fixed_part(name: str) -> str:
    """Return the directory in which a pattern begins.  A name that is no pattern is returned unchanged.

    >>> fixed_part("/data/2026-*/votes.csv"), fixed_part("/data/votes.csv"), fixed_part("*.csv")
    ('/data', '/data/votes.csv', '.')
    """
    found = re.search(r"[*?[]", name)
    return name if found is None else os.path.dirname(name[: found.start()]) or "."


def is_url(name: str) -> bool:
    return _URL.match(name) is not None


def _matching(start: str, pattern: str, shown: str) -> list[str]:
    if ".." in pattern.split("/"):
        raise SqlError(*UNKNOWN_ERROR, f"'{shown}': .. cannot follow *, ? or [ in a pattern")
    matches = glob.iglob(os.path.join(glob.escape(start), pattern))
    files = (f for m in matches for f in (_listed(m) if os.path.isdir(m) else [m]))
    return sorted(_bounded(files, shown))


def _bounded(files: Iterable[str], shown: str) -> list[str]:
    found = list(itertools.islice(files, LOAD_FILES + 1))
    if len(found) > LOAD_FILES:
        raise SqlError(*UNKNOWN_ERROR, f"'{shown}' stands for more than {LOAD_FILES} files: load them in several parts")
    return found


def _listed(directory: str) -> list[str]:
    """Return the sorted paths of a directory's entries.  As Spark does, skip names that begin with _ or a dot."""
    try:
        return [os.path.join(directory, n) for n in sorted(os.listdir(directory)) if not n.startswith(("_", "."))]
    except OSError as e:
        raise SqlError(*UNKNOWN_ERROR, f"the directory '{directory}' cannot be read: {e.strerror}") from None


def _is_there(path: str) -> bool:
    try:
        return os.path.lexists(path)
    except ValueError:
        return False


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _well_formed(request: dict[str, Any]) -> dict[str, Any]:
    for key, kind in _TYPES.items():
        value = request.get(key)
        if value is not None and (type(value) is not kind or (isinstance(value, int) and value < 0)):
            raise SqlError(*UNKNOWN_ERROR, f'"{key}" is {LOAD_KEYS[key]}, not {json.dumps(value)[:100]}')
    files = request.get("files")
    if not isinstance(files, list) or not files or not all(isinstance(f, str) and f for f in files):
        raise SqlError(*UNKNOWN_ERROR, '"files" is a list of at least one path')
    if not all(isinstance(k, str) for k in request.get("primary_key") or ()):
        raise SqlError(*UNKNOWN_ERROR, '"primary_key" is a list of columns')
    if request.get("primary_key") and not request.get("create"):
        raise SqlError(*UNKNOWN_ERROR,
                       "a primary key is given to a table that is made: say --create (\"create\"), too, "
                       "or leave out --primary-key")
    if request.get("on_duplicate", "error") not in ON_DUPLICATE:
        raise SqlError(*UNKNOWN_ERROR, f'"on_duplicate" (--on-duplicate) is one of {", ".join(ON_DUPLICATE)}, not '
                                       f"'{request['on_duplicate']}'")
    if not all(isinstance(c, str) for c in request.get("columns") or ()):
        raise SqlError(*UNKNOWN_ERROR, '"columns" is a list of names')
    said = {k: v for k, v in request.items() if v is not None and (v != "" or k in _MAY_BE_EMPTY)}
    try:
        of_request(said)
    except ValueError as e:
        raise SqlError(*UNKNOWN_ERROR, str(e)) from None
    return said


# ------------------------------------------------------------------ reject files
def check_reject_file(path: str) -> None:
    """Raise SqlError if the path exists and is not the reject file of an earlier load."""
    try:
        about = os.lstat(path)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as e:
        raise SqlError(*UNKNOWN_ERROR, f"the reject file '{path}' cannot be written: {e}") from None
    if not stat.S_ISREG(about.st_mode) or not _is_reject_file(path):
        raise SqlError(*FILE_EXISTS, f"File '{path}' already exists and is no reject file of an earlier load: name "
                                     "another with \"reject\" (--reject), or remove it")


def _is_reject_file(path: str) -> bool:
    try:
        with open(path, "rb") as f:
            first = json.loads(f.readline(_LINE_BYTES))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(first, dict) and first.keys() in _MARKS


def keep_rejects(made: str, target: str) -> None:
    """Copy the reject file of a load to its target, atomically.  Raises SqlError if the target is another file."""
    check_reject_file(target)
    unfinished = f"{target}.{secrets.token_hex(4)}.new"
    try:
        with open(made, "rb") as source, open(unfinished, "xb") as out:
            shutil.copyfileobj(source, out)
        if os.path.lexists(target):
            os.replace(unfinished, target)
        else:
            os.link(unfinished, target)  # as a rename that never replaces
    except OSError as e:
        raise SqlError(*UNKNOWN_ERROR, f"the reject file '{target}' cannot be written: {e.strerror}; nothing was loaded"
                       ) from e
    finally:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)


def drop_rejects(target: str) -> None:
    """Remove the reject file of an earlier load.  Called after a load without rejects."""
    if _is_reject_file(target):
        with contextlib.suppress(OSError):
            os.unlink(target)


__all__ = ["EXPORT_KEYS", "LOAD_KEYS", "PROOF_HEADER", "TOKEN_FILE", "LoadPermit", "check_reject_file", "drop_rejects",
           "fixed_part",           "is_url", "keep_rejects", "make_token", "proof"]


def unchanged(table: TableDef, program: Catalog) -> str:
    """The name of the table that files were made for.  Raises error 1412 if it has other CHECKs or FOREIGN KEYs by now.
    """
    now = program.table(table.name)
    if now is not None and (now.enforced, now.foreign_keys) != (table.enforced, table.foreign_keys):
        raise view_changed(table.name)
    return table.name
