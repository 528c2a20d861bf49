"""Orders joins so that chains begin alike, and a join that is the prefix of a larger one is the same node.

    project … (join (stories, users))                       →   project … (join (stories, users))                    ┐
    project … (join (join (stories, taggings), users))      →   project … (join (join (stories, users), taggings))   ┴
        over one join of stories and users

A chain is a relation and a sequence of inner and left joins over it.  Chains that can begin with the same join do so,
then with the same second join, and so on.  Each step chooses the join that most chains can take next.  This saves the
join's work at each write, and state: rows that are kept at an exchange among workers, and kept copies.  A join that
looks rows up by the right side of a left join needs such a copy of the join so far.  Chains that can have such a join
next do, to share the copy.

The rule, so that no read becomes slower: a join may precede an earlier one only if it finds at most one row.  The
earlier one must drop no row (a left join, or one with a complete table) and need no copy, which would be larger.
Either side of the first inner join may be the left one.  No projection is added to restore the order of columns: the
nodes above must accept any order.  A chain in which a column may hold an error is not changed, nor is one of a view in
use.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from noria.core.expressions.expr import columns_of
from noria.plan.keys import unique_keys
from noria.plan.mir import Join, Mir
from noria.plan.reuse.joins.chains import Chain, chain, chains_in
from noria.plan.reuse.joins.join_order import text
from noria.plan.reuse.joins.node_replacement import NodeReplacement, at_places
from noria.plan.reuse.memo import memoized


# ---------------------------------------------------------------- one order
@dataclass(frozen=True)
class PartialChain:
    """A partly joined chain.  `plan`: the joins so far.  `place`: the positions of the chain's columns in it.  `rest`:
    the relations not joined yet.  `free`: whether these may be joined in another than the written order."""

    chain: Chain
    free: bool
    plan: Mir
    place: Mapping[int, int]
    rest: tuple[int, ...]

    @property
    def written(self) -> Join | None:
        """The next join in the written order, if the plan so far is as written; else None."""
        at = len(self.chain.relations) - len(self.rest)
        if not self.rest or self.rest != tuple(range(at, len(self.chain.relations))):
            return None
        join = self.chain.joins[at - 1]
        return join if join.left == self.plan else None

    @cached_property
    def keeping(self) -> tuple[tuple[int, Join], ...]:
        """The possible next joins that need a copy of the rows joined so far."""
        return tuple((i, j) for i, j in self.nexts if self.chain.keeps[i])

    def is_next(self, i: int) -> bool:
        """Whether the relation is the next one in the written order."""
        return self.rest[0] == i and self.written is not None

    def to_the_end(self) -> PartialChain:
        """Join the remaining relations in the written order, as far as possible."""
        if not self.rest:
            return self
        if (join := self.written) is not None:
            return self.with_join(self.rest[0], join).to_the_end()
        i, possible = next((i, j) for i in self.rest if (j := self._join(i)) is not None)
        return self.with_join(i, possible).to_the_end()

    def with_join(self, i: int, join: Join) -> PartialChain:
        start, width = self.chain.starts[i], self.plan.width
        place = {**self.place, **{start + c: width + c for c in range(self.chain.relations[i].width)}}
        return PartialChain(self.chain, self.free, join, place, tuple(r for r in self.rest if r != i))

    @cached_property
    def nexts(self) -> tuple[tuple[int, Join], ...]:
        """The relations that can be joined next, each with its join."""
        joins = ((i, self._join(i)) for i in (self.rest if self.free else self.rest[:1]))
        return tuple((i, j) for i, j in joins if j is not None and self._may(i, j))

    def _join(self, i: int) -> Join | None:
        c, right = self.chain, self.chain.relations[i]
        if c.is_plain(i):
            pairs = self._pairs(range(c.starts[i], c.starts[i] + right.width))
            return Join(self.plan, right, tuple(pairs)) if pairs else None
        join = c.joins[i - 1]
        looked = {a for a, _ in join.on} | {a for a in _columns(join) if a < c.starts[i]}
        if not looked <= self.place.keys():
            return None
        ordered = sorted((self.place[a], b, n in join.null_safe) for n, (a, b) in enumerate(join.on))
        there = {**self.place, **{c.starts[i] + b: self.plan.width + b for b in range(right.width)}}
        residual = join.residual and at_places(join.residual, there)
        return Join(self.plan, right, tuple((a, b) for a, b, _ in ordered), join.outer,
                    tuple(n for n, (_, _, safe) in enumerate(ordered) if safe), residual)

    def _pairs(self, mine: range) -> list[tuple[int, int]]:
        """The pairs of the join with a relation: one for each class of equal columns, and one for each further column
        that the join must make equal."""
        pairs: list[tuple[int, int]] = []
        for same in self.chain.same:
            own = sorted(x - mine.start for x in same if x in mine)
            there = sorted(self.place[x] for x in same if x in self.place)
            if own and there:
                pairs += [(there[0], b) for b in own]
                pairs += [(a, own[0]) for a in there[1:] if not self._are_equal(there[0], a)]
        return sorted(pairs)

    def _are_equal(self, a: int, b: int) -> bool:
        """Whether the joins so far make two columns equal."""
        reached, more = {a}, {a}
        pairs = list(_equal(self.plan))
        while more:
            more = {y for p in pairs for x, y in (p, p[::-1]) if x in reached} - reached
            reached |= more
        return b in reached

    def _may(self, i: int, join: Join) -> bool:
        """Whether the rule (see the module) allows this join next."""
        over = [u for u in self.rest if u < i]
        if not over or (i == 1 and over == [0] and self.chain.is_plain(1)):
            return True
        if any(self.chain.leaves_out(u) or self.chain.keeps[u] for u in over):
            return False
        by = {b for _, b in join.on}
        return any(key <= by for key in unique_keys(join.right))


def _columns(join: Join) -> Iterable[int]:
    return columns_of(join.residual) if join.residual else ()


def _equal(plan: Mir) -> Iterator[tuple[int, int]]:
    while isinstance(plan, Join):
        if not plan.outer and not plan.null_safe:
            yield from ((a, plan.left.width + b) for a, b in plan.on)
        plan = plan.left


@memoized
def _begun(plan: Join, free: bool) -> tuple[PartialChain, ...]:
    """The walks that begin a chain: with its first relation, or with the other side of its first inner join."""
    c = chain(plan)
    seeds = [0, 1] if free and c.is_plain(1) else [0]
    return tuple(PartialChain(c, free, c.relations[i], {c.starts[i] + x: x for x in range(c.relations[i].width)},
                              tuple(r for r in range(len(c.relations)) if r != i)) for i in seeds)


# ---------------------------------------------------------------- of many chains
Step = tuple[int, PartialChain]
"""Which relation comes next, and where."""


def in_like_order(chains: Mapping[Join, bool]) -> dict[Join, PartialChain]:
    """Order the chains (the value: whether it is free).  Returns the chains whose order changes, with their walks."""
    walks = _grown({c: _begun(c, free) for c, free in chains.items()})
    return {c: w for c, w in walks.items() if w.plan != c}


def _grown(walks: Mapping[Join, Sequence[PartialChain]]) -> dict[Join, PartialChain]:
    """Complete the walks, sharing joins where possible."""
    done: dict[Join, PartialChain] = {}
    keeping = Counter(w.plan for some in walks.values() for w in some if w.keeping)
    found = defaultdict[Join, dict[Join, Step]](dict)  # the next join -> the chains that can take it
    for c, some in walks.items():
        for walk in some:
            for i, join in walk.keeping if keeping[walk.plan] > 1 and walk.keeping else walk.nexts:
                found[join].setdefault(c, (i, walk))
    options = dict(found)
    while options := {j: at for j, at in options.items() if len(at) > 1}:
        best = _most_taken(options)
        taken = _together(best, options.pop(best))
        done.update(_grown({c: [w] for c, w in taken.items()}))
        options = {j: {c: step for c, step in at.items() if c not in taken} for j, at in options.items()}
    for c, (walk, *_) in walks.items():
        if c not in done:
            if keeping[walk.plan] > 1 and walk.keeping and not walk.is_next(walk.keeping[0][0]):
                walk = walk.with_join(*walk.keeping[0])
            done[c] = walk.to_the_end()
    return done


def _most_taken(options: Mapping[Join, Mapping[Join, Step]]) -> Join:
    """The join that most chains can take; among equals, the one that most have in the written order, then the least."""
    most = max(map(len, options.values()))
    written = {j: sum(w.is_next(i) for i, w in at.values()) for j, at in options.items() if len(at) == most}
    return min((j for j, n in written.items() if n == max(written.values())), key=text)


def _together(join: Join, takers: Mapping[Join, Step]) -> dict[Join, PartialChain]:
    """The walks of the chains that take the join, in the form in which one of them has it written.  A chain that is not
    free decides the form, if there is one.  Empty for fewer than two."""
    written = {c: w.written for c, (i, w) in takers.items() if w.is_next(i)}
    fixed = [j for c, j in written.items() if j is not None and not takers[c][1].free]
    one = min(fixed or (j for j in written.values() if j is not None), key=text, default=join)
    taken = {c: w.with_join(i, one) for c, (i, w) in takers.items() if w.free or written.get(c) == one}
    return taken if len(taken) > 1 else {}


# ---------------------------------------------------------------- in plans
@memoized
def beginnings(plan: Mir) -> frozenset[Mir]:
    """The joins with which the plan's chains can begin.  Plans without a common one share no prefix."""
    return frozenset(join for c in chains_in(plan) for w in _begun(c, True) for _, join in w.nexts)


