"""Keys of a view that one worker finds in its rows of a base table and another worker owns (`worker/fill_ahead.py`).

Keeps true: a key is sent to its owner only. Messages are a help: an owner may ignore them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from noria.core.batch import Batch, Codes
from noria.dataflow.engine.engine import Engine
from noria.dataflow.graph.nodes import Columns, Node
from noria.dataflow.graph.partition import owners
from noria.dataflow.messages.peer_messages import KeysToFill, Message, packed


class FoundKeys:
    """See the module, for worker `worker` of `workers`. `send`: appends a message to the channel to a worker.
    `receive`: called with the keys that other workers found and this worker owns."""

    def __init__(self, engine: Engine, worker: int, workers: int, send: Callable[[int, Message], None]):
        self._engine, self._worker, self._workers, self._send = engine, worker, workers, send
        self.receive: Callable[[KeysToFill], None] = lambda message: None

    def to_owners(self, node: Node, key: Columns, keys: Codes) -> Codes:
        """Send each of these keys of a reader to the worker that owns it. Returns those owned here. `keys` has shape
        (key columns, keys)."""
        fields, symbols = [node.fields[c] for c in key], self._engine.symbols
        at = [key.index(c) for c in node.parts[0]]
        whose = owners(np.ascontiguousarray(keys[at]), [fields[i] for i in at], self._workers, symbols)
        for w in range(self._workers):
            if w != self._worker and (theirs := whose == w).any():
                some = Batch.of(np.ascontiguousarray(keys[:, theirs]))
                self._send(w, KeysToFill(node.id, packed(some, fields, symbols)))
        return np.ascontiguousarray(keys[:, whose == self._worker])
