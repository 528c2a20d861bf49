"""The data-flow graph of the model: operators, sharding, partial/full, and who depends on what.

A row is a tuple, a batch is a `Counter` row -> signed weight.  A node's `part` says where its rows live:
a tuple of output columns (hash of them), `()` (unsharded, worker 0) or `ANY` (spread, no column tells).
Stateful operators: base, exchange (the receiving end), distinct, agg, topk, view.  All others hold nothing.
"""
from collections import Counter, defaultdict

ANY = "any"
STATEFUL = {"base", "exchange", "distinct", "agg", "topk", "view"}


def shard_of(values, n):
    """The worker that owns `values`; () is worker 0.  Never uses hash(): runs must replay."""
    h = 0
    for v in values:
        h = h * 31 + (5 if v is None else v * 7 + 1)
    return h % n if values else 0


def add(batch, row, weight):
    """batch[row] += weight, keeping no zero entries."""
    w = batch.get(row, 0) + weight
    if w:
        batch[row] = w
    else:
        batch.pop(row, None)


def plus(*batches):
    out = Counter()
    for b in batches:
        for r, w in b.items():
            add(out, r, w)
    return out


def minus(a, b):
    out = Counter(a)
    for r, w in b.items():
        add(out, r, -w)
    return out


def pick(row, cols):
    return tuple(row[c] for c in cols)


class Untraceable(Exception):
    """A key that no index above can answer: the node must be full."""

    def __init__(self, node):
        self.node = node


class Node:
    def __init__(self, id, op, parents, width, part, **args):
        self.id, self.op, self.parents, self.width, self.part, self.args = id, op, parents, width, part, args
        self.full = op == "base"
        self.thin = False
        self.indexes = []

    stateful = property(lambda self: self.op in STATEFUL)

    def __repr__(self):
        a = ", ".join(f"{k}={v}" for k, v in self.args.items())
        kind = ("full" if self.full else "partial") if self.stateful else "stateless"
        return (f"n{self.id} {self.op}({a}) of {[p.id for p in self.parents]} width={self.width} part={self.part} "
                f"{kind}" + (f" indexes={self.indexes}" if self.indexes else "") + " thin" * self.thin)

    # -- rows -> rows of the stateless single-input operators
    def map_row(self, row):
        """The output row, or None (filtered out)."""
        if self.op == "filter":
            c, rel, v = self.args["pred"]
            x = row[c]
            ok = x is not None and {"<": x < v, ">=": x >= v, "=": x == v, "!=": x != v}[rel]
            return row if ok else None
        if self.op == "project":
            return tuple(row[v] if k == "col" else v if k == "const" else (None if row[v] is None else -row[v])
                         for k, v in self.args["exprs"])
        return row

    def map(self, batch):
        out = Counter()
        for r, w in batch.items():
            if (m := self.map_row(r)) is not None:
                add(out, m, w)
        return out

    def trace(self, cols):
        """Output columns -> the parent's columns they are copies of."""
        if self.op == "project":
            ex = [self.args["exprs"][c] for c in cols]
            if any(k != "col" for k, _ in ex):
                raise Untraceable(self)
            return tuple(v for _, v in ex)
        if self.op == "agg":
            if any(c >= len(self.args["group"]) for c in cols):
                raise Untraceable(self)
            return tuple(self.args["group"][c] for c in cols)
        if self.op == "topk" and not set(cols) <= set(self.args["group"]):
            raise Untraceable(self)
        return cols

    def pattern_out(self, pattern):
        """An eviction pattern on the input's columns -> on the output's.  Only what surely holds is kept:
        of a grouping operator, the group columns (a group changes as a whole)."""
        if self.op == "project":
            return {i: pattern[v] for i, (k, v) in enumerate(self.args["exprs"]) if k == "col" and v in pattern}
        if self.op == "agg":
            return {i: pattern[g] for i, g in enumerate(self.args["group"]) if g in pattern}
        if self.op == "topk":
            return {c: v for c, v in pattern.items() if c in self.args["group"]}
        return pattern

    # -- joins.  Output: the left columns, then the right columns that are not join columns.
    def right_out(self):
        """(right column, output column) pairs."""
        lw, rk, rest = self.parents[0].width, self.args["rk"], []
        for c in range(self.parents[1].width):
            rest.append((c, self.args["lk"][rk.index(c)] if c in rk else lw + len([x for x in range(c) if x not in rk])))
        return rest

    def combine(self, l, r):
        return l + tuple(v for c, v in enumerate(r) if c not in self.args["rk"])

    def join_rows(self, left, right):
        """left JOIN right (both already restricted as wanted)."""
        by, out = defaultdict(list), Counter()
        for r, w in right.items():
            by[pick(r, self.args["rk"])].append((r, w))
        for l, lw in left.items():
            jk = pick(l, self.args["lk"])
            hits = by.get(jk, []) if None not in jk else []
            for r, rw in hits:
                add(out, self.combine(l, r), lw * rw)
            if self.args["left"] and sum(w for _, w in hits) == 0 and lw:
                add(out, l + (None,) * (self.width - len(l)), lw)
        return out

    def join_side(self, cols):
        """How to pull `cols`: (primary side, its columns, positions in cols).  What the primary side does not
        cover is filtered from the result (a straddled key)."""
        lw, to_right = self.parents[0].width, {o: r for r, o in self.right_out()}
        pos = ([i for i, c in enumerate(cols) if c < lw], [i for i, c in enumerate(cols) if c in to_right])
        if self.args["left"]:
            side = 0
        else:  # a side that has the whole key before one that has a part of it
            side = max((0, 1), key=lambda s: (len(pos[s]) == len(cols), s == self.args["prefer"]))
        if not pos[side]:
            raise Untraceable(self)
        return side, tuple(to_right[cols[i]] if side else cols[i] for i in pos[side]), pos[side]

    def join_key(self, side):
        return self.args["lk"] if side == 0 else self.args["rk"]


