"""Seeded random schedules against the model.

    python tester.py                                 every template, 200 schedules each
    python tester.py --template talk --seeds 5000    one template
    python tester.py --template talk --replay 17     one schedule, with its story
    python tester.py --ablate                        each rule off: what fails, and the shortest story
Options: --variant V (what differs is in README.md), --off rule,rule, --jobs N, --start SEED
"""
import argparse
import itertools
import multiprocessing
import random
import sys
import time
from collections import Counter, defaultdict, deque

import templates
from graph import minus, pick, shard_of
from worker import Violation, Worker

CLIENT = -1
RULES = ("fifo union-whole gather-add gather-drop any-index fill-once evict-voids cascade-exchange evict-empty "
         "left-pattern boundary release-first merge-parked read-waits read-waits-all evict-sees-parked serve-between").split()
CRASH_RULES = "loss-evicts loss-voids loss-forgets loss-first".split()  # of R19; need crashes to show
VARIANTS = ("park", "evict", "park-strict", "park-thin", "evict-thin", "match", "match-thin")


class Sim:
    """The whole system: workers, channels, a client, the truth about the base tables."""

    def __init__(self, name, seed, variant="park", off=(), crashes=0.0):
        mode, strict, thin = variant.split("-")[0], "strict" in variant, "thin" in variant
        self.rng = random.Random(f"{name}/{seed}")
        self.name, self.seed, self.trace, self.off = name, seed, [], off
        self.workers = self.rng.choice([1, 2, 2, 3, 3, 4])
        self.g, self.tables = templates.build(name, self.workers, self.rng, strict, thin)
        self.channels = defaultdict(deque)
        self.base = {n: Counter() for n in self.tables}
        self.ws = [Worker(w, self.g, self.sender(w), frozenset(off), mode, self.log) for w in range(self.workers)]
        self.views = [n for n in self.g.nodes if n.op == "view"]
        self.tables = {n: d for n, d in self.tables.items() if self.g.nodes[n] in self.g.nodes_live}
        self.asked = self.answered = self.steps = 0
        self.slow, self.count = set(), Counter()
        self.incarnation = [0] * self.workers  # how often each worker was lost
        self.known = [[0] * self.workers for _ in range(self.workers)]  # what each worker knows of that
        self.open_reads, self.late = Counter(), {}
        whole = any(n.full and n.op != "base" for n in self.g.nodes_live if n.stateful)  # bulk bootstrap is not modelled
        self.crashes = 0.0 if whole or self.workers == 1 else crashes

    def log(self, *a):
        self.trace.append(" ".join(map(str, a)))

    def sender(self, w):
        def send(d, packet):
            if self.known[w][d] != self.incarnation[d]:
                self.log(f"   w{w} -> w{d}, which is gone: {show(packet)}")
                return
            self.log(f"   w{w} -> w{d}: {show(packet)}")
            self.count[packet[0]] += 1
            self.channels[w, d].append(packet)
            if (w, d) in self.late:
                self.channels[w, d].append(self.late.pop((w, d)))
        return send

    # -- the client
    def write(self, n=None, size=0):
        n = self.rng.choice(list(self.tables)) if n is None else n
        width, pk, bag, domain = self.tables[n]
        have, delta = self.base[n], Counter()
        for _ in range(size or self.rng.choice([1, 1, 2, 4])):
            now = Counter({r: c for r in {**have, **delta} if (c := have[r] + delta[r])})
            old = self.rng.choice(sorted(now)) if now else None
            what = "insert" if size else self.rng.choice(["insert", "update", "update", "delete"])
            if sum(now.values()) > 12:
                what = self.rng.choice(["update", "delete"])
            new = tuple(self.rng.randrange(2 * domain if (c,) == pk and not bag else domain) for c in range(width))
            if what == "update" and old:
                c = self.rng.randrange(width)
                new = (*old[:c], new[c], *old[c + 1:])
            if what != "insert":
                if not old:
                    continue
                delta[old] -= 1
                now[old] -= 1
            if what != "delete" and (bag or not any(pick(r, pk) == pick(new, pk) for r in now if now[r])):
                delta[new] += 1
            elif what == "update":
                delta[old] += 1
        delta = minus(delta, {})
        self.base[n] = Counter({r: c for r in {**have, **delta} if (c := have[r] + delta[r])})
        for w in range(self.workers):
            part = Counter({r: c for r, c in delta.items() if shard_of(pick(r, self.g.nodes[n].part), self.workers) == w})
            if part:
                self.log(f"client writes n{n} {dict(part)} at w{w}")
                self.channels[CLIENT, w].append(("update", n, part))

    def read(self, view, key, check=None):
        w = self.ws[shard_of(key, self.workers)]
        self.asked += 1
        self.open_reads[w.w] += 1
        self.log(f"client reads n{view.id} {key} at w{w.w}")

        def reply(rows):
            self.answered += 1
            self.open_reads[w.w] -= 1
            self.log(f"client got n{view.id} {key} = {dict(rows)}")
            if any(c < 0 for c in rows.values()):
                raise Violation(f"read of n{view.id} {key} got {rows}")
            if check is not None and rows != check:
                raise Violation(f"read of n{view.id} {key} got {dict(rows)}, want {dict(check)}")
        w.read(view, key, reply)
        w.settle()

    def random_key(self, view):
        width = self.g.nodes[view.id].width
        assert width
        return tuple(self.rng.randrange(-1, 5) if self.rng.random() < .1 else None if self.rng.random() < .05 else self.rng.randrange(4) for _ in view.args["key"])

    def evict(self):
        busy = [w for w in self.ws if not w.idle()]  # most races need an eviction while something is parked
        w = self.rng.choice(busy if busy and self.rng.random() < .6 else self.ws)
        have = [(st.node, cols, k) for st in w.state.values() for cols, keys in st.present.items() for k in sorted(keys, key=str)]
        if have:
            n, cols, k = self.rng.choice(have)
            self.log(f"client evicts n{n.id}{cols}={k} at w{w.w}")
            w.evict(n, cols, {k})
            w.settle()

    def crash(self):
        """One worker loses all but its base tables, with every packet to and from it; its clients ask no more."""
        w = self.rng.randrange(self.workers)
        self.log(f"w{w} is lost")
        self.count["crashes"] += 1
        self.incarnation[w] += 1
        self.answered += self.open_reads.pop(w, 0)
        for d in range(self.workers):
            if d != w:
                news = [("lost", self.incarnation[w])]
                if "loss-first" in self.off:
                    self.late[w, d] = news.pop()
                # TCP may still deliver some of what the lost worker had sent
                rest = list(self.channels[w, d])
                self.channels[w, d] = deque(rest[:self.rng.randrange(len(rest) + 1)] + news)
                self.channels[d, w].clear()
        self.known[w] = list(self.incarnation)
        old, self.ws[w] = self.ws[w], Worker(w, self.g, self.sender(w), self.ws[w].off, self.ws[w].mode, self.log)
        for n in self.g.nodes:
            if n.op == "base":
                self.ws[w].state[n.id] = old.state[n.id]

    # -- the scheduler
    def deliver(self):
        """One step of one worker: a tick of a prefix of updates of some channels, or one other packet."""
        live = [c for c, q in self.channels.items() if q]
        if not live:
            return False
        brisk = [c for c in live if c not in self.slow]  # slow channels make the long races
        src, d = self.rng.choice(sorted(brisk if brisk and self.rng.random() < .95 else live))
        q = self.channels[src, d]
        self.steps += 1
        if "fifo" in self.off and (late := next((p for p in q if p[0] != "update"), None)):
            q.remove(late)
            q.appendleft(late)
        if q[0][0] != "update":
            p = q.popleft()
            if p[0] == "lost":
                self.known[d][src] = p[1]
            self.log(f"w{d} takes {show(p)} of w{src}")
            self.ws[d].step(src, [(src, p)])
            return True
        packets = []
        for s, dd in sorted(live):
            if dd == d and (s == src or self.rng.random() < .5):
                q, take = self.channels[s, d], self.rng.choice([1, 1, 2, 9])
                while q and q[0][0] == "update" and take:
                    packets.append((s, q.popleft()))
                    take -= 1
        self.log(f"w{d} ticks {[(s, show(p)) for s, p in packets]}")
        self.ws[d].step(src, packets)
        return True

    def drain(self):
        start = self.steps
        for at, packet in self.late.items():
            self.channels[at].append(packet)
        self.late.clear()
        while self.deliver():
            if self.steps - start > 20000:
                raise Violation("livelock")
        for w in self.ws:
            if not w.idle():
                raise Violation(f"w{w.w} waits for ever: {w.parked} {w.gathers} {dict(w.pending)}")
        if self.asked != self.answered:
            raise Violation("a read was lost")
        self.compare()

    def compare(self):
        """At rest: every present key of every state equals the recomputation."""
        truth = self.g.recompute(self.base)
        for w in self.ws:
            for n in self.g.nodes_live:
                if not n.stateful:
                    continue
                st = w.state[n.id]
                mine = {r: c for r, c in truth[n.id].items()
                        if self.workers == 1 or shard_of(pick(r, n.part), self.workers) == w.w}
                if n.full and not n.thin and st.rows() != mine:
                    raise Violation(f"w{w.w} {n}: has {dict(st.rows())}, want {mine}")
                for cols, keys in st.present.items():
                    for k in keys:
                        want = {r: c for r, c in mine.items() if pick(r, cols) == k}
                        if st.rows(zip(cols, k, strict=False)) != want:
                            raise Violation(f"w{w.w} {n} {cols}={k}: has {dict(st.rows(zip(cols, k, strict=False)))}, want {want}")
        return truth

    def run(self):
        shape = self.rng.choice([(.2, .2, .1), (.3, .1, .05), (.2, .2, .2), (.1, .05, .03), (.4, .06, .01), (.35, .05, .2)])
        if self.rng.random() < .7:
            for n in self.tables:
                self.write(n, self.rng.choice([4, 8, 12]))
        if self.rng.random() < .7:
            self.drain()
            for v in self.views:
                for _ in range(4):
                    self.read(v, self.random_key(v))
            self.drain()
        for _ in range(self.rng.choice([2, 3])):
            pairs = [(s, d) for s in range(CLIENT, self.workers) for d in range(self.workers) if s != d]
            self.slow = {c for c in pairs if self.rng.random() < self.rng.choice([0, .3, .6])}
            for _ in range(self.rng.choice([20, 60, 150])):
                if self.crashes and self.rng.random() < self.crashes:
                    self.crash()
                x = self.rng.random()
                if x < shape[0]:
                    self.write()
                elif x < shape[0] + shape[1]:
                    v = self.rng.choice(self.views)
                    self.read(v, self.random_key(v))
                elif x < sum(shape):
                    self.evict()
                else:
                    self.deliver()
            self.drain()
        truth = self.compare()
        for v in self.views:
            keys = {pick(r, v.args["key"]) for r in truth[v.id]} | {self.random_key(v) for _ in range(4)}
            keys |= set(itertools.product(range(3), repeat=len(v.args["key"])))
            for k in sorted(keys, key=str):
                self.read(v, k, Counter({r: c for r, c in truth[v.id].items() if pick(r, v.args["key"]) == k}))
        self.drain()
        self.count["rows kept at exchanges"] = sum(
            len(st.units) for w in self.ws for st in w.state.values() if st.node.op == "exchange")
        return self


