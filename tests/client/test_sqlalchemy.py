"""SQLAlchemy over an embedded database and over a server's HTTP port: tables, rows, reflection, the ORM, pandas."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.dialects.mysql import insert as mysql_insert
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    joinedload,
    mapped_column,
    relationship,
    selectinload,
)
from sqlalchemy.orm.exc import StaleDataError

from server.local_services import LocalServices


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "authors"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(40), unique=True)
    active: Mapped[bool] = mapped_column(default=True)
    born: Mapped[datetime.date | None]
    score: Mapped[Decimal] = mapped_column(sa.Numeric(10, 2), default=0)
    made: Mapped[datetime.datetime] = mapped_column(server_default=sa.func.now())
    about: Mapped[str | None] = mapped_column(sa.Text)
    kind: Mapped[str] = mapped_column(sa.Enum("reader", "writer"), default="writer")
    more: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON)
    photo: Mapped[bytes | None]
    wakes: Mapped[datetime.time | None]
    ratio: Mapped[float | None]
    version: Mapped[int] = mapped_column()
    stories: Mapped[list[Story]] = relationship(back_populates="author", cascade="all, delete-orphan")
    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012  # as SQLAlchemy's documentation writes it


class Story(Base):
    __tablename__ = "stories"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str] = mapped_column(sa.String(100), index=True)
    author_id: Mapped[int] = mapped_column(sa.ForeignKey("authors.id"))
    author: Mapped[Author] = relationship(back_populates="stories")


STORIES = Story.__table__


@pytest.fixture(params=["embedded", "served"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    if request.param == "embedded":
        made = sa.create_engine(f"noria:///{tmp_path / 'data'}")
        yield made
        made.dispose()
        return
    with LocalServices(tmp_path, password="p@ss") as local:
        url = sa.URL.create("noria", "root", "p@ss", "127.0.0.1", local.port)
        made = sa.create_engine(url)
        yield made
        made.dispose()


@pytest.fixture
def filled(engine: sa.Engine) -> sa.Engine:
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        ann = Author(name="ann", born=datetime.date(2000, 1, 2), score=Decimal("1.50"), more={"k": [1, None, "é"]},
                     photo=b"\x00\xff", wakes=datetime.time(3, 4, 5), ratio=1.5)
        ann.stories = [Story(title="one"), Story(title="two")]
        session.add_all([ann, Author(name="bob")])
        session.commit()
    return engine


def test_the_orm_writes_and_reads_values_of_every_type(filled: sa.Engine) -> None:
    Base.metadata.create_all(filled)  # they are there
    with Session(filled) as session:
        ann = session.scalars(sa.select(Author).where(Author.name == "ann").options(
            selectinload(Author.stories))).one()
        assert (ann.id, ann.active, ann.born, ann.score, ann.kind, ann.more, ann.photo, ann.wakes, ann.ratio) == (
            1, True, datetime.date(2000, 1, 2), Decimal("1.50"), "writer", {"k": [1, None, "é"]}, b"\x00\xff",
            datetime.time(3, 4, 5), 1.5)
        assert isinstance(ann.made, datetime.datetime) and sorted(s.title for s in ann.stories) == ["one", "two"]
        ann.more = {"n": 1}
        next(s for s in ann.stories if s.title == "one").title = "first"
        session.commit()
        ann.score = Decimal("1.50")  # what it is: SQLAlchemy counts the row as found
        session.commit()
        assert session.get_one(Author, 1).more == {"n": 1}
        counts = session.execute(sa.select(Author.name, sa.func.count(Story.id)).outerjoin(Author.stories).group_by(
            Author.name).order_by(Author.name)).all()
        assert counts == [("ann", 2), ("bob", 0)]
        found = session.scalars(sa.select(Author).join(Author.stories).where(Story.title.like("t%")).options(
            joinedload(Author.stories))).unique().all()
        assert [a.name for a in found] == ["ann"]
        names = session.scalars(sa.select(sa.func.coalesce(Author.about, "-" + Author.name)).order_by(Author.id))
        assert names.all() == ["-ann", "-bob"]
        session.delete(ann)
        session.commit()
        assert session.scalar(sa.select(sa.func.count()).select_from(Story)) == 0


def test_a_row_that_another_session_changed_is_noticed(filled: sa.Engine) -> None:
    with Session(filled) as one, Session(filled) as other:
        mine, theirs = one.get_one(Author, 1), other.get_one(Author, 1)
        theirs.about = "theirs"
        other.commit()
        mine.about = "mine"
        with pytest.raises(StaleDataError):
            one.commit()


def test_statements_of_core(filled: sa.Engine) -> None:
    t = STORIES
    with filled.begin() as c:
        assert c.execute(sa.insert(t), [{"title": f"t{i}", "author_id": 2} for i in range(1000)]).rowcount == 1000
        made = c.execute(sa.insert(t).values(title="x", author_id=1)).inserted_primary_key
        assert made is not None and c.execute(sa.select(t.c.title).where(t.c.id == made[0])).scalar_one() == "x"
        assert c.execute(sa.update(t).where(t.c.author_id == 2).values(title=t.c.title + "!")).rowcount == 1000
        assert c.execute(sa.select(t.c.id, t.c.title).where(t.c.title.in_(["t0!", "t1!", "nothing"])).order_by(
            t.c.id)).all() == [(3, "t0!"), (4, "t1!")]
        assert c.execute(sa.select(t.c.id).order_by(t.c.id).limit(2).offset(1)).scalars().all() == [2, 3]
        assert c.execute(sa.text("SELECT title FROM stories WHERE id = :i AND title LIKE '%!'"), {"i": 4}).all() == [
            ("t1!",)]
        put = mysql_insert(t).values(id=3, title="put", author_id=1)
        c.execute(put.on_duplicate_key_update(title=put.inserted.title))
        assert c.execute(sa.select(t.c.title).where(t.c.id == 3)).scalar_one() == "put"
        assert c.execute(sa.delete(t).where(t.c.id > 5)).rowcount == 998


def test_tables_and_views_are_reflected(filled: sa.Engine) -> None:
    with filled.begin() as c:
        c.exec_driver_sql("CREATE VIEW counts AS SELECT author_id, COUNT(*) AS n FROM stories WHERE author_id = ? "
                          "GROUP BY author_id")
    found = sa.inspect(filled)
    assert found.get_schema_names() == ["noria"] and sorted(found.get_table_names()) == ["authors", "stories"]
    assert found.get_view_names() == ["counts"] and found.has_table("authors") and not found.has_table("nothing")
    columns = {c["name"]: c for c in found.get_columns("authors")}
    assert list(columns) == [c.name for c in Author.__table__.columns]
    assert columns["born"]["nullable"] and not columns["name"]["nullable"]
    assert columns["id"]["autoincrement"] is True and str(columns["score"]["type"]) == "DECIMAL(10, 2)"
    assert found.get_pk_constraint("authors")["constrained_columns"] == ["id"]
    assert sorted(i["column_names"] for i in found.get_indexes("stories")) == [["author_id"], ["title"]]
    assert [i["column_names"] for i in found.get_unique_constraints("authors")] == [["name"]]
    (key,) = found.get_foreign_keys("stories")
    assert (key["constrained_columns"], key["referred_table"]) == (["author_id"], "authors")
    tables = sa.MetaData()
    tables.reflect(filled, views=True)
    counts = tables.tables["counts"]
    with filled.connect() as c:
        assert c.execute(sa.select(counts).where(counts.c.author_id == 1)).all() == [(1, 2)]
        assert c.execute(sa.select(tables.tables["stories"].c.title).where(
            tables.tables["stories"].c.id == 2)).scalar_one() == "two"


def test_errors_are_of_sqlalchemys_classes(filled: sa.Engine) -> None:
    with Session(filled) as session, pytest.raises(exc.IntegrityError, match="1062"):
        session.add(Author(name="bob"))
        session.commit()
    with filled.connect() as c:
        with pytest.raises(exc.ProgrammingError, match="1146"):
            c.execute(sa.text("SELECT * FROM nowhere"))
        assert c.execute(sa.select(Author.name).where(Author.id == 2)).scalar_one() == "bob"
    with pytest.raises(exc.NoSuchTableError):
        sa.Table("nowhere", sa.MetaData(), autoload_with=filled)
    with filled.connect() as c, pytest.raises(exc.NotSupportedError, match="two-phase"):
        c.begin_twophase()


def test_transactions_and_savepoints(filled: sa.Engine) -> None:
    one, count = sa.insert(STORIES).values(title="new", author_id=1), sa.select(sa.func.count()).where(
        STORIES.c.title == "new")
    with Session(filled) as session:
        session.execute(one)
        assert session.execute(count).scalar_one() == 1
        session.rollback()
        assert session.execute(count).scalar_one() == 0
    with Session(filled) as session:
        with session.begin_nested():
            session.execute(one)
        with pytest.raises(exc.IntegrityError), session.begin_nested():
            session.execute(one)
            session.execute(sa.insert(STORIES).values(id=1, title="again", author_id=1))
        nested = session.begin_nested()
        session.execute(one)
        nested.rollback()
        session.commit()
    with filled.connect() as c:
        assert c.execute(count).scalar_one() == 1


def test_isolation_levels(filled: sa.Engine) -> None:
    one, count = sa.insert(STORIES).values(title="new", author_id=1), sa.select(sa.func.count()).where(
        STORIES.c.title == "new")
    with filled.connect() as a, filled.connect() as b, filled.connect() as c:
        assert a.get_isolation_level() == a.default_isolation_level == "REPEATABLE READ"
        b.execution_options(isolation_level="READ COMMITTED")
        c.execution_options(isolation_level="AUTOCOMMIT")
        assert (a.execute(count).scalar_one(), b.execute(count).scalar_one()) == (0, 0)
        c.execute(one)
        assert (a.execute(count).scalar_one(), b.execute(count).scalar_one()) == (0, 1)
        assert (b.get_isolation_level(), c.get_isolation_level()) == ("READ COMMITTED", "AUTOCOMMIT")


def test_pandas_reads_and_writes(filled: sa.Engine) -> None:
    with filled.connect() as c:
        frame = pd.read_sql(sa.text("SELECT id, title FROM stories WHERE id < :n ORDER BY id"), c, params={"n": 9})
    assert frame.to_dict("list") == {"id": [1, 2], "title": ["one", "two"]}
    assert list(pd.read_sql_table("authors", filled, columns=["id", "name", "ratio"])["name"]) == ["ann", "bob"]
    made = pd.DataFrame({"a": [1, 2], "b": ["x", None], "c": [1.5, float("nan")],
                         "d": pd.to_datetime(["2024-01-01 00:00:00", "2024-01-02 03:04:05"])})
    assert made.to_sql("frame", filled, index=False) == 2
    pd.testing.assert_frame_equal(pd.read_sql("SELECT * FROM frame ORDER BY a", filled), made, check_dtype=False)
    assert made.to_sql("frame", filled, index=False, if_exists="append") == 2
    assert made.to_sql("frame", filled, index=False, if_exists="replace", method="multi") == 2


def test_connections_of_a_pool_and_engines_share_a_directory(tmp_path: Path) -> None:
    one, other = (sa.create_engine(f"noria:///{tmp_path / 'data'}", pool_pre_ping=True) for _ in range(2))
    Base.metadata.create_all(one)
    with one.connect() as a, one.connect() as b, other.connect() as c:
        a.execute(sa.insert(Author).values(id=1, name="ann", version=1))
        a.execute(sa.insert(STORIES).values(title="x", author_id=1))
        a.commit()
        assert [d.execute(sa.select(STORIES.c.title)).scalars().all() for d in (b, c)] == [["x"], ["x"]]
    Base.metadata.drop_all(other)
    one.dispose()
    assert sa.inspect(other).get_table_names() == []
    other.dispose()
    with pytest.raises(exc.OperationalError, match=r"was written by .* workers"):
        sa.create_engine(f"noria:///{tmp_path / 'data'}?workers=4").connect()


@pytest.mark.parametrize("url", ["noria://", "noria://host/directory", "noria+https:///directory"])
def test_an_address_of_no_database_is_refused(url: str) -> None:
    with pytest.raises(exc.ArgumentError, match=r"noria:///DIRECTORY .* noria://HOST:PORT"):
        sa.create_engine(url).connect()


def test_a_server_with_tls_has_a_scheme_of_its_own() -> None:
    for url, wanted in (("noria+https://u:p%40@h:1", "https://u:p%40@h:1"), ("noria://h", "http://h")):
        engine = sa.create_engine(url)
        assert engine.dialect.create_connect_args(engine.url) == ([wanted], {"found_rows": True})
