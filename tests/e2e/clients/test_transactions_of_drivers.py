"""Transactions as drivers and their frameworks make them by default: commit, rollback, savepoints, isolation levels,
locking reads, and a deadlock after which a program tries again.

Tested where they are installed: mysqlclient (`pip install mysqlclient`); MariaDB's JDBC driver (Debian's
libmariadb-java); Sequelize and TypeORM (`npm install sequelize typeorm mysql2 reflect-metadata`, and NODE_PATH).
test_django.py has Django's transactions.
"""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import mysql.connector
import pytest
import sqlalchemy as sa
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError
from pyspark.find_spark_home import _find_spark_home
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.orm.exc import StaleDataError

from e2e.local import LocalServer

HERE = Path(__file__).parent
JDBC = Path("/usr/share/java/mariadb-java-client.jar")
TABLE = ("CREATE TABLE accounts (id INT PRIMARY KEY AUTO_INCREMENT, owner VARCHAR(20) UNIQUE, "
         "n INT NOT NULL CHECK (n >= 0))")
ALL = "SELECT owner, n FROM accounts ORDER BY id"
LOCKED = "SELECT owner FROM accounts ORDER BY id FOR UPDATE "
DEADLOCK, LOCK_NOWAIT = 1213, 3572


@pytest.fixture(scope="module", params=[1, 3], ids=["one worker", "three workers"])
def running(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[LocalServer]:
    server = LocalServer(tmp_path_factory.mktemp("drivers") / "data", workers=request.param)
    yield server
    server.close()


@pytest.fixture
def port(running: LocalServer) -> Iterator[int]:
    """The port of a server with an empty database `app`.  Every transaction in it has ended afterwards."""
    with running.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE app")
        yield int(running.mysql.address[1])
        assert running.ask("stats")["open_transactions"] == 0
        cursor.execute("DROP DATABASE app")


def tried(transaction: Callable[[int, int, Callable[[], None]], None], code: Callable[[Exception], int]) -> list[int]:
    """How often each of two threads had to try its transaction over rows 1 and 2, which they lock crosswise.

    The transaction calls its third argument between its two statements.  code: the number of a driver's error.
    """
    both, tries = threading.Barrier(2), list[int]()

    def work(first: int, second: int) -> None:
        count = 1

        def between() -> None:
            if count == 1:
                both.wait(60)

        while True:
            try:
                transaction(first, second, between)
                break
            except Exception as e:
                if code(e) != DEADLOCK:
                    both.abort()
                    raise
            count += 1
        tries.append(count)

    threads = [threading.Thread(target=work, args=pair) for pair in ((1, 2), (2, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return sorted(tries)


# ---------------------------------------------------------------- Python's drivers
DRIVERS: dict[str, tuple[str, dict[str, Any]]] = {
    "PyMySQL": ("pymysql", {}), "connector": ("mysql.connector", {"use_pure": True}), "mysqlclient": ("MySQLdb", {})}


def run(connection: Any, text: str, *values: Any) -> list[tuple[Any, ...]]:
    cursor = connection.cursor()
    cursor.execute(text, values)
    found = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
    cursor.close()
    return found


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_driver(port: int, driver: str) -> None:
    """Its default is a transaction that begins by itself: autocommit is off."""
    name, options = DRIVERS[driver]
    if driver == "mysqlclient":
        pytest.importorskip(name, reason="mysqlclient is not installed")
    module = importlib.import_module(name)

    def connect() -> Any:
        return module.connect(host="127.0.0.1", port=port, user="root", database="app", **options)

    def refused(connection: Any, text: str) -> int:
        with pytest.raises(module.Error) as e:
            run(connection, text)
        return int(e.value.args[0])

    a, b = connect(), connect()
    run(a, TABLE)
    run(a, "INSERT INTO accounts (owner, n) VALUES (%s, %s), (%s, %s)", "ann", 10, "bob", 20)
    assert run(a, ALL) == [("ann", 10), ("bob", 20)] and run(b, ALL) == []
    a.commit()
    assert run(b, ALL) == [], "the snapshot of its first SELECT"
    b.rollback()
    assert run(b, ALL) == [("ann", 10), ("bob", 20)]
    b.commit()
    for text in ("UPDATE accounts SET n = n + 90", "SAVEPOINT `a-b c`", "DELETE FROM accounts WHERE owner = 'bob'",
                 "ROLLBACK TO SAVEPOINT `a-b c`", "INSERT INTO accounts (owner, n) VALUES ('cid', 1)",
                 "RELEASE SAVEPOINT `a-b c`"):
        run(a, text)
    assert refused(a, "INSERT INTO accounts (owner, n) VALUES ('ann', 1)") == 1062
    assert refused(a, "UPDATE accounts SET n = n - 101") == 3819
    assert run(a, ALL) == [("ann", 100), ("bob", 110), ("cid", 1)], "a failed statement does not end it"
    a.rollback()
    assert run(a, ALL) == [("ann", 10), ("bob", 20)]
    a.rollback()
    run(a, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    assert run(a, "SELECT n FROM accounts WHERE id = 1") == [(10,)]
    run(b, "UPDATE accounts SET n = 11 WHERE id = 1")
    b.commit()
    assert run(a, "SELECT n FROM accounts WHERE id = 1") == [(11,)]
    assert run(a, "SELECT owner FROM accounts WHERE id = 1 FOR UPDATE") == [("ann",)]
    assert refused(b, LOCKED + "NOWAIT") == LOCK_NOWAIT
    assert run(b, LOCKED + "SKIP LOCKED") == [("bob",)]
    for connection in (a, b):
        connection.rollback()

    def transfer(first: int, second: int, between: Callable[[], None]) -> None:
        connection = connect()
        try:
            run(connection, "UPDATE accounts SET n = n - 1 WHERE id = %s", first)
            between()
            run(connection, "UPDATE accounts SET n = n + 1 WHERE id = %s", second)
            connection.commit()
        finally:
            connection.close()

    assert tried(transfer, lambda e: int(e.args[0])) == [1, 2]
    assert run(a, ALL) == [("ann", 11), ("bob", 20)]
    a.rollback()
    run(b, "UPDATE accounts SET n = 0")
    b.close()  # undoes it
    assert run(a, ALL + " FOR UPDATE") == [("ann", 11), ("bob", 20)]
    a.close()


def test_the_connector_begins_and_resets(port: int) -> None:
    a = mysql.connector.connect(host="127.0.0.1", port=port, user="root", database="app", use_pure=True)
    run(a, TABLE)
    a.start_transaction(isolation_level="READ COMMITTED", consistent_snapshot=True)
    assert a.in_transaction
    run(a, "INSERT INTO accounts (owner, n) VALUES ('ann', 10)")
    with pytest.raises(mysql.connector.ProgrammingError, match="Transaction already in progress"):
        a.start_transaction()
    a.commit()
    a.start_transaction(readonly=True)
    with pytest.raises(mysql.connector.Error) as e:
        run(a, "UPDATE accounts SET n = 1")
    assert e.value.errno == 1792
    a.rollback()
    prepared: Any = a.cursor(prepared=True)
    prepared.execute("UPDATE accounts SET n = ? WHERE id = ?", (55, 1))
    prepared.execute("SELECT n FROM accounts WHERE id = ? FOR UPDATE", (1,))
    assert prepared.fetchall() == [(55,)] and a.in_transaction
    a.cmd_reset_connection()  # as a pool does
    assert run(a, "SELECT n FROM accounts WHERE id = 1") == [(10,)]
    a.close()


# ---------------------------------------------------------------- SQLAlchemy
class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "accounts"
    id: Mapped[int] = mapped_column(primary_key=True)
    owner: Mapped[str] = mapped_column(sa.String(20), unique=True)
    n: Mapped[int]
    twice: Mapped[int] = mapped_column(sa.Computed("n * 2"))
    version: Mapped[int] = mapped_column()
    __table_args__ = (sa.CheckConstraint("n >= 0", name="positive"),)
    __mapper_args__: ClassVar = {"version_id_col": version}


@pytest.fixture(params=["pymysql", "mysqlconnector"])
def engine(port: int, request: pytest.FixtureRequest) -> Iterator[sa.Engine]:
    made = sa.create_engine(f"mysql+{request.param}://root@127.0.0.1:{port}/app?charset=utf8mb4")
    Base.metadata.create_all(made)
    with Session(made) as session, session.begin():
        session.add_all([Account(owner="ann", n=10), Account(owner="bob", n=20)])
    yield made
    made.dispose()


def accounts(session: Session) -> list[tuple[str, int]]:
    return [(a.owner, a.twice) for a in session.scalars(sa.select(Account).order_by(Account.id))]


def of_owner(session: Session, owner: str) -> Account:
    return session.scalars(sa.select(Account).filter_by(owner=owner)).one()


def number(error: Exception) -> int:
    assert isinstance(error, sa.exc.DBAPIError) and error.orig is not None
    return int(error.orig.args[0])


def test_sessions_nest(engine: sa.Engine) -> None:
    with Session(engine) as session, session.begin():
        of_owner(session, "ann").n += 5
        with (pytest.raises(sa.exc.IntegrityError, match=r"Duplicate entry 'bob' for key 'accounts\.owner'"),
              session.begin_nested()):
            session.add(Account(owner="bob", n=1))
            session.flush()
        with session.begin_nested():
            session.add(Account(owner="cid", n=1))
        with pytest.raises(KeyError), session.begin_nested():
            with session.begin_nested():
                session.delete(of_owner(session, "cid"))
            raise KeyError
        assert accounts(session) == [("ann", 30), ("bob", 40), ("cid", 2)]
    with pytest.raises(sa.exc.DBAPIError) as e, Session(engine) as session, session.begin():
        of_owner(session, "bob").n = 7
        session.flush()
        of_owner(session, "ann").n = -1
    assert number(e.value) == 3819
    with Session(engine) as session:
        assert accounts(session) == [("ann", 30), ("bob", 40), ("cid", 2)]


def test_sessions_wait_and_fail(engine: sa.Engine) -> None:
    with Session(engine) as a, Session(engine) as b:
        mine, other = of_owner(a, "ann"), of_owner(b, "ann")
        mine.n += 1
        a.commit()
        other.n += 1
        with pytest.raises(StaleDataError):
            b.commit()
        b.rollback()
        locked = sa.select(Account.owner).order_by(Account.id)
        assert a.scalars(locked.filter_by(owner="ann").with_for_update()).all() == ["ann"]
        for way in ({"nowait": True}, {"nowait": True, "read": True}):
            with pytest.raises(sa.exc.DBAPIError) as e:
                b.scalars(locked.with_for_update(**way))
            assert number(e.value) == LOCK_NOWAIT
            b.rollback()
        assert b.scalars(locked.with_for_update(skip_locked=True, of=Account)).all() == ["bob"]
        a.rollback()

    def transfer(first: int, second: int, between: Callable[[], None]) -> None:
        with Session(engine) as session, session.begin():
            session.execute(sa.update(Account).filter_by(id=first).values(n=Account.n - 1))
            between()
            session.execute(sa.update(Account).filter_by(id=second).values(n=Account.n + 1))

    assert tried(transfer, number) == [1, 2]
    with Session(engine) as session, session.begin():
        row = insert(Account).values(owner="ann", n=3, version=1)
        session.execute(row.on_duplicate_key_update(n=row.inserted.n + 1))
        assert accounts(session) == [("ann", 8), ("bob", 40)]


def test_isolation_levels(engine: sa.Engine) -> None:
    first = sa.select(Account.n).filter_by(owner="ann")
    for asked, got in (("READ UNCOMMITTED", "READ COMMITTED"), ("READ COMMITTED", "READ COMMITTED"),
                       ("REPEATABLE READ", "REPEATABLE READ"), ("SERIALIZABLE", "SERIALIZABLE")):
        with engine.connect().execution_options(isolation_level=asked) as connection:
            assert connection.get_isolation_level() == got and connection.scalar(first) == 10
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.update(Account).values(n=1))
    with Session(engine) as session:
        assert accounts(session) == [("ann", 2), ("bob", 2)]
    checks, columns = (f("accounts") for f in (sa.inspect(engine).get_check_constraints,
                                               sa.inspect(engine).get_columns))
    assert checks == [{"name": "positive", "sqltext": "(`n` >= 0)"}]
    assert [c["computed"]["persisted"] for c in columns if "computed" in c] == [False]


# ---------------------------------------------------------------- JDBC
@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    """A JVM with the driver.  Python calls its methods."""
    if not JDBC.exists() or shutil.which("java") is None:
        pytest.skip("Debian's libmariadb-java is not installed")
    (jar,) = (Path(_find_spark_home()) / "jars").glob("py4j-*.jar")
    at, token = launch_gateway(jarpath=str(jar), classpath=str(JDBC), die_on_exit=True, enable_auth=True)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=at, auth_token=token, auto_field=True))
    yield gateway.jvm
    gateway.shutdown()


def sql_error(error: Exception) -> int:
    assert isinstance(error, Py4JJavaError)
    return int(error.java_exception.getErrorCode())


@pytest.mark.parametrize("options", ["", "&useServerPrepStmts=true", "&rewriteBatchedStatements=true"])
def test_jdbc(port: int, java: Any, options: str) -> None:
    def connect() -> Any:
        opened = java.java.sql.DriverManager.getConnection(f"jdbc:mariadb://127.0.0.1:{port}/app?user=root{options}")
        opened.setAutoCommit(False)
        return opened

    def update(connection: Any, text: str, *values: Any) -> int:
        statement = connection.prepareStatement(text)
        for at, value in enumerate(values, 1):
            statement.setObject(at, value)
        return int(statement.executeUpdate())

    def query(connection: Any, text: str = ALL) -> list[str]:
        found, rows = connection.createStatement().executeQuery(text), []
        while found.next():
            rows.append(" ".join(found.getString(at + 1) for at in range(found.getMetaData().getColumnCount())))
        return rows

    a, b = connect(), connect()
    assert a.getMetaData().supportsSavepoints() and a.getTransactionIsolation() == 4
    update(a, TABLE)
    batch = a.prepareStatement("INSERT INTO accounts (owner, n) VALUES (?, ?)", 1)  # RETURN_GENERATED_KEYS
    for owner, n in (("ann", 10), ("bob", 20)):
        batch.setString(1, owner)
        batch.setInt(2, n)
        batch.addBatch()
    assert len(batch.executeBatch()) == 2 and batch.getGeneratedKeys().next()
    assert query(a) == ["ann 10", "bob 20"] and query(b) == []
    a.commit()
    b.rollback()
    assert query(b) == ["ann 10", "bob 20"]
    outer, inner = a.setSavepoint(), a.setSavepoint("a named one")
    update(a, "DELETE FROM accounts WHERE owner = ?", "ann")
    a.rollback(inner)
    update(a, "UPDATE accounts SET n = ?", 7)
    assert query(a) == ["ann 7", "bob 7"]
    a.rollback(outer)
    a.releaseSavepoint(outer)
    assert query(a) == ["ann 10", "bob 20"]
    a.rollback()
    for level, got in ((1, 2), (2, 2), (8, 8), (4, 4)):
        a.setTransactionIsolation(level)
        assert a.getTransactionIsolation() == got
    query(a, "SELECT owner FROM accounts WHERE id = 1 FOR UPDATE")
    with pytest.raises(Py4JJavaError) as e:
        query(b, LOCKED + "NOWAIT")
    assert sql_error(e.value) == LOCK_NOWAIT and query(b, LOCKED + "SKIP LOCKED") == ["bob"]
    for connection in (a, b):
        connection.rollback()

    def transfer(first: int, second: int, between: Callable[[], None]) -> None:
        connection = connect()
        try:
            update(connection, "UPDATE accounts SET n = n - 1 WHERE id = ?", first)
            between()
            update(connection, "UPDATE accounts SET n = n + 1 WHERE id = ?", second)
            connection.commit()
        finally:
            connection.close()

    assert tried(transfer, sql_error) == [1, 2] and query(a) == ["ann 10", "bob 20"]
    a.rollback()
    update(b, "UPDATE accounts SET n = 0")
    b.close()
    assert query(a, ALL + " FOR UPDATE") == ["ann 10", "bob 20"]
    a.close()


# ---------------------------------------------------------------- Node
def node(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["node", *arguments], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("framework", ["sequelize", "typeorm"])
def test_a_framework_of_node(port: int, framework: str) -> None:
    if shutil.which("node") is None or node("-e", f"require('{framework}'); require('mysql2')").returncode:
        pytest.skip(f"Node or its packages {framework} and mysql2 are not installed, or NODE_PATH does not name them")
    done = node(str(HERE / f"{framework}.js"), str(port))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "committed": ["ann 10", "bob 20"], "rolled back": ["ann 10", "bob 20"],
        "nested": ["ann 15", "bob 20", "cid 1"], "levels": [10, 10, 10, 10], "duplicate": 1062,
        "tries": [1, 2], "in the end": ["ann 15", "bob 20", "cid 1"],
        **({"locks": [LOCK_NOWAIT, ["bob", "cid"]]} if framework == "typeorm" else {"locks": [1205]})}
