"""Feeds over HTTP.

    GET /views/NAME/feed       columns, the oldest watermark and the newest; makes the feed of a table or view
    GET /views/NAME/changes    ?since=W: server-sent events, as they happen; since=start (the default) sends all rows
                               first, since=now only later changes.  &format=arrow: the same as an Arrow stream without
                               an end, whose batches have `kind` and `watermark` in their metadata.
                               ?after=W&until=W&format=arrow: an Arrow stream of only these changes
    GET /views/NAME/rows       ?at=W&format=arrow: all rows as of a watermark

An event `rows` or `changes` has its rows as [sign, row] in `data`.  The last event of a tick has an `id`: the watermark
from which to continue.  A client that reconnects with it (Last-Event-ID) misses no change and gets none twice.  The
event `whole` ends the rows of since=start.  Status 410, or an event `gone`: the changes since that watermark are no
longer stored.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from noria.core.errors import SqlError
from noria.core.errors.codes import UNKNOWN_ERROR
from noria.core.limits import FEED_ALIVE_S
from noria.core.values import python_values
from noria.feeds.layout import Watermark
from noria.feeds.reader import SIGN, TIME, WATERMARK
from noria.feeds.watch import WatcherClosed
from noria.server.feeding import FeedMessage, Feeds, ServedFeed, feed_messages, shown
from noria.server.http import permissions, wire
from noria.server.http.bodies import ARROW, name_of
from noria.server.rows import jsonable

EVENTS = "text/event-stream"


class FeedServices(Protocol):
    feeds: Feeds

    def place(self, name: str) -> tuple[str, str]: ...


def routes(services: FeedServices) -> list[tuple[str, str, Callable[[Request], Awaitable[Response]]]]:
    async def of(request: Request) -> ServedFeed:
        permissions.of(request).select(services.place(name_of(request)))
        return await services.feeds.named(name_of(request))

    async def feed(request: Request) -> Response:
        found = await of(request)
        state = await found.state()
        return JSONResponse({"feed": found.name, "columns": shown(found.file.fields), "oldest": str(state.oldest),
                             "newest": str(state.newest)})

    async def changes(request: Request) -> Response:
        query = request.query_params
        found = await of(request)
        form = query.get("format", "events")
        if form not in ("events", "arrow"):
            raise SqlError(*UNKNOWN_ERROR, f"changes come as format=events or format=arrow, not {form[:50]!r}")
        if form == "arrow" and "after" in query:
            until = await found.at(query["until"]) if "until" in query else None
            return await _arrow(found, found.changes(await found.at(query["after"]), until))
        since = request.headers.get("last-event-id") or query.get("since", "start")
        encoder = _Events() if form == "events" else _Batches(found.file.schema)
        return await _following(feed_messages(found, await found.at(since), since == "start"), encoder)

    async def rows(request: Request) -> Response:
        found = await of(request)
        if (form := request.query_params.get("format", "arrow")) != "arrow":
            raise SqlError(*UNKNOWN_ERROR, f"rows come as format=arrow, not {form[:50]!r}")
        return await _arrow(found, found.rows(await found.at(request.query_params.get("at", "now"))))

    return [("GET", "/views/{name}/feed", feed), ("GET", "/views/{name}/changes", changes),
            ("GET", "/views/{name}/rows", rows)]


class Encoder(Protocol):
    media_type: str

    def encode(self, message: FeedMessage) -> bytes: ...

    def gone(self, error: SqlError) -> bytes: ...

    def end(self) -> bytes: ...


async def _arrow(feed: ServedFeed, batches: AsyncIterator[pa.RecordBatch]) -> Response:
    """Answer with an Arrow stream.  The first batch is read before the status is sent, so its error has a status."""
    encoder = _Batches(feed.file.schema)
    first = await anext(batches, None)

    async def body() -> AsyncIterator[bytes]:
        batch = first
        while batch is not None:
            yield await asyncio.to_thread(encoder.encode, FeedMessage("changes", batch))
            batch = await anext(batches, None)
        yield encoder.end()

    return StreamingResponse(body(), media_type=ARROW)


async def _following(messages: AsyncIterator[FeedMessage], encoder: Encoder) -> Response:
    """Answer with messages as they happen.  The first is awaited before the status is sent, which may be 410."""
    first = await anext(messages)

    async def body() -> AsyncIterator[bytes]:
        yield encoder.encode(first)
        waiting = asyncio.ensure_future(anext(messages))
        try:
            while True:
                done, _ = await asyncio.wait((waiting,), timeout=FEED_ALIVE_S)
                if done:
                    yield await asyncio.to_thread(encoder.encode, waiting.result())
                    waiting = asyncio.ensure_future(anext(messages))
                else:
                    yield encoder.encode(FeedMessage("alive"))
        except SqlError as e:
            yield encoder.gone(e)
        except WatcherClosed:  # the server stops: clients connect to the next one
            yield encoder.end()
        finally:
            waiting.cancel()

    return StreamingResponse(body(), media_type=encoder.media_type, headers={"Cache-Control": "no-store"})


class _Events:
    """Encodes messages as server-sent events."""

    media_type = EVENTS

    def encode(self, message: FeedMessage) -> bytes:
        if message.kind == "alive":
            return b": alive\n\n"
        mark = message.mark
        return _event(message.kind, mark, {"watermark": str(mark)} if message.batch is None else _rows(message.batch))

    def gone(self, error: SqlError) -> bytes:
        return _event("gone", None, wire.json_error(error))

    def end(self) -> bytes:
        return b""


def _rows(batch: pa.RecordBatch) -> dict[str, Any]:
    shown = batch.drop_columns([SIGN, WATERMARK, TIME])
    columns = [[jsonable(v) for v in python_values(c)] for c in shown.columns]
    rows = [dict(zip(shown.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]
    times = batch.column(TIME)
    return {"rows": list(zip(batch.column(SIGN).to_pylist(), rows, strict=True)),
            "time": times[-1].as_py().isoformat() if len(times) else None}


def _event(kind: str, mark: Watermark | None, data: dict[str, Any]) -> bytes:
    number = "" if mark is None else f"id: {mark}\n"
    return f"event: {kind}\n{number}data: {json.dumps(data)}\n\n".encode()


class _Batches:
    """Encodes messages as an Arrow stream."""

    media_type = ARROW

    def __init__(self, schema: pa.Schema):
        self._parts: list[bytes] = []
        self._schema, self.closed = schema, False
        self._writer = pa.ipc.new_stream(self, schema)

    def encode(self, message: FeedMessage) -> bytes:
        batch = pa.RecordBatch.from_pylist([], self._schema) if message.batch is None else message.batch
        self._writer.write_batch(batch, custom_metadata=message.about)
        return self._taken()

    def gone(self, error: SqlError) -> bytes:
        self._writer.write_batch(pa.RecordBatch.from_pylist([], self._schema), custom_metadata={
            "kind": "gone", "error": json.dumps(wire.json_error(error))})
        return self.end()

    def end(self) -> bytes:
        self._writer.close()
        return self._taken()

    def _taken(self) -> bytes:
        out, self._parts = b"".join(self._parts), []
        return out

    # ---------------------------------------------------------- the file to which the Arrow writer writes
    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def flush(self) -> None:
        """Do nothing: no bytes are buffered elsewhere."""

    def close(self) -> None:
        self.closed = True
