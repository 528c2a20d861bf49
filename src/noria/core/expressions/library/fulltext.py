"""Full-text search: words of a text, searches in natural language and in boolean mode, and relevance.

    words of 'Don''t stop'      don (t is too short), stop
    +quick -fox "brown dog"     a boolean search: must have quick, must not have fox, adds the rows with the phrase

It finds and ranks rows as InnoDB does.  A word is letters, digits and underscores.  Words of fewer than 3 or more than
84 characters, and the default stopwords, are not found.  Call `parsed`, then methods of `Search`.

Keeps true: whether a row matches depends on the row and the search alone.  Its relevance also depends on the number of
rows and, for each word of the search, on the number of rows that have it.  `ft_counts` counts these for one row.
"""

from __future__ import annotations

import math
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import pyarrow as pa
import pyarrow.compute as pc
import regex

from noria.core.expressions.library.declare import ArgumentType, Function
from noria.core.expressions.library.fulltext_search import (
    LEAST,
    MOST,
    Operator,
    Phrase,
    SearchedWord,
    Step,
    Term,
    steps_of,
)
from noria.core.symbols import fold
from noria.core.types import BIGINT, BOOL, DOUBLE

BOOLEAN, BINARY = 1, 2  # flags of the mode of a search: IN BOOLEAN MODE; letters differ in case and accents
STOPWORDS = frozenset(
    "a about an are as at be by com de en for from how i in is it la of on or that the this to was what when where who "
    "will with und the www".split())
_WORD = regex.compile(r"[\p{L}\p{M}\p{N}_]+")
_ASCII = re.compile(r"\w+")
_EVERYWHERE = math.log10(1.0001)  # the weight of a word that all rows have


def words_of(text: str, folds: bool) -> list[tuple[str, bool]]:
    """The words of a text in their order, folded, and whether each can be found."""
    words = _ASCII.findall(text) if text.isascii() else _WORD.findall(text)
    if not words:
        return []
    known = fold("\n".join(words)).split("\n") if folds else words
    return [(w, LEAST <= len(raw) <= MOST and w not in STOPWORDS) for raw, w in zip(words, known, strict=True)]


class Document:
    """The words of one row's columns."""

    def __init__(self, columns: Sequence[str | None], folds: bool):
        self._texts, self._folds = [c for c in columns if c], folds
        ascii = all(c.isascii() for c in self._texts)
        self._folded = [c.lower() if folds else c for c in self._texts] if ascii else None

    @cached_property
    def _columns(self) -> list[list[tuple[str, bool]]]:
        return [words_of(c, self._folds) for c in self._texts]

    @cached_property
    def _counts(self) -> Counter[str]:
        return Counter(word for words in self._columns for word, found in words if found)

    def times(self, word: str) -> int:
        """How often the word occurs.  Plain texts are not split into words for it."""
        if self._folded is None:
            return self._counts[word]
        if not LEAST <= len(word) <= MOST or word in STOPWORDS:
            return 0
        occurs = _occurs(word)
        return sum(len(occurs.findall(c)) for c in self._folded)

    def matching(self, term: Term) -> list[str]:
        """The words that the term finds here, in their order."""
        if not term.prefix:
            return [term.word] if self.times(term.word) else []
        return sorted(w for w in self._counts if w.startswith(term.word))

    def has_phrase(self, phrase: Phrase) -> bool:
        if not phrase.words or not all(map(self.times, phrase.words)):
            return False
        wanted = phrase.written
        for words in self._columns:
            plain = [w for w, _ in words]
            for at, (word, found) in enumerate(words):
                if found and word == wanted[0] and tuple(plain[at : at + len(wanted)]) == wanted:
                    return True
        return False


@lru_cache(maxsize=512)
def _occurs(word: str) -> re.Pattern[str]:
    return re.compile(rf"\b{word}\b", re.ASCII)


@dataclass
class _State:
    """What is known of a row after some steps: whether it is found, its rank without words, and the words found."""

    found: bool = False
    rank: float = 0.0
    words: dict[str, None] = field(default_factory=dict)
    must: bool = False  # a step with + came before


def _limited(rank: float) -> float:
    return max(-1.0, min(1.0, rank))


