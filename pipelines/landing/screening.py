"""One search over a record's whole text, which decides for nearly every record that it has nothing to hide.

The walk over a value (redaction.py) looks at each string, at the keys above it and at JSON inside it. This looks at the
normalised text as a whole, with its escapes resolved, since they would hide a secret from a search, and says yes only where
the walk would change nothing: it may send a clean record to the walk, never keep another one from it. What it cannot judge
(text that was escaped twice, names and values side by side) it leaves to the walk.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.landing.redaction_rules import Rules

_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_PLAIN = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"f": b"\f", b"b": b"\b", b"u": b"\0u", b"/": b"/", b'"': b'"'}
_SPACED_KEY = re.compile(rb'"\s+:')
_HEADER_ENDS = (b'authorization"', b'cookie"', b'api-key"', b'auth-token"')
"""How the names that make a list of two strings a header end (redaction.py)."""


def searchable(text: bytes) -> bytes:
    """The normalised text with its escapes resolved."""
    parts = text.split(b"\\")
    if len(parts) == 1:
        return text
    if b"" in parts:  # an escaped backslash
        return _ESCAPE.sub(lambda found: _PLAIN.get(found[1], found[1]), text)
    return b"".join([parts[0], *[_PLAIN[part[:1]] + part[1:] for part in parts[1:]]])


class Screen:
    """Judges texts under one rule set."""

    MOST_KEYS = 100_000

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._fine: set[bytes] = set()
        """Keys that say nothing, each with the two bytes before it: the few of a log come again and again."""

    def is_clean(self, text: bytes) -> bool:
        """Whether redaction would change nothing in the value of some normalised text; False where the walk has to say."""
        resolved = searchable(text)
        if b"\\" in resolved or b"\0" in resolved:
            return False
        nested = resolved is not text and has_escape(text, b'"')
        if nested and _SPACED_KEY.search(resolved):
            return False
        if not self._fine_keys(text, nested) or (nested and not self._fine_keys(resolved, False)):
            return False
        if (nested or any(part[:1] == b'"' for part in text.split(b"["))) and names_header(resolved):
            return False
        return not self.rules.may_match(resolved)

    def is_fine(self, name: bytes) -> bool:
        """Whether a key tells nothing."""
        return name != b"value" and self.rules.about(name.decode()) is None

    def _fine_keys(self, text: bytes, nested: bool) -> bool:
        """Whether no key that a colon follows in the text tells anything; of `nested` ones another look is taken."""
        parts = text.split(b'":')
        parts.pop()
        for key in {part[part.rfind(b'"') - 1 :] for part in parts} - self._fine:
            if key.endswith(b"\\"):  # inside a string: it was escaped
                if nested:
                    continue
                return False
            if key[1:2] != b'"' or key[:1] == b"\\":  # the text does not begin with an object, or a quote is part of the key
                return False
            if not self.is_fine(key[2:]):
                return False
            if len(self._fine) < self.MOST_KEYS:
                self._fine.add(key)
        return True


def names_header(resolved: bytes) -> bool:
    """Whether a string ends as the names do that make a list of two strings a header."""
    lowered = resolved.lower()
    return any(name in lowered for name in _HEADER_ENDS)


def has_escape(text: bytes, second: bytes) -> bool:
    """Whether a backslash stands before one of some bytes anywhere in the text."""
    return _before(second).search(text) is not None


@cache
def _before(second: bytes) -> re.Pattern[bytes]:
    """A pattern with a literal beginning, which is found faster than two bytes are by `in`."""
    return re.compile(rb"\\[" + re.escape(second) + rb"]")
