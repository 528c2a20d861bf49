"""The names of view files, the records that locate views, and the removal of files whose writer has ended.

    <directory>/view.<name>/<epoch>-<creation>-<generation>.json             the view's record: columns and location
    <directory>/view.<name>/<epoch>-<creation>-<generation>.view, .stamps    of a view with files of its own
    <directory>/<epoch>-<number>-<words>.pool, .stamps                       shared by small views (`views/pool.py`)

Numbers have a fixed width, so that the greatest name is the newest: a later epoch, or in one epoch the later
creation, or the later generation of one creation.

Keeps true: a record appears, complete, only after its memory serves.  A record is out of date if its memory has
another STATE.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import quote

from noria.core.types import Collation, Field, Kind, SqlType
from noria.state.memory import atomics
from noria.state.memory.mapped import map_file, no_room
from noria.views.layout import DEAD, STATE

VIEWS = "views"  # the names of directories of views begin with this
_STEM = re.compile(r"[0-9a-f]{12}-[0-9a-f]{12}[-.]")
_STEM_LENGTH = 25
_FOLDER = "view."  # a prefix, because the symbol table may share the directory
_LONGEST_NAME = 200  # the most bytes of a view's name in a file name; longer names are hashed
_POOL, _VIEW, _STAMPS, _RECORD = ".pool", ".view", ".stamps", ".json"


@dataclass(frozen=True)
class ViewDescriptor:
    """The description of a view for readers.  `symbols`: the path of the symbol table of its text codes, relative to
    the directory of the views.  `definition`: the number of the definition that made the view."""

    name: str
    fields: tuple[Field, ...]
    key: tuple[int, ...]
    visible: int
    full: bool
    symbols: str | None
    definition: int = 0


@dataclass(frozen=True)
class MemoryLocation:
    """The location of a view's memory: files relative to the directory, first words and numbers of words.  `serves`:
    the STATE that the memory has while the view is there."""

    file: str
    first: int
    words: int
    stamps: str
    first_stamp: int
    slots: int
    serves: int


@dataclass(frozen=True)
class ViewFiles:
    """The file names of one creation of a view.  `home`: the view's first name, whose folder has its memory.  Its
    records are in the folder of its current name."""

    directory: str
    about: ViewDescriptor
    stem: str
    home: str = ""

    @property
    def folder(self) -> str:
        return view_folder(self.directory, self.about.name)

    @property
    def _home(self) -> str:
        return view_folder(self.directory, self.home or self.about.name)

    def renamed(self, name: str) -> ViewFiles:
        return replace(self, about=replace(self.about, name=name), home=self.home or self.about.name)

    def _name(self, generation: int, ending: str) -> str:
        return f"{self.stem}-{generation:06x}{ending}"

    def _path(self, generation: int, ending: str) -> str:
        return os.path.join(self.folder, self._name(generation, ending))

    def paths(self, generation: int) -> tuple[str, str]:
        """The paths of the view's own memory and of its stamps."""
        view, stamps = (os.path.join(self._home, self._name(generation, e)) for e in (_VIEW, _STAMPS))
        return view, stamps

    def record(self, generation: int, spot: MemoryLocation) -> None:
        """Publish the view's new location to readers.  Raises SqlError if the file system is full."""
        path = self._path(generation, _RECORD)
        text = json.dumps({**_to_json(self.about), "spot": asdict(spot)})
        try:
            with open(path + ".writing", "w") as file:
                file.write(text)
            os.rename(path + ".writing", path)
        except OSError as e:
            with contextlib.suppress(OSError):
                os.unlink(path + ".writing")
            raise no_room(e, path, len(text)) from None

    def make_folder(self) -> None:
        try:
            os.makedirs(self.folder, exist_ok=True)
        except OSError as e:
            raise no_room(e, self.folder, 0) from None

    def withdraw(self, generation: int) -> None:
        """Remove a record that is out of date."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(generation, _RECORD))

    def remove_folder(self) -> None:
        for folder in {self.folder, self._home}:
            with contextlib.suppress(OSError):  # another creation of the view uses the folder
                os.rmdir(folder)


def stem(epoch: int, number: int) -> str:
    return f"{epoch:012x}-{number:012x}"


def pool_paths(directory: str, epoch: int, number: int, words: int) -> tuple[str, str]:
    """The paths of a pool with regions of `words` words, and of its stamps."""
    path = os.path.join(directory, f"{stem(epoch, number)}-{words:x}")
    return path + _POOL, path + _STAMPS


def view_folder(directory: str, name: str) -> str:
    quoted = quote(name, safe="")
    if len(quoted) > _LONGEST_NAME:
        quoted = "%" + hashlib.sha256(name.encode()).hexdigest()
    return os.path.join(directory, _FOLDER + quoted)


def newest_first(folder: str) -> list[str]:
    """The paths of a view's records, newest first."""
    with contextlib.suppress(FileNotFoundError):
        return [os.path.join(folder, n) for n in sorted(os.listdir(folder), reverse=True) if n.endswith(_RECORD)]
    return []