def show(p):
    return f"{p[0]} n{p[1]} " + " ".join(str(dict(x) if isinstance(x, dict) else x) for x in p[2:])


def attempt(job):
    name, seed, variant, off, crashes = job
    sim = None
    try:
        sim = Sim(name, seed, variant, off, crashes)
        sim.run()
        return None, sim.count
    except Exception as e:
        if isinstance(e, (Violation, AssertionError)):
            return (name, seed, f"{type(e).__name__}: {e}"), len(sim.trace) if sim else 0
        import traceback
        return (name, seed, traceback.format_exc()), len(sim.trace) if sim else 0


def replay(name, seed, variant, off, crashes):
    sim = Sim(name, seed, variant, off, crashes)
    for n in sim.g.nodes:
        print(n)
    try:
        sim.run()
        print("passed,", sim.steps, "steps")
    except Exception as e:
        print("\n".join(sim.trace))
        print(f"FAILED {type(e).__name__}: {e}  workers={sim.workers} variant={variant} seed={seed}")
        if not isinstance(e, Violation):
            raise


def ablate(pool, a, names):
    for rule in CRASH_RULES if a.crashes else RULES:
        for variant in VARIANTS if a.variant == "all" else ("park", "evict"):
            jobs = [(n, s, variant, (rule,), a.crashes) for s in range(a.start, a.start + a.seeds) for n in names]
            fails = [(r[0], r[1]) for r in pool.imap_unordered(attempt, jobs, 64) if r[0]]
            by = Counter(f[0][0] for f in fails)
            short = min(fails, key=lambda f: f[1], default=None)
            print(f"{rule:18} {variant:11} fails {len(fails):5}/{len(jobs)}",
                  dict(by.most_common(4)), "| shortest:", short and (short[0][0], short[0][1], short[0][2][:110]), flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--template", default="")
    ap.add_argument("--seeds", type=int, default=200)
    ap.add_argument("--start", type=int, default=0)
    ap.add_argument("--variant", default="park", choices=(*VARIANTS, "all"))
    ap.add_argument("--off", default="")
    ap.add_argument("--crashes", type=float, default=0.0, help="probability of losing a worker at each step, say 0.03")
    ap.add_argument("--replay", type=int)
    ap.add_argument("--ablate", action="store_true")
    ap.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    a = ap.parse_args()
    names = a.template.split(",") if a.template else list(templates.NAMES)
    off = tuple(filter(None, a.off.split(",")))
    if a.replay is not None:
        return replay(names[0], a.replay, a.variant, off, a.crashes)
    with multiprocessing.Pool(a.jobs) as pool:
        if a.ablate:
            return ablate(pool, a, names)
        bad = 0
        for name in names:
            t, jobs = time.time(), [(name, s, a.variant, off, a.crashes) for s in range(a.start, a.start + a.seeds)]
            res = list(pool.imap_unordered(attempt, jobs, 16))
            fails = sorted((n, f) for f, n in res if f)
            bad += len(fails)
            cost = sum((c for f, c in res if not f), Counter())
            print(f"{name:16} {len(jobs) - len(fails):6} passed {len(fails):5} failed  {time.time() - t:3.0f} s ",
                  dict(sorted(cost.items())), flush=True)
            for n, f in fails[:3]:
                print(f"    seed {f[1]} (trace of {n}): {f[2][-700:]}")
        sys.exit(bad > 0)


if __name__ == "__main__":
    main()
