"""The noted rows before recent commits, against all versions of the table."""

from __future__ import annotations

import random
from typing import Any

from noria.dataflow.messages.packets import PriorRows
from noria.runtime.link import recent_changes
from noria.runtime.link.recent_changes import RecentChanges

Table = dict[int, tuple[Any, ...]]
KEYS = 12


def changed(now: Table, chance: random.Random) -> dict[int, tuple[Any, ...] | None]:
    """Change some rows of the table; return them as they were."""
    prior: dict[int, tuple[Any, ...] | None] = {}
    for key in chance.sample(range(KEYS), chance.randint(0, 4)):
        prior[key] = now.pop(key, None)
        if prior[key] is None or chance.random() < 0.7:
            now[key] = (key, chance.randrange(100))
    return prior


def test_a_snapshot_is_the_last_rows_and_the_noted_ones() -> None:
    answered = 0
    for seed in range(40):
        chance, recent = random.Random(seed), RecentChanges()
        now: Table = {}
        versions: dict[int, Table] = {0: {}}  # by tick
        tick = position = 0
        snapshots: list[int] = []
        for _ in range(150):
            tick += chance.randint(1, 2)  # time passes without commits, too
            what = chance.random()
            if what < 0.25:
                versions[tick] = dict(now)
                snapshots.append(tick)
                recent.opened(tick, position)
            elif what < 0.9:
                prior = changed(now, chance)
                kind = chance.random()
                if kind < 0.9:
                    position += 1
                    recent.note(PriorRows(tick, position, {"t": tuple(prior.items())} if prior else {}))
                elif kind < 0.93:
                    position += 1  # a bulk load: its answer says nothing of rows
                    recent.clear()
                elif kind < 0.96:
                    position += 1
                    recent.note(PriorRows(tick, position, {"t": None}))
                else:
                    recent.note(None)
            for at in snapshots[-4:]:
                if not recent.reaches(at, "t"):
                    continue
                answered += 1
                low = chance.randrange(KEYS)
                high = chance.randint(low, KEYS + 30)
                known = recent.between("t", low, high, at)
                rows = {k: r for k in range(low, high + 1) if (r := known.get(k, now.get(k))) is not None
                        and not (k in known and known[k] is None)}
                assert rows == {k: r for k, r in versions[at].items() if low <= k <= high}, seed
                found = recent.before("t", low, at)
                assert (now.get(low) if found is None else found[0]) == versions[at].get(low), seed
    assert answered > 3_000


def test_the_oldest_commits_are_dropped(monkeypatch: Any) -> None:
    monkeypatch.setattr(recent_changes, "MOST_ROWS", 3)
    recent = RecentChanges()
    recent.opened(10, 5)
    for n in range(1, 5):
        recent.note(PriorRows(10 + n, 5 + n, {"t": ((n, None),)}))
    assert not recent.reaches(10, "t") and recent.reaches(11, "t") and recent.reaches(14, "t")
    assert recent.before("t", 1, 11) is None and recent.before("t", 2, 11) == (None,)
    assert recent.between("t", 0, 9, 12) == {3: None, 4: None}


def test_texts_are_bounded_too(monkeypatch: Any) -> None:
    monkeypatch.setattr(recent_changes, "MOST_CHARACTERS", 10)
    recent = RecentChanges()
    recent.opened(10, 5)
    for n in range(1, 5):
        recent.note(PriorRows(10 + n, 5 + n, {"t": ((n, (n, "four", None)),)}))
    assert not recent.reaches(11, "t") and recent.reaches(12, "t")
    assert recent.between("t", 0, 9, 12) == {3: (3, "four", None), 4: (4, "four", None)}


def test_a_commit_that_was_not_noted_ends_the_reach_of_snapshots() -> None:
    recent = RecentChanges()
    recent.opened(10, 5)
    recent.note(PriorRows(11, 6, {"t": ((1, (1, 1)),)}))
    assert recent.reaches(10, "t") and recent.before("t", 1, 10) == ((1, 1),)
    recent.note(PriorRows(13, 8, {}))  # position 7 is missing
    assert not recent.reaches(10, "t") and not recent.reaches(12, "t") and recent.reaches(13, "t")
    recent.note(PriorRows(14, 9, {"u": None}))
    assert recent.reaches(13, "t") and not recent.reaches(13, "u") and recent.reaches(14, "u")
    recent.opened(20, 9)
    assert recent.reaches(13, "t") and recent.reaches(20, "t")
    recent.opened(30, 12)
    assert not recent.reaches(20, "t") and recent.reaches(30, "t")
    recent.note(None)
    assert not recent.reaches(30, "t")
