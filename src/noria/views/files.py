"""The names of view files, the JSON beside them, and the end of files whose writer is gone.

    <directory>/view.<name>/<epoch>-<creation>.json
    <directory>/view.<name>/<epoch>-<creation>-<generation>.view and .stamps

Numbers have a fixed width, so that the greatest name is the newest: a later epoch, or in one epoch the later
creation, or the later generation of one creation.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from noria.core.types import Collation, Field, Kind, SqlType
from noria.state import atomics
from noria.state.mapped import map_file, no_space
from noria.views.layout import DEAD, STATE

_STEM = re.compile(r"[0-9a-f]{12}-[0-9a-f]{6}[-.]")
_FOLDER = "view."  # the symbol table may share the directory
_LONGEST_NAME = 200  # bytes of a file name that views may use; longer names are hashed


@dataclass(frozen=True)
class About:
    """What a reader must know of a view; symbols: where the symbol table of its text codes is,
    relative to the directory of the views."""

    name: str
    fields: tuple[Field, ...]
    key: tuple[int, ...]
    visible: int
    full: bool
    symbols: str | None


@dataclass(frozen=True)
class Place:
    """Where one creation of a view keeps its files."""

    folder: str
    stem: str

    @staticmethod
    def make(directory: str, epoch: int, creation: int, about: About) -> Place:
        folder = view_folder(directory, about.name)
        os.makedirs(folder, exist_ok=True)
        place = Place(folder, stem(epoch, creation))
        temporary = os.path.join(folder, place.stem + ".writing")
        text = json.dumps(_to_json(about), indent=1)
        try:
            with open(temporary, "w") as file:
                file.write(text)
        except OSError as e:
            place.remove()
            raise no_space(e, temporary, len(text)) from None
        os.rename(temporary, os.path.join(folder, place.stem + ".json"))
        return place

    def paths(self, generation: int) -> tuple[str, str]:
        """Of the view's memory and of its stamps."""
        path = os.path.join(self.folder, f"{self.stem}-{generation:06x}")
        return path + ".view", path + ".stamps"

    def remove(self) -> None:
        for name in os.listdir(self.folder):
            if name.startswith(self.stem):
                os.unlink(os.path.join(self.folder, name))
        with contextlib.suppress(OSError):  # another creation of the view lives there
            os.rmdir(self.folder)


def stem(epoch: int, creation: int) -> str:
    return f"{epoch:012x}-{creation:06x}"


def view_folder(directory: str, name: str) -> str:
    quoted = quote(name, safe="")
    if len(quoted) > _LONGEST_NAME:
        quoted = "%" + hashlib.sha256(name.encode()).hexdigest()
    return os.path.join(directory, _FOLDER + quoted)


def newest_first(folder: str) -> list[str]:
    """Paths of a view's memory files."""
    with contextlib.suppress(FileNotFoundError):
        return [os.path.join(folder, n) for n in sorted(os.listdir(folder), reverse=True) if n.endswith(".view")]
    return []


def about_file(path: str) -> About:
    """What the JSON beside a view's memory file says."""
    with open(path.rpartition("-")[0] + ".json") as file:
        return _from_json(json.load(file))


def bury(directory: str, first: str) -> None:
    """Mark every view file with a stem before `first` DEAD and delete it."""
    for folder in _folders(directory):
        for name in os.listdir(folder):
            if not _STEM.match(name) or name[:len(first)] >= first:
                continue
            path = os.path.join(folder, name)
            if name.endswith(".view") and os.path.getsize(path):
                atomics.store(map_file(path, "int64", writable=True), STATE, DEAD)
            os.unlink(path)
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # if the view was not created again


def creations(directory: str, epoch: int) -> int:
    """How many creations an earlier life of the same epoch has numbered."""
    own = stem(epoch, 0)[:-6]
    return max((int(n[len(own):][:6], 16) for f in _folders(directory) for n in os.listdir(f) if n.startswith(own)),
               default=0)


def _folders(directory: str) -> list[str]:
    if not os.path.isdir(directory):
        return []
    return [e.path for e in os.scandir(directory) if e.name.startswith(_FOLDER) and e.is_dir()]


def names(directory: str) -> list[str]:
    """Views that have files."""
    found = []
    for folder in _folders(directory):
        files = newest_first(folder)
        if files:
            with contextlib.suppress(FileNotFoundError):
                found.append(about_file(files[0]).name)
    return sorted(found)


def _to_json(about: About) -> dict[str, Any]:
    return {**asdict(about), "fields": [
        {"name": f.name, "nullable": f.nullable,
         "type": {**asdict(f.type), "kind": f.type.kind.value, "collation": f.type.collation.value}}
        for f in about.fields]}


def _from_json(data: dict[str, Any]) -> About:
    fields = tuple(
        Field(f["name"], SqlType(**{**f["type"], "kind": Kind(f["type"]["kind"]),
                                    "collation": Collation(f["type"]["collation"]),
                                    "members": tuple(f["type"]["members"])}), f["nullable"])
        for f in data["fields"])
    return About(data["name"], fields, tuple(data["key"]), data["visible"], data["full"], data["symbols"])
