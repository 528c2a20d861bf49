"""One worker of the model: its shard of every node, ticks, pulls, gathering, eviction, parking.

`rules` names what is switched off, so that every rule can be shown to be needed (tester.py --ablate).
Messages, all in the one FIFO channel of a pair of workers:
    ("update", X, rows)  ("request", X, J, key)  ("answer", X, J, key, rows)  ("evict", X, J, patterns)
    ("lost", incarnation): the first in the channel of a worker that was started again (R19)
where X is the exchange node at the receiving end and J one of its indexes.
"""
from collections import Counter, defaultdict

from graph import add, group_from, group_rows, minus, order_key, pick, plus, shard_of, top


class Miss(Exception):
    """A read cannot be answered yet; `tokens` say what it waits for."""

    def __init__(self, tokens):
        self.tokens = set(tokens)


class Violation(Exception):
    """A broken invariant."""


class State:
    """What one worker keeps of one stateful node.  A unit is a row and its weight, or a group and its state.

    * a unit is stored exactly when it is covered: some index has its key present, or the node is full
    * an index finds every stored unit, also those whose key is missing in it
    """

    def __init__(self, node):
        self.node, self.units = node, {}
        self.present = {} if node.full else {cols: set() for cols in node.indexes}
        self.dirty = {}  # min, max, top-k groups whose refill is parked: group -> tokens

    def unit_of(self, row):
        n = self.node
        return row[:len(n.args["group"])] if n.op == "agg" else pick(row, n.args["group"]) if n.op == "topk" else row

    def key_of(self, unit, cols):
        n = self.node
        return tuple(unit[n.args["group"].index(c)] for c in cols) if n.op == "topk" else pick(unit, cols)

    def covered(self, unit):
        return self.node.full or any(self.key_of(unit, cols) in keys for cols, keys in self.present.items())

    def unit_rows(self, unit):
        n = self.node
        if n.op in ("agg", "topk"):
            return group_rows(n, unit, self.units.get(unit))
        w = self.units.get(unit, 0)
        return Counter({unit: (1 if n.op == "distinct" else w)} if w else {})

    def rows(self, pattern=()):
        """Stored output rows that agree with the pattern."""
        pattern, out = dict(pattern), Counter()
        for u in self.units:
            for r, w in self.unit_rows(u).items():
                if all(r[c] == v for c, v in pattern.items()):
                    out[r] = w
        return out

    def drop(self, cols, keys):
        self.present[cols] -= keys
        for u in [u for u in self.units if self.key_of(u, cols) in keys and not self.covered(u)]:
            del self.units[u]
            self.dirty.pop(u, None)
        for u in [u for u in self.dirty if not self.covered(u)]:
            del self.dirty[u]


