"""Whatever is lost on the way, each change is applied once and in its order: random programs of a source that is
written while it is loaded and followed, with a follower whose requests and answers get lost.

NORIA_FOLLOW_FIRST=n NORIA_FOLLOW_SEEDS=1 runs one seed; more of them are a soak.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.mariadb import INSTALLED
from following.sources import Followed, SourceDb, following, load_here
from following.writers import KEYS, write
from noria.following import follower as follower_module
from noria.following.target import TargetServer

pytestmark = [pytest.mark.mariadb, pytest.mark.skipif(not INSTALLED, reason="MariaDB is not installed")]
FIRST, SEEDS = int(os.environ.get("NORIA_FOLLOW_FIRST", "1")), int(os.environ.get("NORIA_FOLLOW_SEEDS", "2"))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SourceDb]:
    db = SourceDb(tmp_path_factory.mktemp("source"))
    yield db
    db.close()


class Lossy:
    """Target.apply whose request or answer is lost now and then."""

    def __init__(self, draw: random.Random):
        self._draw, self.lost, self._real = draw, 0, TargetServer.apply

    def __call__(self, target: TargetServer, *given: Any) -> bool:
        loses = self._draw.random()
        if loses < 0.03:
            self.lost += 1
            raise ConnectionError("the request was lost")
        done = self._real(target, *given)
        if loses > 0.97:
            self.lost += 1
            raise ConnectionError("the answer was lost")
        return done


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_what_is_lost_is_done_once(source: SourceDb, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
                                   ) -> None:
    draw, lossy = random.Random(seed), Lossy(random.Random(seed + 1))
    source.anew()
    source.run(*(f"CREATE TABLE {t} (id INT PRIMARY KEY, v INT, u INT UNIQUE)" for t in "ab"),
               *(f"INSERT INTO {t} SELECT seq, seq, NULL FROM seq_1_to_{KEYS}" for t in "ab"))
    monkeypatch.setattr("noria.following.snapshot.FOLLOW_RANGE_ROWS", 7)
    monkeypatch.setattr("noria.following.binlog.FOLLOW_PIECE_ROWS", draw.choice([5, 50_000]))
    monkeypatch.setattr(follower_module, "FOLLOW_BATCH_ROWS", draw.choice([1, 20, 10_000]))
    monkeypatch.setattr(follower_module, "AGAIN_S", 0.01)
    monkeypatch.setattr(TargetServer, "apply", lambda *given: lossy(*given))
    writers = [threading.Thread(target=write, args=(source, random.Random(draw.random()), 80)) for _ in range(2)]

    def load(*given: Any) -> None:
        for writer in writers:
            writer.start()
        load_here(*given)

    with Followed(tmp_path) as target:
        for _ in range(2):
            with following(source, target, load=load) as now:
                now.loaded()
                for writer in writers:
                    writer.join()
                now.caught_up()
                assert target.rows(["a", "b"]) == {t: r for t, r in source.rows().items() if t != "w"}
            write(source, draw, 40)
    assert lossy.lost