class Graph:
    """`uses[(M, I)]`: who holds what it pulled through index I of node M: (D, J, path from M to D).
    `join_uses[join][side]`: the same for joins, by the side the pull comes from."""

    def __init__(self, workers, strict_lookups=False, thin=False):
        self.workers, self.strict, self.thin, self.nodes = workers, strict_lookups, thin, []

    def _new(self, op, parents, width, part, **args):
        self.nodes.append(Node(len(self.nodes), op, parents, width, part, **args))
        return self.nodes[-1]

    # -- building; every builder puts the exchanges it needs
    def base(self, width, pk):
        return self._new("base", [], width, tuple(pk), pk=tuple(pk))

    def exchange(self, p, part):
        if self.workers == 1 or p.part == part:
            return p
        for n in self.nodes:
            if n.op == "exchange" and n.parents[0] is p and n.part == part:
                return n
        return self._new("exchange", [p], p.width, part)

    def filter(self, p, pred):
        return self._new("filter", [p], p.width, p.part, pred=pred)

    def project(self, p, exprs):
        exprs = [("col", e) if isinstance(e, int) else e for e in exprs]
        at = {v: i for i, (k, v) in reversed(list(enumerate(exprs))) if k == "col"}
        known = p.part != ANY and all(c in at for c in p.part)
        return self._new("project", [p], len(exprs), tuple(at[c] for c in p.part) if known else ANY, exprs=exprs)

    def union(self, *ps):
        part = ps[0].part if all(p.part == ps[0].part for p in ps) else ANY
        return self._new("union", list(ps), ps[0].width, part)

    def distinct(self, p):
        if p.part == ANY:
            p = self.exchange(p, tuple(range(p.width)))
        return self._new("distinct", [p], p.width, p.part)

    def join(self, l, r, lk, rk, left=False, prefer=0, unsharded=False):
        lk, rk = tuple(lk), tuple(rk)
        l, r = self.exchange(l, () if unsharded else lk), self.exchange(r, () if unsharded else rk)
        return self._new("join", [l, r], l.width + r.width - len(rk), l.part if self.workers > 1 else (),
                         lk=lk, rk=rk, left=left, prefer=prefer)

    def _grouped(self, op, p, group, width, place, unsharded, **args):
        group = tuple(group)
        if unsharded:
            p = self.exchange(p, ())
        elif p.part in (ANY, ()) or not set(p.part) <= set(group):
            p = self.exchange(p, group)
        return self._new(op, [p], width, tuple(place(c) for c in p.part) if self.workers > 1 else (), group=group, **args)

    def agg(self, p, group, fn, col=0, unsharded=False):
        return self._grouped("agg", p, group, len(group) + 1, tuple(group).index, unsharded, fn=fn, col=col)

    def topk(self, p, group, order, k, unsharded=False):
        return self._grouped("topk", p, group, p.width, lambda c: c, unsharded, order=order, k=k)

    def view(self, p, key):
        p = self.exchange(p, tuple(key))
        return self._new("view", [p], p.width, tuple(key), key=tuple(key))

    # -- partial or full, index obligations, dependencies
    def finish(self):
        while True:
            self.uses, self.join_uses = defaultdict(list), defaultdict(lambda: ([], []))
            for n in self.nodes:
                n.indexes = []
            try:
                for v in self.nodes:
                    if v.op == "view":
                        self.want(v, v.args["key"])
                break
            except Untraceable as e:
                self.make_full(e.node)
        self.children, live = defaultdict(list), set()
        for n in reversed(self.nodes):  # what no view needs is not run
            if n.op == "view" or n.id in live:
                live |= {n.id, *(p.id for p in n.parents)}
        self.nodes_live = [n for n in self.nodes if n.id in live]
        for n in self.nodes_live:
            for i, p in enumerate(n.parents):
                self.children[p.id].append((n, i))
        for n in self.nodes_live:
            n.thin = self.thin and n.op == "exchange" and self.ends_in_state(n, n.full)
        return self

    def ends_in_state(self, n, full):
        """Below n, before any join, every path meets a state that never pulls again what it holds (and, below
        a full n, that is full itself: a partial one would have nothing to pull from)."""
        return all(((c.op in ("view", "distinct") or (c.op == "agg" and c.args["fn"] in ("count", "sum")))
                   and c.full >= full)
                   or (c.op in ("filter", "project", "union") and self.ends_in_state(c, full))
                   for c, _ in self.children[n.id])

    def make_full(self, n):
        n.full = n.stateful
        for p in n.parents:
            self.make_full(p)

    def want(self, n, cols):
        if cols in n.indexes or n.full:
            if cols not in n.indexes:
                n.indexes.append(cols)
            return
        n.indexes.append(cols)
        try:
            if not cols:
                raise Untraceable(n)
            self.need(n.parents[0], n.trace(cols), (n, cols), [])
        except Untraceable as e:
            raise Untraceable(n) from e

    def need(self, n, cols, user, path):
        """`user` pulls `cols` through n; path = the stateless nodes between, nearest the user first."""
        if n.stateful:
            self.want(n, cols)
            if user:
                self.uses[n.id, cols].append((user, path[::-1]))
        elif n.op == "join":
            side, pcols, _ = n.join_side(cols)
            self.join_uses[n.id][side].append((user, path[::-1]))
            self.need(n.parents[side], pcols, user, [*path, (n, side, side)])
            self.need(n.parents[1 - side], n.join_key(1 - side), user, [*path, (n, 1 - side, side)])
            if self.strict and not n.args["left"]:  # the reading of the design that fills lookups both ways
                self.need(n.parents[side], n.join_key(side), None, [])
        else:
            for p in n.parents:
                self.need(p, n.trace(cols), user, [*path, (n, 0, None)])

    def shards(self, p, cols, key):
        """Who holds rows of p with that key: one worker (narrow) or all (broad)."""
        if p.part != ANY and set(p.part) <= set(cols):
            return [shard_of(tuple(key[cols.index(c)] for c in p.part), self.workers)]
        return list(range(self.workers))

    # -- the oracle: everything from the base tables
    def recompute(self, bases):
        val = {}
        for n in self.nodes:
            ins = [val[p.id] for p in n.parents]
            if n.op == "base":
                out = Counter(bases[n.id])
            elif n.op == "union":
                out = plus(*ins)
            elif n.op == "join":
                out = n.join_rows(*ins)
            elif n.op == "distinct":
                out = Counter(dict.fromkeys(ins[0], 1))
            elif n.op in ("agg", "topk"):
                groups, out = defaultdict(Counter), Counter()
                for r, w in ins[0].items():
                    groups[pick(r, n.args["group"])][r] = w
                for g, rows in groups.items():
                    out.update(group_rows(n, g, group_from(n, rows)))
            else:
                out = n.map(ins[0])
            val[n.id] = out
        return val


# -- grouped operators: the kept state of one group is (row count, kept); kept is a value or the top rows
def order_key(n, row):
    return (row[n.args["order"]] is None, -(row[n.args["order"]] or 0), tuple((v is None, v or 0) for v in row))


def top(n, rows):
    out, left = Counter(), n.args["k"]
    for r in sorted(rows, key=lambda r: order_key(n, r)):
        if left <= 0:
            break
        out[r] = min(rows[r], left)
        left -= out[r]
    return out


def group_from(n, rows):
    """The state of a group from all its rows."""
    count = sum(rows.values())
    if not rows:
        return 0, Counter() if n.op == "topk" else 0
    if n.op == "topk":
        return count, top(n, rows)
    vals, fn = [(r[n.args["col"]] or 0) for r in rows], n.args["fn"]
    if fn == "sum":
        return count, sum((r[n.args["col"]] or 0) * w for r, w in rows.items())
    return count, {"count": lambda _: count, "min": min, "max": max}[fn](vals)


def group_rows(n, g, state):
    if not state or not state[0]:
        return Counter()
    return Counter(state[1]) if n.op == "topk" else Counter({(*g, state[1]): 1})