def prefixes(plans: Mapping[str, Mir], standing: Iterable[Mir], stay: Collection[str] = ()
             ) -> tuple[dict[str, Mir], dict[Mir, Mir]]:
    """Rewrite the plans so that their chains begin alike.  Returns them, and their replaced nodes with the new ones.

    `standing`: plans that do not change; nor do the plans with the names `stay`.
    """
    made: dict[str, Mir] = {name: p for name, p in plans.items() if name not in stay}
    near = frozenset[Mir]().union(*map(beginnings, made.values()))
    fixed = [p for p in (*standing, *(plans[name] for name in stay)) if not near.isdisjoint(beginnings(p))]
    instead: dict[Mir, Mir] = {}
    level = 1
    while any(f.level >= level for p in made.values() for f in chains_in(p).values()):
        chains = {c: f.free for p in made.values() for c, f in chains_in(p).items() if f.level == level}
        for p in made.values():
            chains.update((c, False) for c, f in chains_in(p).items() if c in chains and not f.free)
        for p in fixed:
            chains.update((c, False) for c in chains_in(p))
        new = in_like_order(chains)
        if new:
            rewriting = NodeReplacement({c: (w.plan, w.place) for c, w in new.items()})
            made = {name: rewriting.of(p) for name, p in made.items()}
            instead = {m: rewriting.of(p) for m, p in instead.items()} | rewriting.instead()
        level += 1
    return {**plans, **made}, instead
