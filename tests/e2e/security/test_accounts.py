"""Accounts over real drivers: logins, roles, what is shown, revocation at once, restarts, HTTP."""

from __future__ import annotations

import base64
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mysql.connector
import pymysql
import pytest

import noria
from e2e.local import LocalServer
from e2e.mariadb import needs_mariadb
from noria.server.sessions.held_transactions import Caller
from server.local_services import LocalServices

SETUP = ("CREATE DATABASE shop", "CREATE TABLE shop.items (id INT PRIMARY KEY, name VARCHAR(20), price INT)",
         "INSERT INTO shop.items VALUES (1, 'pen', 3), (2, 'ink', 5)",
         "CREATE TABLE shop.secrets (id INT PRIMARY KEY, word VARCHAR(20))",
         "CREATE VIEW shop.cheap AS SELECT id, name FROM shop.items WHERE price < 4",
         "CREATE USER app IDENTIFIED BY 'word'")


def run(connection: Any, *texts: str) -> list[Any]:
    found: list[Any] = []
    with connection.cursor() as cursor:
        for text in texts:
            cursor.execute(text)
            found = list(cursor.fetchall())
    return found


def number_of(connection: Any, text: str) -> int:
    try:
        run(connection, text)
    except pymysql.err.MySQLError as e:
        return int(e.args[0])
    return 0


def refused(connect: Any, *arguments: Any, **named: Any) -> int:
    with pytest.raises(pymysql.err.MySQLError) as e:
        connect(*arguments, **named)
    return int(e.value.args[0])


