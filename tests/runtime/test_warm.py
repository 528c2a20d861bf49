"""Nothing is compiled or loaded from the cache while somebody waits."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from noria.runtime import warm
from noria.state import symbol_kernels as kernels
from noria.state.symbols import SymbolTable

KERNELS = (kernels.mark, kernels.sweep, kernels.rehash, kernels.intern, kernels.intern_many, kernels.find)


def test_strings_of_any_batch_and_a_sweep_find_their_kernels(tmp_path: Path) -> None:
    """The first strings of a batch that was written over HTTP waited 1.5 s, and so did everybody at the first sweep."""
    warm.kernels(str(tmp_path))
    before = [tuple(k.signatures) for k in KERNELS]
    assert all(before)
    symbols = SymbolTable()
    for type in (pa.string(), pa.large_string()):
        for texts in (pa.array(["a", None], type), pa.array([], type), pa.array(["a", "b", "c"], type).slice(1),
                      pa.array(["b", "ž"]).cast(type), pa.chunked_array([["x"], ["y"]]).cast(type).combine_chunks()):
            symbols.intern_many(texts)
    symbols.sweep([symbols.intern_many(pa.array(["a"]))])
    assert [tuple(k.signatures) for k in KERNELS] == before
