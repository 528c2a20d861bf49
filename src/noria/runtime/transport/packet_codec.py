"""The codec of packets: lists the classes that they may contain.

A new packet needs no line here: `Packet` names it, and its annotations define its fields. Only the values of the
answer `Done` are listed.
"""

from __future__ import annotations

from noria.core.codec import Codec
from noria.core.expressions.expr import Expr
from noria.core.statements import KeyChange, Statement, StatementEffect
from noria.core.types import TableDef
from noria.dataflow.messages import packets
from noria.dataflow.messages.rehearsal import Rehearsal
from noria.plan import after, constant_row
from noria.plan.graph_plan import GraphPlan

_ANSWERS = (KeyChange, packets.IndexRequest, packets.RecordedChange, packets.QueryForecast, Rehearsal, StatementEffect,
            TableDef, GraphPlan, after.LookedUpRows, constant_row.Nothing, constant_row.GivenRows)

PACKETS = Codec(packets.Packet, Statement, Expr, *_ANSWERS)