@pytest.fixture(params=[1, 2], ids=["one front end", "two front ends"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalServer]:
    server = LocalServer(tmp_path / "data", front_ends=request.param)
    root = server.connect()
    run(root, *SETUP)
    yield server
    server.close()


# ---------------------------------------------------------------- logins
def test_logins(server: LocalServer) -> None:
    root = server.connect()
    run(root, "CREATE USER native IDENTIFIED WITH mysql_native_password BY 'old'", "CREATE USER here@localhost",
        "CREATE USER far@'192.0.2.0/24'", "CREATE USER app@'127.0.0.1' IDENTIFIED BY 'local'")
    assert run(server.connect(user="native", password="old"), "SELECT CURRENT_USER()") == [("native@%",)]
    assert run(server.connect(user="here"), "SELECT CURRENT_USER(), USER()") == [("here@localhost", "here@127.0.0.1")]
    assert run(server.connect(user="app", password="local"), "SELECT CURRENT_USER()") == [("app@127.0.0.1",)]
    assert refused(server.connect, user="app", password="word") == 1045, "the more specific host decides"
    assert refused(server.connect, user="far") == 1045
    assert refused(server.connect, user="nobody") == 1045
    run(root, "DROP USER app@'127.0.0.1'")
    assert run(server.connect(user="app", password="word"), "SELECT CURRENT_USER()") == [("app@%",)]
    assert refused(server.connect, user="app", password="wrong") == 1045


def test_passwords_change_at_once(server: LocalServer) -> None:
    root, app = server.connect(), server.connect(user="app", password="word")
    run(app, "SET PASSWORD = 'second'")
    assert refused(server.connect, user="app", password="word") == 1045
    run(server.connect(user="app", password="second"), "ALTER USER USER() IDENTIFIED BY 'third'")
    run(server.connect(user="app", password="third"), "SELECT 1")
    assert number_of(app, "SET PASSWORD FOR root = 'mine'") == 1227
    run(root, "ALTER USER app ACCOUNT LOCK")
    assert refused(server.connect, user="app", password="third") == 3118
    run(root, "ALTER USER app ACCOUNT UNLOCK PASSWORD EXPIRE")
    assert refused(server.connect, user="app", password="third") == 1862, "PyMySQL does not know of expired passwords"
    assert number_of(app, "SELECT 1") == 1820
    assert number_of(app, "ALTER USER root IDENTIFIED BY 'x'") == 1820
    run(app, "ALTER USER CURRENT_USER() IDENTIFIED BY 'fourth'")
    assert number_of(app, "SELECT 1") == 0
    run(server.connect(user="app", password="fourth"), "SELECT 1")


def test_the_password_of_root_on_loopback(server: LocalServer) -> None:
    root = server.connect()
    assert run(root, "SHOW GRANTS") == [("GRANT ALL PRIVILEGES ON *.* TO `root`@`%` WITH GRANT OPTION",)]
    run(root, "GRANT ALL ON *.* TO root WITH GRANT OPTION", "SET PASSWORD = 'long'")
    assert refused(server.connect) == 1045
    run(server.connect(password="long"), "DROP USER app")


def test_dumped_accounts_log_in_again(server: LocalServer) -> None:
    root = server.connect()
    ((text,),) = run(root, "SHOW CREATE USER app")
    run(root, "DROP USER app", text)
    assert run(root, "SHOW CREATE USER app") == [(text,)]
    run(server.connect(user="app", password="word"), "SELECT 1")


def test_mysql_connector_logs_in(server: LocalServer) -> None:
    run(server.connect(), "CREATE USER c IDENTIFIED WITH mysql_native_password BY 'pw'", "GRANT SELECT ON shop.* TO c")
    c = mysql.connector.connect(host="127.0.0.1", port=server.mysql.address[1], user="c", password="pw",
                                database="shop", use_pure=True, ssl_disabled=True)
    cursor = c.cursor(prepared=True)
    cursor.execute("SELECT name FROM items WHERE id = ?", (1,))
    assert cursor.fetchall() == [("pen",)]
    c.close()


@needs_mariadb
def test_mariadbs_client_logs_in(server: LocalServer) -> None:
    def ask(password: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["mariadb", "--no-defaults", "-h127.0.0.1", f"-P{server.mysql.address[1]}", "-uapp",
                               f"-p{password}", "--skip-ssl", "-NBe", "SELECT CURRENT_USER()"], capture_output=True,
                              text=True, timeout=60)

    assert ask("word").stdout == "app@%\n"
    assert "1045" in ask("wrong").stderr


# ---------------------------------------------------------------- at once, and cached answers
def test_a_revoke_holds_at_once(server: LocalServer) -> None:
    root, app = server.connect(), server.connect(user="app", password="word")
    text = "SELECT name FROM shop.items WHERE id = 1"
    run(root, *[text] * 4)
    assert number_of(app, text) == 1142, "a kept reply is for those who may read it"
    run(root, "GRANT SELECT ON shop.items TO app")
    for _ in range(4):
        assert run(app, text) == [("pen",)]
    run(root, "REVOKE SELECT ON shop.items FROM app")
    assert number_of(app, text) == 1142
    run(root, text)
    assert number_of(app, text) == 1142


def test_what_others_teach_after_a_revoke(server: LocalServer) -> None:
    """Sessions that have asked nothing since a REVOKE know nothing of the statements that others ask meanwhile."""
    roots = [server.connect() for _ in range(4)]
    run(roots[0], "GRANT SELECT ON shop.items TO app")
    apps = [server.connect(user="app", password="word") for _ in range(4)]
    text = "SELECT name FROM shop.items WHERE id = 1"
    for client in (*apps, *roots) * 3:
        assert run(client, text) == [("pen",)]
    run(roots[0], "REVOKE SELECT ON shop.items FROM app")
    for client in roots * 4:
        assert run(client, text) == [("pen",)]
    assert [number_of(app, text) for app in apps] == [1142] * 4


def test_a_revoke_holds_for_prepared_statements(server: LocalServer) -> None:
    root = server.connect()
    run(root, "GRANT SELECT ON shop.items TO app", "ALTER USER app IDENTIFIED WITH mysql_native_password BY 'word'")
    app = mysql.connector.connect(host="127.0.0.1", port=server.mysql.address[1], user="app", password="word",
                                  use_pure=True, ssl_disabled=True)
    cursor = app.cursor(prepared=True)
    for _ in range(4):
        cursor.execute("SELECT name FROM shop.items WHERE id = ?", (1,))
        assert cursor.fetchall() == [("pen",)]
    run(root, "REVOKE SELECT ON shop.items FROM app")
    with pytest.raises(mysql.connector.errors.ProgrammingError, match="SELECT command denied"):
        cursor.execute("SELECT name FROM shop.items WHERE id = ?", (1,))
    app.close()


def test_front_ends_on_other_hosts(tmp_path: Path) -> None:
    server = LocalServer(tmp_path / "data", front_ends=2)
    root, far = server.connect(), server.far()
    port = far.ready.result()[1]
    run(root, *SETUP, "GRANT SELECT ON shop.items TO app")
    app = server.connect(port, "app", "word")
    text = "SELECT name FROM shop.items WHERE id = 1"
    for client in (app, server.connect(port)) * 4:
        run(client, text)
    run(root, "REVOKE SELECT ON shop.items FROM app")
    assert number_of(app, text) == 1142
    run(root, "DROP USER app")
    assert refused(server.connect, port, "app", "word") == 1045
    server.embedded.run(far.end())
    server.close()


def test_an_administrator_can_lose_his_rights(server: LocalServer) -> None:
    root = server.connect()
    run(root, "GRANT ALL ON *.* TO app WITH GRANT OPTION")
    app = server.connect(user="app", password="word")
    text = "SELECT word FROM shop.secrets WHERE id = 1"
    for _ in range(4):
        run(app, text)
    run(root, "REVOKE ALL PRIVILEGES, GRANT OPTION FROM app")
    assert number_of(app, text) == 1142
    run(root, "DROP USER app")
    assert number_of(app, text) == 1142 and number_of(app, "CREATE USER other") == 1227


# ---------------------------------------------------------------- roles
def test_roles(server: LocalServer) -> None:
    root, app = server.connect(), server.connect(user="app", password="word")
    run(root, "CREATE ROLE reader, writer", "GRANT SELECT ON shop.* TO reader", "GRANT INSERT ON shop.* TO writer",
        "GRANT reader TO app, writer")
    text = "SELECT name FROM shop.items WHERE id = 1"
    assert run(app, "SELECT CURRENT_ROLE()") == [("NONE",)] and number_of(app, text) == 1142
    for _ in range(3):
        run(app, "SET ROLE reader")
        assert run(app, text) == [("pen",)] and run(app, "SELECT CURRENT_ROLE()") == [("`reader`@`%`",)]
        run(app, "SET ROLE NONE")
        assert number_of(app, text) == 1142
    assert number_of(app, "SET ROLE writer") == 3530
    run(root, "SET DEFAULT ROLE ALL TO app")
    other = server.connect(user="app", password="word")
    assert run(other, text) == [("pen",)]
    assert run(other, "SHOW GRANTS") == [
        ("GRANT USAGE ON *.* TO `app`@`%`",), ("GRANT SELECT ON `shop`.* TO `app`@`%`",),
        ("GRANT `reader`@`%` TO `app`@`%`",)]
    run(root, "REVOKE reader FROM app")
    assert number_of(other, text) == 1142
    assert refused(server.connect, user="reader") == 1045, "nobody logs in as a role"
    assert number_of(root, "GRANT nothing TO app") == 3523


# ---------------------------------------------------------------- what is shown
def test_who_may_not_see_is_not_shown(server: LocalServer) -> None:
    root = server.connect()
    run(root, "GRANT SELECT (id, name) ON shop.items TO app", "GRANT SELECT ON shop.cheap TO app")
    app = server.connect(user="app", password="word", database="shop")
    assert run(app, "SHOW DATABASES") == [("shop",)]
    assert run(app, "SHOW TABLES") == [("cheap",), ("items",)]
    assert [row[0] for row in run(app, "SHOW COLUMNS FROM items")] == ["id", "name"]
    assert run(app, "SELECT table_name FROM information_schema.tables ORDER BY 1") == [("cheap",), ("items",)]
    assert run(app, "SELECT column_name FROM information_schema.columns WHERE table_name = 'items'") == [
        ("id",), ("name",)]
    assert run(app, "SELECT schema_name FROM information_schema.schemata") == [("shop",)]
    assert {row[1] for row in run(app, "SHOW PROCESSLIST")} == {"app"}
    assert {row[1] for row in run(root, "SHOW PROCESSLIST")} >= {"app", "root"}
    assert run(app, "SELECT DISTINCT grantee FROM information_schema.user_privileges") == [("'app'@'%'",)]
    assert number_of(app, "SELECT * FROM mysql.user") == 1142
    assert number_of(app, f"KILL {root.thread_id()}") == 1094, "he does not see that session"
    assert run(root, "SELECT user FROM mysql.user WHERE plugin = 'caching_sha2_password' AND user = 'app'") == [
        ("app",)]
    assert run(app, "SELECT name FROM cheap WHERE id = 1") == [("pen",)], "below a view, its definer's rights count"


def test_texts_of_views_and_keys_of_hidden_columns_are_not_shown(server: LocalServer) -> None:
    root = server.connect()
    run(root, "CREATE TABLE shop.kid (id INT PRIMARY KEY, item INT, FOREIGN KEY (item) REFERENCES shop.items (id))",
        "GRANT SELECT (id) ON shop.kid TO app", "GRANT SELECT ON shop.cheap TO app")
    app = server.connect(user="app", password="word", database="shop")
    keys = "SELECT column_name FROM information_schema.key_column_usage WHERE table_name = 'kid' ORDER BY 1"
    texts = "SELECT view_definition FROM information_schema.views WHERE table_name = 'cheap'"
    assert run(app, keys) == [("id",)] and run(app, texts) == [("",)]
    assert run(root, keys) == [("id",), ("item",)] and "price" in run(root, texts)[0][0]
    assert number_of(app, "EXPLAIN SELECT * FROM cheap") == 1142, "it would show the view's conditions"
    run(root, "GRANT SHOW VIEW ON shop.cheap TO app")
    assert "price" in run(app, texts)[0][0] and number_of(app, "EXPLAIN SELECT * FROM cheap") == 0


def test_no_password_is_shown(server: LocalServer) -> None:
    root = server.connect()
    for text in ("CREATE USER x IDENTIFIED BY 'hidden' BY", "CREATE USER x IDENTIFIED WITH 'hidden' BY 'hidden'",
                 "ALTER USER app IDENTIFIED BY 'hidden' REPLACE 'hidden'", "SET PASSWORD FOR app = 'hidden' x",
                 "GRANT SELECT ON *.* TO x IDENTIFIED BY 'hidden'"):
        with pytest.raises(pymysql.err.MySQLError) as e:
            run(root, text)
        assert "hidden" not in str(e.value) or "WITH 'hidden'" in text


def test_a_login_to_a_database_that_may_not_be_seen(server: LocalServer) -> None:
    """PyMySQL sends SET AUTOCOMMIT at once; a front end in a process of its own refuses only that."""
    assert refused(server.connect, user="app", password="word", database="shop") == 1044
    assert refused(server.connect, user="app", password="word", database="nowhere") in (1044, 1049)


# ---------------------------------------------------------------- policies
def test_policies(server: LocalServer) -> None:
    root = server.connect()
    run(root, "SET GLOBAL validate_password.policy = MEDIUM", "SET GLOBAL validate_password.length = 10")
    for weak in ("short1A!", "alllowercase1!", "NoDigitsHere!", "NoSpecial123"):
        assert number_of(root, f"CREATE USER weak IDENTIFIED BY '{weak}'") == 1819
    run(root, "CREATE USER strong IDENTIFIED BY 'Long enough 1!'")
    assert run(root, "SHOW VARIABLES LIKE 'validate_password.length'") == [("validate_password.length", "10")]
    run(root, "SET GLOBAL default_password_lifetime = 10")
    assert run(server.connect(user="strong", password="Long enough 1!"), "SELECT 1") == [(1,)]


# ---------------------------------------------------------------- restarts
def test_accounts_survive_a_restart(tmp_path: Path) -> None:
    server = LocalServer(tmp_path / "data", front_ends=1)
    run(server.connect(), *SETUP, "GRANT SELECT ON shop.items TO app", "CREATE ROLE r", "GRANT r TO app",
        "SET GLOBAL validate_password.policy = LOW")
    before = run(server.connect(), "SHOW GRANTS FOR app")
    server.close()
    server = LocalServer(tmp_path / "data", front_ends=1)
    app = server.connect(user="app", password="word")
    assert run(app, "SELECT COUNT(*) FROM shop.items") == [(2,)]
    assert number_of(app, "SELECT * FROM shop.secrets") == 1142
    assert run(server.connect(), "SHOW GRANTS FOR app") == before
    assert number_of(server.connect(), "CREATE USER w IDENTIFIED BY 'w'") == 1819
    assert refused(server.connect, user="nobody") == 1045
    server.close()
    assert (tmp_path / "data" / "accounts.json").stat().st_mode & 0o777 == 0o600


# ---------------------------------------------------------------- HTTP
def test_http(tmp_path: Path) -> None:
    with LocalServices(tmp_path) as local:
        local.run(*SETUP, "GRANT SELECT ON shop.items TO app")

        def ask(path: str, body: Any = None, user: str = "app", password: str = "word") -> tuple[int, Any]:
            secret = base64.b64encode(f"{user}:{password}".encode()).decode()
            request = urllib.request.Request(
                f"http://127.0.0.1:{local.port}{path}", None if body is None else json.dumps(body).encode(),
                {"Authorization": f"Basic {secret}", "Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request) as answer:
                    return answer.status, json.loads(answer.read() or b"null")
            except urllib.error.HTTPError as e:
                return e.code, json.loads(e.read())["error"]["code"]

        assert ask("/sql", {"sql": "SELECT name FROM shop.items WHERE id = 1"})[0] == 200
        assert ask("/sql", {"sql": "SELECT * FROM shop.secrets"}) == (403, 1142)
        assert ask("/sql", {"sql": "SELECT CURRENT_USER()"})[1]["rows"] == [["app@%"]]
        assert ask("/sql", {"sql": "SELECT 1"}, password="wrong")[0] == 401
        assert ask("/sql", {"sql": "SELECT 1"}, user="nobody")[0] == 401
        for path in ("/metrics", "/graph", "/waits", "/attach", "/program"):
            assert ask(path) == (403, 1227), path
        for path in ("/apply", "/load", "/verify", "/backup", "/limit", "/evict"):
            assert ask(path, {"table": "shop.items"})[0] == 403, path
        assert ask("/source/writes/0123456789abcdef/drop", {}) == (403, 1227)
        assert [v["name"] for v in ask("/views")[1]] == []
        assert ask("/tables/shop.secrets") == (403, 1142) and ask("/tables/shop.items")[0] == 200
        assert ask("/views/shop.cheap/rows") == (403, 1142)
        local.run("GRANT SELECT ON shop.cheap TO app")
        assert ask("/views/shop.cheap")[1]["text"] == "" and "price" not in json.dumps(ask("/views/shop.cheap"))
        local.run("GRANT SHOW VIEW ON shop.cheap TO app")
        assert "price" in ask("/views/shop.cheap")[1]["text"]
        local.run("REVOKE SHOW VIEW ON shop.cheap FROM app", "GRANT SELECT ON noria.* TO app",
                  *["SELECT word FROM shop.secrets WHERE id = 1 AND word <> 'hidden'"] * 6)
        assert "hidden" in json.dumps(ask("/views", user="root", password="")[1]), "there is an ad-hoc view"
        (cheap,) = ask("/views")[1]
        assert (cheap["name"], cheap["text"], cheap["explain"]) == ("shop.cheap", "", "")
        local.run("REVOKE SELECT ON shop.cheap FROM app", "REVOKE SELECT ON noria.* FROM app")
        with urllib.request.urlopen(f"http://127.0.0.1:{local.port}/views") as answer:
            assert answer.status == 200, "root needs no password on loopback until he sets one"
        db = noria.connect(f"http://app:word@127.0.0.1:{local.port}")
        assert db.sql("SELECT name FROM shop.items WHERE id = 1").rows == [("pen",)]
        for attempt in (lambda: db.sql("SELECT * FROM shop.secrets"),
                        lambda: db.table("shop.items").insert([(3, "x", 1)]),
                        lambda: db.view("shop.cheap").attach()):
            with pytest.raises(noria.SqlError) as e:
                attempt()
            assert e.value.code in (1142, 1227)
        local.run("DROP USER app")
        assert ask("/sql", {"sql": "SELECT 1"})[0] == 401


def test_a_token_belongs_to_its_account(tmp_path: Path) -> None:
    """Two accounts of one name do not have each other's transactions over HTTP."""
    with noria.open(tmp_path / "data") as db:
        held, run_it = db.transport.sessions.held, db.transport.run
        one, two = "app@%", "app@10.%"

        async def begin(account: str, token: str | None = None) -> Any:
            text = "BEGIN" if token is None else "SELECT 1"
            return await held.run(Caller("app", token, account=account), text, ())

        _, token = run_it(begin(one))
        with pytest.raises(noria.SqlError, match="there is no transaction of this token"):
            run_it(begin(two, token))
        assert run_it(begin(one, token))[0][-1].rows == [(1,)]
