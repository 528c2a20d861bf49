"""The HTTP interface: shapes of answers, errors as JSON with MySQL's numbers, the password."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from noria.core.columns_codec import to_stream
from noria.server.http import bodies, wire
from noria.server.http.app import make_app
from server.fake_services import FakeServices

JSON = {"Content-Type": bodies.JSON}


def client(services: FakeServices) -> TestClient:
    return TestClient(make_app(services), "http://127.0.0.1", raise_server_exceptions=False)


def test_health_tells_whether_the_worker_serves() -> None:
    services = FakeServices()
    assert client(services).get("/health").json()["status"] == "ok"
    services.up = False
    answer = client(services).get("/health")
    assert answer.status_code == 503 and answer.json()["status"] == "recovering"


def test_metrics_graph_views() -> None:
    http = client(FakeServices())
    assert "noria_reads_total 7.0" in http.get("/metrics").text
    assert http.get("/graph").json()[0]["does"] == "table t"
    assert http.get("/graph", params={"format": "dot"}).text.startswith("digraph")
    assert http.get("/graph", params={"format": "png"}).status_code == 400
    assert http.get("/views").json() == [{"name": "ById"}]
    assert http.get("/views/byid").json()["key"] == ["id"]
    assert http.get("/tables/WORDS").json()["primary_key"] == ["id"]
    assert http.get("/tables/none").status_code == 404


def test_sql_as_json() -> None:
    services = FakeServices()
    http = client(services)
    answer = http.post("/sql", json={"sql": "SELECT ?", "parameters": [1]}).json()
    assert answer["columns"] == ["n", "n"] and answer["rows"] == [[1, "é"], [None, None]]
    assert answer["warnings"] == [["Note", 1, "slow"]]
    assert services.statements == [("SELECT ?", [1])]
    assert http.post("/sql", json={"sql": "INSERT"}).json()["last_insert_id"] == 41


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"sql": 1}', b'{"sql": "x", "parameters": 1}', b"\xff"])
def test_wrong_bodies(body: bytes) -> None:
    answer = client(FakeServices()).post("/sql", content=body, headers=JSON)
    assert answer.status_code == 400 and answer.json()["error"]["code"] == 1105


def test_errors_have_mysqls_numbers_and_bugs_do_not_leak(caplog: pytest.LogCaptureFixture) -> None:
    http = client(FakeServices())
    error = http.post("/sql", json={"sql": "nonsense"}).json()["error"]
    assert (error["code"], error["sqlstate"]) == (1064, "42000")
    bug = http.post("/sql", json={"sql": "boom"})
    assert bug.status_code == 500 and "a bug" not in bug.text
    number = re.search(r"internal error (\w+)", bug.json()["error"]["message"])
    assert number is not None and number[1] in caplog.text and "a bug" in caplog.text


def test_wrong_arrow() -> None:
    http = client(FakeServices())
    arrow = {"Content-Type": bodies.ARROW}
    assert http.post("/tables/words/rows", content=b"junk", headers=arrow).status_code == 400
    assert http.post("/views/byid/lookup", content=b"", headers=arrow).status_code == 400
    broken = pa.table({"id": [1], "word": pa.array([b"\xed\xa0\x80"], pa.binary()).view(pa.string())})
    answer = http.post("/tables/words/rows", content=to_stream(broken).to_pybytes(), headers=arrow)
    assert answer.status_code == 400 and "UTF8" in answer.json()["error"]["message"]


def test_the_password_guards_everything_but_health() -> None:
    http = client(FakeServices(password="pä:ss"))
    assert http.get("/health").status_code == 200
    for path in ("/metrics", "/graph", "/views", "/attach"):
        assert http.get(path).status_code == 401
    assert http.get("/views", auth=("root", "wrong")).status_code == 401
    for header in (b"Basic ?", b"Bearer x", "Basic é".encode(), b"Basic \xff", b"Basic", b"Basic  =", b"", b"\x80"):
        answer = http.get("/views", headers={"Authorization": header})
        assert answer.status_code == 401 and answer.json()["error"]["code"] == 1045
    assert http.get("/views", auth=("root", "pä:ss")).status_code == 200


def test_jobs_stream_lines_and_errors_are_the_last_line() -> None:
    http = client(FakeServices())
    lines = [json.loads(line) for line in http.post("/load", json={"table": "t"}).text.splitlines()]
    assert [x["step"] for x in lines] == ["reading", "done"]
    lines = [json.loads(line) for line in http.post("/load", json={"table": "bad"}).text.splitlines()]
    assert lines[-1]["error"]["code"] == 1146


def test_rows_become_arrow_with_their_types() -> None:
    from noria.core.types import BIGINT, TEXT, Field

    table = wire.arrow_rows([Field("a", BIGINT), Field("a", TEXT)], [])
    assert table.num_rows == 0 and table.column_names == ["a", "a"]


def test_the_memory_limit_is_set_while_serving() -> None:
    http = client(FakeServices())
    assert http.post("/limit", json={"memory_limit": "64M"}).json() == {"memory_limit": 64 * 2**20}
    assert http.post("/limit", json={"memory_limit": "much"}).status_code == 400


def test_keys_are_forgotten_on_demand() -> None:
    http = client(FakeServices())
    assert http.post("/evict", headers=JSON).json() == {"freed": 10**6}
    assert http.post("/evict").status_code == 415
    assert http.post("/evict", json={"byte": 5}).status_code == 400
    assert http.post("/evict", json={"bytes": 5}).json() == {"freed": 5}
    assert http.post("/evict", json={"bytes": "x"}).status_code == 400
