"""Tests reach the code through its public names: the number of lines that touch a private member does not grow.

The parts of a database in this process are public: `db.transport.program`, `.link`, `.executor`, `.sessions`, and
`db.transport.run(…)` to use them on its loop.  So are `worker.store`, `store.engine` and `link.book`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent
NAMEDTUPLES = {"_replace", "_asdict", "_fields", "_make"}  # public in spite of their names
MOST_LINES = 222


def private_lines(text: str) -> Iterator[int]:
    """Yield each line that names a private member of another object."""
    lines = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            of = ast.unparse(node.value)
            if of not in ("self", "cls", "super()", "os") and node.attr not in NAMEDTUPLES:
                lines.add(node.lineno)
    yield from sorted(lines)


def test_what_counts() -> None:
    text = "self._a\nlink._peer\nself.link._peer._x\nrow._replace(a=1)\nos._exit(1)\nx.__dict__\n"
    assert list(private_lines(text)) == [2, 3]


def test_no_more_lines_touch_private_members() -> None:
    found = [f"{file.relative_to(ROOT)}:{line}" for file in sorted(ROOT.rglob("*.py"))
             for line in private_lines(file.read_text())]
    assert len(found) <= MOST_LINES, f"use a public name, or add a property with a docstring: {len(found)} lines"
