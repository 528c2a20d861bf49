"""The requests of Spark's source, over HTTP (`server/source/`).

    POST /source/plan                 the columns, and the division of the rows among tasks
    POST /source/rows                 a task's piece as an Arrow stream
    POST /source/held                 the path of the snapshot, which exists while the client listens
    POST /source/writes/NAME/parts      store rows of a write, in Parquet; returns the part's name
    POST /source/writes/NAME/commit     commit these parts: lines of JSON, the last with the number of rows
    POST /source/writes/NAME/drop       end the write
    GET  /loads/NAME                  the state of the load of this name: "under way", "done" or "nothing"

Each path checks the request's shape and calls `SourceServices`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from noria.server.http import bodies, permissions
from noria.server.http.bodies import ARROW, JSON, PARQUET
from noria.server.http.following import FollowServices
from noria.sql.text.databases import Databases

_WHAT = {"table": "a name", "view": "a name", "query": "a SELECT"}
PLAN_KEYS = {**_WHAT, "database": "a name", "pieces": "how many tasks; 0: only the columns",
             "bounds": 'of the first key column, {"least": [texts], "most": [texts]}'}
ROWS_KEYS = {**_WHAT, "database": "a name", "read": "the name of the read", "life": "of the server, as the plan has it",
             "table_id": "as the plan has it", "columns": "a list of names or, of a query, positions",
             "worker": "a number", "first": "hexadecimal, or null", "end": "hexadecimal, or null", "file": "a number",
             "files": "how many", "skip": "rows that were read already"}

COMMIT_KEYS = {"table": "a name", "database": "a name", "parts": "a list of the names of parts",
               "scope": "whose write it is", "batch": "a number", "on": "error, ignore, replace, update or delete",
               "overwrite": "true or false",
               "max_rejects": "a number"}
Lines = Callable[[AsyncIterator[dict[str, Any]]], Response]


class SourceServices(Protocol):
    """The operations behind these paths (`server/source/`)."""

    async def plan(self, request: dict[str, Any]) -> dict[str, Any]: ...

    def rows(self, request: dict[str, Any]) -> AsyncIterator[bytes]: ...

    def held(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]: ...

    async def part(self, write: str, body: bytes) -> dict[str, Any]: ...

    def commit(self, write: str, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]: ...

    async def drop(self, write: str) -> dict[str, Any]: ...

    async def loaded(self, name: str) -> str: ...

    @property
    def follows(self) -> FollowServices: ...


class SourceApi:
    """The handlers of these paths.  lines: encodes steps of progress as an answer.  place: where a name
    belongs.  databases: the server's."""

    def __init__(self, source: Callable[[], SourceServices], lines: Lines, place: permissions.Place,
                 databases: Callable[[], Databases]):
        self._source_of, self._lines, self._place, self._databases = source, lines, place, databases

    @property
    def _source(self) -> SourceServices:
        return self._source_of()

    def routes(self) -> list[tuple[str, str, Callable[[Request], Awaitable[Response]]]]:
        return [("POST", "/source/plan", self.plan), ("POST", "/source/rows", self.rows),
                ("POST", "/source/held", self.held), ("POST", "/source/writes/{name}/parts", self.part),
                ("POST", "/source/writes/{name}/commit", self.commit),
                ("POST", "/source/writes/{name}/drop", self.drop), ("GET", "/loads/{name}", self.loaded)]

    async def plan(self, request: Request) -> Response:
        body = bodies.parse(await bodies.read(request, JSON), PLAN_KEYS)
        if type(body.get("pieces", 0)) is not int or not 0 <= body.get("pieces", 0) <= 10_000:
            raise bodies.wrong('"pieces" is a number up to 10,000')
        return JSONResponse(await self._source.plan(self._permitted(request, body)))

    def _permitted(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """Return what a request reads, if its account may read it."""
        wanted = _one_thing(body)
        permissions.of(request).read(wanted, self._place, self._databases())
        return wanted

    async def rows(self, request: Request) -> Response:
        body = bodies.parse(await bodies.read(request, JSON), ROWS_KEYS)
        frames = self._source.rows(self._permitted(request, body))
        return await begun(frames, ARROW)

    async def held(self, request: Request) -> Response:
        body = bodies.parse(await bodies.read(request, JSON), ROWS_KEYS)
        lines = self._source.held(self._permitted(request, body))
        return await begun((json.dumps(line).encode() + b"\n" async for line in lines), "application/x-ndjson")

    async def part(self, request: Request) -> Response:
        permissions.of(request).write_something()
        body = await bodies.read(request, PARQUET)
        return JSONResponse(await self._source.part(request.path_params["name"], body))

    async def commit(self, request: Request) -> Response:
        body = bodies.parse(await bodies.read(request, JSON), COMMIT_KEYS)
        parts, batch, most = body.get("parts"), body.get("batch", 0), body.get("max_rejects")
        if not isinstance(body.get("table"), str) or not isinstance(parts, list):
            raise bodies.wrong('"table" is a name and "parts" a list')
        if type(batch) is not int or batch < 0 or (most is not None and (type(most) is not int or most < 0)):
            raise bodies.wrong('"batch" and "max_rejects" are numbers from 0')
        by, named, on = permissions.of(request), bodies.in_database(dict(body), "table"), str(body.get("on", "error"))
        for what in (on, "delete") if body.get("overwrite") else (on,):
            by.write(self._place(str(named["table"])), what)
        return self._lines(self._source.commit(request.path_params["name"], bodies.in_database(body, "table")))

    async def drop(self, request: Request) -> Response:
        permissions.of(request).write_something()
        return JSONResponse(await self._source.drop(request.path_params["name"]))

    async def loaded(self, request: Request) -> Response:
        return JSONResponse({"state": await self._source.loaded(request.path_params["name"])})


async def begun(chunks: AsyncIterator[bytes], kind: str) -> Response:
    """Answer with a body whose pieces are produced while it is sent.  An error before the first piece is an ordinary
    answer.  A later error closes the connection before the body's end, which the client notices."""
    first = await anext(chunks, b"")

    async def body() -> AsyncIterator[bytes]:
        yield first
        async for chunk in chunks:
            yield chunk

    return StreamingResponse(body(), media_type=kind)


def _one_thing(body: dict[str, Any]) -> dict[str, Any]:
    named = [k for k in _WHAT if k in body]
    if len(named) != 1 or not isinstance(body[named[0]], str):
        raise bodies.wrong('one of "table", "view" and "query" is to be read, a text')
    bodies.database_of(body)
    return body if named[0] == "query" else bodies.in_database(body, named[0])
