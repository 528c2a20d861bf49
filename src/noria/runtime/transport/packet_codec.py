"""The codec of packets: lists the classes that they may contain.

A new packet needs no line here: `Packet` names it, and its annotations define its fields. Two things are listed.
One is the classes of fields that are annotated as Any, because they are defined in packages above. The other is
the values of the answer `Done`.
"""

from __future__ import annotations

from noria.core.codec import Codec
from noria.core.expressions.expr import Expr
from noria.core.statements import Statement, WorkedOut
from noria.core.types import TableDef
from noria.dataflow.inspect.rehearsal import Rehearsal
from noria.dataflow.messages import packets
from noria.dataflow.messages.peer_messages import Message
from noria.plan import after
from noria.plan.graph_plan import GraphPlan
from noria.plan.mir import Mir
from noria.plan.view import ViewDef

_ANSWERS = (packets.Wanted, packets.Noted, packets.Foreseen, Rehearsal, WorkedOut, TableDef, GraphPlan, after.Found)

PACKETS = Codec(packets.Packet, Message, Statement, Expr, Mir, ViewDef, *_ANSWERS, narrowed={
    (packets.Query, "view"): ViewDef,
    (packets.AddView, "view"): ViewDef,
    (packets.CheckView, "view"): ViewDef,
    (packets.Between, "message"): Message,
    (packets.Migrate, "adopt"): GraphPlan | None,
})
