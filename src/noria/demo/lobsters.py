"""Generates stories, users and votes with the skew of Lobsters' production histograms.

    votes of a story ─ a bin drawn by its count, a number drawn evenly within the bin ─┐ scaled to the same total,
    votes of a user  ─ likewise ─────────────────────────────────────────────────────┘ largest remainders up
    votes            ─ a random matching of the two: every story and every user gets exactly its number

A production story has 15 votes on average, and a story of this load has 50 (2,000,000 for 40,000 stories).  So all
counts are multiplied by one factor, which keeps the ratios between stories and so the skew.

Keeps true: the same `Size` and number of slices give the same votes in every process.  No user votes twice for a story.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from noria.demo.histograms import STORY_BIN_WIDTH, USER_BIN_WIDTH, VOTES_PER_STORY, VOTES_PER_USER, Bins

Ints = npt.NDArray[np.int64]
REPAIRS = 60  # at most, rounds of exchanging users until no vote repeats; about 18 are needed


@dataclass(frozen=True)
class Size:
    """The amounts to generate.  seed: for all random numbers.  Raises ValueError for impossible amounts."""

    stories: int = 40_000
    users: int = 9_200
    votes: int = 2_000_000
    seed: int = 20_181_008

    def __post_init__(self) -> None:
        if min(self.stories, self.users) < 10:
            raise ValueError("--stories and --users: at least 10 of each")
        most = self.stories * self.users // 8
        if not 1 <= self.votes <= most:
            raise ValueError(f"--votes {self.votes}: 1 to {most}, an eighth of all pairs of a story and a user, since "
                             "nobody votes twice for a story")

    def rng(self, *what: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *what])


# ---------------------------------------------------------------- how many votes each
@lru_cache(maxsize=2)
def votes_of_stories(size: Size) -> Ints:
    """Return the number of votes by story id - 1.  It is also the popularity of a story with readers."""
    raw = draw(VOTES_PER_STORY, STORY_BIN_WIDTH, size.stories, size.rng(1))
    return scaled(raw, size.votes, size.users // 2)


@lru_cache(maxsize=2)
def votes_of_users(size: Size) -> Ints:
    """Return the number of votes by user id - 1."""
    raw = draw(VOTES_PER_USER, USER_BIN_WIDTH, size.users, size.rng(2))
    return scaled(raw, size.votes, size.stories // 2)


def draw(bins: Bins, width: int, n: int, rng: np.random.Generator) -> Ints:
    """Draw n counts, distributed like the histogram, and evenly within a bin."""
    least, times = np.array(bins).T
    chosen = rng.choice(least, size=n, p=times / times.sum())
    return np.asarray(chosen + rng.integers(0, width, n), np.int64)


def scaled(raw: Ints, total: int, most: int) -> Ints:
    """Scale `raw` to the sum `total`, with no element above `most`.  The others share the excess in proportion."""
    share = np.zeros(len(raw))
    open_ = np.ones(len(raw), np.bool_)
    while True:
        weights = np.where(open_, np.maximum(raw, 0.01), 0.0)
        share = np.where(open_, weights * ((total - most * (~open_).sum()) / weights.sum()), most)
        over = open_ & (share > most)
        if not over.any():
            break
        open_ &= ~over
    whole = np.floor(share).astype(np.int64)
    rest = np.argsort(whole - share, kind="stable")[: total - int(whole.sum())]
    whole[rest] += 1
    return whole


# ---------------------------------------------------------------- who for what
@dataclass(frozen=True)
class Votes:
    users: Ints
    stories: Ints


def votes(size: Size, part: int, parts: int) -> Votes:
    """Return a slice of all votes: those for a contiguous range of stories, in random order."""
    bounds = np.linspace(0, size.stories, parts + 1).astype(np.int64)
    per_story = votes_of_stories(size)
    sums = [int(per_story[a:b].sum()) for a, b in pairwise(bounds)]
    left = votes_of_users(size).copy()
    for p in range(part + 1):  # a slice draws from the votes that earlier slices left
        hand = size.rng(3, p).multivariate_hypergeometric(left, sums[p], method="marginals")
        left -= hand
    own = np.arange(bounds[part], bounds[part + 1])
    stories = np.repeat(own + 1, per_story[own])
    users = np.repeat(np.arange(1, size.users + 1), hand)
    return matched(stories, users, size.rng(4, part))


def matched(stories: Ints, users: Ints, rng: np.random.Generator) -> Votes:
    """Pair stories and users at random without repetition.  Repeated pairs exchange their users with others, which
    keeps all counts.  If some still repeat after REPAIRS rounds, as may happen with few pairs, they are dropped."""
    stories, users = rng.permutation(stories), rng.permutation(users)
    for _ in range(REPAIRS):
        again = repeated(stories, users)
        if not len(again):
            return Votes(users, stories)
        others = np.setdiff1d(rng.integers(0, len(users), 2 * len(again)), again)
        others = rng.permutation(others)[: len(again)]
        again = rng.permutation(again)[: len(others)]
        users[again], users[others] = users[others], users[again]
    kept = np.setdiff1d(np.arange(len(users)), repeated(stories, users))
    return Votes(users[kept], stories[kept])


def repeated(stories: Ints, users: Ints) -> Ints:
    """Return the positions of repeated pairs, without one of each."""
    pairs = (stories << 32) | users
    order = np.argsort(pairs)
    ordered = pairs[order]
    return np.asarray(order[1:][ordered[1:] == ordered[:-1]], np.int64)


# ---------------------------------------------------------------- names
_OPENINGS = ("Why", "How", "Ask: should", "Notes on how", "What happens when", "The day", "Proof that", "Remember when")
_SUBJECTS = ("our scheduler", "a B-tree", "the linker", "Erlang", "SQLite", "a type checker", "my compiler", "TLS",
             "the kernel", "a 30-year-old bug", "Postgres", "RISC-V", "the borrow checker", "a cache", "Emacs")
_ENDINGS = ("starves small queries", "learned to forget", "got faster by doing less", "ate my weekend", "still matters",
            'is "eventually" right', "beats a cluster, on one laptop", "lost a packet", "was never the bottleneck")
_SITES = ("example.com", "example.org", "example.net", "blog.example.com", "papers.example.org")


def titles(first: int, n: int, rng: np.random.Generator) -> list[str]:
    """Return the titles of n stories, with commas and quotes, which test CSV."""
    parts = [rng.choice(np.array(words), n) for words in (_OPENINGS, _SUBJECTS, _ENDINGS)]
    return [f"{a} {b} {c} ({first + i})" for i, (a, b, c) in enumerate(zip(*parts, strict=True))]


def urls(first: int, n: int, rng: np.random.Generator) -> list[str]:
    return [f"https://{site}/s/{first + i:06x}" for i, site in enumerate(rng.choice(np.array(_SITES), n))]


def authors(size: Size, n: int, rng: np.random.Generator) -> Ints:
    """Draw the authors of n stories in proportion to the users' votes."""
    weights = votes_of_users(size) / size.votes
    return np.asarray(rng.choice(np.arange(1, size.users + 1), n, p=weights), np.int64)
