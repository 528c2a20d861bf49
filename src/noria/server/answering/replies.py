"""Keeps encoded replies while they are valid (design/decisions.md, 5).

Keeps true: a kept reply is sent only while its view entry and the program have the versions that it was made from.  If
the program changed, a name in the statement may mean another object.  The bytes of all kept replies stay below a bound.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from noria.dataflow.messages.packets import SessionWrites
from noria.server.outcomes import LATEST, Entry


@dataclass(slots=True)
class _KeptReply:
    packets: bytes
    version: int
    current: Callable[[], int]
    entry: Entry
    tick: int
    nbytes: int
    program: int
    of: _ViewReplies
    reads: int = 0


@dataclass(slots=True)
class _ViewReplies:
    """The keys of all replies of one view, and how often any of them was sent."""

    keys: set[Hashable] = field(default_factory=set)
    hits: int = 0


class Versioned(Protocol):
    """The program, whose version grows with each change of tables and views."""

    version: int


class _Unchanging:
    version = 0


def _key_bytes(key: Hashable) -> int:
    """Return the size of the byte strings in a key: texts and encoded parameters."""
    return sum(len(part) for part in key if isinstance(part, bytes)) if isinstance(key, tuple) else 0


def _name(view: Hashable) -> str:
    return str(getattr(view, "name", ""))


NOTHING: SessionWrites = {}


class ReplyCache:
    """Keeps encoded replies by statement and raw parameters.  Beyond `limit_bytes` it drops those not used for long.  A
    reply larger than 1/64 of the limit is not kept."""

    ENTRY_BYTES = 500  # the record and the dictionaries' slots, beside the key and the packets

    def __init__(self, limit_bytes: int, program: Versioned | None = None):
        self.limit_bytes, self._program = limit_bytes, program or _Unchanging()
        self._kept: OrderedDict[Hashable, _KeptReply] = OrderedDict()
        self._of_view: dict[Hashable, _ViewReplies] = {}
        self._past: Counter[str] = Counter()  # by view name: sent earlier, or by other processes
        self._past_hits = 0
        self.nbytes = 0

    @property
    def hits(self) -> int:
        """The number of kept replies sent."""
        return self._past_hits + sum(v.hits for v in self._of_view.values())

    def hits_of(self) -> Counter[str]:
        """Return the number of kept replies sent, by view name, without dropped views."""
        found = Counter(self._past)
        for view, of in self._of_view.items():
            found[_name(view)] += of.hits
        return found

    def had_elsewhere(self, hits: Mapping[str, int]) -> None:
        """Count kept replies that another process sent."""
        self._past.update(hits)
        self._past_hits += sum(hits.values())

    def dropped(self, view: str) -> None:
        """Forget the count of a dropped view."""
        self._past.pop(view, None)

    def get(self, key: Hashable, unseen: SessionWrites = NOTHING, as_of: int = LATEST,
            views: Collection[str] | None = None) -> bytes | None:
        """Return the kept reply, or None.  unseen: the session's own writes that some worker may lack.  as_of, views: a
        tick and the names of the views that may answer (`outcomes.Session`)."""
        kept = self._kept.get(key)
        if kept is None or kept.tick > as_of or (unseen and not kept.entry.has(unseen)):
            return None
        if views is not None and _name(kept.entry.view) not in views:
            return None
        if kept.current() != kept.version or kept.program != self._program.version:
            self.discard(key)
            return None
        kept.of.hits += 1
        kept.reads += 1
        if not kept.reads & 63:  # each 64th time: a stamp writes to shared memory, a move costs dictionary operations
            kept.entry.stamp()
            self._kept.move_to_end(key)
        return kept.packets

    def put(self, key: Hashable, packets: bytes, entry: Entry, version: int, tick: int = LATEST) -> None:
        """Keep a reply made from the entry.  version, tick: see `outcomes.ReadVersion`."""
        nbytes = len(packets) + _key_bytes(key) + self.ENTRY_BYTES
        if nbytes - self.ENTRY_BYTES > self.limit_bytes // 64:
            return
        self.discard(key)
        of = self._of_view.setdefault(entry.view, _ViewReplies())
        of.keys.add(key)
        self._kept[key] = _KeptReply(packets, version, entry.watch(), entry, tick, nbytes, self._program.version, of)
        self.nbytes += nbytes
        self._hold()

    def forget(self, view: Hashable) -> None:
        """Discard all replies of a dropped view."""
        of = self._of_view.get(view)
        for key in () if of is None else list(of.keys):
            self.discard(key)

    def bound(self, limit_bytes: int) -> None:
        """Set another limit, in bytes, and drop replies until it holds."""
        self.limit_bytes = limit_bytes
        self._hold()

    def _hold(self) -> None:
        while self.nbytes > self.limit_bytes:
            self.discard(next(iter(self._kept)))

    def discard(self, key: Hashable) -> None:
        old = self._kept.pop(key, None)
        if old is None:
            return
        self.nbytes -= old.nbytes
        old.of.keys.discard(key)
        if not old.of.keys:
            del self._of_view[old.entry.view]
            self.had_elsewhere({_name(old.entry.view): old.of.hits})

    def __len__(self) -> int:
        return len(self._kept)
