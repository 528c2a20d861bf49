"""A chunked answer that is cut at any byte is an error, never an end."""

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
COMPLETE = HEAD + b"".join(b"%x\r\n%s\r\n" % (len(some), some) for some in LINES) + b"0\r\n\r\n"


def answering(data: bytes) -> int:
    """The port of a server that answers one request with these bytes, and closes the connection."""
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


def request_lines(data: bytes) -> list[object]:
    connection = http.client.HTTPConnection("127.0.0.1", answering(data), timeout=30)
    try:
        connection.request("POST", "/apply")
        return list(json_lines(connection.getresponse()))
    finally:
        connection.close()


def test_a_complete_answer() -> None:
    assert request_lines(COMPLETE) == [{"session": 1}, {"step": "made"}, {"applied": True}]
    assert request_lines(HEAD + b"0\r\n\r\n") == []


@pytest.mark.parametrize("cut", [*range(len(HEAD), len(COMPLETE) - 2, 3)])
def test_cut_anywhere(cut: int) -> None:
    with pytest.raises(ConnectionError, match="not known what was done"):
        request_lines(COMPLETE[:cut])


def test_the_client_and_the_source_report_a_lost_server() -> None:
    cut = COMPLETE[:COMPLETE.index(b"step") - 20]
    with pytest.raises(ConnectionError):
        list(HttpTransport(f"http://127.0.0.1:{answering(cut)}").lines("/apply", {}))
    with pytest.raises(Unreachable):
        list(Server(f"http://127.0.0.1:{answering(cut)}", "", "").lines("/load", {}))
