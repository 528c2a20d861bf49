"""Functions of text: parts and positions, padding, digests, lists in text, regular expressions.

Positions count characters from 1.  The functions here compare exactly.  For those that search by the collation, such as
LOCATE, the caller folds the arguments first.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from functools import lru_cache
from typing import Any

import regex

from noria.core.errors import SqlError
from noria.core.errors.codes import REGEXP_ILLEGAL_ARGUMENT
from noria.core.expressions.library.declare import ArgumentType, Function, Types, text_of
from noria.core.limits import MAX_PACKET_BYTES, REGEXP_S
from noria.core.symbols import fold
from noria.core.types import BIGINT, BOOL, BYTES, TEXT

Text = Any  # str, or bytes if the function receives bytes


def substring(text: Text, start: int, length: int | None = None) -> Text:
    """Return a part of a text.  Negative positions count from the end.  It is empty at 0 and outside the text."""
    begin = start - 1 if start > 0 else len(text) + start
    if start == 0 or begin < 0 or (length is not None and length <= 0):
        return text[:0]
    return text[begin:] if length is None else text[begin : begin + length]


def trimmed(text: Text, side: str = "both", what: Text | None = None) -> Text:
    what = (b" " if isinstance(text, bytes) else " ") if what is None else what
    if not what:
        return text
    while side != "trailing" and text.startswith(what):
        text = text[len(what) :]
    while side != "leading" and text.endswith(what):
        text = text[: -len(what)]
    return text


def _pad(left: bool) -> Any:
    def pad(text: str, length: int, fill: str = " ") -> str | None:
        missing = length - len(text)
        if not 0 <= length <= MAX_PACKET_BYTES or (missing > 0 and not fill):
            return None
        more = (fill * (missing // len(fill) + 1))[:missing] if missing > 0 else ""
        return (more + text)[:length] if left else (text + more)[:length]

    return pad


def repeated(text: Text, times: int) -> Text | None:
    """Repeat a text.  Return None (NULL) if it would be larger than a packet."""
    times = max(times, 0)
    return text * times if len(text) * times <= MAX_PACKET_BYTES else None


def located(what: str, text: str, start: int = 1) -> int:
    """Return the position of a text in another, or 0.  The caller has folded both if the collation requires it."""
    return text.find(what, start - 1) + 1 if 1 <= start <= len(text) + 1 else 0


def substring_index(text: str, delimiter: str, count: int) -> str:
    """Return the text before the count-th delimiter or, if count is negative, after it from the end."""
    if not delimiter or not count:
        return ""
    parts = text.split(delimiter)
    return delimiter.join(parts[:count] if count > 0 else parts[count:])


def inserted(text: str, start: int, length: int, what: str) -> str:
    if not 1 <= start <= len(text):
        return text
    end = len(text) if length < 0 else start - 1 + length
    return text[: start - 1] + what + text[end:]


def field(wanted: Any, *among: Any) -> int:
    """Return the position of a value among others, or 0."""
    return 0 if wanted is None else next((i for i, v in enumerate(among, 1) if v == wanted), 0)


def find_in_set(wanted: str, listed: str) -> int:
    if "," in wanted or not listed:
        return 0
    members = listed.split(",")
    return members.index(wanted) + 1 if wanted in members else 0


def elt(n: int | None, *texts: str | None) -> str | None:
    return texts[n - 1] if n is not None and 1 <= n <= len(texts) else None


def concat_ws(separator: str | None, *texts: str | None) -> str | None:
    return None if separator is None else separator.join(t for t in texts if t is not None)


def quoted(text: str | None) -> str:
    if text is None:
        return "NULL"
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0").replace("\x1a", "\\Z")
    return f"'{escaped}'"


def characters(*codes: int | None) -> bytes:
    """Return the bytes of each number, as many as it needs, as CHAR(77, 121) does."""
    out = b""
    for code in codes:
        if code is not None:
            n = code & 0xFFFFFFFF
            out += n.to_bytes(max((n.bit_length() + 7) // 8, 1), "big")
    return out


def _utf16_characters(*codes: int | None) -> str | None:
    """The text of numbers' bytes in UTF-16.  A zero is added before an odd number of bytes."""
    parts = [characters(code) for code in codes]
    try:
        return b"".join(b"\0" * (len(p) % 2) + p for p in parts).decode("utf-16-be")
    except UnicodeDecodeError:
        return None


def _ordinal(text: str) -> int:
    """Return the bytes of the first character as a number."""
    return int.from_bytes(text[:1].encode(), "big")


def unhex(digits: str) -> bytes | None:
    try:
        return bytes.fromhex(digits if len(digits) % 2 == 0 else "0" + digits) if not re.search(r"\s", digits) else None
    except ValueError:
        return None


def _from_base64(text: str) -> bytes | None:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return None


