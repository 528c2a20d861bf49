"""The package layers: a package imports only packages before it in the list, and the pure ones do no I/O."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "noria"
LAYERS = ("core", "state", "dataflow", "plan", "sql", "views", "storage", "runtime", "spark", "control",
          "server", "client", "demo", "cli")
PURE = LAYERS[: LAYERS.index("sql") + 1]
IMPURE_MODULES = {"asyncio", "logging", "multiprocessing", "os", "random", "requests", "secrets", "select", "shutil",
                  "socket", "subprocess", "tempfile", "threading", "time", "uuid", "zmq", "rocksdict", "pyspark"}
# Symbol tables and kernels may live in mapped files: what they do with them is still deterministic.
IMPURE_ALLOWED = {("state", "os")}


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every module a file imports at run time, with its line; imports inside functions count too."""
    tree = ast.parse(path.read_text(), str(path))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    package = ("noria", *path.relative_to(SRC).parent.parts)
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module or "") if part)
            yield node.lineno, module
            if module == "noria":
                yield from ((node.lineno, f"noria.{alias.name}") for alias in node.names)


def modules(packages: tuple[str, ...]) -> list[Path]:
    return sorted(p for package in packages for p in (SRC / package).rglob("*.py"))


@pytest.mark.parametrize("path", modules(LAYERS), ids=lambda p: str(p.relative_to(SRC)))
def test_imports_only_lower_layers(path: Path) -> None:
    own = LAYERS.index(path.relative_to(SRC).parts[0])
    wrong = [
        f"line {line}: {name}"
        for line, name in imports(path)
        if name.startswith("noria.") and name.split(".")[1] in LAYERS and LAYERS.index(name.split(".")[1]) > own
    ]
    assert not wrong, f"{path.relative_to(SRC)} imports a higher layer: {wrong}"


@pytest.mark.parametrize("path", modules(PURE), ids=lambda p: str(p.relative_to(SRC)))
def test_pure_packages_do_no_io(path: Path) -> None:
    package = path.relative_to(SRC).parts[0]
    wrong = [
        f"line {line}: {name}"
        for line, name in imports(path)
        if name.split(".")[0] in IMPURE_MODULES and (package, name.split(".")[0]) not in IMPURE_ALLOWED
    ]
    assert not wrong, f"{path.relative_to(SRC)} is in a pure package: {wrong}"


def test_every_package_is_in_the_list() -> None:
    packages = {p.parent.name for p in SRC.glob("*/__init__.py")}
    assert packages <= set(LAYERS), f"not in the list of layers: {sorted(packages - set(LAYERS))}"
