"""Records which column families are damaged: `noria-damage.json` beside RocksDB's files.

A damaged file costs only the table it belongs to; of the family that small tables share, a damaged block costs only
the tables in it.  The record survives restarts, so that a new worker leaves out the
views over the table instead of reading the same block again.  An entry is deleted with its family (DROP TABLE), or
when `noria check` reads the whole family without an error.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress

from noria.storage.rocks.errors import StoreDamaged

FILE = "noria-damage.json"
_UNREADABLE = ("Corruption", "No such file or directory", "Input/output error")
_SST = re.compile(r"(\d{6,})\.sst")


def is_damage(text: str) -> bool:
    """True if RocksDB's message says that a file cannot be read, not that descriptors or space ran out."""
    return any(words in text for words in _UNREADABLE)


def sst_in(text: str) -> int | None:
    """The number of the SST file that RocksDB's message names."""
    found = _SST.search(text)
    return int(found[1]) if found else None


class Damage:
    """The damaged families and the error of each."""

    def __init__(self, path: str):
        self._path = os.path.join(path, FILE)
        try:
            with open(self._path) as file:
                read = json.load(file)
            self.families: dict[str, str] = {str(k): str(v) for k, v in read.items()}
        except FileNotFoundError:
            self.families = {}
        except (ValueError, AttributeError) as e:
            raise StoreDamaged(f"the file {self._path}, which names damaged tables, cannot be read ({e}): remove it, "
                               f"then run noria check on the data directory, which writes it again") from e

    def note(self, family: str, text: str) -> None:
        if family not in self.families:
            self.families[family] = text
            self._save()

    def forget(self, family: str) -> None:
        if self.families.pop(family, None) is not None:
            self._save()

    def _save(self) -> None:
        """Write the record, best effort: a record that is lost is made again when the damage is read."""
        with suppress(OSError):
            fresh = self._path + ".new"
            with open(fresh, "w") as file:
                json.dump(self.families, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, self._path)
