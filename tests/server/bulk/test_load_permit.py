"""Which files requests may name: directories, links, proofs, and what a reject file may replace."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from noria.client.transport import read_token
from noria.core.errors import SqlError
from noria.core.types import INT, Column, ForeignKey, TableDef
from noria.server.bulk import load_permit
from noria.server.bulk.load_permit import (
    TOKEN_FILE,
    LoadPermit,
    drop_rejects,
    keep_rejects,
    make_token,
    proof,
    unchanged,
)
from noria.spark.loading.rows.files import Reject

REJECT = Reject("f.csv", 1, "a,b", "no number").json() + "\n"


class Place:
    """A directory that may be loaded from, and one beside it."""

    def __init__(self, root: Path):
        self.open, self.closed, self.data = root / "open", root / "closed", root / "data"
        for directory in (self.open, self.closed, self.data, self.open / "sub", root / "open-not"):
            directory.mkdir()
        for path in (self.open / "a.csv", self.open / "sub" / "b.csv", self.closed / "secret.csv",
                     root / "open-not" / "c.csv"):
            path.write_text("x")
        self.token = make_token(self.data)
        self.permit = LoadPermit([self.open], self.token)

    def check(self, given_proof: str | None = None, **request: Any) -> dict[str, Any]:
        asked = {"table": "t", "files": [str(self.open / "a.csv")], **request}
        return self.permit.check(asked, json.dumps(asked).encode(), given_proof)

    def refused(self, given_proof: str | None = None, **request: Any) -> int:
        with pytest.raises(SqlError) as caught:
            self.check(given_proof, **request)
        return caught.value.code

    def prove(self, **request: Any) -> str:
        asked = {"table": "t", "files": [str(self.open / "a.csv")], **request}
        return proof(self.token, json.dumps(asked).encode())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_files_below_the_directory(place: Place) -> None:
    files = [str(place.open / "a.csv"), str(place.open / "sub/../sub/b.csv")]
    assert place.check(files=files)["files"] == [str(place.open / "a.csv"), str(place.open / "sub/b.csv")]


def test_directories_and_patterns(place: Place) -> None:
    a, b, c = place.open / "a.csv", place.open / "sub" / "b.csv", place.open / "sub" / "c[1].csv"
    for path in (c, place.open / "_SUCCESS", place.open / "sub" / ".hidden.csv"):
        path.write_text("x")
    (place.open / "up").symlink_to(place.closed)
    for name, files in (("", [a]), ("*.csv", [a]), ("s*/*.csv", [b, c]), ("sub", [b, c]), ("s*", [b, c]),
                        ("sub/c[1].csv", [c]), ("*/secret.csv", []), ("u*/*", []), ("nothing-*", [])):
        asked = str(place.open / name)
        if files:
            assert place.check(files=[asked])["files"] == [str(f) for f in files]
        else:
            assert place.refused(files=[asked]) == 1105, "as if it were not there"
    assert place.refused(files=[f"{place.closed}/*.csv"]) == place.refused(files=[f"{place.open}/up/*.csv"]) == 1290
    trusted = {"files": [f"{place.closed}/s*.csv", f"file://{a}", "s3a://b/c/*.csv"]}
    assert place.check(place.prove(**trusted), **trusted)["files"] == [
        str(place.closed / "secret.csv"), str(a), "s3a://b/c/*.csv"]


def test_a_pattern_takes_no_longer_than_there_is_to_see(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """`*/../*/../*` looked at eight directories eight times eight times: a request held everybody up for minutes."""
    for n in range(8):
        (place.open / f"d{n}").mkdir()
    assert place.refused(files=[f"{place.open}/{'*/../' * 20}*/a.csv"]) == 1105
    monkeypatch.setattr(load_permit, "LOAD_FILES", 1)
    assert place.check(files=[f"{place.open}/*.csv"])["files"] == [str(place.open / "a.csv")]
    (place.open / "b.csv").write_text("x")
    for name in ("*.csv", "[ab].csv", ""):
        assert place.refused(files=[str(place.open / name)]) == 1105


def test_urls_are_for_who_can_read_the_token(place: Place) -> None:
    for url in ("s3a://b/c.csv", "http://169.254.169.254/x.csv", f"hdfs://{place.open}/a.csv", "file:///etc/passwd"):
        assert place.refused(files=[url]) == 1290, url


def test_files_elsewhere(place: Place) -> None:
    (place.open / "link.csv").symlink_to(place.closed / "secret.csv")
    (place.open / "up").symlink_to(place.closed)
    for path in ("/etc/passwd", str(place.closed / "secret.csv"), str(place.open / "../closed/secret.csv"),
                 str(place.open / "link.csv"), str(place.open / "up/secret.csv"), str(place.open) + "-not/c.csv", "/",
                 f"/proc/self/root{place.closed}/secret.csv", "/proc/self/environ", str(place.closed / "not there")):
        assert place.refused(files=[str(place.open / "a.csv"), path]) == 1290, path


def test_what_is_refused_is_the_same_whether_it_exists_or_not(place: Place) -> None:
    messages = set()
    for name in ("secret.csv", "nothing.csv"):
        with pytest.raises(SqlError) as caught:
            place.check(files=[str(place.closed / name)])
        messages.add(caught.value.message.replace(name, ""))
    assert len(messages) == 1


def test_without_directories_nothing_may_be_loaded(place: Place) -> None:
    place.permit = LoadPermit([], place.token)
    assert place.refused() == 1290


def test_a_directory_that_is_a_link_is_what_it_points_to(place: Place, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(place.open)
    place.permit = LoadPermit([tmp_path / "link"], place.token)
    assert place.check(files=[str(tmp_path / "link/a.csv")])["files"] == [str(place.open / "a.csv")]


@pytest.mark.parametrize("path", ["a.csv", "", "~/a.csv", "file:///etc/passwd", "\0", "/a\0b", "/" + "x" * 5000])
def test_paths_that_are_none(place: Place, path: str) -> None:
    assert place.refused(files=[path]) in (1105, 1290)
    assert place.refused(reject=path or "x") in (1105, 1290)


@pytest.mark.parametrize("request_", [
    {"files": "x"}, {"files": []}, {"files": [1]}, {"table": 1}, {"format": 1}, {"header": "yes"}, {"delimiter": ",,"},
    {"delimiter": "é"}, {"max_rejects": -1}, {"max_rejects": True}, {"max_rejects": 1.5}, {"null": []}, {"reject": {}},
])
def test_requests_that_are_none(place: Place, request_: dict[str, Any]) -> None:
    assert place.refused(**request_) == 1105


# ---------------------------------------------------------------- the token
def test_the_token_is_the_users_own_and_new_each_time(place: Place) -> None:
    path = place.data / TOKEN_FILE
    assert path.stat().st_mode & 0o777 == 0o600 and path.read_bytes() == place.token
    path.chmod(0o644)
    assert make_token(place.data) != place.token and path.stat().st_mode & 0o777 == 0o600


def test_who_can_read_the_token_may_load_any_file(place: Place) -> None:
    asked = {"files": [str(place.closed / "secret.csv")], "reject": str(place.closed / "new.rejected")}
    found = place.check(place.prove(**asked), **asked)
    assert found["files"] == asked["files"] and found["reject"] == asked["reject"]


def test_a_proof_is_of_one_request_and_one_token(place: Place) -> None:
    asked = {"files": [str(place.closed / "secret.csv")]}
    assert place.refused(place.prove(), **asked) == 1045
    other = proof(b"0" * 64, json.dumps({"table": "t", **asked}).encode())
    for wrong in (other, "", "é", "x" * 10_000, "0" * 64):
        assert place.refused(wrong, **asked) == 1045
        assert place.refused(wrong) == 1045


def test_a_client_reads_no_other_file_for_a_token(place: Place, tmp_path: Path) -> None:
    """A program in the server's place may name any path."""
    assert read_token(str(place.data / TOKEN_FILE)) == place.token
    secret = tmp_path / "secret"
    secret.write_text("1234")
    assert read_token(str(secret)) is None and read_token("/etc/passwd") is None and read_token("") is None
    (place.data / TOKEN_FILE).write_text("1234")
    assert read_token(str(place.data / TOKEN_FILE)) is None
    assert read_token(str(tmp_path / TOKEN_FILE)) is None


