"""The package layers: a package imports only packages before it in the list, and the pure ones do no I/O.  And the
rooms: their order, and how many modules one has."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "noria"
LAYERS = ("kernels", "core", "accounts", "state", "plan", "dataflow", "lowering", "sql", "feeds", "views", "storage",
          "runtime", "spark", "control", "server", "client", "following", "demo", "cli")
PURE = LAYERS[1: LAYERS.index("sql") + 1]  # where compiled kernels are kept is no pure matter
IMPURE_MODULES = {"asyncio", "logging", "multiprocessing", "os", "random", "requests", "secrets", "select", "shutil",
                  "socket", "subprocess", "tempfile", "threading", "time", "uuid", "zmq", "rocksdict", "pyspark"}
# Symbol tables and kernels may live in mapped files: what they do with them is still deterministic.
IMPURE_ALLOWED = {("state", "os")}


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every module a file imports, with its line; imports inside functions and for type annotations count too."""
    tree = ast.parse(path.read_text(), str(path))
    package = ("noria", *path.relative_to(SRC).parent.parts)
    for node in ast.walk(tree):
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


# ---------------------------------------------------------------- rooms and circles
ROOMS = {
    "state": (("memory",), ("rows",), ("grouping", "symbols")),
    "dataflow": (("messages",), ("transactions",), ("graph",), ("backfill",), ("engine",), ("ops",), ("oneshot",),
                 ("cluster",), ("inspect",), ("worker",)),
    "storage": (("format",), ("rocks",), ("tables",), ("statements",), ("transactions",), ("commits",), ("online",),
                ("store",), ("offline",)),
    "runtime": (("transport",), ("worker",), ("routing",), ("link",), ("transactions",), ("cluster",)),
    "control": (("processes",), ("catalog",), ("changes",), ("views",), ("ddl",), ("apply",)),
    "sql": (("text",), ("expressions",), ("query",), ("statements",)),
    "server": (("outcomes", "rows"), ("bulk",), ("access",), ("answering",), ("sessions",), ("source",),
               ("mysql", "http"), ("fronts",), ("node",)),
    "dataflow/ops": (("stateless", "stateful"),),
    "plan/reuse": (("groups",), ("joins",), ("lookups",)),
    "sql/query": (("relations",), ("conditions",), ("results",)),
    "cli": (("server", "client"),),
    "spark/loading": (("rows",), ("tasks",)),
}


@pytest.mark.parametrize("folder, path", [(folder, path) for folder in ROOMS for path in modules((folder,))],
                         ids=lambda p: str(p.relative_to(SRC)) if isinstance(p, Path) else p)
def test_a_room_imports_only_rooms_before_it(folder: str, path: Path) -> None:
    room = path.relative_to(SRC / folder).with_suffix("").parts[0]
    order = {name: i for i, rooms in enumerate(ROOMS[folder]) for name in rooms}
    if room not in order:
        return  # an entrance, or what several rooms share
    package = f"noria.{folder.replace('/', '.')}."
    wrong = [f"line {line}: {name}" for line, name in imports(path) if name.startswith(package)
             and (to := name.removeprefix(package).split(".")[0]) != room and order.get(to, -1) >= order[room]]
    assert not wrong, f"{path.relative_to(SRC)} imports a room beside it or after it: {wrong}"


def graph() -> dict[str, set[str]]:
    """Which modules each module imports, imports within functions and for type annotations included.

    `from package import module` is an import of the module, `from package import name` one of the package's __init__.
    """
    paths = {module(p): p for p in SRC.rglob("*.py")}
    return {name: {to for to in imported(path) if to in paths} - {name} for name, path in paths.items()}


def imported(path: Path) -> Iterator[str]:
    plain = dict(imports(path))
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.lineno in plain:
            for alias in node.names:
                inner = f"{plain[node.lineno]}.{alias.name}"
                yield inner if is_module(inner) else plain[node.lineno]
        elif isinstance(node, ast.Import) and node.lineno in plain:
            yield from (alias.name for alias in node.names)


