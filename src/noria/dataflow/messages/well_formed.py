"""Checks a packet before a worker handles it: the types and bounds of the fields on which the handler relies.

Call `malformed_reason`; an empty result means that the packet is good.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from noria.core.statements import StagedPart
from noria.core.types import TableDef
from noria.dataflow.messages import packets, transaction_packets

_INT, _TEXT, _ROW, _FLAG = (int,), (str,), (tuple, list), (bool,)
_PART = (StagedPart, type(None))
_NEEDS: dict[type, dict[str, tuple[type, ...]]] = {
    packets.Write: {"statements": _ROW, "group": _TEXT, "forget": _ROW, "idempotency_key": _TEXT, "wait_s": (float,)},
    packets.Prepare: {"statements": _ROW, "group": _TEXT, "coordinator": _INT},
    packets.Decide: {"group": _TEXT, "commit": _FLAG},
    packets.PredictEffect: {"request": _INT, "statement": (tuple,), "unique": _ROW, "rows": _ROW,
                            "within": _PART},
    packets.FindConflicts: {"request": _INT, "statements": _ROW, "within": _PART},
    packets.UniqueEntries: {"request": _INT, "table": (TableDef,), "columns": _ROW, "what": _TEXT, "arguments": _ROW},
    packets.ReadPage: {"request": _INT, "table": _TEXT, "after": (bytes, type(None)), "rows": _INT},
    packets.CheckUnique: {"request": _INT, "table": _TEXT, "removed": _ROW, "added": _ROW, "within": _PART},
    packets.Read: {"request": _INT, "view": _TEXT, "nulls": _FLAG, "fill": _FLAG, "descending": _FLAG,
                   "definition": _INT, "limit_ms": _INT, "chunked": _FLAG},
    packets.FillKeys: {"request": _INT, "view": _TEXT, "definition": _INT, "limit_ms": _INT, "keys": _ROW},
    packets.ReadMany: {"request": _INT, "alike": _ROW},
    packets.Query: {"request": _INT, "nulls": _FLAG, "descending": _FLAG, "rows": _INT, "limit_ms": _INT,
                    "spread": _FLAG, "chunked": _FLAG, "within": (transaction_packets.Within, type(None))},
    packets.NextRows: {"request": _INT, "of": _INT, "stop": _FLAG},
    packets.Migrate: {"steps": _ROW, "recipe": _ROW, "durable": _FLAG, "each": _FLAG, "limit_ms": _INT,
                      "restore": _FLAG},
    packets.Rehearse: {"request": _INT, "steps": _ROW},
    packets.Snapshot: {"request": _INT, "path": _TEXT, "views": _FLAG},
    packets.SaveStates: {"request": _INT, "cut": _TEXT, "names": _ROW, "at_end": _FLAG},
    packets.KeepStates: {"request": _INT, "cut": _TEXT, "keep": _FLAG},
    packets.Ingest: {"table": _TEXT, "files": _ROW, "rows": _INT, "auto_increment": _INT},
    packets.CheckIngest: {"request": _INT, "table": _TEXT, "files": _ROW, "rows": _INT, "others": _ROW},
    packets.Bootstrap: {"view": _TEXT, "node": _INT, "files": _ROW, "request": _INT},
    packets.IndexFiles: {"ticket": _TEXT, "files": (tuple, list, type(None)), "request": _INT},
    packets.Evict: {"request": _INT, "nbytes": (int, type(None))},
    packets.Inspect: {"request": _INT, "what": _TEXT, "argument": _TEXT,
                      "read": (packets.Read, packets.Query, type(None))},
    packets.CheckRowsFit: {"request": _INT, "table": (TableDef,)},
    packets.SetLimit: {"nbytes": _INT, "request": _INT},
    transaction_packets.Stage: {"request": _INT, "transaction": _TEXT, "done": _INT, "statements": _ROW},
    transaction_packets.Undo: {"request": _INT, "transaction": _TEXT, "done": _INT, "keep": _INT},
    transaction_packets.EndTransaction: {"request": _INT, "transaction": _TEXT},
    transaction_packets.EndWait: {"request": _INT, "transaction": _TEXT},
    transaction_packets.ReadKeyChanges: {"request": _INT, "transaction": _TEXT, "done": _INT, "since": _INT,
                                        "table": _TEXT, "columns": _ROW},
    transaction_packets.FindKeys: {"request": _INT, "transaction": _TEXT, "done": _INT, "table": _TEXT,
                                   "columns": _ROW, "keys": _ROW, "lock": _FLAG},
    transaction_packets.LockDefinitions: {"request": _INT, "transaction": _TEXT, "tables": _ROW},
    transaction_packets.LockRows: {"request": _INT, "transaction": _TEXT, "done": _INT, "table": _TEXT, "keys": _ROW,
                                   "exclusive": _FLAG, "how": _TEXT},
    transaction_packets.OpenSnapshot: {"request": _INT, "transaction": _TEXT, "marks": (int, type(None))},
    transaction_packets.MarkReads: {"request": _INT, "transaction": _TEXT, "marks": _INT},
    transaction_packets.Within: {"transaction": _TEXT, "done": _ROW, "tables": _ROW, "snapshot": _FLAG},
}
_FIELDS = {packet: attrgetter(*needs) for packet, needs in _NEEDS.items()}  # reads all fields in one call
_MOST = 2**62  # of any number in these fields


def malformed_reason(body: Any) -> str:
    """What is wrong with a packet's fields; empty for a good packet. No front end sends a bad one, so it shows
    that the sender is broken."""
    packet = type(body)
    if packet not in _NEEDS:
        return ""
    for value, (name, types) in zip(_FIELDS[packet](body), _NEEDS[packet].items(), strict=True):
        kind = type(value)
        if (kind not in types and not isinstance(value, types)) or (
                int in types and value is not None and not 0 <= value < _MOST):
            return f"{packet.__name__}.{name} is no {' or '.join(t.__name__ for t in types)} of a packet"
        if kind in _NEEDS and (why := malformed_reason(value)):
            return why
    return ""
