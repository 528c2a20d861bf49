"""The checker finds each anomaly in a history by hand, none in those of stores that keep their level, and in those of
stores without a rule what the rule prevents."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from histories.direct import (
    ABORTED_READ,
    DUPLICATED,
    INCOMPATIBLE,
    INTERMEDIATE_READ,
    INTERNAL,
    INVENTED,
    LOST,
    NON_REPEATABLE,
    PART,
    PHANTOM,
    SESSION,
    TORN,
)
from histories.graph import CIRCULAR, DIRTY_WRITE, IN_TIME, LONG_FORK, LOST_UPDATE, READ_SKEW, WRITE_SKEW
from histories.history import (
    Append,
    History,
    Key,
    Operation,
    Outcome,
    Read,
    Transaction,
    Undo,
    list_key,
    set_key,
)
from histories.levels import READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE, broken, seen
from histories.stores import RULES, play

LEVELS = (READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE)


def key_of(name: str) -> Key:
    return set_key(name) if name.isupper() else list_key(name)


def history(text: str) -> History:
    """One transaction a line: `x=1,2` reads, `x!1,2` reads for update, `x+3` appends, `x~3` appends what is undone,
    `<` rolls back to the savepoint; `fails` and `unknown` are its outcome, `s1` its session, `@2-5` the time of its
    commit.  `final` begins the line of what is there in the end.  Sets have capitals.

    >>> print(history("x+1; x=1 fails").transactions[0])
    T0 (failed, session 0): x += 1; x = [1]
    """
    done, final = list[Transaction](), {}
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("final"):
            final = {r.key: r.values for word in line.split()[1:] for r in [_operation(word)] if isinstance(r, Read)}
            continue
        words = line.replace(";", " ").split()
        t = Transaction(len(done), tuple(_operations(words)), session=len(done))
        for word in words:
            if word in ("fails", "unknown"):
                t = replace(t, outcome=Outcome.FAILED if word == "fails" else Outcome.UNKNOWN)
            elif found := re.fullmatch(r"s(\d+)", word):
                t = replace(t, session=int(found[1]))
            elif found := re.fullmatch(r"@(\d+)-(\d+)", word):
                began, ended = map(float, found.groups())
                t = replace(t, began=began, ended=ended, operations=tuple(
                    replace(o, began=began, ended=ended) if isinstance(o, Read) else o for o in t.operations))
        done.append(t)
    return History(done, final)


def _operations(words: Sequence[str]) -> Iterator[Operation]:
    for word in words:
        if re.fullmatch(r"<|\w+[=!+~].*", word):
            yield _operation(word)


def _operation(word: str) -> Operation:
    if word == "<":
        return Undo()
    found = re.fullmatch(r"(\w+)([=!+~])(.*)", word)
    assert found is not None, word
    name, what, rest = found.groups()
    if what in "+~":
        return Append(key_of(name), int(rest), what == "~")
    return Read(key_of(name), tuple(int(v) for v in rest.split(",") if v), what == "!")


def names(text: str, level: str = SERIALIZABLE, **how: bool) -> set[str]:
    return names_of(history(text), level, **how)


def names_of(whole: History, level: str, **how: bool) -> set[str]:
    return {a.name for a in broken(History([replace(t, level=level) for t in whole.transactions], whole.final), **how)}


HAND_MADE = {
    "a dirty write": ("x+1 y+1\n x+2 y+2\n final x=1,2 y=2,1", DIRTY_WRITE),
    "a read of what failed": ("x+1 fails\n x=1\n final x=", ABORTED_READ),
    "a read of what was rolled back to a savepoint": ("x~1 < y+2\n x=1\n final x= y=2", ABORTED_READ),
    "what failed, in the end": ("x+1 fails\n final x=1", ABORTED_READ),
    "a read between two appends of one transaction": ("x+1 x+2\n x=1\n final x=1,2", INTERMEDIATE_READ),
    "some of a transaction's rows": ("X+1 X+2\n X=2\n final X=1,2", PART),
    "information that flows both ways": ("x+1 y=2\n y+2 x=1\n final x=1 y=2", CIRCULAR),
    "an update of what another one has changed since": ("x= x+1\n x= x+2\n final x=1,2", LOST_UPDATE),
    "the same, read for update": ("x! x+1\n x! x+2\n final x=1,2", LOST_UPDATE),
    "two reads of one list": ("x= x=1\n x+1\n final x=1", NON_REPEATABLE),
    "two reads of one set": ("X= X=1\n X+1\n final X=1", PHANTOM),
    "one key before a transaction, another one after it": ("x= y=2\n x+1 y+2\n final x=1 y=2", READ_SKEW),
    "a row that is missing beside one of the same transaction": ("X= y=2\n X+1 y+2\n final X=1 y=2", READ_SKEW),
    "two that read what the other one writes": ("x= y= x+1\n x= y= y+2\n final x=1 y=2", WRITE_SKEW),
    "the same, of sets": ("X= Y= X+1\n X= Y= Y+2\n final X=1 Y=2", WRITE_SKEW),
    "readers who disagree on the order": ("x+1\n y+2\n x=1 y=\n x= y=2\n final x=1 y=2", LONG_FORK),
    "the same, of sets only": ("X+1\n X+2\n X=1\n X=2\n final X=1,2", LONG_FORK),
    "an append that is gone": ("x+1\n final x=", LOST),
    "an append that is there twice": ("x+1\n final x=1,1", DUPLICATED),
    "a read that has one twice": ("x+1\n x=1,1\n final x=1", DUPLICATED),
    "a value of nobody": ("x+1\n x=7\n final x=1", INVENTED),
    "half of a transaction without an answer": ("x+1 y+2 unknown\n final x=1 y=", TORN),
    "reads in two orders": ("x+1\n x+2\n x=2\n final x=1,2", INCOMPATIBLE),
    "an own append that is not read": ("x+1 x=\n final x=1", INTERNAL),
    "an own append that is read after it was undone": ("x~1 < x=1\n final x=", INTERNAL),
    "a session that misses what it has written": ("x+1 s5\n x= s5\n final x=1", SESSION),
    "a read of the past": ("x+1 @1-2\n x= @3-4\n final x=1", READ_SKEW + IN_TIME),
    "a write into the past": ("x+1 @3-4\n x+2 @1-2\n final x=1,2", DIRTY_WRITE + IN_TIME),
}


@pytest.mark.parametrize("what", HAND_MADE)
def test_what_is_found(what: str) -> None:
    text, name = HAND_MADE[what]
    found = names(text)
    assert name in found or name.replace(READ_SKEW, NON_REPEATABLE) in found, found


CLEAN = {
    "one after the other": "x= x+1 @1-2\n x=1 x+2 @3-4\n x=1,2 @5-6\n final x=1,2",
    "at the same time, in another order than they ended": "x=2 x+1 @1-9\n x= x+2 @1-5\n final x=2,1",
    "a transaction without an answer that took place": "x+1 unknown\n x=1\n final x=1",
    "one without an answer that did not": "x+1 unknown\n x=\n final x=",
    "what is undone is gone": "x+1 x~2 x=1,2 < x=1 x+3 x=1,3\n final x=1,3",
    "one that failed reads what it has written": "x=1 x+2 x=1,2 fails\n x+1\n final x=1",
}


@pytest.mark.parametrize("what", CLEAN)
@pytest.mark.parametrize("level", LEVELS)
def test_what_is_clean(what: str, level: str) -> None:
    assert not names(CLEAN[what], level)


ALLOWED = {  # at READ COMMITTED, and at REPEATABLE READ
    "x= x=1\n x+1\n final x=1": (True, False),
    "X= X=1\n X+1\n final X=1": (True, False),
    "x= y=2\n x+1 y+2\n final x=1 y=2": (True, False),
    "x+1\n y+2\n x=1 y=\n x= y=2\n final x=1 y=2": (True, False),
    "x= x+1\n x= x+2\n final x=1,2": (True, True),
    "x! x+1\n x! x+2\n final x=1,2": (False, False),
    "x= y= x+1\n x= y= y+2\n final x=1 y=2": (True, True),
    "x! y! x+1\n x! y! y+2\n final x=1 y=2": (False, False),
    "X! X+1\n X! X+2\n final X=1,2": (True, True),  # there are no gap locks
    "x+1\n x= x+2 x=1,2\n final x=1,2": (True, True),  # an UPDATE changes the last committed row
    "x+1 y+2\n x=1 y! \n final x=1 y=2": (True, True),  # if the lock came first
    "X+1 X+2\n X=2\n final X=1,2": (False, False),
}


@pytest.mark.parametrize("text", ALLOWED)
def test_what_a_level_allows(text: str) -> None:
    assert tuple(not names(text, level, clock=False) for level in (READ_COMMITTED, REPEATABLE_READ)) == ALLOWED[text]


def test_several_workers_may_be_seen_in_parts() -> None:
    parts = "X+1 X+2\n X=2\n final X=1,2"
    assert not names(parts, READ_COMMITTED, several=True, clock=False)
    assert names(parts, REPEATABLE_READ, several=True, clock=False)


@pytest.mark.parametrize("commit, reads, allowed", [
    ((1, 9), "x=1 y=", True),  # it is acknowledged later
    ((1, 3), "x=1 y=", False),
    ((1, 9), "x=1 x=", False),  # one worker does not go back
    ((1, 9), "x= x=1", True),
])
def test_a_commit_is_seen_in_parts_until_it_is_acknowledged(commit: tuple[int, int], reads: str, allowed: bool) -> None:
    writer, reader = history(f"x+1 y+2\n{reads}\n final x=1 y=2").transactions
    ends = {0: (2.0, 2.5), 1: (4.0, 5.0)}
    reader = replace(reader, began=2, ended=5, operations=tuple(
        replace(o, statement=n, began=ends[n][0], ended=ends[n][1]) for n, o in enumerate(reader.reads)))
    final = {list_key("x"): (1,), list_key("y"): (2,)}
    whole = History([replace(writer, began=commit[0], ended=commit[1]), reader], final)
    assert (not names_of(whole, READ_COMMITTED, several=True)) is allowed
    assert names_of(whole, READ_COMMITTED) or reads == "x= x=1"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", range(8))
def test_a_store_that_keeps_its_level(level: str, seed: int) -> None:
    assert not [str(a) for a in broken(play(seed, level))]


def test_what_stores_of_each_level_show() -> None:
    """A weaker level shows what a stronger one does not have."""
    found = {level: set().union(*(seen(play(seed, level, locking=False)) for seed in range(12))) for level in LEVELS}
    assert found == {
        SERIALIZABLE: set(),
        REPEATABLE_READ: {LOST_UPDATE, READ_SKEW, WRITE_SKEW, LONG_FORK},
        READ_COMMITTED: {NON_REPEATABLE, PHANTOM, LOST_UPDATE, READ_SKEW, WRITE_SKEW, LONG_FORK}}


@pytest.mark.parametrize("weaker, stronger", [(READ_COMMITTED, REPEATABLE_READ), (REPEATABLE_READ, SERIALIZABLE)])
def test_a_weaker_level_breaks_a_stronger_promise(weaker: str, stronger: str) -> None:
    weak = play(1, weaker)
    assert broken(History([replace(t, level=stronger) for t in weak.transactions], weak.final))


MISSING = {
    "row locks": {DIRTY_WRITE, LOST_UPDATE},
    "hide what is not committed": {ABORTED_READ},
    "undo": {ABORTED_READ, INTERNAL},
    "whole commits": {LOST},
    "durable": {LOST},
    "once": {DUPLICATED},
    "one copy": {READ_SKEW},
}


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize("level", (READ_COMMITTED, REPEATABLE_READ))
def test_a_store_without_a_rule(level: str, rule: str) -> None:
    found = {a.name.removesuffix(IN_TIME) for seed in range(6) for a in broken(play(seed, level, rule))}
    assert found & MISSING[rule], found
