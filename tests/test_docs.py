"""The generated pages are what the program says of itself now, and what people write by hand names everything.

    make docs        writes the generated pages of docs/reference anew
"""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import typer.main

from noria.cli.main import app, register
from noria.core.errors import codes as error_codes
from noria.server.http.app import Api

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
README_WORDS = 700


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generator", ROOT / "scripts" / "docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = _generator()


@pytest.mark.one_worker("the pages show the plans of one")
@pytest.mark.parametrize("name", sorted(GENERATOR.PAGES_OF))
def test_the_page_is_what_the_program_says(name: str) -> None:
    written = (REFERENCE / name).read_text()
    assert written == GENERATOR.PAGES_OF[name](), f"docs/reference/{name} is stale: run `make docs` and read the diff"


def test_the_reference_names_every_command_and_option() -> None:
    if not app.registered_commands:
        register()
    pages = (REFERENCE / "commands.md").read_text() + (REFERENCE / "settings.md").read_text()
    commands = getattr(typer.main.get_command(app), "commands", {})
    assert len(commands) > 10
    for name, command in commands.items():
        assert f"## noria {name}\n" in pages, f"the reference does not name the command {name}"
        options = [o for p in command.params for o in p.opts if o.startswith("--") and o != "--help"]
        assert not [o for o in options if f"`{o}`" not in pages], f"the reference misses options of {name}"


def test_the_readme_is_short_and_has_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.split()) <= README_WORDS
    assert re.findall(r"^    (make \w+) ", readme, re.MULTILINE) == ["make demo", "make test"]


def test_every_http_path_is_named() -> None:
    about = Path(str(Api.__init__.__code__.co_filename)).read_text().partition('"""')[2].partition('"""')[0]
    page = (REFERENCE / "http.md").read_text()
    for method, path, _ in Api(None).routes():  # only its routes are read
        assert path.replace("{name}", "NAME") in about, f"the module's list misses {path}"
        assert f"`{method} {path}`" in page, f"docs/reference/http.md misses {method} {path}"


def _error_numbers() -> set[int]:
    return {code.number for code in vars(error_codes).values() if isinstance(code, error_codes.Code)}


def test_every_error_is_in_the_reference() -> None:
    numbers = _error_numbers()
    assert len(numbers) > 90
    page = (REFERENCE / "errors.md").read_text()
    missing = sorted(n for n in numbers if not re.search(rf"\b{n}\b", page))
    assert not missing, f"docs/reference/errors.md misses {missing}"


DESIGN = sorted((ROOT / "docs" / "design").glob("*.md"))
INTERNALS = [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *DESIGN]


def test_files_that_pages_on_the_code_name_are_there() -> None:
    text = "".join(page.read_text() for page in INTERNALS)
    named = set(re.findall(r"`([\w/]+(?:\.py|/))`", text)) | set(re.findall(r"tests/[\w/]+\.py", text))
    assert len(named) > 150
    source = ROOT / "src" / "noria"
    lost = sorted(n for n in named if not any((r / n).exists() for r in (ROOT, source, source / "core", ROOT / "tests"))
                  and not list(source.rglob(n.strip("/"))))
    assert not lost, f"named, and not there: {lost}"


def _defined() -> set[str]:
    """`WorkClass.method` for each class of src/, and what it has of the classes that it is made of."""
    classes: dict[str, list[ast.ClassDef]] = {}
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(node)

    def methods(name: str) -> set[str]:
        found = set()
        for node in classes.get(name, []):
            found |= {d.name for d in node.body if isinstance(d, ast.FunctionDef | ast.AsyncFunctionDef)}
            for base in {ast.unparse(b).partition("[")[0].rpartition(".")[2] for b in node.bases} - {name}:
                found |= methods(base)
        return found

    return {f"{name}.{method}" for name in classes for method in methods(name)} | classes.keys()


def test_methods_that_pages_on_the_code_name_are_there() -> None:
    named = {n for page in INTERNALS for n in re.findall(r"`([A-Z]\w+\.[a-z_]\w+)`", page.read_text())}
    named -= {n for n in named if n.endswith((".md", ".py"))}
    assert len(named) > 25
    assert sorted(named - _defined()) == []


# ---------------------------------------------------------------- what the code cites
def _cited(pattern: str) -> set[str]:
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").glob("*.py")]
    return {found for file in files if file != Path(__file__) for found in re.findall(pattern, file.read_text())}


def test_decisions_that_the_code_cites_are_there() -> None:
    page = (ROOT / "docs" / "design" / "decisions.md").read_text()
    cited = _cited(r"design/decisions\.md, (\d+)")
    assert {"2", "6", "7"} <= cited
    missing = {n for n in cited if f"\n## {n}. " not in page}
    assert not missing, f"docs/design/decisions.md has no section {sorted(missing)}"


def test_rules_and_invariants_that_the_code_cites_are_there() -> None:
    page = (ROOT / "docs" / "design" / "invariants.md").read_text()
    rules = _cited(r"\bR(\d+)\b")
    assert {"1", "16", "19"} <= rules
    missing = {f"R{n}" for n in rules if f"\n### R{n}: " not in page and not 11 <= int(n) <= 13}
    missing |= {i for i in _cited(r'InvariantViolation\(\s*"([A-Z-]+)"') if f"\n| {i} |" not in page}
    assert not missing, f"docs/design/invariants.md has no {sorted(missing)}"


def test_invariants_of_the_page_are_cited_by_the_code() -> None:
    page = (ROOT / "docs" / "design" / "invariants.md").read_text()
    ids = re.findall(r"^\| ([A-Z]+(?:-[A-Z]+)+) \|", page, re.MULTILINE)
    assert len(ids) > 10
    uncited = set(ids) - _cited(r"\b([A-Z]+(?:-[A-Z]+)+)\b")
    assert uncited == {"NO-FULL-BELOW-PARTIAL", "REPLAY-ONCE"}, "these two follow from rules, which the code cites"
