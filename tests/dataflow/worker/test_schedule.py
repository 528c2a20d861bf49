"""Stride scheduling: each class has its share by weight, no class starves, and none accumulates a claim."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from noria.dataflow.worker.schedule import StrideScheduler
from noria.dataflow.worker.turns import WorkClass, WorkSource, WorkTurns


def run(schedule: StrideScheduler[str], costs: dict[str, int], units: int) -> dict[str, int]:
    """The units of each class, if all classes always have work. `costs`: the units of one turn of each class."""
    done = dict.fromkeys(costs, 0)
    while sum(done.values()) < units:
        c = schedule.next(costs)
        assert c is not None
        schedule.charge(c, costs[c])
        done[c] += costs[c]
    return done


def test_shares_are_by_weight_and_not_by_the_cost_of_a_turn() -> None:
    done = run(StrideScheduler({"a": 3, "b": 1}), {"a": 10, "b": 1_000}, 100_000)
    assert abs(done["a"] - 75_000) <= 3_000 and abs(done["b"] - 25_000) <= 1_000


def test_without_work_no_class_is_chosen() -> None:
    assert StrideScheduler({"a": 1}).next(()) is None


def test_a_class_without_work_accumulates_no_claim() -> None:
    schedule = StrideScheduler({"a": 1, "b": 1})
    for _ in range(1_000):
        assert schedule.next(["a"]) == "a"
        schedule.charge("a", 10)
    done = run(schedule, {"a": 10, "b": 10}, 1_000)
    assert abs(done["a"] - done["b"]) <= 10


WEIGHTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 16), min_size=2)


@given(WEIGHTS, st.data())
def test_each_class_has_its_share_up_to_one_turn(weights: dict[str, int], data: st.DataObject) -> None:
    costs = {c: data.draw(st.integers(1, 500)) for c in weights}
    done, total = run(StrideScheduler(weights), costs, 50_000), sum(weights.values())
    slack = max(costs[c] / weights[c] for c in weights)
    for c, weight in weights.items():
        share = sum(done.values()) * weight / total
        assert abs(done[c] - share) <= weight * slack + costs[c], c


@given(WEIGHTS, st.lists(st.tuples(st.sets(st.sampled_from("abcdef")), st.integers(0, 1_000)), max_size=200))
def test_a_class_that_always_has_work_never_starves(weights: dict[str, int], turns: list[tuple[set[str], int]]) -> None:
    """Whatever work the other classes have, in turns of at most 1,000 units."""
    schedule = StrideScheduler(weights)
    steady, most = min(weights), 0
    waited = 0
    for others, cost in turns:
        chosen = schedule.next([c for c in weights if c == steady or c in others])
        assert chosen is not None
        schedule.charge(chosen, cost)
        waited = 0 if chosen == steady else waited + cost
        most = max(most, waited)
    assert most <= sum(weights.values()) * (1_000 / weights[steady] + 1_000) + len(turns)


# ------------------------------------------------------------------ turns
class Bench:
    """Classes with this many turns of work, each of which takes time on the bench's clock."""

    def __init__(self, **amounts: int):
        self.now, self.done = 0, list[str]()
        self.left = amounts
        self.turns = WorkTurns({c: WorkSource(lambda c=c: self.left.get(c.value, 0), lambda c=c: self.run_one(c))
                                for c in WorkClass},
                               lambda: self.now)

    def run_one(self, c: WorkClass) -> int:
        self.left[c.value] -= 1
        self.done.append(c.value)
        self.now += 3_000_000
        return 1_000

    def between(self) -> list[str]:
        before = len(self.done)
        self.turns.do_quantum()
        return self.done[before:]


def test_between_packets_one_turn_runs_besides_queries() -> None:
    bench = Bench(scans=5, builds=5, lookups=5)
    assert len(bench.between()) == 1


def test_a_busy_worker_spends_at_most_half_of_its_time_on_turns_except_queries() -> None:
    bench = Bench(scans=10)
    assert bench.between() == ["scans"] and bench.between() == []
    bench.left["queries"] = 1
    assert bench.between() == ["queries"], "a client waits for it, and it is short"
    bench.now += 3_000_000
    assert bench.between() == ["scans"]


def test_queries_end_with_a_quantum() -> None:
    bench = Bench(queries=100)
    assert len(bench.between()) == 5, "of a thousand units each"


def test_a_quiet_worker_works_for_its_budget() -> None:
    bench = Bench(scans=10, builds=10)
    bench.turns.quiet(12)
    assert len(bench.done) == 4 and set(bench.done) == {"scans", "builds"}
    bench.turns.quiet(10_000)
    assert len(bench.done) == 20 and not bench.turns