# ---------------------------------------------------------------- exports
def test_an_export_goes_where_files_may_be_loaded_from(place: Place) -> None:
    def code(given: str | None = None, **more: Any) -> int:
        asked = {"what": "t", "to": "csv", "directory": str(place.open / "new"), **more}
        raw = json.dumps(asked).encode()
        try:
            found = place.permit.check_export(asked, raw, given and proof(place.token, raw))
        except SqlError as e:
            return e.code
        return 0 if found["directory"] == asked["directory"] else -1

    (place.open / "up").symlink_to(place.closed)
    elsewhere = str(place.closed / "new")
    assert code() == 0 and code("proven", directory=elsewhere) == 0
    assert code(directory=elsewhere) == code(directory=str(place.open / "up" / "new")) == 1290
    assert code(directory="s3a://b/c") == code("proven", directory="s3a://b/c") == 1235
    for wrong in ({"directory": "new"}, {"directory": None}, {"what": 1}, {"to": []}, {"overwrite": "yes"}):
        assert code(**wrong) == 1105, wrong


# ---------------------------------------------------------------- reject files
def test_a_reject_file_replaces_only_a_reject_file(place: Place) -> None:
    made, target = place.data / "rejected", place.open / "t.rejected"
    made.write_text(REJECT)
    assert place.check(reject=str(target))["reject"] == str(target)
    keep_rejects(str(made), str(target))
    assert target.read_text() == REJECT
    made.write_text(REJECT * 2)
    assert place.check(reject=str(target))
    keep_rejects(str(made), str(target))
    assert target.read_text() == REJECT * 2
    assert sorted(p.name for p in place.open.iterdir()) == ["a.csv", "sub", "t.rejected"], "nothing is left beside it"