def _to_base64(data: bytes) -> str:
    """Encode as base64 in lines of 76 characters, as MySQL does."""
    encoded = base64.b64encode(data).decode()
    return "\n".join(encoded[i : i + 76] for i in range(0, len(encoded), 76))


def sha2(data: bytes, bits: int) -> str | None:
    made = {0: hashlib.sha256, 224: hashlib.sha224, 256: hashlib.sha256, 384: hashlib.sha384,
            512: hashlib.sha512}.get(bits)
    return None if made is None else made(data).hexdigest()


def soundex(text: str) -> str:
    """Return the sound of a word: its first letter and a digit for each change of sound, at least four characters."""
    groups = {c: d for d, letters in enumerate(("BFPV", "CGJKQSXZ", "DT", "L", "MN", "R"), 1) for c in letters}
    letters = [c for c in text.upper() if c.isalpha()]
    if not letters:
        return ""
    out, last = letters[0], groups.get(letters[0], 0)
    for c in letters[1:]:
        if c in "HW":
            continue
        sound = groups.get(c, 0)
        if sound and sound != last:
            out += str(sound)
        last = sound
    return out.ljust(4, "0")


# ------------------------------------------------------------------ regular expressions
_CLASSES = {"alpha": "^\\W\\d_", "digit": "0-9", "alnum": "^\\W_", "upper": "A-Z", "lower": "a-z", "space": "\\s",
            "blank": " \\t", "punct": "!-/:-@\\[-`{-~", "xdigit": "0-9A-Fa-f", "word": "\\w", "cntrl": "\\x00-\\x1f",
            "print": " -~", "graph": "!-~"}


@lru_cache(maxsize=512)
def pattern(text: str, flags: str) -> regex.Pattern[str]:
    """Translate and compile a pattern for the module `regex`.

    Matches need a `timeout`, because backtracking may not end.  Classes such as [[:digit:]] and the word marks [[:<:]]
    are translated.  Flags: c is exact, i ignores case, m lets ^ and $ match at each line, n lets the dot match a
    newline, u changes nothing: only \\n ends a line.  Raises SqlError 3685 for an invalid pattern.
    """
    chosen = regex.VERSION0 | (regex.IGNORECASE if "i" in flags and flags.rfind("i") > flags.rfind("c") else 0)
    chosen |= (regex.MULTILINE if "m" in flags else 0) | (regex.DOTALL if "n" in flags else 0)
    text = text.replace("[[:<:]]", r"\b(?=\w)").replace("[[:>:]]", r"\b(?<=\w)")
    text = re.sub(r"\[\[:(alpha|alnum):\]\]", lambda m: f"[{_CLASSES[m[1]]}]", text)
    text = re.sub(r"\[:(\w+):\]", lambda m: {"alpha": "A-Za-z", "alnum": "A-Za-z0-9"}.get(m[1], _CLASSES.get(
        m[1], m[0])), text)
    try:
        return regex.compile(text, chosen)
    except (regex.error, RecursionError) as e:
        raise SqlError(*REGEXP_ILLEGAL_ARGUMENT, f"Illegal argument to a regular expression: {e}") from None


def is_quick(expression: str) -> bool:
    """True if at most one part may repeat without bound, and it is no group.  Then each match is fast."""
    return len(re.findall(r"[*+]|\{\d+,\}", expression)) < 2 and not re.search(r"\)[*+{]", expression)


def regexp_like(text: str, expression: str, flags: str = "") -> bool:
    return pattern(expression, flags).search(text, timeout=REGEXP_S) is not None


def regexp_substr(text: str, expression: str, flags: str) -> str | None:
    found = pattern(expression, flags).search(text, timeout=REGEXP_S)
    return None if found is None else found[0]


def regexp_instr(text: str, expression: str, flags: str) -> int:
    found = pattern(expression, flags).search(text, timeout=REGEXP_S)
    return 0 if found is None else found.start() + 1


def regexp_replace(text: str, expression: str, new: str, flags: str) -> str:
    """Replace all matches.  $1 in the new text is the match of the first group."""
    template = re.sub(r"\\(?![0-9\\])", r"\\\\", new)
    made: str = pattern(expression, flags).sub(re.sub(r"\$(\d)", r"\\g<\1>", template), text, timeout=REGEXP_S)
    return made


def make_set(bits: int, *texts: str | None) -> str:
    """Join the texts whose bits are set, the first by the least bit."""
    return ",".join(t for i, t in enumerate(texts) if i < 64 and bits >> i & 1 and t is not None)


def export_set(bits: int, on: str, off: str, between: str = ",", count: int = 64) -> str | None:
    """Join a text for each bit, the least bit first.  Return None for a result that no packet can hold."""
    count = count if 0 <= count < 64 else 64
    if count * (max(len(on), len(off)) + len(between)) > MAX_PACKET_BYTES:
        return None
    return between.join(on if bits >> i & 1 else off for i in range(count))