def is_module(name: str) -> bool:
    place = SRC.parent.joinpath(*name.split("."))
    return place.with_suffix(".py").exists() or (place / "__init__.py").exists()


def module(path: Path) -> str:
    parts = path.relative_to(SRC.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of names that reach each other (Tarjan's strongly connected components), of more than one name."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    out = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for to in edges.get(name, ()):
            if to not in order:
                visit(to)
                low[name] = min(low[name], low[to])
            elif to in stack:
                low[name] = min(low[name], order[to])
        if low[name] == order[name]:
            at = stack.index(name)
            group, stack[at:] = stack[at:], []
            if len(group) > 1:
                out.append(sorted(group))

    for name in edges:
        if name not in order:
            visit(name)
    return out


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    edges = graph()
    assert "noria.sql.query.select" in edges["noria.sql.query.plan_select"]
    assert circles(edges) == []


def test_every_package_is_in_the_list() -> None:
    packages = {p.parent.name for p in SRC.glob("*/__init__.py")}
    assert packages <= set(LAYERS), f"not in the list of layers: {sorted(packages - set(LAYERS))}"


def test_the_architecture_prints_this_order() -> None:
    """Its table has a row for each package and each other folder with rooms; "and" joins rooms that do not import each
    other."""
    text = (SRC.parents[1] / "ARCHITECTURE.md").read_text()
    rows = re.findall(r"^\| \d* ?\| \[([\w/]+)\]\(#[\w-]+\) \| ([^|]*)\|$", text, re.MULTILINE)
    assert [folder for folder, _ in rows if "/" not in folder] == list(LAYERS)
    printed = {folder: tuple(tuple(part.strip().split(" and ")) for part in rooms.split(","))
               for folder, rooms in rows if rooms.strip()}
    assert printed == ROOMS
    first, last = re.findall(r"`(\w+)` to `(\w+)` are pure", " ".join(text.split()))[0]
    assert LAYERS[LAYERS.index(first): LAYERS.index(last) + 1] == PURE


def test_a_module_of_more_than_500_lines_says_why() -> None:
    long = {p.relative_to(SRC): p.read_text() for p in SRC.rglob("*.py") if len(p.read_text().splitlines()) > 500}
    assert [str(p) for p, text in long.items() if "500 lines" not in text.split('"""')[1]] == []


# ---------------------------------------------------------------- floors
TESTS = Path(__file__).parent
MOST_MODULES = 15


def test_no_folder_has_more_than_15_modules() -> None:
    root = TESTS.parent
    counts = Counter(str(p.parent.relative_to(root)) for folder in (SRC, TESTS) for p in folder.rglob("*.py")
                     if p.name != "__init__.py")
    crowded = {folder: count for folder, count in counts.items() if count > MOST_MODULES}
    assert not crowded, f"wants rooms: {crowded}"


def test_nothing_is_imported_from_a_test_module() -> None:
    """What several test modules share is in a helper, which has no `test_` in its name, or a fixture of conftest.py."""
    wrong = [f"{path.relative_to(TESTS)}, line {node.lineno}: {name}"
             for path in sorted(TESTS.rglob("*.py")) for node in ast.walk(ast.parse(path.read_text()))
             if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names
             for name in [f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name]
             if any(part.startswith("test_") for part in name.split("."))]
    assert wrong == []


@pytest.mark.parametrize("process", ["noria.server.fronts.process", "noria.client"])
def test_a_process_without_a_worker_does_not_load_the_engine(process: str) -> None:
    """Front ends and clients answer from shared memory and over the wire."""
    engine = "('noria.dataflow.engine', 'noria.dataflow.ops', 'noria.lowering', 'noria.storage.store')"
    code = f"import sys, {process}; print([m for m in sys.modules if m.startswith({engine})])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                           env={**os.environ, "PYTHONPATH": str(SRC.parent)})
    assert found.stdout == "[]\n"
