"""The generated pages are what the program says of itself now, and what people write by hand names everything.

    make docs        writes docs/sql.md and docs/reference.md anew
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from noria.server.http.app import Api

ROOT = Path(__file__).parent.parent


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
    written = (ROOT / "docs" / name).read_text()
    assert written == GENERATOR.PAGES_OF[name](), f"docs/{name} is stale: run `make docs` and read the diff"


def test_the_readme_names_every_command_and_setting() -> None:
    readme = (ROOT / "README.md").read_text()
    reference = (ROOT / "docs" / "reference.md").read_text()
    for command in re.findall(r"^### noria (\S+)", reference, re.MULTILINE):
        assert f"noria {command}" in readme, f"README.md does not name the command {command}"
    serve = reference.partition("### noria serve")[2].partition("###")[0]
    for option in re.findall(r"`(--[a-z-]+)`", serve):
        assert option in readme, f"README.md does not name the setting {option}"


def test_the_http_module_names_every_path() -> None:
    about = Path(str(Api.__init__.__code__.co_filename)).read_text().partition('"""')[2].partition('"""')[0]
    for _, path, _ in Api(None).routes():  # type: ignore[arg-type]  # only its routes are read
        assert path.replace("{name}", "NAME") in about, f"the module's list misses {path}"


def test_files_that_the_architecture_and_contributing_name_are_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    quoted = re.findall(r"`([\w/]+(?:\.py|/))`", text)
    named = {n for n in quoted if "/" in n} | set(re.findall(r"tests/[\w/]+\.py", text))
    assert len(named) > 40
    roots = (ROOT, ROOT / "src" / "noria", ROOT / "src" / "noria" / "sql", ROOT / "src" / "noria" / "spark",
             ROOT / "src" / "noria" / "server", ROOT / "src" / "noria" / "core", ROOT / "tests")
    lost = sorted(n for n in named if not any((r / n).exists() for r in roots)
                  and not list((ROOT / "src" / "noria").rglob(n.strip("/"))))
    assert not lost, f"named, and not there: {lost}"
