"""The codec of the messages between front ends and the controller (`messages.py`).

A new message needs no line here: each class of `messages.py` is a root.  The list below has the answers that a `Reply`
may contain.
"""

from __future__ import annotations

from dataclasses import is_dataclass

from noria.core.codec import Codec
from noria.plan import after
from noria.server import outcomes
from noria.server.fronts import messages
from noria.sql.commands import Select

KINDS = tuple(kind for kind in vars(messages).values()
              if isinstance(kind, type) and is_dataclass(kind) and kind.__module__ == messages.__name__)

MESSAGES = Codec(*KINDS, outcomes.Ok, outcomes.Encoded, outcomes.FailedStatement, outcomes.PreparedHandle,
                 after.LookedUpRows, narrowed={
    (Select, "instead"): None,  # the statements that front ends receive have no value here
    (Select, "batch"): None,
})
