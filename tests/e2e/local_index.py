"""A directory of wheels with what a package depends on, made of what is installed here: `pip install --no-index`."""

from __future__ import annotations

import json
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement


def needed(requirements: list[str]) -> dict[str, Distribution]:
    """The installed distributions that satisfy these, and what they depend on."""
    found: dict[str, Distribution] = {}
    left = [Requirement(r) for r in requirements]
    seen: set[tuple[str, frozenset[str]]] = set()
    while left:
        wanted = left.pop()
        key = wanted.name.lower(), frozenset(wanted.extras)
        if key in seen:
            continue
        seen.add(key)
        found[key[0]] = installed = distribution(wanted.name)
        for text in installed.requires or []:
            more = Requirement(text)
            if more.marker is None or any(more.marker.evaluate({"extra": e}) for e in ("", *wanted.extras)):
                left.append(more)
    return found


def packed(installed: Distribution, directory: Path) -> None:
    """Its files as the wheel that they came from, without what pip compiled and the programs that it wrote."""
    about = (installed.read_text("WHEEL") or "").splitlines()
    tags = [line.partition(": ")[2] for line in about if line.startswith("Tag: ")]
    pythons, abis, platforms = (".".join(dict.fromkeys(t.split("-")[i] for t in tags)) for i in range(3))
    name = installed.name.replace("-", "_")
    with zipfile.ZipFile(directory / f"{name}-{installed.version}-{pythons}-{abis}-{platforms}.whl", "w") as wheel:
        for file in installed.files or []:
            made_here = file.parts[0] == ".." or "__pycache__" in file.parts or file.name in ("INSTALLER", "REQUESTED")
            if not made_here:
                wheel.write(file.locate(), str(file))


def local_index(requirements: list[str], directory: Path) -> None:
    """Of what these depend on; not of a checkout, to which an installation links or in which a build left its name."""
    directory.mkdir()
    for installed in needed(requirements).values():
        linked = "dir_info" in json.loads(installed.read_text("direct_url.json") or "{}")
        if installed.read_text("WHEEL") and not linked:
            packed(installed, directory)
