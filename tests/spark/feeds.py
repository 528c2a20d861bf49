"""A change feed over HTTP as the server gives it, held in memory: what the stream reader is tested against."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa

LIFE = "7"
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.large_string()), ("_sign", pa.int64()),
                    ("_watermark", pa.string()), ("_time", pa.timestamp("us", "UTC"))])


class Feed:
    """changes: (id, name, sign), the first of them with watermark 1.  oldest: of what is kept."""

    def __init__(self) -> None:
        self.changes: list[tuple[int, str, int]] = []
        self.oldest = 0
        self.url = ""

    def add(self, *changes: tuple[int, str, int]) -> None:
        self.changes += changes

    def about(self) -> dict[str, Any]:
        return {"feed": "people", "oldest": f"{LIFE}.{self.oldest}", "newest": f"{LIFE}.{len(self.changes)}",
                "columns": [{"name": "id", "type": "bigint"}, {"name": "name", "type": "varchar(20)"}]}

    def place(self, watermark: str) -> int | None:
        """None: not kept any more, or of another life."""
        life, _, number = watermark.partition(".")
        return int(number) if life == LIFE and int(number) >= self.oldest else None

    def between(self, after: int, until: int) -> pa.Table:
        some = list(enumerate(self.changes, 1))[after:until]
        rows = [(id, name, sign, f"{LIFE}.{n}", datetime(2026, 1, 1, tzinfo=UTC)) for n, (id, name, sign) in some]
        return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), SCHEMA, strict=True)]
                                    if rows else [pa.array([], f.type) for f in SCHEMA], schema=SCHEMA)

    def as_of(self, until: int) -> pa.Table:
        """What was not taken back."""
        whole = self.between(0, until)
        kept = [i for i, r in enumerate(whole.to_pylist())
                if r["_sign"] > 0 and (r["id"], r["name"], -1) not in self.changes[:until]]
        return whole.take(kept)


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


@contextmanager
def serving_feed() -> Iterator[Feed]:
    feed = Feed()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            asked = {k: v[0] for k, v in parse_qs(parts.query).items()}
            what = parts.path.rpartition("/")[2]
            marks = [feed.place(asked[k]) for k in ("after", "until", "at") if k in asked]
            if what != "feed" and None in marks:
                self.answer(410, json.dumps({"error": {"message": "the watermark is not kept"}}).encode())
            elif what == "feed":
                self.answer(200, json.dumps(feed.about()).encode())
            else:
                after, until = (marks if what == "changes" else (0, *marks))
                assert after is not None and until is not None
                self.answer(200, _stream(feed.between(after, until) if what == "changes" else feed.as_of(until)))

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    feed.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield feed
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
