"""The kernels that share memory with other processes really contain atomics after optimisation."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numba import types

from views.fresh import fresh

WORDS = types.Array(types.int64, 1, "C")
SHARED = types.Array(types.int64, 1, "C", readonly=True)
BYTES = types.Array(types.uint8, 1, "C")
COLUMNS = types.Array(types.int64, 2, "C")
INT, HASH = types.int64, types.uint64

KERNELS = [
    # module, kernel, argument types, least number of atomic loads, stores, fences
    ("noria.views.read_kernels", "read", (SHARED, WORDS, WORDS), 6, 0, 2),
    ("noria.views.read_kernels", "read_many", (SHARED, WORDS, WORDS, COLUMNS, types.boolean[::1]), 5, 0, 2),
    ("noria.views.read_kernels", "entry_version", (SHARED, INT), 3, 0, 0),
    ("noria.views.read_kernels", "stable_tick", (SHARED,), 1, 0, 0),
    ("noria.views.slab_kernels", "publish", (WORDS, WORDS, INT, HASH, INT, INT, INT), 0, 4, 1),
    ("noria.views.slab_kernels", "withdraw", (WORDS, INT), 0, 2, 1),
    ("noria.views.write_kernels", "set_tick", (WORDS, INT), 0, 1, 1),
    ("noria.state.symbols.symbol_kernels", "find", (BYTES, SHARED, SHARED, BYTES, INT, INT), 1, 0, 0),
    ("noria.state.symbols.symbol_kernels", "intern", (BYTES, WORDS, WORDS, WORDS, BYTES, INT, INT), 1, 2, 0),
]


@pytest.mark.parametrize(("module", "kernel", "arguments", "loads", "stores", "fences"), KERNELS,
                         ids=[k[1] for k in KERNELS])
def test_the_optimised_kernel_has_its_atomics(
    module: str, kernel: str, arguments: tuple[object, ...], loads: int, stores: int, fences: int
) -> None:
    function = getattr(fresh(module), kernel)
    function.compile(arguments)
    (code,) = function.inspect_llvm().values()
    assert len(re.findall(r"load atomic i64.* acquire", code)) >= loads
    assert len(re.findall(r"store atomic i64.* release", code)) >= stores
    assert len(re.findall(r"fence acq_rel", code)) >= fences


def test_slots_and_versions_are_touched_by_atomics_only() -> None:
    """A release store publishes, an acquire load reads: in the source no other way to a slot of the reader."""
    import inspect

    from noria.views import read_kernels, slab_kernels

    assert not re.findall(r"(?<!load_acquire\()A\[(index \+|at\]|place_of)", inspect.getsource(read_kernels))
    assert not re.findall(r"A\[(index \+ \w+|at)\] =(?!=)", inspect.getsource(slab_kernels))


def test_values_pass_through_unchanged() -> None:
    from noria.state.memory.atomics import load, store

    words = np.zeros(4, np.int64)
    for value in (-(2**63), -1, 0, 2**63 - 1):
        store(words, 2, value)
        assert load(words, 2) == value
    assert words.tolist() == [0, 0, 2**63 - 1, 0]