class Worker:
    def __init__(self, w, graph, send, off=frozenset(), on_remote_miss="park", log=lambda *a: None):
        self.w, self.g, self.send, self.off, self.mode, self.log = w, graph, send, off, on_remote_miss, log
        self.state = {n.id: State(n) for n in graph.nodes if n.stateful}
        self.gathers = {}                 # (X, J, key) -> {shard: piece}, None while it has not answered
        self.parked = []                  # (tokens, function, asker or None): requests and reads, in order of arrival
        self.pending = defaultdict(dict)  # join -> {join key: [dL, dR, tokens]}: parked updates
        self.again = []                   # requests to this worker itself that must wait for the walk's end

    # ------------------------------------------------------------------ ticks
    def tick(self, inputs):
        """inputs: {node id: [(sender, rows)]} for base tables and exchanges.  One topological walk."""
        deltas = defaultdict(lambda: defaultdict(Counter))
        arrived = defaultdict(list, {k: list(v) for k, v in inputs.items()})
        for n in self.g.nodes_live:
            if n.op == "base":
                out = self.tick_base(n, arrived[n.id])
            elif n.op == "exchange":
                out = self.tick_exchange(n, arrived[n.id])
            elif n.op == "join":
                out = self.tick_join(n, deltas[n.id][0], deltas[n.id][1])
            elif n.op == "union":
                out = plus(*deltas[n.id].values())
            elif n.stateful:
                out = self.tick_state(n, deltas[n.id][0])
            else:
                out = n.map(deltas[n.id][0])
            if not out:
                continue
            if "serve-between" in self.off:
                while self.rerun():
                    pass
            self.log(f"w{self.w} tick n{n.id} {n.op} emits {dict(out)}")
            for c, i in self.g.children[n.id]:
                if c.op != "exchange":
                    deltas[c.id][i] = plus(deltas[c.id][i], out)
                    continue
                split = defaultdict(Counter)
                for r, wt in out.items():
                    split[shard_of(pick(r, c.part), self.g.workers)][r] = wt
                for d, rows in split.items():
                    if d == self.w:
                        arrived[c.id].append((d, rows))
                    else:
                        self.send(d, ("update", c.id, rows))

    def tick_base(self, n, arrived):
        units = self.state[n.id].units
        out = plus(*(rows for _, rows in arrived))
        for r, wt in out.items():
            add(units, r, wt)
            self.check(units.get(r, 0) >= 0, f"negative {r} in base n{n.id}")
        return out

    def tick_exchange(self, n, arrived):
        """Keep what is covered; what is being gathered goes to the piece of a shard that has answered."""
        st, out = self.state[n.id], Counter()
        for sender, rows in arrived:
            for r, wt in rows.items():
                for (x, cols, key), pieces in self.gathers.items():
                    if x == n.id and sender in pieces and pick(r, cols) == key:
                        if pieces[sender] is not None and "gather-add" not in self.off:
                            add(pieces[sender], r, wt)
                        elif pieces[sender] is None and "gather-drop" in self.off:
                            add(pieces.setdefault("early", Counter()), r, wt)
                if self.survives(st, r) and not (n.thin and n.full):
                    add(st.units, r, wt)
                if n.thin or self.survives(st, r):
                    add(out, r, wt)
        for r in out:
            self.check(st.units.get(r, 0) >= 0, f"negative {r} in exchange n{n.id}")
        return out

    def survives(self, st, unit):
        if "any-index" in self.off and not st.node.full:
            return all(st.key_of(unit, cols) in keys for cols, keys in st.present.items())
        return st.covered(unit)

    def tick_state(self, n, delta):
        """view, distinct, agg, topk: drop at missing keys, emit new rows minus old rows."""
        st, out, by = self.state[n.id], Counter(), defaultdict(Counter)
        for r, wt in delta.items():
            by[pick(r, n.args["group"]) if n.op in ("agg", "topk") else r][r] = wt
        for u in set(st.dirty) - set(by):
            if not any(map(self.blocked, st.dirty[u])):
                by[u] = Counter()
        for u, rows in by.items():
            if not self.survives(st, u):
                continue
            old = st.unit_rows(u)
            if n.op in ("agg", "topk"):
                new = self.tick_group(n, st, u, rows)
                if new is None:
                    continue
                st.units[u] = new
                if not new[0]:
                    del st.units[u]
            else:
                add(st.units, u, rows[u])
                self.check(st.units.get(u, 0) >= 0, f"negative {u} in {n}")
            out = plus(out, minus(st.unit_rows(u), old))
        return out

    def tick_group(self, n, st, g, rows):
        """The group's new state; None when its refill is parked (it keeps emitting nothing until then)."""
        count, kept = st.units.get(g, (0, Counter() if n.op == "topk" else 0))
        if g not in st.dirty:
            total, fn = count + sum(rows.values()), n.args.get("fn")
            self.check(total >= 0, f"negative group {g} in {n}")
            if fn == "count":
                return total, total
            if fn == "sum":
                return total, kept + sum((r[n.args["col"]] or 0) * w for r, w in rows.items())
            if n.op == "topk":
                known = plus(kept, {r: w for r, w in rows.items() if w > 0 or r in kept})
                last = max((order_key(n, r) for r in kept), default=None)
                new = top(n, known)
                # rows never kept rank after `last`: exact while nothing after it entered, or all rows are known
                removed = any(w < 0 and r in kept for r, w in rows.items())
                exact = sum(kept.values()) == count or not removed or (
                    all(order_key(n, r) <= last for r in new) and sum(new.values()) == n.args["k"])
                if "boundary" in self.off:
                    exact = sum(new.values()) == min(n.args["k"], total)
                if exact and min(known.values(), default=0) >= 0 and sum(kept.values()) <= count:
                    return total, new
            else:
                vals = [((r[n.args["col"]] or 0), w) for r, w in rows.items()]
                better = min if fn == "min" else max
                ins = [v for v, w in vals if w > 0]
                if not count and all(w > 0 for _, w in vals):
                    return total, better(ins)
                if not total:
                    return 0, 0
                if not any(w < 0 and v == kept for v, w in vals):
                    return total, better([*ins, kept])
                if (ins and better([*ins, kept]) in ins) or ("boundary" in self.off and ins):
                    return total, better(ins)
        try:
            return self.refill_group(n, st, g)
        except Miss as m:
            self.check(self.mode != "evict", f"refill of {g} in {n} missed")
            self.log(f"w{self.w} n{n.id} group {g} refill parked on {m.tokens}")
            st.dirty[g] = m.tokens
            return None

    def refill_group(self, n, st, g):
        """Pull by an index that holds the group: what it derives from is then present here."""
        p = n.parents[0]
        if n.full:
            rows = self.stored(p, dict(zip(n.args["group"], g, strict=False)))
        else:
            cols = next(cols for cols, keys in st.present.items() if st.key_of(g, cols) in keys)
            rows = self.pull(p, n.trace(cols), st.key_of(g, cols))
        st.dirty.pop(g, None)
        return group_from(n, {r: w for r, w in rows.items() if pick(r, n.args["group"]) == g})

    # ------------------------------------------------------------------ joins
    def tick_join(self, n, dl, dr):
        """dL x R' + L' x dR - dL x dR, per join key; with what is parked for that key."""
        by = defaultdict(lambda: [Counter(), Counter()])
        for side, d in ((0, dl), (1, dr)):
            for r, wt in d.items():
                if None not in (jk := pick(r, n.join_key(side))) or (side == 0 and n.args["left"]):
                    by[jk][side][r] = wt
        parked, out = self.pending[n.id], Counter()
        work = []
        for jk in list(parked):
            if "merge-parked" in self.off:
                if not any(map(self.blocked, parked[jk][2])):
                    work.append((jk, *parked.pop(jk)[:2]))
            elif jk in by or not any(map(self.blocked, parked[jk][2])):
                l, r, _ = parked.pop(jk)
                by[jk] = [plus(l, by[jk][0]), plus(r, by[jk][1])]
        for jk, l, r in work + [(jk, *lr) for jk, lr in by.items()]:
            if not l and not r:
                continue
            try:
                out = plus(out, self.join_delta(n, jk, l, r))
            except Miss as m:
                self.log(f"w{self.w} n{n.id} parks {dict(l)} | {dict(r)} on {m.tokens}")
                if jk in parked:
                    l, r, m.tokens = plus(l, parked[jk][0]), plus(r, parked[jk][1]), m.tokens | parked[jk][2]
                parked[jk] = [l, r, m.tokens]
        return out

    def lookup(self, n, side, jk, needy):
        """The rows of `side` with that join key, after the tick; `needy` are the other side's delta rows.

        Only what is pulled from the other side needs the key to be complete here; for what is pulled from
        this side the stored rows are all that matters.
        """
        node, key = n.parents[side], n.join_key(side)
        if None in jk:
            return Counter()
        if self.g.join_uses[n.id][1 - side] or (self.g.strict and not node_full(node)):
            try:
                return self.pull(node, key, jk)
            except Miss as m:
                if self.mode != "evict":
                    raise
                self.log(f"w{self.w} n{n.id} lookup {jk} would be remote: evict below {dict(needy)}")
                for user, path in filter(lambda use: use[0], self.g.join_uses[n.id][1 - side]):
                    pats = [p for r in needy for p in self.propagate(dict(enumerate(r)), [(n, 1 - side, 1 - side), *path])]
                    self.evict_user(user, pats)
                if n.args["left"]:
                    raise Skip from m
        return self.stored(node, dict(zip(key, jk, strict=False)))

    def join_delta(self, n, jk, l, r):
        left, _right = n.parents
        if not n.args["left"]:
            rn = self.lookup(n, 1, jk, l) if l else Counter()
            ln = self.lookup(n, 0, jk, r) if r else Counter()
            return minus(plus(n.join_rows(l, rn), n.join_rows(ln, r)), n.join_rows(l, r))
        ln = self.stored(left, dict(zip(n.args["lk"], jk, strict=False)))
        if not l and not ln:
            return Counter()
        try:
            rn = self.lookup(n, 1, jk, l)
        except Skip:
            return Counter()
        return minus(n.join_rows(ln, rn), n.join_rows(minus(ln, l), minus(rn, r)))

    # ------------------------------------------------------------------ reading
    def stored(self, n, pattern, superset=False):
        """The stored rows of n that agree with the pattern, whether or not their keys are present.

        superset (for evictions): also rows that parked updates are about to take away or bring.
        """
        if n.stateful:
            return self.state[n.id].rows(pattern)
        if n.op == "join":
            if not superset and self.waits(n, pattern):
                raise Miss({("join", n.id)})
            sides = []
            for side in (0, 1):
                lw = n.parents[0].width
                pat = ({c: v for c, v in pattern.items() if c < lw} if side == 0 else
                       {} if n.args["left"] else {r: pattern[o] for r, o in n.right_out() if o in pattern})
                rows = self.stored(n.parents[side], pat, superset)
                if superset and "evict-sees-parked" not in self.off:
                    rows = plus(dict.fromkeys(rows, 1), *(dict.fromkeys(e[side], 1) for e in self.pending[n.id].values()))
                sides.append(rows)
            out = n.join_rows(*sides)
        else:
            out = plus(*(n.map(self.stored(p, self.pattern_in(n, pattern), superset)) for p in n.parents))
        return Counter({r: w for r, w in out.items() if all(r[c] == v for c, v in pattern.items())})

    def pattern_in(self, n, pattern):
        if n.op == "project":
            ex = n.args["exprs"]
            return {ex[c][1]: v for c, v in pattern.items() if ex[c][0] == "col"}
        return pattern

    def waits(self, n, pattern):
        """Must a read through this join wait for parked updates?  Yes if any is parked; with the finer rule
        of variant "match", if a parked row agrees with the pattern on its own side's columns."""
        if {"read-waits", "read-waits-all"} & self.off or self.mode != "match":
            return bool(self.pending[n.id]) and not {"read-waits", "read-waits-all"} & self.off
        pats = (pattern, {r: pattern[o] for r, o in n.right_out() if o in pattern and not n.args["left"]})
        return any(all(row[c] == v for c, v in pats[side].items() if c < len(row))
                   for e in self.pending[n.id].values() for side in (0, 1) for row in e[side])

    def pull(self, n, cols, key):
        """The rows of n with that key, filling every state passed; Miss after asking for all that lacks."""
        if n.stateful:
            return self.pull_state(n, cols, key)
        if n.op == "join":
            if self.waits(n, dict(zip(cols, key, strict=False))):
                raise Miss({("join", n.id)})
            side, pcols, pos = n.join_side(cols)
            sides, tokens = [None, None], set()
            sides[side] = self.pull(n.parents[side], pcols, tuple(key[i] for i in pos))
            other = []
            for jk in sorted({pick(r, n.join_key(side)) for r in sides[side]}, key=str):
                if jk in self.pending[n.id] and "read-waits" not in self.off:
                    tokens.add(("join", n.id))
                if None not in jk:
                    try:
                        other.append(self.pull(n.parents[1 - side], n.join_key(1 - side), jk))
                    except Miss as m:
                        tokens |= m.tokens
            if tokens:
                raise Miss(tokens)
            sides[1 - side] = plus(*other)
            out = n.join_rows(*sides)
        else:
            parts, tokens = [], set()
            for p in n.parents:
                try:
                    parts.append(n.map(self.pull(p, n.trace(cols), key)))
                except Miss as m:
                    tokens |= m.tokens
            if tokens:
                raise Miss(tokens)
            out = plus(*parts)
        return Counter({r: w for r, w in out.items() if pick(r, cols) == key})

    def pull_state(self, n, cols, key):
        st = self.state[n.id]
        if not n.full and key not in st.present[cols]:
            if n.op == "exchange":
                self.gather(n, cols, key)
            else:
                self.fill(n, cols, key, self.pull(n.parents[0], n.trace(cols), key))
            if key not in st.present[cols]:
                raise Miss({("gather", n.id, cols, key)})
        return st.rows(zip(cols, key, strict=False))

    def fill(self, n, cols, key, rows):
        """Make the key present.  What another index holds is there already and must agree."""
        st, units = self.state[n.id], defaultdict(Counter)
        for r, wt in rows.items():
            units[pick(r, n.args["group"]) if n.op in ("agg", "topk") else r][r] = wt
            self.check(wt > 0, f"pulled a negative row {r} for {n}")
        for u, part in units.items():
            new = group_from(n, part) if n.op in ("agg", "topk") else part[u]
            if st.covered(u):
                if "fill-once" in self.off and n.op in ("exchange", "view"):
                    add(st.units, u, new)
                    continue
                self.check(u in st.dirty or st.units.get(u) == new,
                           f"fill of {cols}={key} in {n} disagrees on {u}: stored {st.units.get(u)}, pulled {new}")
            else:
                st.units[u] = new
        st.present[cols].add(key)
        self.log(f"w{self.w} fills n{n.id}{cols}={key} with {dict(rows)}")

    # ------------------------------------------------------------------ gathering
    def gather(self, n, cols, key):
        """Ask the shards above for the key, once; this worker's own piece is taken at once."""
        at = (n.id, cols, key)
        if at in self.gathers:
            return
        shards = self.g.shards(n.parents[0], n.trace(cols), key)
        self.gathers[at] = dict.fromkeys(shards)
        self.log(f"w{self.w} misses n{n.id}{cols}={key}, asks {shards}")
        for s in shards:
            self.ask(s, at)

    def ask(self, s, at):
        if s == self.w:
            self.serve(self.w, at)
        else:
            self.send(s, ("request", *at))

    def serve(self, asker, at):
        """Answer a request, or park it and run it again from the start."""
        x, cols, key = at
        n = self.g.nodes[x]
        try:
            rows = self.pull(n.parents[0], cols, key)
        except Miss as m:
            self.parked.append((m.tokens, lambda: self.serve(asker, at), asker))
            return
        rows = Counter({r: w for r, w in rows.items() if shard_of(pick(r, n.part), self.g.workers) == asker})
        if asker == self.w:
            self.answer(self.w, at, rows)
        else:
            self.send(asker, ("answer", *at, rows))

    def answer(self, sender, at, rows):
        pieces = self.gathers.get(at)
        self.check(pieces is not None and pieces.get(sender, 0) is None, f"unasked answer from w{sender} for {at}")
        pieces[sender] = Counter(rows)
        if all(p is not None for p in pieces.values()) or "union-whole" in self.off:
            del self.gathers[at]
            self.fill(self.g.nodes[at[0]], at[1], at[2], plus(*(p for p in pieces.values() if p is not None)))

    # ------------------------------------------------------------------ eviction
    def evict(self, n, cols, keys):
        """Evict keys of one index, and whatever was pulled through them."""
        st = self.state[n.id]
        keys = set(keys) & st.present[cols]
        if not keys:
            return
        jobs = []  # found before anything is dropped
        for user, path in self.g.uses[n.id, cols]:
            pats = []
            for key in keys:
                if "evict-empty" in self.off and not st.rows(zip(cols, key, strict=False)):
                    continue
                pats += self.propagate(dict(zip(cols, key, strict=False)), path)
            jobs.append((user, pats))
        self.log(f"w{self.w} evicts n{n.id}{cols} {keys}")
        st.drop(cols, keys)
        if n.thin:  # nothing is dropped here, so nothing below goes stale
            return
        for user, pats in jobs:
            self.evict_user(user, pats)

    def propagate(self, pattern, path):
        """What a change of rows that agree with `pattern` can change at the end of the path: patterns."""
        pats = [pattern]
        for n, i, primary in path:
            new = []
            for pat in pats:
                if n.op != "join":
                    new.append(n.pattern_out(pat))
                    continue
                out = {o: pat[r] for r, o in n.right_out() if r in pat} if i else dict(pat.items())
                if i == primary:
                    new.append(out)
                    continue
                # from the looked-up side: what depends on it came with stored rows of the other side
                other = n.parents[primary]
                jk = {c: pat[k] for c, k in zip(n.join_key(primary), n.join_key(i), strict=False) if k in pat}
                rows = list(self.stored(other, jk, superset=True))
                if "evict-sees-parked" not in self.off:
                    rows += [r for e in self.pending[n.id].values() for r in e[primary]
                             if all(r[c] == v for c, v in jk.items())]
                for r in set(rows):
                    known = dict(enumerate(r)) if primary == 0 else {o: r[c] for c, o in n.right_out()}
                    new.append({**({} if n.args["left"] and "left-pattern" not in self.off else out), **known})
            pats = new
        return pats

    def evict_user(self, user, pats):
        n, cols = user
        pats = [n.pattern_out(p) for p in pats]
        if not pats or n.full:
            return None
        if n.op != "exchange":
            return self.evict_matching(n, cols, pats)
        if "cascade-exchange" in self.off:
            return None
        for d in range(self.g.workers):
            mine = [p for p in pats if any(c not in p for c in n.part)
                    or shard_of(tuple(p[c] for c in n.part), self.g.workers) == d]
            if mine and d == self.w:
                self.evicted(self.w, n, cols, mine)
            elif mine:
                self.send(d, ("evict", n.id, cols, mine))
        return None

    def evict_matching(self, n, cols, pats):
        self.evict(n, cols, {k for k in self.state[n.id].present[cols] if matches(pats, cols, k)})

    def evicted(self, sender, n, cols, pats):
        """An eviction that reached the receiving end: it also voids the piece its sender has given."""
        for at, pieces in list(self.gathers.items()):
            if at[:2] == (n.id, cols) and pieces.get(sender) is not None and matches(pats, cols, at[2]):
                if "evict-voids" in self.off:
                    continue
                pieces[sender] = None
                self.log(f"w{self.w} voids the piece of w{sender} for {at}")
                if sender != self.w:
                    self.ask(sender, at)
                else:
                    self.again.append(at)
        self.evict_matching(n, cols, pats)
        if n.thin:
            for user, path in self.g.uses[n.id, cols]:
                self.evict_user(user, [q for p in pats for q in self.propagate(p, path)])

    # ------------------------------------------------------------------ another worker was lost
    def lost(self, w):
        """w starts again with its base tables and nothing else; what it had sent last may never have come (R19).

        Everything that can hold rows of w's shards is evicted, as if w had evicted it; what was asked of it is asked
        again; what it asked is forgotten.
        """
        self.log(f"w{self.w} learns that w{w} was lost")
        if "loss-forgets" not in self.off:
            self.parked = [e for e in self.parked if e[2] != w]
        if "loss-voids" not in self.off:
            for at, pieces in self.gathers.items():
                if w in pieces:
                    pieces[w] = None
                    self.ask(w, at)
        if "loss-evicts" in self.off:
            return
        for n in self.g.nodes_live:
            if n.op != "exchange" or n.full:
                continue
            for cols in n.indexes:
                for user, _ in self.g.uses[n.id, cols] if n.thin else ():
                    self.evict_from(w, n, cols, *user)
                self.evict_from(w, n, cols, n, cols)

    def evict_from(self, w, x, cols, n, index):
        """Evict n's keys in one index whose rows come, by x's columns `cols`, from w's shards too."""
        if not n.full:
            self.evict(n, index, {k for k in self.state[n.id].present[index] if w in self.g.shards(x.parents[0], cols, k)})

    # ------------------------------------------------------------------ the worker's step
    def blocked(self, token):
        return (token[1:] in self.gathers) if token[0] == "gather" else bool(self.pending[token[1]])

    def step(self, sender, packets):
        """A run of updates of any senders as one tick (sender None: [(sender, packet)]), or one other packet."""
        kind = packets[0][1][0]
        if kind == "update":
            inputs = defaultdict(list)
            for s, p in packets:
                inputs[p[1]].append((s, p[2]))
            self.tick(inputs)
        else:
            s, p = packets[0]
            if kind == "lost":
                self.lost(s)
                self.settle()
                return
            at, n = p[1:4], self.g.nodes[p[1]]
            if kind == "request":
                self.serve(s, at)
            elif kind == "answer":
                self.answer(s, at, p[4])
            else:
                self.evicted(s, n, p[2], p[3])
        self.settle()

    def settle(self):
        """Release what is no longer blocked: parked updates first, then requests and reads."""
        moved = True
        while moved:
            moved = False
            while self.again:
                self.serve(self.w, self.again.pop(0))
            if "release-first" in self.off:
                moved |= self.rerun()
            if self.ready():
                self.tick({})
                moved = True
                continue
            if "release-first" not in self.off:
                moved |= self.rerun()
        for st in self.state.values():  # a thin exchange holds an answer only until it has been used
            if st.node.thin and not self.parked and not st.node.full:
                for cols, keys in st.present.items():
                    st.drop(cols, set(keys))

    def ready(self):
        waiting = [e[2] for by in self.pending.values() for e in by.values()]
        waiting += [t for st in self.state.values() for t in st.dirty.values()]
        return any(not any(map(self.blocked, t)) for t in waiting)

    def rerun(self):
        for i, (tokens, run, _) in enumerate(self.parked):
            if not any(map(self.blocked, tokens)):
                del self.parked[i]
                run()
                return True
        return False

    def read(self, n, key, reply):
        """A client's read of a view."""
        try:
            reply(self.pull(n, n.args["key"], key))
        except Miss as m:
            self.parked.append((m.tokens, lambda: self.read(n, key, reply), None))

    def idle(self):
        return not (self.parked or self.gathers or self.again or any(self.pending.values())
                    or any(st.dirty for st in self.state.values()))

    def check(self, ok, text):
        if not ok:
            raise Violation(f"w{self.w}: {text}")


class Skip(Exception):
    """Nothing present below depends on this join key."""


def node_full(n):
    return n.full if n.stateful else all(map(node_full, n.parents))


def matches(pats, cols, key):
    return any(all(p[c] == v for c, v in zip(cols, key, strict=False) if c in p) for p in pats)
