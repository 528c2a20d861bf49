"""Parses the text of a full-text search to the steps that InnoDB does for it, in InnoDB's order.

    quick fox           quick; fox                        each adds the rows that have the word
    fox +quick -dog     fox; + quick; - dog               + keeps the rows that have the word, - removes them
    +(>brown <fox)      + (> brown; < fox)                brackets are steps of their own

The steps of one list run in three passes: those without + and -, then those with +, then those with -.  As in InnoDB,
an opening bracket begins a new list: what is before it is complete, so `+a (b)` also finds rows with b and without a.

Keeps true: a text that InnoDB refuses as a syntax error raises SqlError 1064.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from noria.core.errors import SqlError, not_supported, parse_error

MOST_WORDS, DEEPEST = 128, 31  # words of a phrase, and brackets within brackets
LEAST, MOST = 3, 84  # characters of a word that can be found


class SearchedWord(NamedTuple):
    """A word of a search, folded.  fits: whether it can be found; after: the character behind it, "" at the end."""

    word: str
    characters: int
    fits: bool
    after: str


Words = Callable[[str], list[SearchedWord]]  # the words of a part of the text


class Operator(Enum):
    NONE = ""
    MUST = "+"
    NOT = "-"
    LESS_RELEVANT = "~"
    MORE = ">"
    LESS = "<"


@dataclass(frozen=True)
class Term:
    """A word, or the beginning of words."""

    word: str
    prefix: bool


@dataclass(frozen=True)
class Phrase:
    """Words beside each other.  words: those that can be found; written: all, from the first that can be found."""

    words: tuple[str, ...]
    written: tuple[str, ...]


@dataclass(frozen=True)
class Step:
    operator: Operator
    what: Term | Phrase | tuple[Step, ...]


@dataclass
class _List:
    """Parts of the search that one pass visits.  inherits: the operator of the list around it, if that was delayed."""

    parts: list[_List | _Leaf | Operator] = field(default_factory=list)
    inherits: Operator = Operator.NONE


@dataclass
class _Leaf:
    what: Term | Phrase | _List
    done: bool = False


def steps_of(text: str, boolean: bool, words: Words) -> tuple[Step, ...]:
    """The steps of a search.  words: reads the words of a part of the text."""
    tokens = [(m.lastgroup or "", m[0]) for m in (_BOOLEAN if boolean else _NATURAL).finditer(text)]
    parser = _Parser([t for t in tokens if t[0] != "none"], words)
    whole = parser.items(0)
    if not parser.at_end:
        raise parser.wrong()
    return () if whole is None else _steps(whole)


# ------------------------------------------------------------------ reading
_BOOLEAN = re.compile(r'(?P<none>[\t ]+(?![^" \n*()+\-<>~@%])|[\n%]| )|(?P<sign>[*()+\-<>~@])|'
                      r'(?P<text>"[^"\n]*")|(?P<number>[0-9]+(?=[" \n*()+\-<>~@%]|$))|(?P<term>[^" \n*()+\-<>~@%]+)|'
                      r'(?P<other>")')
_NATURAL = re.compile(r'(?P<none>[\n%]| )|(?P<sign>\*(?=[" \n%]|$))|(?P<text>"[^"\n]*")|(?P<term>[^" \n%]+)|'
                      r'(?P<other>")')
_PREFIXES = {o.value: o for o in Operator if o.value}


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]], words: Words):
        self._tokens = [t for t in tokens if t[0] != "other"]  # a quotation mark by itself means nothing
        self._at, self._words = 0, words

    @property
    def at_end(self) -> bool:
        return self._at == len(self._tokens)

    def _peek(self) -> tuple[str, str]:
        return ("", "") if self.at_end else self._tokens[self._at]

    def _takes(self, sign: str) -> bool:
        found = self._peek() == ("sign", sign)
        self._at += found
        return found

    def wrong(self) -> SqlError:
        near = "its end" if self.at_end else f"'{self._peek()[1]}'"
        return parse_error(f"the search of MATCH … AGAINST has a syntax error at {near}")

    def items(self, depth: int) -> _List | None:
        if depth > DEEPEST:
            raise parse_error(f"the search of MATCH … AGAINST has more than {DEEPEST} brackets within each other")
        made: _List | None = None
        while not self.at_end and self._peek() != ("sign", ")"):
            sign = self._peek()[1] if self._peek()[0] == "sign" else ""
            operator = _PREFIXES.get(sign)
            self._at += operator is not None
            if self._takes("("):
                made = _List([] if made is None else [made])
                inner = self.items(depth + 1)
                if not self._takes(")"):
                    raise self.wrong()
                leaf: list[_List | _Leaf | Operator] = [] if inner is None else [_Leaf(inner)]
                made.parts += leaf if operator is None else [_List([operator, *leaf])]
                continue
            part = self._part()
            if operator is not None:
                part = _List([operator] if part is None else [operator, part])
            made = made or _List()
            if part is not None:
                made.parts.append(part)
        return made

    def _part(self) -> _List | _Leaf | None:
        """A word or a phrase with what follows it."""
        while self._takes("*"):  # before a word it means nothing
            if self._peek()[0] not in ("term", "number", "sign"):
                raise self.wrong()
        kind, text = self._peek()
        if kind not in ("term", "number", "text"):
            raise self.wrong()
        self._at += 1
        if kind == "text":
            if self._takes("@"):
                raise not_supported('a distance after a phrase, as in "a b" @3, in MATCH … AGAINST',
                                    "search for +a +b")
            return self._phrase(text[1:-1])
        terms = self._terms(text)
        if self._takes("*") and terms:
            terms[-1] = Term(terms[-1].word, True)
        leaves = [_Leaf(t) for t in terms]
        return _List(list(leaves)) if len(leaves) > 1 else leaves[0] if leaves else None

    def _terms(self, text: str) -> list[Term]:
        """The words of a part.  A first word that is too short stays, and is not found, except the O of O'Brien."""
        out: list[Term] = []
        for word, characters, _, after in self._words(text):
            elided = not out and characters == 1 and after == "'"
            if characters <= MOST and (not out or characters >= LEAST) and not elided:
                out.append(Term(word, False))
        return out

    def _phrase(self, text: str) -> _Leaf | None:
        if not text:
            return None
        found = self._words(text)
        first = next((at for at, w in enumerate(found) if w.fits), len(found))
        words = tuple(w.word for w in found if w.fits)
        if len(words) > MOST_WORDS:
            raise parse_error(f"Too many words in a FTS phrase or proximity search: at most {MOST_WORDS}")
        return _Leaf(Phrase(words, tuple(w.word for w in found[first:])))


