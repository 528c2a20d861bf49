"""The lock table under random interleavings, compared with a slow reference that recomputes everything."""

from __future__ import annotations

import random

import pytest

from noria.dataflow.transactions.locks import LockTable

A, B, C = ("t1", b"a"), ("t1", b"b"), ("t1", b"c")


def test_shared_locks_are_compatible_and_exclusive_ones_are_not() -> None:
    locks = LockTable()
    assert locks.acquire(1, [A], exclusive=False) is None
    assert locks.acquire(2, [A], exclusive=False) is None
    assert locks.acquire(3, [B, A]) == A
    assert locks.held(3) == 0  # all or nothing
    assert locks.conflict(None, [B]) is None and locks.conflict(None, [A]) == A


def test_the_queue_is_served_in_order() -> None:
    locks = LockTable()
    locks.acquire(1, [A])
    assert locks.wait(2, A) == () and locks.wait(3, A) == ()
    assert locks.release(1) == [2]
    assert locks.release(2) == [3]
    assert locks.release(3) == [] and not locks


def test_a_shared_request_does_not_overtake_an_exclusive_one() -> None:
    locks = LockTable()
    locks.acquire(1, [A], exclusive=False)
    locks.wait(2, A)
    assert locks.acquire(3, [A], exclusive=False) == A
    locks.wait(3, A, exclusive=False)
    assert locks.release(1) == [2] and locks.release(2) == [3]


def test_a_holder_of_a_shared_lock_that_requests_an_exclusive_one_waits_in_front() -> None:
    locks = LockTable()
    locks.acquire(1, [A], exclusive=False)
    locks.acquire(2, [A], exclusive=False)
    assert locks.acquire(1, [A]) == A
    locks.wait(3, A)
    assert locks.wait(1, A) == ()
    assert locks.release(2) == [1]
    assert locks.release(1) == [3]


def test_two_holders_that_both_request_an_exclusive_lock_are_a_deadlock() -> None:
    locks = LockTable()
    locks.acquire(1, [A], exclusive=False)
    locks.acquire(2, [A], exclusive=False)
    assert locks.wait(1, A) == ()
    assert set(locks.wait(2, A)) == {1, 2}


def test_one_of_several_is_released() -> None:
    locks = LockTable()
    locks.acquire(1, [A, B])
    locks.wait(2, A)
    assert locks.free(1, A) == [2] and locks.held(1) == 1 and locks.held(2) == 1
    assert locks.free(1, B) == [] and locks.held(1) == 0
    assert locks.conflict(3, [A]) == A and locks.conflict(3, [B]) is None


def test_a_cycle_of_three_is_found_when_it_closes() -> None:
    locks = LockTable()
    for owner, resource in ((1, A), (2, B), (3, C)):
        locks.acquire(owner, [resource])
    assert locks.wait(1, B) == () and locks.wait(2, C) == ()
    assert locks.wait(3, A) == (3, 1, 2)
    assert locks.release(3) == [2]  # the victim was not queued, so the others continue


@pytest.mark.parametrize("seed", range(300))
def test_random_interleavings(seed: int) -> None:
    """No two incompatible holders, no lost wake-up, no cycle that is not reported, nothing left at the end."""
    rng = random.Random(seed)
    locks, resources = LockTable(), [("f", bytes([n])) for n in range(rng.randint(1, 4))]
    owners = list(range(rng.randint(2, 6)))
    held: dict[int, dict[tuple[str, bytes], bool]] = {o: {} for o in owners}
    waits: dict[int, tuple[tuple[str, bytes], bool]] = {}

    def granted(some: list[object]) -> None:
        for o in some:
            assert isinstance(o, int)
            resource, exclusive = waits.pop(o)
            held[o][resource] = exclusive or held[o].get(resource, False)

    for _ in range(200):
        owner = rng.choice(owners)
        if owner in waits:
            if rng.random() < 0.1:
                del waits[owner]
                granted(locks.withdraw(owner))
        elif held[owner] and rng.random() < 0.2:
            one = rng.choice(sorted(held[owner]))
            del held[owner][one]
            granted(locks.free(owner, one))
        elif rng.random() < 0.25:
            held[owner].clear()
            granted(locks.release(owner))
        else:
            some, exclusive = rng.sample(resources, rng.randint(1, len(resources))), rng.random() < 0.6
            wrong = locks.acquire(owner, some, exclusive)
            if wrong is None:
                for r in some:
                    held[owner][r] = exclusive or held[owner].get(r, False)
            elif cycle := locks.wait(owner, wrong, exclusive):
                assert cycle[0] == owner and len(set(cycle)) == len(cycle)
                held[owner].clear()
                granted(locks.release(owner))
            else:
                waits[owner] = wrong, exclusive
        for r in resources:
            holders = [held[o][r] for o in owners if r in held[o]]
            assert len(holders) < 2 or not any(holders), "incompatible holders"
        blockers = dict(locks.waiting())
        assert blockers.keys() == waits.keys()
        assert all(blockers.values()), "a waiting owner has no blocker"
        left = set(blockers)
        while free := {o for o in left if not left.intersection(blockers[o])}:
            left -= free
        assert not left, "a cycle of waits was not reported"
        assert all(locks.held(o) == len(held[o]) for o in owners)
    for owner in owners:
        waits.pop(owner, None)
        held[owner].clear()
        granted(locks.release(owner))
    assert not locks and not waits
