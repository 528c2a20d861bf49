"""Each check that is silenced says why in a few words, and their number does not grow.

A check is silenced by `# noqa`, by `# type: ignore`, by a line of pyproject.toml, or by skipping a test.  mypy checks
src only, so a `# type: ignore` elsewhere would be without effect.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("src", "tests", "bench", "scripts", "examples")
SILENCED = re.compile(r"#\s*(ruff:|mypy:|type:\s*ignore|noqa|pragma:|pylint:|fmt:)[^#(]*")
MOST_COMMENTS = 7
MOST_SKIPS = 48


def _files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def silencing(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line, kind and reason of each comment that silences a check."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        found = SILENCED.match(token.string) if token.type == tokenize.COMMENT else None
        if found:
            yield token.start[0], found[1], token.string[found.end():].strip(" #()")


def skips(text: str) -> Iterator[tuple[int, bool]]:
    """Yield the line of each call that may skip a test or expects its failure, and whether it has a reason."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            what = ast.unparse(node.func)
            named = {k.arg for k in node.keywords}
            if what in ("pytest.skip", "pytest.xfail"):
                yield node.lineno, bool(node.args) or "reason" in named
            elif what in ("pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.xfail", "pytest.importorskip"):
                yield node.lineno, "reason" in named


@pytest.mark.parametrize(("text", "found"), [
    ("x = 1  # noqa: E501  # a table\n", [(1, "noqa", "a table")]),
    ("x = 1  # noqa: E501\n", [(1, "noqa", "")]),
    ("# mypy: allow-untyped-defs\ny = '# noqa'\n", [(1, "mypy:", "")]),
    ("z = f()  # type: ignore[misc]  # it has none\n", [(1, "type: ignore", "it has none")]),
])
def test_what_silences(text: str, found: list[tuple[int, str, str]]) -> None:
    assert list(silencing(text)) == found


def test_what_skips() -> None:
    text = "pytest.skip('why')\n@pytest.mark.skipif(True)\ndef f(): ...\npytest.importorskip('x', reason='no x')\n"
    assert sorted(skips(text)) == [(1, True), (2, False), (4, True)]


def test_each_silenced_check_has_its_reason_and_there_are_not_more() -> None:
    found = [(file, *silenced) for file in _files(*FOLDERS) for silenced in silencing(file.read_text())]
    without = [f"{file.relative_to(ROOT)}:{line}" for file, line, _, reason in found if not reason]
    assert not without, f"say in a few words why: {without}"
    elsewhere = [f"{file.relative_to(ROOT)}:{line}" for file, line, kind, _ in found
                 if kind.startswith("type") and ROOT / "src" not in file.parents]
    assert not elsewhere, f"mypy does not check these files: {elsewhere}"
    assert len(found) <= MOST_COMMENTS, f"mend what is found instead of silencing it: {found}"


def test_each_skipped_test_has_its_reason_and_there_are_not_more() -> None:
    found = [(file, *skip) for file in _files("tests") for skip in skips(file.read_text())]
    assert [f"{file.relative_to(ROOT)}:{line}" for file, line, reason in found if not reason] == []
    assert len(found) <= MOST_SKIPS, "a test that is skipped proves nothing"


def test_each_exception_in_pyproject_has_its_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    ignores = re.search(r"\[tool\.ruff\.lint\.per-file-ignores\]\n(.*?)\n\n", text, re.DOTALL)
    assert ignores is not None
    assert [line for line in ignores[1].splitlines() if " # " not in line] == []
    overrides = text.split("[[tool.mypy.overrides]]\n")[1:]
    assert len(overrides) > 3 and [o for o in overrides if not o.startswith("# ")] == []
