"""The requests of a follower (`noria follow`), over HTTP (`server/source/follows.py`).

    GET  /follows                   the followed sources: records and progress
    POST /follows/NAME/begin        begin a run; returns the record and where to continue
    POST /follows/NAME/note         write another record
    POST /follows/NAME/sql          run a statement on one of its tables
    POST /follows/NAME/apply        apply changes: an Arrow stream of (table, on, rows), where rows are Arrow streams;
                                    its metadata has the run and the position
    POST /follows/NAME/tell         report the follower's state and progress
    POST /follows/NAME/release      make its tables ordinary ones

Each path checks the request's shape and calls `FollowServices`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from noria.core.errors import SqlError
from noria.core.errors.codes import UNKNOWN_ERROR
from noria.server.http import bodies, wire
from noria.server.http.bodies import ARROW, JSON

KEYS = {"run": "the run's name", "record": "what is followed", "sql": "a statement", "told": "how far it is"}
PROGRESS_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("state", "position", "end", "error"), (str,)),
    **dict.fromkeys(("behind_bytes", "transactions", "rows", "loaded"), (int,)), "current_s": (int, float, type(None))}
Change = tuple[str, str, pa.Table]


class FollowServices(Protocol):
    """The operations behind these paths (`server/source/follows.py`)."""

    def all(self) -> list[dict[str, Any]]: ...

    async def begin(self, name: str, run: str, record: dict[str, Any] | None) -> dict[str, Any]: ...

    async def note(self, name: str, run: str, record: dict[str, Any]) -> None: ...

    async def run(self, name: str, run: str, statement: str) -> None: ...

    async def apply(self, name: str, run: str, position: int, changes: Sequence[Change]) -> bool: ...

    def record_progress(self, name: str, run: str, progress: dict[str, Any]) -> int: ...

    async def release(self, name: str) -> None: ...


class FollowApi:
    """The handlers of these paths."""
    def __init__(self, follows: Callable[[], FollowServices]):
        self._follows = follows

    def routes(self) -> list[tuple[str, str, Callable[[Request], Awaitable[Response]]]]:
        return [("GET", "/follows", self.all), ("POST", "/follows/{name}/begin", self.begin),
                ("POST", "/follows/{name}/note", self.note), ("POST", "/follows/{name}/sql", self.sql),
                ("POST", "/follows/{name}/apply", self.apply), ("POST", "/follows/{name}/tell", self.report),
                ("POST", "/follows/{name}/release", self.release)]

    async def all(self, request: Request) -> Response:
        return JSONResponse({"follows": self._follows().all()})

    async def begin(self, request: Request) -> Response:
        name, run, body = await _follower_request(request)
        record = None if body.get("record") is None else _record(name, body)
        return JSONResponse(await self._follows().begin(name, run, record))

    async def note(self, request: Request) -> Response:
        name, run, body = await _follower_request(request)
        await self._follows().note(name, run, _record(name, body))
        return JSONResponse({})

    async def sql(self, request: Request) -> Response:
        name, run, body = await _follower_request(request)
        if not isinstance(body.get("sql"), str):
            raise bodies.wrong('"sql" is a statement')
        await self._follows().run(name, run, body["sql"])
        return JSONResponse({})

    async def apply(self, request: Request) -> Response:
        run, position, changes = await asyncio.to_thread(_changes, await bodies.read(request, ARROW))
        return JSONResponse({"done": await self._follows().apply(request.path_params["name"], run, position, changes)})

    async def report(self, request: Request) -> Response:
        name, run, body = await _follower_request(request)
        progress = body.get("told")
        if not isinstance(progress, dict) or any(type(value) not in PROGRESS_TYPES.get(key, ())
                                                 for key, value in progress.items()):
            raise bodies.wrong(f'"told" has {", ".join(PROGRESS_TYPES)}: texts, numbers')
        return JSONResponse({"loaded": self._follows().record_progress(name, run, progress)})

    async def release(self, request: Request) -> Response:
        bodies.parse(await bodies.read(request, JSON), {}, empty=True)
        await self._follows().release(request.path_params["name"])
        return JSONResponse({})


async def _follower_request(request: Request) -> tuple[str, str, dict[str, Any]]:
    body = bodies.parse(await bodies.read(request, JSON), KEYS)
    if not isinstance(body.get("run"), str):
        raise bodies.wrong('"run" is the name of a run')
    return request.path_params["name"], body["run"], body


def _record(name: str, body: dict[str, Any]) -> dict[str, Any]:
    record = body.get("record")
    if (not isinstance(record, dict) or record.get("name") != name or not isinstance(record.get("source"), str)
            or not isinstance(record.get("tables"), dict) or type(record.get("n")) is not int):
        raise bodies.wrong('"record" has "name" as the path has it, "n", "source" and "tables"')
    return record


def _changes(body: bytes) -> tuple[str, int, list[Change]]:
    try:
        received = pa.ipc.open_stream(pa.py_buffer(body)).read_all()
        received.validate(full=True)
        meta = json.loads((received.schema.metadata or {})[wire.META])
        changes = [(str(c["table"]), str(c["on"]), wire.from_stream(c["rows"], "rows")) for c in received.to_pylist()]
        run, position = str(meta["run"]), int(meta["position"])
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as e:
        raise SqlError(*UNKNOWN_ERROR, f"the body is no Arrow stream of changes: {str(e)[:500]}") from None
    if any(on not in ("delete", "replace") for _, on, _ in changes):
        raise bodies.wrong('"on" is delete or replace')
    return run, position, changes
