"""The policies of passwords: variables as MySQL's component validate_password has them, and what they require.

Keeps true: only SET GLOBAL changes them, and they are kept with the accounts.  A server begins without a requirement
(`validate_password.policy` is OFF here), because MySQL has none either until the component is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noria.core.errors import SqlError
from noria.core.errors.codes import NOT_VALID_PASSWORD, WRONG_TYPE_FOR_VAR, WRONG_VALUE_FOR_VAR

POLICIES = ("OFF", "LOW", "MEDIUM")
_PREFIX = "validate_password."
DEFAULTS: Mapping[str, Any] = {
    "default_password_lifetime": 0, _PREFIX + "check_user_name": 1, _PREFIX + "length": 8,
    _PREFIX + "mixed_case_count": 1, _PREFIX + "number_count": 1, _PREFIX + "policy": "OFF",
    _PREFIX + "special_char_count": 1}
_MOST = {"default_password_lifetime": 65_535}


def all_of(changed: Mapping[str, Any]) -> dict[str, Any]:
    """The variables with their values."""
    return {**DEFAULTS, **changed}


def checked(name: str, value: Any) -> Any:
    """Return the value that SET GLOBAL gives to a variable of `DEFAULTS`.  Raises SqlError."""
    if str(value).upper() == "DEFAULT":
        return DEFAULTS[name]
    if name.endswith(".policy"):
        word = {0: "LOW", 1: "MEDIUM", "0": "LOW", "1": "MEDIUM"}.get(value, str(value).upper())
        if word not in POLICIES:
            raise SqlError(*WRONG_VALUE_FOR_VAR, f"Variable '{name}' can't be set to the value of '{value}'; there are "
                                                 f"{', '.join(POLICIES)}")
        return word
    if name.endswith("check_user_name"):
        on = {"ON": 1, "OFF": 0, "1": 1, "0": 0, "TRUE": 1, "FALSE": 0}.get(str(value).upper())
        if on is None:
            raise SqlError(*WRONG_VALUE_FOR_VAR, f"Variable '{name}' can't be set to the value of '{value}'")
        return on
    if type(value) is not int:
        raise SqlError(*WRONG_TYPE_FOR_VAR, f"Incorrect argument type to variable '{name}'")
    return max(0, min(value, _MOST.get(name, 2**31 - 1)))


def check(password: str, users: tuple[str, ...], changed: Mapping[str, Any]) -> None:
    """Raise error 1819 if a new password does not satisfy the policy.  users: names that must not be the password."""
    known = all_of(changed)
    if known[_PREFIX + "policy"] == "OFF":
        return
    right = len(password) >= known[_PREFIX + "length"]
    if known[_PREFIX + "check_user_name"]:
        right = right and not any(user and password in (user, user[::-1]) for user in users)
    if known[_PREFIX + "policy"] == "MEDIUM":
        mixed = known[_PREFIX + "mixed_case_count"]
        right = right and sum(c.islower() for c in password) >= mixed and sum(c.isupper() for c in password) >= mixed
        right = right and sum(c.isdigit() for c in password) >= known[_PREFIX + "number_count"]
        right = right and sum(not c.isalnum() for c in password) >= known[_PREFIX + "special_char_count"]
    if not right:
        raise SqlError(*NOT_VALID_PASSWORD, "Your password does not satisfy the current policy requirements")


__all__ = ["DEFAULTS", "POLICIES", "all_of", "check", "checked"]
