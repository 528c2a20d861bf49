"""What the workers report of a view's state, as the job `verify` reads it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from noria.core import limits
from noria.plan.view import ViewDef

if TYPE_CHECKING:  # at run time only the job that needs it imports it: serving does not need pyspark
    from noria.spark.jobs.verify import MaintainedView

State = tuple[pa.Table, pa.Table | None]  # of a view on one worker: rows and present keys


def states_of(state: State | list[State]) -> list[State]:
    """Return a list with one state for each worker.  A single worker reports its state without a list."""
    return state if isinstance(state, list) else [state]


def is_little(states: list[State]) -> bool:
    """True if a partial view has fewer than VERIFY_KEYS present keys on all workers together."""
    present = [keys.num_rows for _, keys in states if keys is not None]
    return bool(present) and sum(present) < limits.VERIFY_KEYS


def written(place: Path, number: int, view: ViewDef, states: list[State]) -> MaintainedView:
    """Write a view's state to Parquet files for the job `verify`."""
    from noria.spark.jobs.verify import MaintainedView

    files: dict[str, list[str]] = {"rows": [], "present": []}
    for worker, state in enumerate(states):
        for (what, paths), table in zip(files.items(), state, strict=True):
            if table is not None:
                paths.append(str(place / f"view-{number}-{what}-{worker}.parquet"))
                pq.write_table(table, paths[-1])
    return MaintainedView(view, tuple(files["rows"]), tuple(files["present"]) or None)
