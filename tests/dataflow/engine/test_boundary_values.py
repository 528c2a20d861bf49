"""Every function with boundary values of its arguments, in a view's column and in a one-shot: nothing raises, and both
results equal the expression evaluated for each row alone.

    make boundaries                                                            every function with every first argument
    NORIA_BOUNDARY_SEED=n NORIA_BOUNDARY_CALLS=2 pytest tests/dataflow/engine/test_boundary_values.py        the seed
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from dataflow.engine_rig import Rig
from noria.core.batch import Batch
from noria.core.errors import SqlError
from noria.core.expressions import evaluate, evaluate_library
from noria.core.expressions.failures import is_of_a_row
from noria.core.limits import ERROR_CODE
from noria.core.values import to_arrow
from noria.dataflow.inspect.validate import validate
from noria.plan.view import ViewDef
from reference import boundary_calls
from reference.table_views import TableViews
from sql.catalogs import DictCatalog

CALLS = int(os.environ.get("NORIA_BOUNDARY_CALLS", "1"))  # of each function and number of arguments
SEED = int(os.environ.get("NORIA_BOUNDARY_SEED", "0"))
ROWS = 60
FORESEEN = (SqlError, OverflowError, ValueError, ArithmeticError, TimeoutError)  # errors of a function's arguments


@pytest.fixture
def unforeseen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Exceptions that a kernel or a row should not raise, although each is reported as a row's error."""
    found: list[str] = []
    row_by_row = evaluate._row_by_row

    def noting(expr: Any) -> Any:
        run = row_by_row(expr)

        def noted(columns: Any, symbols: Any) -> Any:
            found.append(f"{expr}: a kernel raised")
            return run(columns, symbols)

        return noted

    def looked_at(bug: Exception) -> bool:
        if not isinstance(bug, FORESEEN):
            found.append(repr(bug))
        return is_of_a_row(bug)

    monkeypatch.setattr(evaluate, "_row_by_row", noting)
    monkeypatch.setattr(evaluate_library, "is_of_a_row", looked_at)
    yield found


def test_views_and_one_shots_agree_and_nothing_raises(unforeseen: list[str]) -> None:
    rng = random.Random(SEED)
    catalog = DictCatalog()
    catalog.run(boundary_calls.table())
    rows = boundary_calls.rows(rng, ROWS)
    texts = list(boundary_calls.calls(rng, CALLS))
    wrong: list[str] = []
    views = [(t, v) for i, t in enumerate(texts) if (v := _planned(catalog, f"v{i}", t, wrong)) is not None]
    assert len(views) > len(texts) // 4
    for at in range(0, len(views), 50):
        wrong += _differences(catalog, rows, views[at : at + 50], unforeseen)
    assert not wrong, f"seed {SEED}: {len(wrong)} of {len(views)}:\n" + "\n".join(wrong)


def _planned(catalog: DictCatalog, name: str, text: str, wrong: list[str]) -> ViewDef | None:
    try:
        return boundary_calls.view_of(catalog, name, text)
    except Exception as bug:
        wrong.append(f"{text}: planning raises {bug!r}")
        return None


def _differences(catalog: DictCatalog, rows: list[tuple[Any, ...]], views: Any, unforeseen: list[str]) -> list[str]:
    rig = Rig([catalog.tables["b"]], [], TableViews)
    rig.add_views([v for _, v in views])
    ids = np.arange(len(rows))[None, :]
    for _, view in views:
        rig.engine.read(view.name, ids)  # from now on ticks keep all keys
    rig.write([("b", r, 1) for r in rows])
    found = []
    for text, view in views:
        unforeseen.clear()
        try:
            found += [f"{text}: {why}" for why in _compared(rig, view, ids)]
        except Exception as bug:
            found.append(f"{text}: {bug!r}")
        found += [f"{text}: {why}" for why in sorted(set(unforeseen))]
    validate(rig.engine)
    rig.write([("b", r, -1) for r in rows])
    validate(rig.engine)
    assert all(not len(rig.engine.read(v.name, ids)[0]) for _, v in views)
    return found


def _compared(rig: Rig, view: Any, ids: Any) -> Iterator[str]:
    kept = _codes(*rig.engine.read(view.name, ids))
    shot, top, lowered = rig.one_shot(view)
    once = _codes(*shot.read(top, lowered.key, ids))
    alone = [_codes(*shot.read(top, lowered.key, ids[:, i : i + 1])).item() for i in range(ids.shape[1])]
    if not (kept == once).all():
        yield f"a view gives {kept.tolist()}, a one-shot {once.tolist()}"
    if once.tolist() != alone:
        yield f"together the rows give {once.tolist()}, each alone {alone}"
    to_arrow(once[once != ERROR_CODE], view.plan.fields[1].type, rig.symbols).to_pylist()  # as clients receive them


def _codes(rows: Batch, ordinal: Any) -> Any:
    return rows.columns[1][np.argsort(ordinal, kind="stable")]
