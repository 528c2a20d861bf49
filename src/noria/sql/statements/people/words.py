"""Reads names of accounts and roles, and hides passwords in errors and shown texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from sqlglot.tokenizer_core import Token, TokenType

from noria.accounts.names import ANY_HOST, AccountName
from noria.core.errors import SqlError, parse_error
from noria.sql.words import Words

_STRINGS = {TokenType.STRING, TokenType.NATIONAL_STRING}
_QUOTED = {*_STRINGS, TokenType.IDENTIFIER}
_HOST = re.compile(r"[\w.$-]+\Z")
_BEFORE_SECRET = ("BY", "AS", "=", "REPLACE", ":=")
_SECRETS = re.compile(r"\b(?:identified|password)\b", re.IGNORECASE)
_LITERAL = re.compile(r"'(?:[^'\\]|\\.|'')*'?|\"(?:[^\"\\]|\\.|\"\")*\"?", re.DOTALL)
HIDDEN = "<secret>"
SHORTEST = 4  # characters of a password that is hidden where it has no quotes, too: shorter ones are parts of words


def account_name(r: Words) -> AccountName:
    """Read user or user@host.  Without a host it is '%'."""
    t = r.next()
    if t.token_type not in _QUOTED and not re.fullmatch(r"\w+", t.text):
        raise parse_error(f"a name of an account is missing, near '{t.text[:40]}'")
    if not r.take("@"):
        return AccountName(t.text, ANY_HOST)
    host = r.next()
    text = host.text
    while host.token_type not in _QUOTED and (more := r.peek()) is not None and more.start == host.end + 1 and (
            _HOST.match(more.text)):
        host = r.next()
        text += host.text
    return AccountName(t.text, text.lower())


def own_or_named(r: Words) -> AccountName | None:
    """Read the name of an account; None for CURRENT_USER and USER()."""
    for words in (("USER", "(", ")"), ("CURRENT_USER", "(", ")"), ("CURRENT_USER",)):
        t = r.peek()
        if t is not None and t.token_type not in _QUOTED and r.take(*words):
            return None
    return account_name(r)


def listed(r: Words) -> tuple[AccountName, ...]:
    names = [account_name(r)]
    while r.take(","):
        names.append(account_name(r))
    return tuple(names)


def without_secrets(error: SqlError, tokens: Sequence[Token], text: str) -> SqlError:
    """Return the error of a statement without the passwords of its text."""
    message = error.message
    for before, t in pairwise(tokens):
        if t.token_type in _STRINGS and before.text.upper() in _BEFORE_SECRET:
            message = message.replace(text[t.start : t.end + 1], HIDDEN)
            message = message.replace(t.text, HIDDEN) if len(t.text) >= SHORTEST else message
    return SqlError(error.code, error.state, hidden(message))


def hidden(text: str) -> str:
    """Return a text as others may see it: one that may have a password has no literals.

    >>> hidden("ALTER USER a IDENTIFIED BY 'secret'"), hidden("SELECT 'shown'")
    ('ALTER USER a IDENTIFIED BY <secret>', "SELECT 'shown'")
    """
    found = _SECRETS.search(text)
    return text if found is None else text[: found.end()] + _LITERAL.sub(HIDDEN, text[found.end() :])


__all__ = ["HIDDEN", "account_name", "hidden", "listed", "own_or_named", "without_secrets"]