def _apply(state: _State, operator: Operator, times: int, rank: float = 0.0) -> None:
    """Let a step that found the row `times` times change the row's state."""
    if operator is Operator.MUST:
        if not times or (state.must and not state.found):
            state.found, state.rank, state.words = False, 0.0, {}
        elif state.found:
            state.rank = _limited(rank + state.rank)
        else:
            state.found, state.rank, state.words = True, _limited(rank), {}
        return
    if operator is Operator.NOT:
        if times:
            state.found, state.rank, state.words = False, 0.0, {}
        return
    for _ in range(times):
        if operator is not Operator.LESS_RELEVANT and not state.found:
            state.found, state.rank = True, rank
        if operator is not Operator.NONE and state.found:
            state.rank = _limited(state.rank + (1.0 if operator is Operator.MORE else -1.0))


def _run(steps: Sequence[Step], document: Document) -> _State:
    state = _State()
    for step in steps:
        what = step.what
        if isinstance(what, Term):
            times = len(document.matching(what))
            _apply(state, step.operator, times)
            words = [what.word] if times else []
        elif isinstance(what, Phrase):
            if not what.words and step.operator is not Operator.MUST:
                continue
            has = document.has_phrase(what)
            _apply(state, step.operator, int(has))
            words = list(what.words) if has else []
        else:
            inner = _run(what, document)
            _apply(state, step.operator, int(inner.found), inner.rank)
            words = list(inner.words) if inner.found else []
        if state.found:
            state.words.update(dict.fromkeys(words))
        state.must = state.must or step.operator is Operator.MUST
    return state


def _single(number: float) -> float:
    """The number in single precision, in which InnoDB computes relevance."""
    rounded: float = struct.unpack("f", struct.pack("f", number))[0]
    return rounded


