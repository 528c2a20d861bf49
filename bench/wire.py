"""The upper bound of the MySQL front end: prepared and text point reads answered from a dictionary of replies.

There is no view, planner or worker.  The front end only reads, decodes, looks up and writes packets, on one core, while
sysbench uses the other.  `bench/mysql.py` compares a complete server with MariaDB.

    python bench/wire.py [--seconds 4] [--connections 1,8,32]
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import struct
import subprocess
from collections.abc import Hashable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar

import uvloop

from noria.core.types import BIGINT, TEXT, Field
from noria.server.listening import listening
from noria.server.mysql import account, encode_result, listen
from noria.server.outcomes import (
    AUTOCOMMIT,
    Client,
    Entry,
    Ok,
    PreparedHandle,
    ResultSet,
    RowEncoding,
    Warning_,
)

SCRIPT = Path(__file__).parent / "sysbench" / "point.lua"
QUERY = "SELECT id, title, votes FROM stories WHERE id = ?"
FIELDS = [Field("id", BIGINT), Field("title", TEXT), Field("votes", BIGINT)]
ROWS = 10_000
NUMBER = 1  # the number of all prepared statements


class Canned:
    """A backend that has all replies ready."""

    def __init__(self) -> None:
        self.replies = CannedReplies()

    def connect(self, client: Client) -> CannedSession:
        return CannedSession()


class CannedReplies:
    """The replies, by the keys of `mysql.session`: (text, form) and (statement, parameters, form)."""

    def __init__(self) -> None:
        self.kept: dict[Hashable, tuple[int, bytes]] = {}
        for deprecate_eof in (False, True):
            form = AUTOCOMMIT << 1 | deprecate_eof
            for key in range(1, ROWS + 1):
                row = [(key, f"A story about the number {key}", key * 7)]
                bigint = b"\0\1\x08\0" + struct.pack("<q", key)
                self.kept[NUMBER, bigint, form] = 1, encode_result(FIELDS, row, True, deprecate_eof)
                text = QUERY.replace("?", str(key)).encode()
                self.kept[text, form] = 1, encode_result(FIELDS, row, False, deprecate_eof)

    def get(self, key: Hashable, unseen: Mapping[int, int]) -> bytes | None:
        kept = self.kept.get(key)
        return kept[1] if kept is not None and kept[0] == 1 else None

    def put(self, key: Hashable, packets: bytes, entry: Entry, version: int) -> None: ...


class CannedSession:
    status, keepable = AUTOCOMMIT, True
    unseen: ClassVar[Mapping[int, int]] = {}
    warnings: Sequence[Warning_] = ()

    def query(self, sql: str, multi: bool, form: RowEncoding | None) -> Ok:
        return Ok()

    def prepare(self, sql: str) -> PreparedHandle:
        return PreparedHandle(sql, sql.count("?"), FIELDS, NUMBER)

    def execute(self, handle: Any, values: Sequence[object], form: RowEncoding | None) -> ResultSet:
        raise AssertionError(f"no reply was kept for {values}")

    def close_statement(self, handle: Any) -> None: ...

    def use(self, database: str) -> None: ...

    def list_fields(self, table: str, pattern: str) -> Sequence[Field]:
        return FIELDS

    def reset(self) -> None: ...

    def kill(self, number: int) -> None: ...

    def close(self) -> None: ...


def serve(ready: Connection) -> None:
    async def run() -> None:
        server = await listen(listening("127.0.0.1", 0, ""), Canned(), {"": account("")})
        ready.send(server.address[1])
        await server.wait_closed()

    uvloop.run(run())


def measure(port: int, connections: int, seconds: int, text: bool) -> tuple[float, float]:
    """Run sysbench.  Return reads per second and the 95th percentile of their duration in ms."""
    done = subprocess.run(
        ["sysbench", str(SCRIPT), "--db-driver=mysql", "--mysql-host=127.0.0.1", f"--mysql-port={port}",
         "--mysql-user=root", f"--threads={connections}", f"--time={seconds}", f"--rows={ROWS}",
         f"--text={'on' if text else 'off'}", f"--noria-query={QUERY}", "run"],
        capture_output=True, text=True, check=True)
    rate = re.search(r"queries:\s+\d+\s+\(([\d.]+) per sec", done.stdout)
    tail = re.search(r"95th percentile:\s+([\d.]+)", done.stdout)
    assert rate and tail, done.stdout + done.stderr
    return float(rate[1]), float(tail[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--connections", default="1,8,32")
    options = parser.parse_args()
    ready, child = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(child,), daemon=True)
    server.start()
    port = ready.recv()
    for text in (False, True):
        for connections in map(int, options.connections.split(",")):
            rate, tail = measure(port, connections, options.seconds, text)
            print(f"{'text' if text else 'prepared':9}{connections:4} connections {rate:10,.0f} reads/s"
                  f"   95 % within {tail:.2f} ms", flush=True)
    server.terminate()
    server.join()


if __name__ == "__main__":
    main()