def read_record(path: str) -> tuple[ViewDescriptor, MemoryLocation]:
    with open(path) as file:
        data = json.load(file)
    try:
        return _from_json(data), MemoryLocation(**data["spot"])
    except (TypeError, KeyError, AttributeError) as e:
        raise ValueError(f"{path} is no description of a view: {e!r}") from e


def bury(directory: str, first: str) -> None:
    """Mark all memory of views with a stem before `first` DEAD, and delete its files."""
    for path in _numbered(directory):
        name = os.path.basename(path)
        if name[:_STEM_LENGTH] >= first:
            continue
        if name.endswith((_VIEW, _POOL)):
            _kill(path, int(name[_STEM_LENGTH + 1:-len(_POOL)], 16) if name.endswith(_POOL) else 0)
        os.unlink(path)
    for folder in _folders(directory):
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # if the view was not created again


def _kill(path: str, region: int) -> None:
    """Mark every view in a file DEAD.  `region`: the words of a region of the file, or 0 for a file of one view."""
    backed = os.stat(path).st_blocks * 512 // 8
    if backed:
        words = map_file(path, "int64", writable=True)
        for at in range(0, min(backed, len(words)) if region else 1, region or 1):
            atomics.store(words, at + STATE, DEAD)


def creations(directory: str, epoch: int) -> int:
    """The greatest number that an earlier writer of the same epoch has used; 0 for none."""
    own = f"{epoch:012x}-"
    names = map(os.path.basename, _numbered(directory))
    return max((int(n[len(own):_STEM_LENGTH], 16) for n in names if n.startswith(own)), default=0)


def _numbered(directory: str) -> Iterator[str]:
    """The paths of all files that writers have made."""
    for place in [directory, *_folders(directory)]:
        if os.path.isdir(place):
            yield from (os.path.join(place, n) for n in os.listdir(place) if _STEM.match(n))


def _folders(directory: str) -> list[str]:
    if not os.path.isdir(directory):
        return []
    return [e.path for e in os.scandir(directory) if e.name.startswith(_FOLDER) and e.is_dir()]


def names(directory: str) -> list[str]:
    """The names of the views that have records."""
    named = []
    for folder in _folders(directory):
        records = newest_first(folder)
        if records:
            with contextlib.suppress(FileNotFoundError):
                named.append(read_record(records[0])[0].name)
    return sorted(named)


def _to_json(about: ViewDescriptor) -> dict[str, Any]:
    return {**asdict(about), "fields": [
        {"name": f.name, "nullable": f.nullable,
         "type": {**asdict(f.type), "kind": f.type.kind.value, "collation": f.type.collation.value}}
        for f in about.fields]}


def _from_json(data: dict[str, Any]) -> ViewDescriptor:
    fields = tuple(
        Field(f["name"], SqlType(**{**f["type"], "kind": Kind(f["type"]["kind"]),
                                    "collation": Collation(f["type"]["collation"]),
                                    "members": tuple(f["type"]["members"])}), f["nullable"])
        for f in data["fields"])
    return ViewDescriptor(data["name"], fields, tuple(data["key"]), data["visible"], data["full"], data["symbols"],
                          data["definition"])
