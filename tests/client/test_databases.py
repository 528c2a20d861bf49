"""Databases in the Python API, over HTTP and embedded: names, feeds, attached views, the program's text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import noria
from noria.client import Database
from noria.core.errors import SqlError
from server.local_services import LocalServices


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalServices]:
    with LocalServices(tmp_path) as local:
        local.run("CREATE DATABASE shop", "CREATE TABLE t (id INT PRIMARY KEY, n INT)",
                  "CREATE TABLE shop.t (id INT PRIMARY KEY, n INT)", "INSERT INTO t VALUES (1, 10)",
                  "CREATE VIEW shop.v AS SELECT id, n FROM shop.t WHERE id = ?")
        yield local


def opened(local: LocalServices, database: str = "") -> Database:
    return noria.connect(f"http://127.0.0.1:{local.port}", database)


def code(run: Any, *arguments: Any) -> int:
    with pytest.raises(SqlError) as caught:
        run(*arguments)
    return caught.value.code


def test_tables_and_views(local: LocalServices) -> None:
    with opened(local) as db, opened(local, "shop") as shop:
        assert db.table("shop.t").insert([(1, 100), (2, 200)]) == 2
        assert shop.table("t").insert([(3, 300)]) == 1 and shop.table("noria.t").insert([(2, 20)]) == 1
        assert shop.table("t").update(3, n=301) == 1 and db.table("shop.t").delete(2) == 1
        assert db.view("shop.v").lookup(3) == shop.view("v").lookup(3) == [(3, 301)]
        assert db.view("shop.v").attach().lookup(3) == shop.view("v").attach().lookup(1 + 2) == [(3, 301)]
        assert shop.sql("SELECT DATABASE(), 1 AS one").rows == [("shop", 1)]
        assert shop.sql("SELECT n FROM t WHERE id = ?", [1]).rows == [(100,)]
        assert db.sql("SELECT n FROM t WHERE id = ?", [1]).rows == [(10,)]
        nix = opened(local, "nix")
        assert code(nix.sql, "SELECT 1") == code(nix.table("t").insert, [(1, 1)]) == 1049
        assert code(db.table("nix.t").insert, [(1, 1)]) == code(shop.view("w").lookup, 1) == 1146


def test_use(local: LocalServices) -> None:
    with opened(local) as db:
        assert code(db.sql, "USE shop") == 1235 and db.sql("USE noria").rows == []
        db.use("Shop")
        db.table("t").insert([(1, 100)])
        assert db.sql("SELECT n FROM t").rows == [(100,)]
        assert code(db.use, "nix") == 1049


def test_feeds(local: LocalServices) -> None:
    with opened(local) as db, opened(local, "shop") as shop:
        shop.table("t").insert([(1, 100)])
        for changes in (db.table("shop.t").changes(), shop.table("t").changes()):
            assert [row for _, row in next(changes)] == [(1, 100)]
        assert [row for _, row in next(db.table("t").changes())] == [(1, 10)]


def test_http(local: LocalServices) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{local.port}") as http:
        assert http.get("/tables/shop.t").json()["database"] == "shop"
        assert http.get("/tables/t?database=shop").json() == http.get("/tables/shop.t").json()
        assert http.get("/tables/t").json()["database"] == "noria"
        assert http.get("/views/v?database=shop").json()["columns"] == ["id", "n"]
        found = http.post("/sql", json={"sql": "SELECT COUNT(*) AS c FROM t", "database": "shop"})
        assert found.json()["rows"] == [[0]], found.text
        assert http.get("/tables/t?database=nix").json()["error"]["code"] == 1049
        assert http.post("/sql", json={"sql": "SELECT 1", "database": 7}).json()["error"]["code"] == 1105


def test_the_program_makes_the_databases(local: LocalServices, tmp_path: Path) -> None:
    local.run("CREATE DATABASE exact COLLATE utf8mb4_bin", "CREATE TABLE exact.w (word VARCHAR(9) PRIMARY KEY)",
              "CREATE TABLE noria.x (word VARCHAR(9) PRIMARY KEY)", "RENAME TABLE x TO exact.x",
              "CREATE VIEW across AS SELECT a.n FROM shop.t a JOIN t ON t.id = a.id",
              "ALTER TABLE shop.t ADD COLUMN more INT")
    text = httpx.get(f"http://127.0.0.1:{local.port}/program").text
    assert "CREATE DATABASE IF NOT EXISTS `exact` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;" in text
    assert "CREATE TABLE `shop`.`t` (" in text and "CREATE VIEW shop.v AS" in text
    (tmp_path / "second").mkdir()
    with LocalServices(tmp_path / "second") as second:
        asked = {"program": text}
        shown = httpx.post(f"http://127.0.0.1:{second.port}/apply", json={**asked, "dry_run": True}).text
        assert "+ database shop" in shown and "+ database exact" in shown
        done = httpx.post(f"http://127.0.0.1:{second.port}/apply", json=asked, timeout=60).text
        assert '"applied": true' in done, done
        assert httpx.get(f"http://127.0.0.1:{second.port}/program").text == text
        second.run("INSERT INTO exact.w VALUES ('a'), ('A')", "INSERT INTO exact.x VALUES ('a')")
        with opened(second) as db:
            assert code(db.sql, "INSERT INTO exact.x VALUES ('A')") == 1062
        again = httpx.post(f"http://127.0.0.1:{second.port}/apply", json={**asked, "dry_run": True}).json()
        assert again["preview"]["empty"], again


def test_embedded(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE DATABASE shop")
        db.use("shop")
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
        db.table("t").insert([(1, 5)])
    with noria.open(tmp_path / "data", database="shop") as db:
        assert db.table("t").columns == ("id", "n") and db.sql("SELECT n FROM t").rows == [(5,)]
