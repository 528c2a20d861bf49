"""Settings refuse what cannot be, with a message that says what to do."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import pytest

from noria.server.options import REQUIRED, Option, options, settings_from
from noria.server.run_directory import make_run_dir
from noria.server.settings import (
    Settings,
    SettingsError,
    is_loopback,
    parse_size,
    read_password,
    size_text,
)


@pytest.mark.parametrize(("text", "size"), [
    ("0", 0), ("512M", 512 * 2**20), ("2GiB", 2 * 2**30), ("1.5g", 3 * 2**29), (" 64 kb ", 64 * 2**10),
])
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "M", "1 X", "-1M", "1e9"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(SettingsError, match="is no size"):
        parse_size(text)


@pytest.mark.parametrize(("host", "answer"), [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True),
                                              ("localhost", True), ("0.0.0.0", False), ("10.1.2.3", False)])
def test_loopback(host: str, answer: bool) -> None:
    assert is_loopback(host) is answer


@pytest.mark.parametrize("size", [0, 1, 1000, 1024, 1536, 3 * 2**19, 2**30, 5 * 2**40])
def test_a_size_is_read_as_it_is_written(size: int) -> None:
    assert parse_size(size_text(size)) == size


def test_every_field_of_the_settings_is_an_option() -> None:
    assert {f.name for f in fields(Settings)} - {o.field for o in options(Settings)} == {"run_root"}


def test_the_defaults_of_the_options_are_those_of_the_settings() -> None:
    declared = options(Settings)
    written: dict[str, Any] = {o.field: o.default for o in declared} | {"data_dir": Path("/d")}
    assert settings_from(Settings, declared, written) == Settings(Path("/d"))


@dataclass(frozen=True)
class Example:
    where: Annotated[Path, Option("A place.", read=Path.absolute)]
    waits_s: Annotated[int, Option("Seconds.", name="--wait")] = 3
    sizes: Annotated[tuple[int, ...], Option("Sizes.", name="--size", written=str, read=parse_size)] = ()
    secret: Annotated[str | None, Option("A file.", written=Path, read=read_password)] = None
    inner: int = 7


def test_options_are_made_from_fields() -> None:
    declared = options(Example)
    assert [(o.name, o.written, o.default, o.repeatable) for o in declared] == [
        ("--where", Path, REQUIRED, False), ("--wait", int, 3, False), ("--size", list[str] | None, None, True),
        ("--secret", Path | None, None, False)]
    written = {"where": Path("a"), "waits_s": 4, "sizes": ["1K", "2K"], "secret": None}
    assert settings_from(Example, declared, written) == Example(Path("a").absolute(), 4, (1024, 2048))


def test_other_hosts_need_no_password_file() -> None:
    """The first start makes an administrator (tests/e2e/security/test_first_start.py)."""
    assert Settings(Path("d"), http_host="0.0.0.0").password is None
    assert Settings(Path("d"), mysql_host="0.0.0.0", password="secret").mysql_host == "0.0.0.0"


def test_a_password_is_not_printed() -> None:
    assert "secret" not in repr(Settings(Path("d"), password="secret"))


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"workers": 65}, {"mysql_port": 65536}, {"memory_bytes": 1}])
def test_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(SettingsError):
        Settings(Path("d"), **wrong)


def test_password_files(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("hello\nignored\n")
    path.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        read_password(path)
    path.chmod(0o600)
    assert read_password(path) == "hello"
    path.write_text("\n")
    with pytest.raises(SettingsError, match="no password"):
        read_password(path)
    with pytest.raises(SettingsError, match="cannot be read"):
        read_password(tmp_path / "none")


def test_run_directories(tmp_path: Path) -> None:
    first = make_run_dir(tmp_path / "a", tmp_path)
    (first / "left").touch()
    assert first.stat().st_mode & 0o777 == 0o700
    assert make_run_dir(tmp_path / "a", tmp_path) == first and not list(first.iterdir())
    assert make_run_dir(tmp_path / "b", tmp_path) != first
    first.rmdir()
    first.symlink_to(tmp_path)
    with pytest.raises(SettingsError, match="somebody else"):
        make_run_dir(tmp_path / "a", tmp_path)
    with pytest.raises(SettingsError, match="too long"):
        make_run_dir(tmp_path / "a", tmp_path / ("x" * 90))


def test_as_many_front_ends_as_there_can_be(tmp_path: Path) -> None:
    for number in (0, -1, 65):
        with pytest.raises(SettingsError, match=f"--front-ends {number}: from 1 to 64"):
            Settings(tmp_path, front_ends=number)
    assert Settings(tmp_path, front_ends=64).front_ends == 64


def test_standby_slots_are_of_a_cluster(tmp_path: Path) -> None:
    for master in ("", "local", "local[4]"):
        with pytest.raises(SettingsError, match="--standby-slots 1: from 0 to"):
            Settings(tmp_path, master=master, standby_slots=1)
    for master in ("spark://node1:7077", "local-cluster[3,1,1024]"):
        assert Settings(tmp_path, master=master, standby_slots=2).standby_slots == 2


@pytest.mark.parametrize("seconds", [0, -1, 28_801])
def test_an_idle_transaction_ends_some_time(seconds: int) -> None:
    with pytest.raises(SettingsError, match=f"--transaction-idle {seconds}: from 1 to 28800 seconds"):
        Settings(Path("d"), transaction_idle_s=seconds)


def test_authorities_want_tls_of_every_client(tmp_path: Path) -> None:
    files = {"tls_cert": tmp_path / "a", "tls_key": tmp_path / "b", "tls_ca": tmp_path / "c"}
    with pytest.raises(SettingsError, match=r"--tls-ca FILE .*give --tls-require"):
        Settings(tmp_path, **files)
    with pytest.raises(SettingsError, match="--tls-require needs a certificate"):
        Settings(tmp_path, tls_ca=tmp_path / "c", tls_require=True)
    assert Settings(tmp_path, **files, tls_require=True).tls_ca == tmp_path / "c"
