"""Normalised JSON text as one search over it can judge it: secrets that stand in its strings stand in this text too.

Nearly every record has nothing to hide. So one search over the whole text is made first, and only where it finds something
is the value walked string by string (redaction.py). Escapes would hide a secret from that search (`Bearer\\n` is a backslash
and an n here, and white space in the string), so they are resolved. It finds more than the strings hold, never less.
"""

from __future__ import annotations

import re

_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_PLAIN = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"f": b"\f", b"b": b"\b", b"u": b"\0u", b"/": b"/", b'"': b'"'}
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


def has_escape(text: bytes, second: bytes) -> bool:
    """Whether a backslash stands before one of some bytes anywhere in the text."""
    parts = text.split(b"\\", _NUM_CHEAP + 1)
    if len(parts) > _NUM_CHEAP:
        return any(b"\\" + second[index : index + 1] in text for index in range(len(second)))
    return any(part[:1] in second for part in parts[1:] if part)