# ------------------------------------------------------------------ ordering
class _Pass(Enum):
    FIRST = Operator.NONE
    MUST = Operator.MUST
    NOT = Operator.NOT


def _steps(whole: _List) -> tuple[Step, ...]:
    out: list[Step] = []
    _visit(whole, Operator.NONE, _Pass.FIRST, out)
    return tuple(out)


def _visit(of: _List, operator: Operator, turn: _Pass, out: list[Step]) -> bool:
    """Add the steps of a list in one pass.  Returns whether parts wait for a later pass."""
    waits = delayed = False
    for part in of.parts:
        if isinstance(part, Operator):
            operator = part
        elif isinstance(part, _List):
            if turn is not _Pass.FIRST:
                continue
            delayed = _visit(part, operator, turn, out) or delayed
            if delayed:
                part.inherits = operator
        elif not part.done:
            if operator in (Operator.MUST, Operator.NOT):
                if turn.value is operator:
                    _add(part, operator, out)
                elif turn is _Pass.FIRST:
                    waits = True
            elif turn is _Pass.FIRST:
                _add(part, operator, out)
    if delayed:
        _again(of, out)
    return waits


def _again(of: _List, out: list[Step]) -> None:
    """Run the passes for + and then for - over the lists within a list."""
    lists = [part for part in of.parts if isinstance(part, _List)]
    for part in lists:
        if part.inherits is not Operator.NOT:
            _visit(part, Operator.MUST, _Pass.MUST, out)
    for part in lists:
        _visit(part, Operator.NOT, _Pass.NOT, out)


def _add(leaf: _Leaf, operator: Operator, out: list[Step]) -> None:
    leaf.done = True
    out.append(Step(operator, _steps(leaf.what) if isinstance(leaf.what, _List) else leaf.what))
