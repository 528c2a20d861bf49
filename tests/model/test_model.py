"""The executable model of several workers (README.md) passes random schedules, and fails without one of its rules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MODEL = Path(__file__).parent


def play(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "tester.py", "--jobs", "1", *arguments], cwd=MODEL, capture_output=True,
                          text=True, check=False)


@pytest.mark.parametrize("arguments", [
    ("--variant", "evict", "--seeds", "20"),  # what Noria does
    ("--variant", "evict-thin", "--seeds", "10", "--crashes", "0.03"),
    ("--variant", "all", "--seeds", "5"),
], ids=["evict", "crashes", "variants"])
def test_schedules(arguments: tuple[str, ...]) -> None:
    found = play(*arguments)
    assert found.returncode == 0 and " 0 failed" in found.stdout, found.stdout + found.stderr


@pytest.mark.parametrize(("rule", "template", "seeds"), [("evict-empty", "karma", 300), ("gather-add", "talk", 300)])
def test_without_a_rule_a_schedule_fails(rule: str, template: str, seeds: int) -> None:
    found = play("--variant", "park", "--template", template, "--seeds", str(seeds), "--off", rule)
    assert found.returncode == 1 and "Violation" in found.stdout, found.stdout + found.stderr