def format_bytes(count: float) -> str:
    """Print a number of bytes in the largest unit that leaves at least one."""
    size, unit = abs(count), 0
    while size >= 1024 and unit < len(_BYTE_UNITS):
        size, unit = size / 1024, unit + 1
    return f"{int(count):4d} bytes" if not unit else f"{size if count >= 0 else -size:.2f} {_BYTE_UNITS[unit - 1]}"


_BYTE_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def _first(types: Types) -> Any:
    return text_of(types[:1])


T, B, S, W = ArgumentType.TEXT, ArgumentType.BYTES, ArgumentType.STRING, ArgumentType.INT
TEXTS: dict[str, Function] = {
    "lower": Function((S,), text_of, values=lambda t: t.lower() if isinstance(t, str) else t),  # bytes have no case
    "upper": Function((S,), text_of, values=lambda t: t.upper() if isinstance(t, str) else t),
    "trim": Function((S,), text_of, values=lambda t: trimmed(t)),
    "ltrim": Function((S,), text_of, values=lambda t: trimmed(t, "leading")),
    "rtrim": Function((S,), text_of, values=lambda t: trimmed(t, "trailing")),
    "trim_both": Function((T, T), _first, values=lambda t, w: trimmed(t, "both", w), internal=True),
    "trim_leading": Function((T, T), _first, values=lambda t, w: trimmed(t, "leading", w), internal=True),
    "trim_trailing": Function((T, T), _first, values=lambda t, w: trimmed(t, "trailing", w), internal=True),
    "length": Function((B,), BIGINT, values=len),
    "bit_length": Function((B,), BIGINT, values=lambda b: 8 * len(b)),
    "char_length": Function((S,), BIGINT, values=len),
    "substring": Function((S, W, W), _first, values=substring, least=2),
    "left": Function((S, W), _first, values=lambda t, n: t[: max(n, 0)]),
    "right": Function((S, W), _first, values=lambda t, n: t[-n:] if n > 0 else t[:0]),
    "lpad": Function((T, W, T), text_of, values=_pad(True), least=2, nullable=True),
    "rpad": Function((T, W, T), text_of, values=_pad(False), least=2, nullable=True),
    "replace": Function((T, T, T), text_of, values=lambda t, old, new: t.replace(old, new) if old else t),
    "reverse": Function((S,), text_of, values=lambda t: t[::-1]),
    "repeat": Function((S, W), _first, values=repeated, nullable=True),
    "space": Function((W,), TEXT, values=lambda n: repeated(" ", n), nullable=True),
    "insert": Function((T, W, W, T), text_of, values=inserted),
    "locate": Function((T, T, W), BIGINT, values=located, least=2),
    "substring_index": Function((T, T, W), text_of, values=substring_index),
    "concat_ws": Function((T, T), text_of, values=concat_ws, more=True, sees_null=True, nullable=True),
    "field": Function((ArgumentType.ANY, ArgumentType.ANY), BIGINT, values=field, more=True, sees_null=True),
    "find_in_set": Function((T, T), BIGINT, values=find_in_set),
    "elt": Function((W, T), text_of, values=elt, more=True, sees_null=True, nullable=True),
    "make_set": Function((W, T), text_of, values=lambda bits, *texts: None if bits is None else make_set(bits, *texts),
                         more=True, least=2, sees_null=True, nullable=True),
    "export_set": Function((W, T, T, T, W), text_of, values=export_set, least=3, nullable=True),
    "format_bytes": Function((ArgumentType.DOUBLE,), TEXT, values=format_bytes),
    "quote": Function((T,), text_of, values=quoted, sees_null=True),
    "char": Function((W,), BYTES, values=characters, more=True, sees_null=True),
    "char_utf16": Function((W,), TEXT, values=_utf16_characters, more=True, nullable=True, sees_null=True,
                           internal=True),
    "ascii": Function((B,), BIGINT, values=lambda b: b[0] if b else 0),
    "ord": Function((T,), BIGINT, values=_ordinal),
    "unhex": Function((T,), BYTES, values=unhex, nullable=True),
    "to_base64": Function((B,), TEXT, values=_to_base64),
    "from_base64": Function((T,), BYTES, values=_from_base64, nullable=True),
    "md5": Function((B,), TEXT, values=lambda b: hashlib.md5(b, usedforsecurity=False).hexdigest()),
    "sha1": Function((B,), TEXT, values=lambda b: hashlib.sha1(b, usedforsecurity=False).hexdigest()),
    "sha2": Function((B, W), TEXT, values=sha2, nullable=True),
    "soundex": Function((T,), TEXT, values=soundex),
    "fold": Function((T,), text_of, values=fold, internal=True),
    "regexp_like": Function((T, T, T), BOOL, values=regexp_like),
    "regexp_substr": Function((T, T, T), _first, values=regexp_substr, nullable=True),
    "regexp_instr": Function((T, T, T), BIGINT, values=regexp_instr),
    "regexp_replace": Function((T, T, T, T), _first, values=regexp_replace),
}