def test_what_no_load_made_is_never_overwritten(place: Place) -> None:
    made, target = place.data / "rejected", place.open / "precious"
    made.write_text(REJECT)
    (place.open / "dangling").symlink_to(place.closed / "not there")
    (place.open / "link").symlink_to(place.closed / "secret.csv")
    os.mkfifo(place.open / "pipe")
    for text in ("", "hello", "{}\n", "[1]\n", '{"file": 1}\n', "[" * 100_000, "\xff"):
        target.write_text(text, encoding="latin-1")
        assert place.refused(reject=str(target)) == 1086
        with pytest.raises(SqlError, match="already exists"):
            keep_rejects(str(made), str(target))
        assert target.read_text(encoding="latin-1") == text
    for name in ("dangling", "link", "sub", "pipe", "sub/.."):
        assert place.refused(reject=str(place.open / name)) == 1086
        # Whoever can read the token may not overwrite either: it is a mistake more often than a wish.
        assert place.refused(place.prove(reject=str(place.open / name)), reject=str(place.open / name)) == 1086
    assert (place.closed / "secret.csv").read_text() == "x" and not (place.closed / "not there").exists()


def test_rejects_of_an_earlier_load_are_removed_and_nothing_else(tmp_path: Path) -> None:
    ours, others = tmp_path / "ours", tmp_path / "others"
    ours.write_text(Reject("a.csv", None, "x", "bad", 1).json() + "\n")
    others.write_text("mine\n")
    for path in (ours, others, tmp_path / "nothing"):
        drop_rejects(str(path))
    assert not ours.exists() and others.read_text() == "mine\n"


@pytest.mark.parametrize("request_", [
    {"columns": [1]}, {"columns": "a"}, {"decimal": ";"}, {"date_format": "dd.MM.yyyy"}, {"encoding": "nope"},
    {"quote": "ab"}, {"escape": ","}, {"columns": ["a", "a"]},
])
def test_files_that_cannot_be_written_so(place: Place, request_: dict[str, Any]) -> None:
    assert place.refused(**request_) == 1105


def test_empty_texts_that_say_something_stay(place: Place) -> None:
    found = place.check(quote="", null="", escape="", once="", format="")
    assert {k: v for k, v in found.items() if v == ""} == {"quote": "", "null": "", "escape": ""}


def test_a_reject_file_elsewhere(place: Place) -> None:
    for path in (place.closed / "new", place.open / "../closed/new", Path("/etc/noria.rejected")):
        assert place.refused(reject=str(path)) == 1290


def test_a_reject_file_that_cannot_be_written(place: Place) -> None:
    made = place.data / "rejected"
    made.write_text(REJECT)
    with pytest.raises(SqlError, match="nothing was loaded"):
        keep_rejects(str(made), str(place.open / "not there" / "t.rejected"))


def test_keys_that_change_while_files_are_made() -> None:
    table = TableDef("t", (Column("id", INT, False), Column("p", INT)), (0,))
    keyed = replace(table, foreign_keys=(ForeignKey("t_ibfk_1", (1,), "p", ("id",)),))
    for then, now in ((table, keyed), (keyed, table)):
        program = SimpleNamespace(table=lambda name, now=now: now)
        assert unchanged(now, program) == "t"
        with pytest.raises(SqlError) as found:
            unchanged(then, program)
        assert found.value.code == 1412
