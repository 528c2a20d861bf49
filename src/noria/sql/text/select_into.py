"""Takes INTO @a, @b out of a SELECT's tokens, wherever it stands: after the items, or at the end.

    SELECT id, n INTO @a, @b FROM t WHERE id = 1    →    SELECT id, n FROM t WHERE id = 1, and a, b
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from noria.core.errors import not_supported, parse_error

_OPEN = {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}


def without_into(tokens: Sequence[Token]) -> tuple[list[Token], tuple[str, ...]]:
    """The tokens without INTO and its variables, and the variables' names.  Raises SqlError for INTO OUTFILE."""
    at = _place(tokens)
    if at is None:
        return list(tokens), ()
    names: list[str] = []
    end = at + 1
    while end + 1 < len(tokens) and tokens[end].text == "@":
        names.append(tokens[end + 1].text.lower())
        end += 2
        if end >= len(tokens) or tokens[end].token_type is not TokenType.COMMA:
            break
        end += 1
    rest = [*tokens[:at], *tokens[end:]]
    if _place(rest) is not None or not names or tokens[end - 1].token_type is TokenType.COMMA:
        raise parse_error(f"INTO takes variables, near '{tokens[at].text}'")
    return rest, tuple(names)


def _place(tokens: Sequence[Token]) -> int | None:
    """Where the SELECT's own INTO is, if it has variables or a file."""
    if not tokens or tokens[0].token_type not in (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN):
        return None
    depth = 0
    for at, token in enumerate(tokens):
        depth += _OPEN.get(token.token_type, 0)
        if depth or token.token_type is not TokenType.INTO or at + 1 == len(tokens):
            continue
        word = tokens[at + 1].text.upper()
        if word in ("OUTFILE", "DUMPFILE"):
            raise not_supported(f"SELECT … INTO {word}", "use `noria export`, or write a file at the client")
        if word == "@":
            return at
    return None


__all__ = ["without_into"]
