"""The codec of packets: which classes they may hold.

A new packet needs no line here: `Packet` names it, and its annotations say the rest.  Listed are what fields hold that
are annotated as Any because their class stands above packets, and what the answer `Done` may hold.
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
