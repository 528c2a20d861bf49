"""Reads GRANT, REVOKE and SHOW GRANTS."""

from __future__ import annotations

from noria.accounts import statements as st
from noria.accounts.grants import Level
from noria.accounts.names import AccountName
from noria.accounts.privileges import ALL, KNOWN
from noria.core.errors import not_supported, parse_error
from noria.sql.statements.people.words import account_name, listed, own_or_named, without_secrets
from noria.sql.words import Words

_WORDS = {word for privilege in (*KNOWN, "USAGE") for word in privilege.split()}
Privileges = tuple[tuple[str, tuple[str, ...]], ...]


def grant(r: Words) -> st.Statement:
    """Read GRANT privileges ON … TO …, and GRANT roles TO …, after GRANT."""
    if _names_roles(r, "TO"):
        roles = listed(r)
        _expect(r, "TO")
        names = listed(r)
        admin = r.take("WITH", "ADMIN", "OPTION")
        r.end()
        return st.GrantRoles(roles, names, admin)
    privileges = _privileges(r)
    level = _level(r)
    _expect(r, "TO")
    names = _grantees(r)
    option = r.take("WITH", "GRANT", "OPTION")
    if r.word in ("REQUIRE", "WITH", "AS"):
        raise not_supported(f"GRANT … {r.near()[:40]}", "set the account's options by ALTER USER")
    r.end()
    return st.Grant(privileges, level, names, option)


def _grantees(r: Words) -> tuple[AccountName, ...]:
    names: list[AccountName] = []
    while not names or r.take(","):
        names.append(account_name(r))
        if r.word == "IDENTIFIED":
            refusal = not_supported("GRANT … IDENTIFIED", "make the account by CREATE USER before")
            raise without_secrets(refusal, r.tokens, r.text)
    return tuple(names)


def revoke(r: Words) -> st.Statement:
    """Read REVOKE, after REVOKE."""
    if r.take("IF", "EXISTS"):
        raise not_supported("REVOKE IF EXISTS", "leave IF EXISTS out")
    if _names_roles(r, "FROM"):
        roles = listed(r)
        _expect(r, "FROM")
        names = listed(r)
        r.end()
        return st.GrantRoles(roles, names, False, True)
    privileges = _privileges(r)
    if r.word == "FROM" and {p for p, _ in privileges} == {ALL, "GRANT OPTION"}:
        _expect(r, "FROM")
        everything = st.RevokeAll(listed(r))
        r.end()
        return everything
    level = _level(r)
    _expect(r, "FROM")
    names = listed(r)
    r.end()
    return st.Grant(privileges, level, names, False, True)


def _names_roles(r: Words, end: str) -> bool:
    """Whether roles follow: no ON comes before TO or FROM, and it is not REVOKE ALL PRIVILEGES, GRANT OPTION."""
    words = [t.text.upper() for t in r.tokens[1:]]
    before = words[: words.index(end)] if end in words else words
    return "ON" not in before and before[:1] != ["ALL"]


def _privileges(r: Words) -> Privileges:
    found: list[tuple[str, tuple[str, ...]]] = []
    while not found or r.take(","):
        if r.take("ALL"):
            r.take("PRIVILEGES")
            found.append((ALL, _columns(r)))
            continue
        words = [r.next().text.upper()]
        while r.word in _WORDS and " ".join([*words, r.word]) in _BEGINNINGS:
            words.append(r.next().text.upper())
        found.append((" ".join(words), _columns(r)))
    return tuple(found)


_BEGINNINGS = {" ".join(p.split()[:n]) for p in KNOWN for n in range(1, len(p.split()) + 1)}


def _columns(r: Words) -> tuple[str, ...]:
    if not r.take("("):
        return ()
    names = [r.name()]
    while r.take(","):
        names.append(r.name())
    if not r.take(")"):
        raise parse_error(f"near '{r.near()[:40]}'")
    return tuple(names)


def _level(r: Words) -> Level:
    """Read ON *.*, ON *, ON database.*, ON table or ON database.table."""
    _expect(r, "ON")
    r.take("TABLE")
    if r.word in ("FUNCTION", "PROCEDURE"):
        raise not_supported(f"GRANT ON {r.word}", "there are no stored programs")
    if r.take("*", ".", "*"):
        return Level()
    if r.take("*"):
        return Level(r.names.current)
    first = r.name()
    if not r.take("."):
        return Level(r.names.current, first)
    return Level(first) if r.take("*") else Level(first, r.name())


def _expect(r: Words, word: str) -> None:
    if not r.take(word):
        raise parse_error(f"{word} is missing, near '{r.near()[:40]}'")


def show(r: Words) -> st.Statement:
    """Read SHOW GRANTS [FOR account] [USING roles], after SHOW GRANTS."""
    name = own_or_named(r) if r.take("FOR") else None
    using = listed(r) if r.take("USING") else ()
    r.end()
    return st.ShowGrants(name, using)


__all__ = ["grant", "revoke", "show"]