class Search:
    """A search that was parsed.  terms: its distinct words and beginnings of words, whose rows are counted."""

    def __init__(self, text: str, mode: int):
        self.folds = not mode & BINARY
        self._steps = steps_of(text.lower() if self.folds else text, bool(mode & BOOLEAN), self._words)
        self.terms = tuple(dict.fromkeys(_terms(self._steps)))
        self._weights: tuple[tuple[int, ...], dict[str, float]] = ((), {})

    def _words(self, text: str) -> list[SearchedWord]:
        raw = list(_WORD.finditer(text))
        return [SearchedWord(word, len(r[0]), fits, text[r.end() : r.end() + 1])
                for r, (word, fits) in zip(raw, words_of(text, self.folds), strict=True)]

    def matches(self, columns: Sequence[str | None]) -> bool:
        return bool(self._steps) and _run(self._steps, Document(columns, self.folds)).found

    def may_match(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Of many rows, which have the letters of the words that a found row has.  columns: folded if `folds`."""
        found = None
        for some in _needed(self._steps):
            having = _contains(some, columns)
            found = having if found is None else pc.and_(found, having)
        return found if found is not None else pa.nulls(len(columns[0]), pa.bool_())

    def may_count(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Of many rows, which have the letters of a term."""
        return _contains({t.word for t in self.terms}, columns)

    def count(self, number: int, columns: Sequence[str | None]) -> int:
        """How many words of the row the term with this number finds: 1 or 0 unless it is the beginning of words."""
        return len(Document(columns, self.folds).matching(self.terms[number]))

    def relevance(self, counts: Sequence[int], columns: Sequence[str | None]) -> float:
        """The row's relevance.  counts: the number of rows, then the sum of `count` over all rows for each term."""
        document = Document(columns, self.folds)
        state = _run(self._steps, document)
        rank, weights = state.rank, self._weights_of(tuple(counts))
        for word in state.words if state.found else ():
            times = next((document.times(f[0]) for t in self.terms if t.word == word and (
                f := document.matching(t))), 0)
            rank = _single(rank + _single(times * weights.get(word, 0.0)))
        return rank

    def _weights_of(self, counts: tuple[int, ...]) -> dict[str, float]:
        """The weight of each word that has one: the square of log10(rows / rows that have the word).

        A word counts as often as the search names it.  A phrase does not count the words behind one that no row has.
        """
        if self._weights[0] != counts:
            rows, having = counts[0], dict(zip(self.terms, counts[1:], strict=True))
            totals: dict[str, int] = {}
            _count(self._steps, having, totals)
            self._weights = counts, {
                word: (_EVERYWHERE if rows == n else math.log10(rows / n)) ** 2
                for word, n in totals.items() if n and rows}
        return self._weights[1]


def _terms(steps: Sequence[Step]) -> Iterator[Term]:
    for step in steps:
        if isinstance(step.what, Term):
            yield step.what
        elif isinstance(step.what, Phrase):
            yield from map(_plain, step.what.words)
        else:
            yield from _terms(step.what)


def _needed(steps: Sequence[Step]) -> list[set[str]]:
    """Sets of words: a row that is found has one of each set.  There is one set unless each step is of + or -."""
    positive = [s for s in steps if s.operator is not Operator.NOT]
    if any(s.operator is not Operator.MUST for s in positive):
        return [{t.word for t in _terms(positive)}]
    needed: list[set[str]] = []
    for step in positive:
        words = [t.word for t in _terms([step])]
        needed += [{w} for w in words] if isinstance(step.what, Phrase) else [set(words)]
    return needed


def _contains(words: Iterable[str], columns: Sequence[pa.Array]) -> pa.Array:
    """Which rows have the letters of one of the words in one of the columns."""
    found = None
    for column in columns:
        for word in words:
            having = pc.fill_null(pc.match_substring(column, word), False)
            found = having if found is None else pc.or_(found, having)
    return found if found is not None else pa.nulls(len(columns[0]), pa.bool_())


def _count(steps: Sequence[Step], having: dict[Term, int], totals: dict[str, int]) -> None:
    for step in steps:
        what = step.what
        for term in [what] if isinstance(what, Term) else map(_plain, what.words) if isinstance(what, Phrase) else ():
            totals[term.word] = totals.get(term.word, 0) + having[term]
            if not having[term]:
                break
        if isinstance(what, tuple):
            _count(what, having, totals)


def _plain(word: str) -> Term:
    return Term(word, False)


@lru_cache(maxsize=512)
def parsed(text: str, mode: int) -> Search:
    """Parse a search.  Raises SqlError 1064 for one that has no meaning, such as two operators before a word."""
    return Search(text, mode)


# ------------------------------------------------------------------ functions of the library
def _matches(text: str | None, mode: int | None, *columns: str | None) -> bool:
    return text is not None and mode is not None and parsed(text, mode).matches(columns)


def _counted(text: str | None, mode: int | None, number: int | None, *columns: str | None) -> int:
    search = None if text is None or mode is None else parsed(text, mode)
    known = search is not None and number is not None and 0 <= number < len(search.terms)
    return search.count(number, columns) if search is not None and number is not None and known else 0


def _relevance(text: str | None, mode: int | None, counts: str | None, *columns: str | None) -> float:
    """The row's relevance; 0 for counts of another search."""
    if text is None or mode is None or counts is None or not all(c.isdecimal() for c in counts.split(" ")):
        return 0.0
    search, numbers = parsed(text, mode), [int(c) for c in counts.split(" ")]
    return search.relevance(numbers, columns) if len(numbers) == len(search.terms) + 1 else 0.0


def _may_match(text: str, mode: int, texts: Callable[[bool], list[pa.Array]]) -> pa.Array:
    search = parsed(text, mode)
    return search.may_match(texts(search.folds))


def _may_count(text: str, mode: int, texts: Callable[[bool], list[pa.Array]]) -> pa.Array:
    search = parsed(text, mode)
    return search.may_count(texts(search.folds))


T, W = ArgumentType.TEXT, ArgumentType.INT
FULLTEXT: dict[str, Function] = {
    "ft_matches": Function((T, W, T), BOOL, values=_matches, more=True, sees_null=True, internal=True,
                           screen=_may_match),
    "ft_counts": Function((T, W, W, T), BIGINT, values=_counted, more=True, sees_null=True, internal=True,
                          screen=_may_count),
    "ft_relevance": Function((T, W, T, T), DOUBLE, values=_relevance, more=True, sees_null=True, internal=True,
                             screen=_may_match),
}
