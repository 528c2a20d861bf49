"""Links of README.md, ARCHITECTURE.md, CONTRIBUTING.md and docs/ lead to files and headings that exist."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / n for n in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "bench/RESULTS.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    """The page without its blocks and spans of code, in which brackets are no links."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"(?<=\n\n)(?:(?: {4}.*)?\n)+", "\n", text)
    return re.sub(r"(?<!\[)`[^`\n]*`(?!\])", "", text)


def links(page: Path) -> list[str]:
    return [link for link in _LINK.findall(re.sub(r"\n *", " ", prose(page))) if "://" not in link]


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to a page's headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found: Counter[str] = Counter()
    names = set()
    for heading in re.findall(r"^#{1,6} (.*)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        names.add(f"{name}-{found[name]}" if found[name] else name)
        found[name] += 1
    return names


def problem(page: Path, link: str) -> str:
    """What is wrong with the link; "" for nothing."""
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    if not target.exists():
        return "no such file"
    if not target.is_relative_to(ROOT):
        return "outside of the repository"
    return f"no heading #{anchor}" if anchor and anchor not in anchors(target) else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = [f"{link}: {what}" for link in links(page) if (what := problem(page, link))]
    assert not broken, f"{page.relative_to(ROOT)}: {broken}"


def test_broken_links_are_found(tmp_path: Path) -> None:
    page = ROOT / "docs" / "index.md"
    assert links(page) and not problem(page, "tutorial.md#5-read-it")
    assert problem(page, "no.md") and problem(page, "tutorial.md#no") and problem(page, "../../..")
    example = tmp_path / "a.md"
    example.write_text("# A `b` (c)\n\n[over\nlines](x.md) `[code](no.md)`\n\n    [block](no.md)\n\n# A `b` (c)\n")
    assert links(example) == ["x.md"] and anchors(example) == {"a-b-c", "a-b-c-1"}


def test_every_page_is_reached_from_the_index() -> None:
    reached, todo = set[Path](), [ROOT / "docs" / "index.md"]
    while todo:
        page = todo.pop().resolve()
        if page.suffix == ".md" and page not in reached:
            reached.add(page)
            todo += [page.parent / link.partition("#")[0] for link in links(page)]
    lost = sorted(str(p.relative_to(ROOT)) for p in PAGES if p not in reached)
    assert not lost, f"no link leads to {lost}"


def test_paths_of_pages_in_the_code_exist() -> None:
    """Messages, docstrings and comments name pages by their path."""
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").glob("*.py"),
             *(ROOT / "scripts").glob("*"), *(ROOT / "examples").rglob("*.py"), *(ROOT / "packaging").glob("*"),
             *ROOT.glob("*.md"), ROOT / "Makefile"]
    named = {(f, name) for f in files if f.is_file()
             for name in re.findall(r"\bdocs/[\w/-]+\.(?:md|svg)\b", f.read_text())}
    assert len(named) > 10
    lost = sorted(f"{f.relative_to(ROOT)}: {name}" for f, name in named if not (ROOT / name).exists())
    assert not lost, lost


# ---------------------------------------------------------------- the glossary
def test_the_glossary_is_in_step_with_the_code() -> None:
    """The linked files exist and define the linked names; terms are in order and occur once."""
    glossary = ROOT / "docs" / "glossary.md"
    text = glossary.read_text()
    entries = re.findall(r"^\| ([^|]+) \|.*\| \[`([\w.]+)`\]\(([^)]+)\) \|$", text, re.MULTILINE)
    assert len(entries) == text.count("\n| ") - 2 > 40, "each row of its tables has a link into the code"
    for term, name, link in entries:
        file = (glossary.parent / link).resolve()
        assert file.is_relative_to(ROOT / "src"), (term, link)
        source = file.read_text()
        word = re.escape(name)
        defined = re.search(rf"^\s*(?:class|(?:async )?def) {word}\b|^{word}\b.* = ", source, re.MULTILINE)
        assert name in (file.name, file.parent.name) or defined, f"{term}: {link} does not define {name}"
    for table in text.split("\n## ")[1:]:
        terms = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)[1:]
        assert terms == sorted(set(terms)), "terms in order, each once"
