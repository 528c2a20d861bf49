"""Errors have named codes: each number stands once, in `core/errors/codes.py`, and no other module writes one."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from pymysql.constants import ER

from noria.core.errors import codes as error_codes
from noria.core.errors.codes import Code

SRC = Path(error_codes.__file__).parents[2]
CODES = {name: code for name, code in vars(error_codes).items() if isinstance(code, Code)}


def test_no_other_module_writes_a_number() -> None:
    numbered = re.compile(r'\b\d{4},\s*"[0-9A-Z]{5}"|"(Note|Warning)",\s*\d{4}|SqlError\((?!\*)[A-Z_]+,|'
                          r'code [!=]= \d{4}')
    found = [f"{p.relative_to(SRC)}: {m[0]}" for p in SRC.rglob("*.py") if p.name != "codes.py"
             for m in numbered.finditer(p.read_text())]
    assert found == []


def test_a_code_has_one_name_and_mysqls_number() -> None:
    again = {name: code for name, code in CODES.items() if Counter(CODES.values())[code] > 1}
    assert not again and all(re.fullmatch(r"[0-9A-Z]{5}", code.state) for code in CODES.values())
    known = {name: number for name, number in vars(ER).items() if isinstance(number, int)}
    del known["WRONG_STRING_LENGTH"]  # PyMySQL has the number of a test version; MySQL and MariaDB have 1470
    same = [name for name in CODES if name in known or f"{name}_ERROR" in known]
    assert len(same) > 60
    assert [n for n in same if CODES[n].number != known.get(n, known.get(f"{n}_ERROR"))] == []
