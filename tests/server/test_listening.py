"""Ports are had before anything is started, by one process only, and who can be overheard is told."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from noria.server.listening import CannotListen, listening, reserved
from noria.server.node import ServerNode
from noria.server.settings import Settings
from server import tls_files


def test_a_port_that_is_had_takes_connections_at_once() -> None:
    with listening("127.0.0.1", 0, "") as bound, socket.create_connection(bound.getsockname(), 10):
        assert bound.getsockname()[1] > 0


def test_a_port_that_is_taken_names_the_option() -> None:
    with listening("127.0.0.1", 0, "") as bound:
        port = bound.getsockname()[1]
        with pytest.raises(CannotListen, match=rf"127\.0\.0\.1:{port} \(--http-host, --http-port\): Address already"):
            listening("127.0.0.1", port, "--http-host, --http-port")


@pytest.mark.parametrize("host", ["nowhere.invalid", "192.0.2.1", "a..b", "x" * 300])
def test_addresses_that_are_not_this_hosts(host: str) -> None:
    with pytest.raises(CannotListen, match="cannot listen"):
        listening(host, 0, "--mysql-host")


def test_a_name_of_both_families_is_listened_on_by_its_ipv4_address() -> None:
    with listening("localhost", 0, "") as bound:
        assert bound.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("secured", [False, True])
def test_listening_beyond_loopback_without_tls_warns(tmp_path: Path, secured: bool,
                                                     caplog: pytest.LogCaptureFixture) -> None:
    certificate, key = tls_files.make(tmp_path) if secured else (None, None)
    node = ServerNode(Settings(tmp_path / "data", mysql_host="0.0.0.0", mysql_port=0, http_port=0, password="secret",
                               tls_cert=certificate, tls_key=key))
    for port in node._ports():
        port.close()
    assert ("--mysql-host 0.0.0.0: other hosts can connect" in caplog.text) is not secured
    assert "--http-host" not in caplog.text


def test_a_reserved_port_is_for_those_who_share_it() -> None:
    """It takes nobody itself; a second server, which would share it too, is told that it is taken."""
    with reserved("127.0.0.1", 0, "--mysql-port") as kept:
        host, port = kept.getsockname()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, port))
        with listening(host, port, "", shared=True), listening(host, port, "", shared=True):
            socket.create_connection((host, port)).close()
            for take in (reserved, listening):
                with pytest.raises(CannotListen, match="--mysql-port"):
                    take(host, port, "--mysql-port")
