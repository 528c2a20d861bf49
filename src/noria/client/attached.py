"""A view read straight from this host's shared memory (DESIGN section 5); the server is asked for missing keys only.

Keeps true: what a lookup gives is a whole version of each key.  An object belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from noria.client.transport import Transport
from noria.core.types import Kind
from noria.server.results import Shape
from noria.views.reader import attach


class SharedView:
    """See the module.  `misses` counts the lookups that went to the server."""

    def __init__(self, transport: Transport, name: str, keys: Callable[[Any], pa.Table]):
        self.name, self.misses = name, 0
        self._transport, self._keys = transport, keys
        path = transport.attachment()["path"]
        if not Path(path).is_dir():
            raise ConnectionError(f"the views are in {path} of the server's host, which is not there on this host: "
                                  "attach on the server's host, or use lookup()")
        about = transport.describe("views", name)
        if not about["plain"]:
            raise ValueError(f"a lookup in {name} by {', '.join(about['key'])} is more than the rows of one key: "
                             "use lookup()")
        self._view = attach(path).view(about["name"])
        self._shape = self._shape_of(about)

    def _shape_of(self, about: dict[str, Any]) -> Shape | None:
        """What is done to the rows of a lookup; None for nothing at all."""
        fields, empty = self._view.fields, about["empty_row"]
        if empty is not None:
            empty = [Decimal(v) if isinstance(v, str) and f.type.kind is Kind.DECIMAL else v
                     for v, f in zip(empty, fields, strict=False)]
        order = [(int(c), bool(d)) for c, d in about["order"]]
        shape = Shape(fields, len(about["columns"]), order, about["limit"], about["offset"], empty)
        return shape if shape.changes_rows or shape.visible < self._view.visible else None

    def lookup(self, key: Any = ()) -> list[tuple[Any, ...]]:
        """The rows of one key: a value, or a tuple of values."""
        rows = self._view.lookup(key if isinstance(key, tuple) else (key,))
        if rows is None:
            self.misses += 1
            table = self._transport.lookup(self.name, self._keys([key])).drop_columns("__key")
            return list(zip(*(c.to_pylist() for c in table.columns), strict=True))
        return rows if self._shape is None else self._shape.apply(rows)

    def lookup_many(self, keys: Any) -> pa.Table:
        """The rows of many keys and, as `__key`, the ordinal of the key each row belongs to."""
        table = self._keys(keys)
        if self._shape is not None:  # order and limit are per key, and the server's to apply
            self.misses += table.num_rows
            return self._transport.lookup(self.name, table)
        rows, missing = self._view.lookup_many(table)
        if not missing.any():
            return rows
        ordinals = np.flatnonzero(missing)
        self.misses += len(ordinals)
        fetched = self._transport.lookup(self.name, table.take(pa.array(ordinals)))
        own = pa.array(ordinals[fetched.column("__key").to_numpy()], pa.int64())
        fetched = fetched.set_column(fetched.num_columns - 1, "__key", own)
        return pa.concat_tables([rows, fetched.cast(rows.schema)])
