"""Rewrites the tokens of MySQL's statements that sqlglot does not read.

* `INTERNAL` in CREATE VIEW, FEED instead of VIEW, and REPLACE INTO: each function also returns whether it was there.
* ALGORITHM, DEFINER and SQL SECURITY before VIEW, kinds of indexes, and priorities are removed: none has an effect.
* CREATE FULLTEXT INDEX is read as ALTER TABLE … ADD.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from noria.core.errors import parse_error
from noria.sql.text.comments import SHOWN


def without_priority(tokens: list[Token]) -> list[Token]:
    """Remove LOW_PRIORITY, HIGH_PRIORITY and QUICK after the verb of a write: all writes have one priority."""
    verb, at = tokens[0].text.upper(), 1
    if verb not in ("INSERT", "REPLACE", "UPDATE", "DELETE"):
        return tokens
    while (word := _bare(tokens, at)) in ("LOW_PRIORITY", "HIGH_PRIORITY") or (word == "QUICK" and verb == "DELETE"):
        at += 1
    return tokens if at == 1 else [tokens[0], *tokens[at:]]


def without_temporary(tokens: list[Token]) -> tuple[list[Token], bool]:
    """CREATE and DROP TEMPORARY TABLE   →   CREATE and DROP TABLE, and whether TEMPORARY was there."""
    if tokens[0].text.upper() in ("CREATE", "DROP") and _bare(tokens, 1) == "TEMPORARY" and (
            _bare(tokens, 2) in ("TABLE", "TABLES")):
        return [tokens[0], *tokens[2:]], True
    return tokens, False


def without_ignore(tokens: list[Token]) -> tuple[list[Token], bool]:
    """UPDATE IGNORE and DELETE IGNORE   →   UPDATE and DELETE, and whether IGNORE was there."""
    if tokens[0].text.upper() in ("UPDATE", "DELETE") and _bare(tokens, 1) == "IGNORE":
        return [tokens[0], *tokens[2:]], True
    return tokens, False


def _bare(tokens: Sequence[Token], at: int) -> str:
    """The word at a place, in capitals; "" for a quoted name or the end."""
    if at >= len(tokens) or tokens[at].token_type in (TokenType.IDENTIFIER, TokenType.STRING):
        return ""
    return tokens[at].text.upper()


_MODIFIERS = ("SQL_CALC_FOUND_ROWS", "SQL_NO_CACHE", "SQL_CACHE", "SQL_BUFFER_RESULT", "SQL_SMALL_RESULT",
              "SQL_BIG_RESULT", "HIGH_PRIORITY", "STRAIGHT_JOIN")


def distinct_first(tokens: list[Token]) -> list[Token]:
    """SELECT SQL_CALC_FOUND_ROWS DISTINCT   →   SELECT DISTINCT SQL_CALC_FOUND_ROWS"""
    out = tokens
    for at, token in enumerate(tokens):
        if token.token_type is not TokenType.SELECT or _bare(tokens, at + 1) not in _MODIFIERS:
            continue
        end = at + 1
        while _bare(tokens, end) in _MODIFIERS:
            end += 1
        if end < len(tokens) and tokens[end].token_type is TokenType.DISTINCT:
            out = [*out[: at + 1], out[end], *out[at + 1 : end], *out[end + 1 :]]
    return out


def without_internal(tokens: list[Token]) -> tuple[list[Token], bool]:
    """CREATE [OR REPLACE] INTERNAL VIEW   →   CREATE [OR REPLACE] VIEW, and whether INTERNAL was there."""
    words = [t.text.upper() for t in tokens[:5]]
    if words[:1] == ["CREATE"] and "INTERNAL" in words:
        at = words.index("INTERNAL")
        if words[at + 1 : at + 2] == ["VIEW"] and words[1:at] in ([], ["OR", "REPLACE"]):
            return tokens[:at] + tokens[at + 1 :], True
    return tokens, False


_OPTIONS = {"ALGORITHM": ("=", ("UNDEFINED", "MERGE", "TEMPTABLE")), "SQL SECURITY": ("", ("DEFINER", "INVOKER"))}


def without_view_options(tokens: list[Token], text: str) -> list[Token]:
    """CREATE [OR REPLACE] [ALGORITHM = a] [DEFINER = user] [SQL SECURITY s] VIEW   →   CREATE [OR REPLACE] VIEW"""
    words = [t.text.upper() for t in tokens[:20]]
    at = 3 if words[:3] == ["CREATE", "OR", "REPLACE"] else 1
    if words[0] != "CREATE" or "VIEW" not in words[at:]:
        return tokens
    rest = at
    while (word := "".join(words[rest : rest + 1])) in ("DEFINER", *_OPTIONS):
        if word == "DEFINER":
            rest += _length_of_user(tokens[rest:], text)
            continue
        sign, known = _OPTIONS[word]
        value = rest + 1 + len(sign)
        if words[rest + 1 : value] != [*sign] or "".join(words[value : value + 1]) not in known:
            raise parse_error(f"{word} takes {', '.join(known)}, near '{text[tokens[rest].start :][:SHOWN]}'")
        rest = value + 1
    if rest == at:
        return tokens
    if words[rest : rest + 1] != ["VIEW"]:
        raise parse_error(f"VIEW is missing, near '{text[tokens[at].start :][:SHOWN]}'")
    return [*tokens[:at], *tokens[rest:]]


def _length_of_user(tokens: Sequence[Token], text: str) -> int:
    """The number of tokens of DEFINER = name[@host] or DEFINER = CURRENT_USER[()]."""
    words = [t.text for t in tokens[:5]]
    if words[1:2] == ["="] and len(words) > 3:
        if words[2].upper() == "CURRENT_USER":
            return 5 if words[3:5] == ["(", ")"] else 3
        return 5 if words[3] == "@" else 3
    raise parse_error(f"DEFINER takes a user, near '{text[tokens[0].start :][:SHOWN]}'")


def view_for_feed(tokens: list[Token]) -> tuple[list[Token], bool]:
    """Replace FEED by VIEW in CREATE [OR REPLACE] FEED and DROP FEED, and return whether it was there."""
    words = [t.text.upper() for t in tokens[:4]]
    at = words.index("FEED") if "FEED" in words else 0
    if words[:at] not in (["CREATE"], ["CREATE", "OR", "REPLACE"], ["DROP"]):
        return tokens, False
    word = tokens[at]
    view = Token(TokenType.VIEW, "VIEW", word.line, word.col, word.start, word.end)
    return [*tokens[:at], view, *tokens[at + 1 :]], True


def added_fulltext(tokens: list[Token]) -> list[Token]:
    """CREATE FULLTEXT INDEX name ON t (a)   →   ALTER TABLE t ADD FULLTEXT INDEX name (a)"""
    create, *rest = tokens
    if create.text.upper() != "CREATE" or [_bare(tokens, 1), _bare(tokens, 2)] != ["FULLTEXT", "INDEX"]:
        return tokens
    on = next((at for at, t in enumerate(rest) if t.token_type is TokenType.ON), len(rest))
    end = next((at for at, t in enumerate(rest) if t.token_type is TokenType.L_PAREN), len(rest))
    if not 2 < on < end:
        return tokens
    alter, table, add = (Token(kind, text, create.line, create.col, create.start, create.end) for kind, text in (
        (TokenType.ALTER, "ALTER"), (TokenType.TABLE, "TABLE"), (TokenType.VAR, "ADD")))
    return [alter, table, *rest[on + 1 : end], add, *rest[:on], *rest[end:]]


def without_index_type(tokens: list[Token]) -> list[Token]:
    """Remove USING BTREE and USING HASH from a CREATE: there is only one kind of index."""
    if tokens[0].text.upper() != "CREATE":
        return tokens
    out: list[Token] = []
    for token in tokens:
        if token.text.upper() in ("BTREE", "HASH") and out and out[-1].text.upper() == "USING":
            out.pop()
        else:
            out.append(token)
    return out


_SERIAL = {"BIGINT": TokenType.BIGINT, "UNSIGNED": TokenType.UBIGINT, "NOT": TokenType.NOT, "NULL": TokenType.NULL,
           "AUTO_INCREMENT": TokenType.AUTO_INCREMENT, "UNIQUE": TokenType.UNIQUE}


def plain_types(tokens: list[Token]) -> list[Token]:
    """Write types in CREATE and ALTER TABLE by other names: NATIONAL is removed, since all texts are Unicode, and
    SERIAL becomes BIGINT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE."""
    if tokens[0].text.upper() not in ("CREATE", "ALTER"):
        return tokens
    out: list[Token] = []
    for at, token in enumerate(tokens):
        word, after = _bare(tokens, at), _bare(tokens, at + 1)
        if word == "NATIONAL" and after in ("VARCHAR", "CHAR", "CHARACTER", "TEXT"):
            continue
        begins = at > 1 and tokens[at - 2].text.upper() in ("(", ",", "COLUMN", "ADD", "MODIFY")
        if word == "SERIAL" and begins and tokens[at - 1].token_type not in (TokenType.COMMA, TokenType.L_PAREN):
            out += [Token(kind, text, token.line, token.col, token.start, token.end) for text, kind in _SERIAL.items()]
        else:
            out.append(token)
    return out


def insert_for_replace(tokens: list[Token]) -> tuple[list[Token], bool]:
    """REPLACE [INTO]   →   INSERT INTO, and whether it was REPLACE."""
    first = tokens[0]
    if first.text.upper() != "REPLACE":
        return tokens, False
    insert = Token(TokenType.INSERT, "INSERT", first.line, first.col, first.start, first.end)
    rest = tokens[1:]
    if rest and rest[0].text.upper() in ("LOW_PRIORITY", "DELAYED"):
        rest = rest[1:]
    if rest and rest[0].token_type is not TokenType.INTO:
        rest = [Token(TokenType.INTO, "INTO", first.line, first.col, first.end, first.end), *rest]
    return [insert, *rest], True
