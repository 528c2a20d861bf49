"""The HTTP interface: health, metrics, the graph, views, SQL, and the requests of the Python client.

    GET  /health                      the state of the server and its workers
    GET  /metrics                     for Prometheus
    GET  /graph[?format=dot]          the running data-flow
    GET  /waits                       the waiting requests of each worker and their reasons, in words
    GET  /views, /views/NAME          views: key, columns, text, and how each is kept
    GET  /tables/NAME                 columns and primary key
    POST /sql                         {"sql": ..., "parameters": [...], "found_rows": false, "database": ...}, answered
                                      as JSON or as an Arrow stream; parameters.py encodes values without a JSON
                                      literal.  An answer within a transaction has its token, `transaction`
    POST /tables/NAME/rows            an Arrow stream of rows to insert [?on_duplicate=error|replace|ignore]
    POST /views/NAME/lookup           an Arrow stream of keys; answers rows and `__key`, the key's ordinal
    GET  /views/NAME/feed, /views/NAME/changes, /views/NAME/rows      `feeds.py`
    GET  /attach                      the directories of the views in this host's memory
    GET  /program                     the program as a text
    POST /apply                       {"program": ...}: change the program to this text; progress as lines of JSON
    POST /load, /export, /verify      bulk jobs on Spark; progress as lines of JSON
    GET  /loads/NAME                  the state of the load of this name (`source.py`)
    POST /backup                      a checkpoint on the server's host, which exists until the client disconnects
    POST /evict                       {"bytes": n}: evict the least recently read keys; without n, all keys
    POST /source/plan, /source/rows, /source/held
                                      the reads of Spark's source (`source.py`)
    POST /source/writes/NAME/parts, /source/writes/NAME/commit, /source/writes/NAME/drop
                                      its writes
    GET  /follows, POST /follows/NAME/begin, /follows/NAME/note, /follows/NAME/sql, /follows/NAME/apply,
                        /follows/NAME/tell, /follows/NAME/release
                                      the requests of followers (`following.py`)
    POST /limit                       {"memory_limit": "64M"}: another memory limit until the server ends

NAME is `table` or `database.table`; `?database=` names the database of a NAME without one.

A request to /sql, /tables/NAME/rows or /views/NAME/lookup belongs to the transaction whose token is in its header
Noria-Transaction.

A body is sent with its Content-Type: application/json, or the Arrow stream's.  `request_filter.py` decides
which requests are answered.

Keeps true: a user's error is a 4xx with MySQL's number in the body, and never ends the server.  Every answer that is
not 2xx has a JSON error in its body.  A bug is a 500 with a number, under which the log has the details.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from noria import __version__
from noria.core.columns_codec import to_stream
from noria.core.errors import SqlError, no_table, unknown_table
from noria.core.errors.codes import (
    ACCESS_DENIED,
    BINLOG_PURGED,
    COLUMNACCESS_DENIED,
    DBACCESS_DENIED,
    NO_SUCH_TABLE,
    OPTION_PREVENTS_STATEMENT,
    SERVER_SHUTDOWN,
    SPECIFIC_ACCESS_DENIED,
    TABLEACCESS_DENIED,
    UNKNOWN_ERROR,
)
from noria.core.limits import OFF_LOOP_ROWS
from noria.core.types import TableDef
from noria.dataflow.inspect.render import dot
from noria.plan.view import ViewDef
from noria.runtime.link.link import WorkerUnavailable
from noria.server.access.access import Access
from noria.server.applying import KEYS as APPLY_KEYS
from noria.server.bulk.load_permit import EXPORT_KEYS, LOAD_KEYS, PROOF_HEADER
from noria.server.feeding import Feeds
from noria.server.http import bodies, feeds, permissions, wire
from noria.server.http.bodies import ARROW, JSON
from noria.server.http.following import FollowApi
from noria.server.http.metrics import CONTENT_TYPE, render
from noria.server.http.request_filter import HttpError, RequestFilter, RequestPolicy, one_header
from noria.server.http.source import SourceApi, SourceServices
from noria.server.logins import LoginGuard
from noria.server.outcomes import Outcome, ResultSet
from noria.server.sessions.held_transactions import Caller, TokenRefused
from noria.server.sessions.inspect.inspection import about_table, about_view
from noria.sql.text.databases import Databases

log = logging.getLogger(__name__)
T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]


class Transactions(Protocol):
    """Requests that may belong to a transaction (`HeldTransactions`)."""

    async def run(self, caller: Caller, text: str, parameters: list[Any], found_rows: bool = False
                  ) -> tuple[list[Outcome], str | None]: ...

    async def insert(self, caller: Caller, table: str, rows: pa.Table, on_duplicate: str) -> int: ...

    async def lookup(self, caller: Caller, view: str, keys: pa.Table) -> pa.Table: ...

    def leave(self, caller: Caller) -> None: ...


class Services(Protocol):
    """The operations of the node that HTTP calls."""

    access: Access
    feeds: Feeds
    guard: LoginGuard

    async def health(self) -> dict[str, Any]: ...

    async def stats(self) -> dict[str, Any]: ...

    async def ask(self, what: str, argument: str = "") -> Any: ...

    @property
    def databases(self) -> Databases: ...

    def place(self, name: str) -> tuple[str, str]:
        """The database and the name of a table or view that a client names."""

    def catalog_table(self, name: str) -> TableDef | None: ...

    def catalog_view(self, name: str) -> ViewDef | None: ...

    def catalog_reader(self, view: ViewDef) -> ViewDef | None: ...

    def view_list(self) -> list[dict[str, Any]]: ...

    def attachment(self) -> dict[str, Any]: ...

    @property
    def transactions(self) -> Transactions: ...

    async def export(self) -> str: ...

    def apply(self, request: dict[str, Any], user: str, address: str) -> AsyncIterator[dict[str, Any]]: ...

    async def set_limit(self, size: str) -> int: ...

    async def evict(self, nbytes: int | None) -> int: ...

    def permitted(self, request: dict[str, Any], raw: bytes, proof: str | None) -> dict[str, Any]:
        """Check a request to load, and return it with resolved paths (`LoadPermit.check`)."""

    def load(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]: ...

    def export_permitted(self, request: dict[str, Any], raw: bytes, proof: str | None) -> dict[str, Any]:
        """Check a request to export, and return it with a resolved directory (`LoadPermit.check_export`)."""

    def export_rows(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]: ...

    def verify(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]: ...

    def backup(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]: ...

    def source(self) -> SourceServices: ...


def make_app(services: Services, policy: RequestPolicy | None = None) -> Starlette:
    """Return the application for one server.  policy: which requests reach a handler."""
    gate = RequestFilter(policy or RequestPolicy(), services.guard)
    routes = [Route(path, _guard(services, gate, path, handler), methods=[method])
              for method, path, handler in Api(services).routes()]

    async def none(request: Request, e: Exception) -> Response:
        """Reject an unknown path or method.  A request without the password gets 401, and learns no path."""
        assert isinstance(e, HTTPException)
        what = "no such path" if e.status_code == 404 else f"not by {request.method}"

        async def reject(_: Request) -> Response:
            path = request.scope["path"][:100]
            raise HttpError(e.status_code, *UNKNOWN_ERROR, f"{path}: {what}", dict(e.headers or {}))

        return await _guard(services, gate, "", reject)(request)

    app = Starlette(routes=routes, exception_handlers={HTTPException: none})
    app.router.redirect_slashes = False  # a redirect would go to wherever Host says
    return app


def _guard(services: Services, gate: RequestFilter, path: str, handler: Handler) -> Handler:
    """Return a handler that checks the request first, and answers errors as JSON."""
    access = services.access

    async def guarded(request: Request) -> Response:
        try:
            account = await gate.check(request, None if path == "/health" else access.logins(), access.user)
            permissions.permission(request, access, account).enter(path)
            return await handler(request)
        except HttpError as e:
            return JSONResponse(wire.json_error(e), e.status, e.headers)
        except TokenRefused as e:
            return JSONResponse(wire.json_error(e), _TOKENS[e.kind])
        except SqlError as e:
            return JSONResponse(wire.json_error(e), _STATUS.get(e.code, 400))
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads this: the client disconnected within its request
        except ConnectionError as e:
            return JSONResponse(wire.json_error(SqlError(*SERVER_SHUTDOWN, str(e))), 503)
        except Exception:
            return JSONResponse(wire.json_error(_bug(f"{request.method} {request.scope['path'][:100]}")), 500)

    return guarded


_STATUS = {BINLOG_PURGED.number: 410, NO_SUCH_TABLE.number: 404, OPTION_PREVENTS_STATEMENT.number: 403,
           **dict.fromkeys((e.number for e in (
               ACCESS_DENIED, DBACCESS_DENIED, TABLEACCESS_DENIED, COLUMNACCESS_DENIED, SPECIFIC_ACCESS_DENIED)), 403)}


_TOKENS = {"unknown": 404, "busy": 409, "ended": 410, "many": 429}


def _bug(what: str) -> SqlError:
    """Log the current exception under a number, and return an error with this number."""
    number = secrets.token_hex(4)
    log.exception("internal error %s: %s failed", number, what)
    return SqlError(*UNKNOWN_ERROR, f"internal error {number}: the server's log explains it under this number")


class Api:
    """The handlers of all paths (see the module)."""
    def __init__(self, services: Services):
        self._s = services

    def routes(self) -> list[tuple[str, str, Handler]]:
        source = SourceApi(lambda: self._s.source(), _lines, lambda name: self._s.place(name),
                           lambda: self._s.databases)
        return [
            *source.routes(), *FollowApi(lambda: self._s.source().follows).routes(),
            ("GET", "/health", self.health), ("GET", "/metrics", self.metrics), ("GET", "/graph", self.graph),
            ("GET", "/waits", self.waits),
            ("GET", "/views", self.views), ("GET", "/views/{name}", self.view), ("GET", "/tables/{name}", self.table),
            ("POST", "/sql", self.sql), ("POST", "/tables/{name}/rows", self.insert),
            ("POST", "/views/{name}/lookup", self.lookup), ("GET", "/attach", self.attach),
            ("POST", "/load", self.load), ("POST", "/export", self.export_rows),
            ("POST", "/verify", self.verify), ("POST", "/limit", self.limit),
            ("POST", "/evict", self.evict), ("POST", "/backup", self.backup), ("GET", "/program", self.program),
            ("POST", "/apply", self.apply), *feeds.routes(self._s),
        ]

    async def health(self, request: Request) -> Response:
        body = {"version": __version__, **await self._s.health()}
        return JSONResponse(body, 200 if body["status"] == "ok" else 503)

    async def metrics(self, request: Request) -> Response:
        numbers, graph = await self._s.stats(), []
        fronts, follows = numbers.pop("front_ends", ()), numbers.pop("follows", ())
        with contextlib.suppress(ConnectionError):  # the worker is being restarted
            graph = await self._s.ask("graph")
        return Response(render(numbers, graph, fronts, follows), media_type=CONTENT_TYPE)

    async def graph(self, request: Request) -> Response:
        form = request.query_params.get("format", "json")
        if form not in ("json", "dot"):
            raise SqlError(*UNKNOWN_ERROR, f"there is no graph format '{form}': json or dot")
        graph = await self._s.ask("graph")
        return PlainTextResponse(dot(graph)) if form == "dot" else JSONResponse(graph)

    async def waits(self, request: Request) -> Response:
        return JSONResponse(await self._s.ask("waits"))

    async def views(self, request: Request) -> Response:
        return JSONResponse(permissions.of(request).listed(self._s.view_list(), self._s.databases))

    async def view(self, request: Request) -> Response:
        name = bodies.name_of(request)
        permissions.of(request).see(self._s.place(name))
        view = self._s.catalog_view(name)
        if view is None:
            raise unknown_table(name.replace("`", ""))
        about = about_view(view, self._s.catalog_reader(view))
        return JSONResponse(permissions.of(request).without_text(about, self._s.place(name)))

    async def table(self, request: Request) -> Response:
        name = bodies.name_of(request)
        permissions.of(request).see(self._s.place(name))
        table = self._s.catalog_table(name)
        if table is None:
            raise no_table(name.replace("`", ""), self._s.catalog_view(name) is not None)
        return JSONResponse(about_table(table, self._s.databases))

    async def sql(self, request: Request) -> Response:
        body = bodies.parse(await bodies.read(request, JSON), {"sql": "a text", "parameters": "a list of values",
                                                               "found_rows": "are rows that stay as they are counted?",
                                                               "database": "a name"})
        sql, found_rows = body.get("sql"), body.get("found_rows", False)
        if not isinstance(sql, str):
            raise bodies.wrong('the body is {"sql": "...", "parameters": [...]}')
        if type(found_rows) is not bool:
            raise bodies.wrong('"found_rows" is true or false')
        parameters, caller = bodies.parameters(body.get("parameters", [])), self._caller(request)
        caller = replace(caller, database=bodies.database_of(body))
        outcomes, token = await self._within(request, caller,
                                             self._s.transactions.run(caller, sql, parameters, found_rows))
        about = {} if caller.token is None and token is None else {"transaction": token}
        if ARROW in request.headers.get("accept", ""):
            return Response(await _encoded(outcomes[-1:], partial(wire.arrow_outcome, outcomes[-1], about)),
                            media_type=ARROW)
        return Response(await _encoded(outcomes, partial(wire.json_body, outcomes, about)),
                        media_type="application/json")

    async def insert(self, request: Request) -> Response:
        name, on_duplicate = bodies.name_of(request), request.query_params.get("on_duplicate", "error")
        if one_header(request, bodies.TRANSACTION_HEADER) is None:  # else the transaction's session checks
            permissions.of(request).write(self._s.place(name), on_duplicate)
        rows = wire.from_stream(await bodies.read(request, ARROW), "rows")
        caller = self._caller(request)
        affected = await self._within(request, caller, self._s.transactions.insert(caller, name, rows, on_duplicate))
        return JSONResponse({"affected": affected})

    async def lookup(self, request: Request) -> Response:
        if one_header(request, bodies.TRANSACTION_HEADER) is None:  # else the transaction's session checks
            permissions.of(request).select(self._s.place(bodies.name_of(request)))
        keys = wire.from_stream(await bodies.read(request, ARROW), "keys")
        caller = self._caller(request)
        found = await self._within(request, caller, self._s.transactions.lookup(caller, bodies.name_of(request), keys))
        return Response(to_stream(found).to_pybytes(), media_type=ARROW)

    def _caller(self, request: Request) -> Caller:
        """Return who sends a request, and within which transaction."""
        by = permissions.of(request)
        address = request.client.host if request.client is not None and by.account else "localhost"
        return Caller(by.user, one_header(request, bodies.TRANSACTION_HEADER), account=by.account, address=address)

    async def _within(self, request: Request, caller: Caller, answer: Coroutine[Any, Any, T]) -> T:
        """Return the answer.  If the client of a transaction disconnects first, roll it back."""
        if caller.token is None and request.scope["path"] != "/sql":
            return await answer
        try:
            return await _unless_gone(request, answer)
        except ClientDisconnect:
            self._s.transactions.leave(caller)
            raise

    async def attach(self, request: Request) -> Response:
        return JSONResponse(self._s.attachment())

    async def limit(self, request: Request) -> Response:
        body = bodies.parse(await bodies.read(request, JSON), {"memory_limit": 'a size such as "64M"'})
        return JSONResponse({"memory_limit": await self._s.set_limit(str(body.get("memory_limit")))})

    async def evict(self, request: Request) -> Response:
        body = bodies.parse(await bodies.read(request, JSON), {"bytes": "how many to free"}, empty=True)
        nbytes = body.get("bytes")
        if nbytes is not None and (type(nbytes) is not int or not 1 <= nbytes < 2**63):
            raise bodies.wrong(f'"bytes" is a number from 1, not {json.dumps(nbytes)[:100]}')
        return JSONResponse({"freed": await self._s.evict(nbytes)})

    async def load(self, request: Request) -> Response:
        raw = await bodies.read(request, JSON)
        wanted = bodies.in_database(bodies.parse(raw, LOAD_KEYS), "table")
        permissions.of(request).load(self._s.place(str(wanted.get("table", ""))), str(wanted.get("on_duplicate")))
        permitted = await asyncio.to_thread(self._s.permitted, bodies.parse(raw, LOAD_KEYS), raw,
                                            request.headers.get(PROOF_HEADER))
        return _lines(self._s.load(bodies.in_database(permitted, "table")))

    async def export_rows(self, request: Request) -> Response:
        raw = await bodies.read(request, JSON)
        permitted = await asyncio.to_thread(self._s.export_permitted, bodies.parse(raw, EXPORT_KEYS), raw,
                                            request.headers.get(PROOF_HEADER))
        return _lines(self._s.export_rows(permitted))

    async def backup(self, request: Request) -> Response:
        return _lines(self._s.backup(bodies.parse(await bodies.read(request, JSON), {}, empty=True)))

    async def program(self, request: Request) -> Response:
        return PlainTextResponse(await self._s.export())

    async def apply(self, request: Request) -> Response:
        body = bodies.parse(await bodies.read(request, JSON), APPLY_KEYS)
        if not isinstance(body.get("program"), str):
            raise bodies.wrong('"program" is a text')
        user = permissions.of(request).user
        return _lines(self._s.apply(body, user, request.client.host if request.client is not None else ""))

    async def verify(self, request: Request) -> Response:
        body = bodies.parse(await bodies.read(request, JSON), {"views": "a list of names"}, empty=True)
        views = body.get("views", [])
        if not isinstance(views, list) or not all(isinstance(v, str) for v in views):
            raise bodies.wrong('"views" is a list of names')
        return _lines(self._s.verify(body))


async def _encoded(outcomes: Sequence[Outcome], encode: Callable[[], bytes]) -> bytes:
    """Return a body.  For many rows it is encoded in a thread."""
    rows = sum(len(o.rows) for o in outcomes if isinstance(o, ResultSet))
    return encode() if rows <= OFF_LOOP_ROWS else await asyncio.to_thread(encode)


async def _unless_gone(request: Request, answer: Awaitable[T]) -> T:
    """Return the answer.  If the client disconnects first, cancel it and raise ClientDisconnect."""
    answering = asyncio.ensure_future(answer)
    gone = asyncio.ensure_future(request.receive())  # the body was read, so the next message is the disconnect
    try:
        await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            raise ClientDisconnect
        return answering.result()
    finally:
        gone.cancel()
        answering.cancel()


def _lines(progress: AsyncIterator[dict[str, Any]]) -> Response:
    """Each step as one line of JSON; an error is the last line, since the status has been sent by then."""

    async def body() -> AsyncIterator[bytes]:
        try:
            async for step in progress:
                yield json.dumps(step, default=str).encode() + b"\n"
        except SqlError as e:
            yield json.dumps(wire.json_error(e)).encode() + b"\n"
        except WorkerUnavailable as e:
            yield json.dumps(wire.json_error(SqlError(*UNKNOWN_ERROR, str(e)))).encode() + b"\n"
        except Exception:
            yield json.dumps(wire.json_error(_bug("a bulk job"))).encode() + b"\n"

    return StreamingResponse(body(), media_type="application/x-ndjson")
