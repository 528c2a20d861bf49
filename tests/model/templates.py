"""Graphs to test: the named ones of the design's sources, and random compositions."""
from graph import Graph

NAMES = {}


def template(f):
    NAMES[f.__name__] = f
    return f


class Tables:
    """Base tables for the generator of writes: columns draw from 0..domain-1, primary keys from twice that; a bag may hold duplicates."""

    def __init__(self, g, rng):
        self.g, self.defs, self.domain = g, {}, rng.choice([2, 3, 3, 4])

    def __call__(self, width, pk=(0,), bag=False):
        n = self.g.base(width, tuple(range(width)) if bag else pk)
        self.defs[n.id] = (width, tuple(pk), bag, self.domain)
        return n


def votes_stories(t, rng):
    stories, votes = t(3), t(2, pk=(0, 1), bag=rng.random() < .3)
    return stories, votes, t.g.agg(votes, [1], "count", unsharded=rng.random() < .15)


@template
def figure2(g, t, rng):
    stories, _, vc = votes_stories(t, rng)
    g.view(g.join(stories, vc, [0], [0]), [0])


@template
def talk(g, t, rng):
    x, y = t(3), t(2, bag=rng.random() < .5)
    g.view(g.join(x, y, [1], [rng.choice([0, 1])], left=rng.random() < .6), [2])


@template
def self_join(g, t, rng):
    f = t(2, pk=(0, 1), bag=rng.random() < .4)
    j = g.join(f, f, [1], [0], prefer=rng.choice([0, 1]))
    g.view(j, rng.choice([[0], [1], [2], [0, 2]]))
    if rng.random() < .5:
        g.view(j, rng.choice([[0], [2]]))


@template
def diamond(g, t, rng):
    b = t(3)
    u = g.union(g.filter(b, (1, "<", 3)), g.filter(b, (1, ">=", 2)))
    a = g.agg(b, [1], rng.choice(["count", "sum", "min", "max"]), 2)
    g.view(g.join(u, a, [1], [0], left=rng.random() < .3), rng.choice([[0], [1], [2]]))


@template
def karma(g, t, rng):
    stories, _, vc = votes_stories(t, rng)
    j = g.join(stories, vc, [0], [0], left=rng.random() < .3)
    g.view(g.agg(j, [1], rng.choice(["sum", "max", "min"]), 3), [0])
    if rng.random() < .4:
        g.view(j, [0])


@template
def left_count(g, t, rng):
    stories, _, vc = votes_stories(t, rng)
    j = g.join(stories, vc, [0], [0], left=True)
    g.view(j, rng.choice([[0], [1], [1, 3]]))
    if rng.random() < .5:
        g.view(g.agg(j, [1, 2], "count"), rng.choice([[0], [1], [0, 1]]))


@template
def straddle(g, t, rng):
    stories, votes, vc = votes_stories(t, rng)
    pre = rng.choice([0, 1])
    j = g.join(stories, votes, [0], [1], prefer=pre)
    g.view(j, [1, 3])
    if rng.random() < .5:
        g.view(g.agg(j, [3, 1], "count"), rng.choice([[0], [1], [0, 1]]))
    if rng.random() < .3:
        g.view(g.join(stories, vc, [0], [0]), [1, 3])


@template
def top_k(g, t, rng):
    stories, _, vc = votes_stories(t, rng)
    j = g.join(stories, vc, [0], [0])
    k = g.topk(j, [1], 3, rng.choice([1, 2]))
    g.view(k, [1])
    if rng.random() < .3:
        g.view(g.agg(k, [1], "sum", 3), [0])


@template
def chain(g, t, rng):
    stories, _, vc = votes_stories(t, rng)
    users = t(2)
    ka = g.agg(g.join(stories, vc, [0], [0]), [1], rng.choice(["sum", "max"]), 3)
    j = g.join(users, ka, [0], [0], left=rng.random() < .5)
    g.view(j, rng.choice([[0], [1]]))
    if rng.random() < .5:
        g.view(g.agg(j, [1], rng.choice(["max", "count", "min"]), 2), [0])


@template
def two_way(g, t, rng):
    """One join pulled from its left side by one view and from its right side by another."""
    a, b = t(3), t(3, bag=rng.random() < .3)
    j = g.join(a, b, [1], [1])
    g.view(j, [2])
    g.view(j, [4])
    if rng.random() < .4:
        g.view(g.agg(j, [rng.choice([0, 2, 3, 4])], rng.choice(["count", "min"]), 4), [0])


