"""Checks clear passwords, as HTTP sends them with each request.

Keeps true: a password that was right is remembered as a digest, so the next check takes microseconds.  A changed
password is checked anew.
"""

from __future__ import annotations

import hmac

from noria.accounts import passwords
from noria.accounts.logins import Login


class LoginCheck:
    """The digests of the passwords that were right, by account."""

    def __init__(self) -> None:
        self._learnt: dict[str, tuple[str, bytes]] = {}

    def admits(self, login: Login, password: str) -> bool:
        if not login.secret:
            return not password
        clear = password.encode()
        digest = passwords.twice("sha256", clear)
        if login.fast:
            return hmac.compare_digest(digest.hex(), login.fast)
        secret, known = self._learnt.get(login.name.plain, ("", b""))
        if secret == login.secret:
            return hmac.compare_digest(digest, known)
        right = passwords.proves(login.secret, clear)
        if right:
            self._learnt[login.name.plain] = login.secret, digest
        return right


__all__ = ["LoginCheck"]
