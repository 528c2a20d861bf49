"""Nothing in src reads bytes that can run code.  Spark pickles its own closures: that is Spark's."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src" / "noria"
MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "copyreg", "pickletools"}
CALLS = {"eval", "exec"}
EXCEPTIONS = {("storage/format/older_groups.py", "pickletools")}  # it takes a pickle apart and runs none of it


def _named(node: ast.AST) -> list[str]:
    """Modules and functions that this part of a source names."""
    if isinstance(node, ast.Import):
        return [a.name.partition(".")[0] for a in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module.partition(".")[0], *(a.name for a in node.names)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
        return [node.func.id]
    if isinstance(node, ast.Call) and not node.args and ast.unparse(node.func).endswith(".recv"):
        return ["pickle"]  # multiprocessing's pipes unpickle; recv_bytes does not
    return ["pickle"] if isinstance(node, ast.keyword) and node.arg == "allow_pickle" else []


def _found(path: Path) -> list[tuple[str, str]]:
    name = str(path.relative_to(SOURCES))
    named = [what for node in ast.walk(ast.parse(path.read_text())) for what in _named(node)]
    return [(name, what) for what in named if what in MODULES | CALLS and (name, what) not in EXCEPTIONS]


def test_nothing_unpickles_or_evaluates() -> None:
    assert [found for path in sorted(SOURCES.rglob("*.py")) for found in _found(path)] == []