@template
def joins_of_joins(g, t, rng):
    a, b, c = t(3), t(3), t(2, bag=rng.random() < .3)
    j1 = g.join(a, b, [1], [1], left=rng.random() < .3, prefer=rng.choice([0, 1]))
    j2 = g.join(j1, c, [rng.choice([0, 1, 2])], [rng.choice([0, 1])], prefer=rng.choice([0, 1]))
    if rng.random() < .4:
        j2 = g.join(c, j1, [rng.choice([0, 1])], [1], left=rng.random() < .4, prefer=rng.choice([0, 1]))
    g.view(j2, [rng.choice([0, 1, 2, 3, 4][:j2.width])])
    if rng.random() < .5:
        g.view(j2, [rng.choice(range(j2.width))])


@template
def three_way(g, t, rng):
    """Two joins on one key in one worker: parked updates of the first hold up the second."""
    a, b, c = t(3), t(3), t(3, bag=rng.random() < .3)
    j1 = g.join(a, b, [1], [1], left=rng.random() < .2)
    j2 = g.join(c, j1, [1], [1], left=rng.random() < .3, prefer=rng.choice([0, 1]))
    g.view(j2, rng.choice([[0], [2], [3], [4], [2, 4]]))
    if rng.random() < .5:
        g.view(j1, [rng.choice([0, 2])])
    if rng.random() < .3:
        g.view(g.agg(j2, [rng.choice([0, 2])], rng.choice(["count", "max"]), 3), [0])


@template
def extremes(g, t, rng):
    """min, max and top-k straight over a table."""
    b = t(3, bag=rng.random() < .3)
    g.view(g.agg(b, [1], rng.choice(["min", "max"]), 2), [0])
    k = g.topk(b, [1], 2, rng.choice([1, 2]))
    g.view(k, [1])
    g.view(g.agg(b, [1, 0], "min", 2), [rng.choice([0, 1])])


@template
def having(g, t, rng):
    """Untraceable keys: full nodes, with partial ones beside them."""
    stories, _votes, vc = votes_stories(t, rng)
    g.view(vc, [1])
    if rng.random() < .5:
        g.view(g.topk(g.join(stories, vc, [0], [0]), [], 3, 2), [1])
    g.view(g.join(stories, vc, [0], [0]), [1])


@template
def shared_exchange(g, t, rng):
    """One receiving end under several indexes; distinct and projections that lose columns."""
    a, b = t(3), t(3)
    j = g.join(a, b, [0], [1])
    d = g.distinct(g.project(j, [1, 2, 4]))
    g.view(d, rng.choice([[0], [2], [0, 1]]))
    m = g.agg(g.project(j, [1, 4, ("neg", 2)]), [0], "min", 2)
    g.view(m, [0])
    g.view(g.join(a, b, [0], [1], left=True), [1])


@template
def random_graph(g, t, rng):
    nodes = [t(rng.choice([2, 3]), bag=rng.random() < .25) for _ in range(rng.choice([1, 2, 2, 3]))]
    for _ in range(rng.randint(2, 6)):
        p = rng.choice(nodes) if rng.random() < .5 else nodes[-1]
        cols = list(range(p.width))
        op = rng.choice(["filter", "project", "union", "distinct", "join", "join", "left", "agg", "agg", "topk"])
        if op == "filter":
            n = g.filter(p, (rng.choice(cols), rng.choice(["<", ">=", "!="]), rng.choice([1, 2, 3])))
        elif op == "project":
            n = g.project(p, [rng.choice([c, c, c, ("neg", c), ("const", 1)]) for c in rng.sample(cols, rng.randint(1, len(cols)))])
        elif op == "union":
            q = rng.choice([q for q in nodes if q.width == p.width])
            n = g.union(p, q)
        elif op == "distinct":
            n = g.distinct(p)
        elif op in ("join", "left"):
            q = rng.choice(nodes)
            keys = 2 if min(p.width, q.width) > 1 and rng.random() < .25 else 1
            if p.width + q.width - keys > 6:
                continue
            n = g.join(p, q, rng.sample(cols, keys), rng.sample(range(q.width), keys), left=op == "left",
                       prefer=rng.choice([0, 1]), unsharded=rng.random() < .1)
        else:
            group = rng.sample(cols, rng.choice([0, 1, 1, 1, 2]) if len(cols) > 1 else 1)
            if op == "agg":
                n = g.agg(p, group, rng.choice(["count", "sum", "min", "max"]), rng.choice(cols), rng.random() < .1)
            else:
                n = g.topk(p, group, rng.choice(cols), rng.choice([1, 2]), rng.random() < .1)
        nodes.append(n)
    for n in [nodes[-1], *rng.sample(nodes, min(len(nodes), rng.choice([0, 1, 2])))]:
        g.view(n, rng.sample(range(n.width), min(n.width, rng.choice([1, 1, 1, 2]))))


def build(name, workers, rng, strict=False, thin=False):
    g = Graph(workers, strict, thin)
    t = Tables(g, rng)
    NAMES[name](g, t, rng)
    return g.finish(), t.defs
