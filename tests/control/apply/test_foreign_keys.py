"""FOREIGN KEYs of a program that `noria apply` makes and changes; 1 and 3 workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from control.databases import Opened
from noria.core.errors import SqlError

P = "CREATE TABLE p (id INT PRIMARY KEY, n INT);\n"
C = "CREATE TABLE c (id INT PRIMARY KEY, p INT, CONSTRAINT f FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE);\n"
WITHOUT = "CREATE TABLE c (id INT PRIMARY KEY, p INT, KEY f (p));\n"
SHOWN = "CONSTRAINT `f` FOREIGN KEY (`p`) REFERENCES `p` (`id`) ON DELETE CASCADE"


class Program(Opened):
    def apply(self, text: str, drop: bool = False) -> None:
        self.transport.run(self.program.apply(text, drop))

    def exported(self) -> str:
        return str(self.transport.run(self.program.exported()))

    def refused(self, text: str, drop: bool = False) -> tuple[int, str]:
        with pytest.raises(SqlError) as e:
            self.apply(text, drop)
        return e.value.code, e.value.message


@pytest.fixture(params=[1, 3])
def applied(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Program]:
    made = Program(tmp_path / "data", request.param)
    yield made
    made.db.close()


def test_children_may_be_written_before_their_parents(applied: Program) -> None:
    applied.apply(C + P)
    assert SHOWN in applied.exported()
    before = applied.exported()
    applied.apply(P + C)
    assert applied.exported() == before


def test_a_key_of_tables_that_are_there(applied: Program) -> None:
    applied.apply(P + WITHOUT)
    applied.apply(C)  # the parent is not in this text
    assert SHOWN in applied.exported()
    applied.apply(WITHOUT)
    assert "FOREIGN" not in applied.exported()


@pytest.mark.parametrize("text, drop, code", [
    (C.replace("REFERENCES p", "REFERENCES q"), False, 1824), (C.replace("(id) ON", "(n) ON"), False, 6125),
    (C.replace("p INT", "p BIGINT"), False, 3780), (C, True, 3730),
    ("CREATE TABLE p (id BIGINT PRIMARY KEY, n INT)", False, 3780), ("CREATE TABLE p (id INT, n INT)", False, 6125),
    ("CREATE TABLE d (a INT, CONSTRAINT f FOREIGN KEY (a) REFERENCES p (id))", False, 1826)])
def test_what_does_not_fit_is_refused(applied: Program, text: str, drop: bool, code: int) -> None:
    applied.apply(P + C)
    before = applied.exported()
    assert applied.refused(text, drop)[0] == code
    assert applied.exported() == before


def test_both_are_dropped(applied: Program) -> None:
    applied.apply(P + C)
    applied.apply("CREATE TABLE other (id INT)", True)
    assert "TABLE `p`" not in applied.exported()


def test_rows_without_a_parent(applied: Program) -> None:
    applied.apply(P + WITHOUT)
    applied.db.sql("INSERT INTO p VALUES (1, 1)")
    applied.db.sql("INSERT INTO c VALUES (1, 1), (2, 2), (3, NULL)")
    before = applied.exported()
    assert applied.refused(C)[0] == 1452
    assert applied.exported() == before
    to_new = C.replace("REFERENCES p", "REFERENCES q") + "CREATE TABLE q (id INT PRIMARY KEY)"
    code, message = applied.refused(to_new)  # the parent is made with the key
    assert code == 1452 and "The program is changed" in message
    assert "FOREIGN" not in applied.exported() and "TABLE `q`" in applied.exported()
    applied.db.sql("DELETE FROM c WHERE id = 2")
    applied.apply(C)
    assert SHOWN in applied.exported()


def test_a_program_with_other_databases(applied: Program) -> None:
    text = ("CREATE DATABASE IF NOT EXISTS shop; CREATE TABLE shop.p (id INT PRIMARY KEY); "
            "CREATE TABLE shop.c (p INT, q INT, FOREIGN KEY (p) REFERENCES shop.p (id), FOREIGN KEY (q) REFERENCES p "
            "(id));" + P)
    applied.apply(text)
    exported = applied.exported()
    assert "CONSTRAINT `c_ibfk_1` FOREIGN KEY (`p`) REFERENCES `shop`.`p` (`id`)" in exported
    assert "CONSTRAINT `c_ibfk_2` FOREIGN KEY (`q`) REFERENCES `p` (`id`)" in exported
    applied.apply(exported)
    assert applied.exported() == exported


def test_a_program_whose_parent_is_missing_is_exported_and_changed(applied: Program) -> None:
    applied.db.sql("SET foreign_key_checks = 0; CREATE TABLE c (p INT, CONSTRAINT f FOREIGN KEY (p) REFERENCES p (id))")
    assert "REFERENCES `p`" in applied.exported()
    applied.apply("CREATE TABLE other (id INT PRIMARY KEY)")
    assert applied.refused("CREATE TABLE p (id BIGINT PRIMARY KEY)")[0] == 3780
    applied.apply("CREATE TABLE p (id INT PRIMARY KEY)")
