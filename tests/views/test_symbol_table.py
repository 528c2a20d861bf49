"""The symbol table against two dictionaries, in anonymous memory, in files, and seen by an attached reader."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noria.core.errors import SqlError
from noria.core.limits import NULL_CODE
from noria.core.plain_symbols import PlainSymbols
from noria.core.symbols import fold
from noria.core.types import Collation
from noria.state.memory.mapped import GrowingMemory
from noria.state.symbols.symbols import AttachedSymbols, SymbolTable
from seeds import cases

TEXTS = st.one_of(st.none(), st.text(st.sampled_from("aAbBzÉéßẞİıΣςжЖ 한☃😀"), max_size=20),
                  st.text(st.characters(exclude_categories=["Cs"]), max_size=5))


def check_same(table: SymbolTable, model: PlainSymbols, codes: np.ndarray, expected: np.ndarray) -> None:
    assert table.texts(codes).equals(model.texts(expected))
    assert table.texts(table.folded(codes)).equals(model.texts(model.folded(expected)))
    for collation in Collation:
        assert table.sort_keys(codes, collation).equals(model.sort_keys(expected, collation))
    assert len(set(codes.tolist())) == len(set(expected.tolist()))
    assert len(table) == len(model._texts)


@settings(max_examples=cases(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.lists(TEXTS, max_size=30), max_size=6), wide=st.booleans(), cut=st.integers(0, 3))
@pytest.mark.parametrize("mapped", [False, True])
def test_like_two_dictionaries(
    mapped: bool, tmp_path: Path, batches: list[list[str | None]], wide: bool, cut: int
) -> None:
    table, model = SymbolTable(str(tmp_path) if mapped else None), PlainSymbols()
    for batch in batches:
        texts = pa.array(batch, pa.large_string() if wide else pa.string())[cut:]
        check_same(table, model, table.intern_many(texts), model.intern_many(texts))
        for text in texts.to_pylist()[:5]:
            if text is not None:
                other = text + "É"
                assert (table.find(other) is None) == (model.find(other) is None)
                check_same(table, model, np.array([table.intern(other)]), np.array([model.intern(other)]))
                assert table.text(table.intern(other)) == other
    if table.path is not None:
        reader = AttachedSymbols(table.path)
        for code, text in enumerate(model._texts):
            assert reader.find(text) == table.find(text)
            assert reader.text(table.intern(text)) == text
            assert reader.find(fold(text)) == table.fold_table[table.intern(text)], code


def test_ids_and_fold_table_stay_in_place_while_it_grows(tmp_path: Path) -> None:
    table = SymbolTable(str(tmp_path))
    assert table.path is not None
    first = table.intern("Straße")
    reader = AttachedSymbols(table.path)
    address = table.fold_table.ctypes.data
    codes = table.intern_many(pa.array([f"Text number {i}" for i in range(100_000)]))
    assert table.intern("Straße") == first == reader.find("Straße")
    assert table.fold_table.ctypes.data == address
    assert len(table.fold_table) > codes.max()
    texts = pa.array(["text number 99999", None, "nobody's", "Text number 5"])
    assert reader.find_many(texts).tolist() == [
        table.find("text number 99999"), NULL_CODE, -1, table.find("Text number 5")]
    assert reader.texts(codes).equals(table.texts(codes))
    assert len(list(Path(table.path).glob("hash.*"))) == 1
    assert 100_000 * 30 < table.memory() < 100_000 * 200


def test_each_life_has_its_own_files(tmp_path: Path) -> None:
    old = SymbolTable(str(tmp_path))
    assert old.path is not None
    old.intern("old")
    reader = AttachedSymbols(old.path)
    new = SymbolTable(str(tmp_path))
    assert new.find("old") is None
    new.remove_predecessors()
    assert not Path(old.path).exists()
    assert reader.text(0) == "old"


@settings(max_examples=cases(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds=st.lists(st.tuples(st.lists(TEXTS, max_size=30), st.integers(1, 4)), min_size=1, max_size=8))
@pytest.mark.parametrize("mapped", [False, True])
def test_a_sweep_frees_unheld_strings_only(
    mapped: bool, tmp_path: Path, rounds: list[tuple[list[str | None], int]]
) -> None:
    table = SymbolTable(str(tmp_path) if mapped else None)
    reader = None if table.path is None else AttachedSymbols(table.path)
    held: dict[str, int] = {}
    for texts, share in rounds:
        for text, code in zip(texts, table.intern_many(pa.array(texts, pa.string())).tolist(), strict=True):
            if text is not None:
                held[text] = code
        dropped = set(list(held)[::share])
        held = {t: c for t, c in held.items() if t not in dropped}
        table.sweep([np.array(list(held.values()), np.int64), np.array([-1, NULL_CODE, 2**40])])
        kept = set(held) | {fold(t) for t in held}
        assert len(table) == len(kept)
        for text, code in held.items():
            assert table.text(code) == text and table.intern(text) == code
            assert table.text(int(table.fold_table[code])) == fold(text)
            assert reader is None or (reader.find(text) == code and reader.text(code) == text)
        for text in dropped - kept:
            assert table.find(text) is None and (reader is None or reader.find(text) is None)
    assert reader is None or not reader.sweeps() & 1


def test_swept_strings_use_no_memory() -> None:
    table = SymbolTable()
    stay = table.intern_many(pa.array([f"stays {i}" for i in range(1000)]))
    sizes, ids = [], []
    for n in range(30):
        ids.append(int(table.intern_many(pa.array([f"Comes and goes {n} {i} ÄÖ" for i in range(2000)])).max()))
        table.sweep([stay])
        sizes.append(table.memory())
    assert len(set(sizes)) == 1 and len(set(ids)) == 1
    assert table.texts(stay).to_pylist() == [f"stays {i}" for i in range(1000)]


def test_null_and_error_codes_have_no_text() -> None:
    table = SymbolTable()
    codes = np.array([table.intern("a"), NULL_CODE], np.int64)
    assert table.texts(codes).to_pylist() == ["a", None]
    assert table.folded(codes).tolist() == codes.tolist()
    assert table.intern("") == table.intern_many(pa.array([""]))[0]


def test_folding_twice_changes_nothing() -> None:
    """Otherwise a key's code would depend on which spelling came first."""
    wrong = [chr(c) for c in range(0x110000)
             if unicodedata.category(chr(c)) != "Cs" and fold(fold(chr(c))) != fold(chr(c))]
    assert not wrong, [f"U+{ord(c):04X}" for c in wrong]


def test_a_sweep_without_room_for_another_table_frees_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = SymbolTable(str(tmp_path))
    codes = table.intern_many(pa.array([f"text {i}" for i in range(1000)]))

    def full(name: str, reserve: int, backed: int) -> GrowingMemory:
        raise SqlError(1021, "HY000", f"Disk full: {name}")

    monkeypatch.setattr(table, "_memory", full)
    assert table.sweep([codes[:10]]) == 0 and len(table) == 1000
    assert table.texts(codes).to_pylist() == [f"text {i}" for i in range(1000)]
    monkeypatch.undo()
    assert table.sweep([codes[:10]]) > 0 and len(table) == 10
