"""Normalised JSON text as one search over it can judge it: secrets that stand in its strings stand in this text too.

Nearly every record has nothing to hide. So one search over the whole text is made first, and only where it finds something
is the value walked string by string (redaction.py). Escapes would hide a secret from that search (`Bearer\\n` is a backslash
and an n here, and white space in the string), so they are resolved. It finds more than the strings hold, never less.
"""

from __future__ import annotations

import re

_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_PLAIN = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"f": b"\f", b"b": b"\b", b"u": b"\0u"}
_ESCAPED_BACKSLASH = b"\\\\"


def searchable(text: bytes) -> bytes:
    """The normalised text with its escapes resolved."""
    if b"\\" not in text:
        return text
    if _ESCAPED_BACKSLASH not in text:
        text = text.replace(b'\\"', b'"').replace(b"\\n", b"\n")
        if b"\\" not in text:
            return text
        return text.replace(b"\\t", b"\t").replace(b"\\r", b"\r").replace(b"\\f", b"\f").replace(b"\\b", b"\b")
    return _ESCAPE.sub(lambda found: _PLAIN.get(found[1], found[1]), text)
