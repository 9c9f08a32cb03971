"""One search over a record's whole text, which decides for nearly every record that it has nothing to hide.

The walk over a value (redaction.py) looks at each string, at the keys above it and at JSON inside it. This looks at the
normalised text as a whole, with its escapes resolved, since they would hide a secret from a search, and says yes only where
the walk would change nothing: it may send a clean record to the walk, never keep another one from it. What it cannot judge
(text that was escaped twice, names and values side by side) it leaves to the walk.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.landing.redaction_rules import Rules

_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_PLAIN = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"f": b"\f", b"b": b"\b", b"u": b"\0u", b"/": b"/", b'"': b'"'}
_SPACED_KEY = re.compile(rb'"\s+:')
_HEADER_ENDS = (b'authorization"', b'cookie"', b'api-key"', b'auth-token"')
"""How the names that make a list of two strings a header end (redaction.py)."""
_NUM_CHEAP = 200
"""Escapes of a text that are resolved one by one, which is faster than any search for two bytes at once."""


def searchable(text: bytes) -> bytes:
    """The normalised text with its escapes resolved."""
    parts = text.split(b"\\", _NUM_CHEAP + 1)
    if len(parts) == 1:
        return text
    if len(parts) > _NUM_CHEAP or b"" in parts:  # many, or an escaped backslash
        return _ESCAPE.sub(lambda found: _PLAIN.get(found[1], found[1]), text)
    return b"".join([parts[0], *(_PLAIN[part[:1]] + part[1:] for part in parts[1:])])


def is_clean(text: bytes, rules: Rules) -> bool:
    """Whether redaction would change nothing in the value of some normalised text; False where the walk has to say."""
    resolved = searchable(text)
    if b"\\" in resolved or b"\0" in resolved:
        return False
    keys = set()
    for part in text.split(b'":')[:-1]:
        quote = part.rfind(b'"')
        if part.endswith(b"\\"):  # inside a string
            continue
        if part[quote - 1 : quote] == b"\\":  # a key with a quote in it
            return False
        keys.add(part[quote + 1 :])
    nested = resolved is not text and b'\\"' in text
    if nested:
        if _SPACED_KEY.search(resolved):
            return False
        keys.update(part[part.rfind(b'"') + 1 :] for part in resolved.split(b'":')[:-1])
    if b"value" in keys or any(rules.about(key.decode()) is not None for key in keys):
        return False
    if nested or b'["' in text:
        lowered = resolved.lower()
        if any(name in lowered for name in _HEADER_ENDS):
            return False
    return not rules.may_match(resolved)


def has_escape(text: bytes, second: bytes) -> bool:
    """Whether a backslash stands before one of some bytes anywhere in the text."""
    parts = text.split(b"\\", _NUM_CHEAP + 1)
    if len(parts) > _NUM_CHEAP:
        return any(b"\\" + second[index : index + 1] in text for index in range(len(second)))
    return any(part[:1] in second for part in parts[1:] if part)
