"""An answer of lines that is cut anywhere is an error, never an end."""

from __future__ import annotations

import http.client
import socket
import threading

import pytest

from noria.client.transport import HttpTransport
from noria.runtime.transport.json_lines import json_lines
from noria.spark.source.wire import Server, Unreachable

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
LINES = (b'{"session": 1}\n', b'{"step": "made', b'"}\n{"applied": true}\n')
WHOLE = HEAD + b"".join(b"%x\r\n%s\r\n" % (len(some), some) for some in LINES) + b"0\r\n\r\n"


def answering(data: bytes) -> int:
    """The port of a server that sends this to whoever asks, and closes the connection."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listening, listening.accept()[0] as connection:
            connection.recv(65_536)
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65_536):
                pass

    threading.Thread(target=serve, daemon=True).start()
    return int(listening.getsockname()[1])


def asked(data: bytes) -> list[object]:
    connection = http.client.HTTPConnection("127.0.0.1", answering(data), timeout=30)
    try:
        connection.request("POST", "/apply")
        return list(json_lines(connection.getresponse()))
    finally:
        connection.close()


def test_whole_lines() -> None:
    assert asked(WHOLE) == [{"session": 1}, {"step": "made"}, {"applied": True}]
    assert asked(HEAD + b"0\r\n\r\n") == []


@pytest.mark.parametrize("cut", [*range(len(HEAD), len(WHOLE) - 2, 3)])
def test_cut_anywhere(cut: int) -> None:
    with pytest.raises(ConnectionError, match="not known what was done"):
        asked(WHOLE[:cut])


def test_the_client_and_the_source_do_not_take_a_lost_server_for_an_end() -> None:
    cut = WHOLE[:WHOLE.index(b"step") - 20]
    with pytest.raises(ConnectionError):
        list(HttpTransport(f"http://127.0.0.1:{answering(cut)}").lines("/apply", {}))
    with pytest.raises(Unreachable):
        list(Server(f"http://127.0.0.1:{answering(cut)}", "", "").lines("/load", {}))
