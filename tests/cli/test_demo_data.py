"""The demo's made-up votes: as many as asked for, as skewed as production's, the same in whatever slices."""

from __future__ import annotations

import csv
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from noria.demo import generate, lobsters
from noria.demo.histograms import STORY_BIN_WIDTH, USER_BIN_WIDTH, VOTES_PER_STORY, VOTES_PER_USER
from noria.demo.lobsters import Size

SIZE = Size(stories=8_000, users=2_000, votes=200_000, seed=7)


def test_the_histograms_are_lobsters_own() -> None:
    assert sum(n for _, n in VOTES_PER_STORY) == 40_650
    assert sum(n for _, n in VOTES_PER_USER) == 5_797
    assert all(least % STORY_BIN_WIDTH == 0 for least, _ in VOTES_PER_STORY)
    assert all(least % USER_BIN_WIDTH == 0 for least, _ in VOTES_PER_USER)


@pytest.mark.parametrize("parts", [1, 4])
def test_every_story_and_user_gets_its_number_and_nobody_votes_twice(parts: int) -> None:
    made = [lobsters.votes(SIZE, p, parts) for p in range(parts)]
    stories, users = (np.concatenate([getattr(v, what) for v in made]) for what in ("stories", "users"))
    assert np.array_equal(np.bincount(stories, minlength=SIZE.stories + 1)[1:], lobsters.votes_of_stories(SIZE))
    assert np.array_equal(np.bincount(users, minlength=SIZE.users + 1)[1:], lobsters.votes_of_users(SIZE))
    assert len(np.unique(stories << 32 | users)) == SIZE.votes


def test_the_skew_is_productions() -> None:
    """The share of all votes that the most popular hundredth has, against the histogram's own."""
    for bins, width, counts in ((VOTES_PER_STORY, STORY_BIN_WIDTH, lobsters.votes_of_stories(Size())),
                                (VOTES_PER_USER, USER_BIN_WIDTH, lobsters.votes_of_users(Size()))):
        production = np.repeat([least + (width - 1) / 2 for least, _ in bins], [n for _, n in bins])
        assert counts.sum() == Size().votes
        assert _top_share(counts) == pytest.approx(_top_share(production), rel=0.1)


def _top_share(counts: np.ndarray) -> float:
    ordered = np.sort(counts)
    return float(ordered[-len(ordered) // 100 :].sum() / ordered.sum())


def test_what_is_cut_off_goes_to_the_others() -> None:
    assert lobsters.scaled(np.array([0, 1, 1, 98]), 100, 40).tolist() == [0, 30, 30, 40]
    assert lobsters.scaled(np.array([5, 5, 5]), 10, 10).sum() == 10


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="--votes 1000: 1 to 125"):
        Size(100, 10, 1000)
    with pytest.raises(ValueError, match="at least 10"):
        Size(100, 9, 10)


def test_titles_are_the_same_for_the_same_seed() -> None:
    one, other = (lobsters.titles(1, 5, SIZE.rng(5, 0)) for _ in range(2))
    assert one == other and len(set(one)) == 5


@pytest.mark.spark
def test_spark_writes_the_files(spark: object, tmp_path: Path) -> None:
    size = Size(stories=200, users=100, votes=1000)
    generate.generate(spark, amounts=asdict(size), directory=str(tmp_path))
    stories = [row for file in generate.files(tmp_path, "stories") for row in csv.DictReader(file.open())]
    users = [row for file in generate.files(tmp_path, "users") for row in csv.DictReader(file.open())]
    assert sorted(int(s["id"]) for s in stories) == list(range(1, 201))
    assert any('"' in s["title"] for s in stories) and any("," in s["title"] for s in stories)
    assert {int(s["author"]) for s in stories} <= {int(u["id"]) for u in users} == set(range(1, 101))
    votes = pq.read_table(tmp_path / "votes")
    assert votes.column_names == ["user", "story_id"] and votes.num_rows == pytest.approx(size.votes, abs=10)
