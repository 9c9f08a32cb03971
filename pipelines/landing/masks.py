"""Volatile parts of a text, masked: what differs between two requests that are the same task.

A workspace names them ([groups] volatile): stock masks, or RE2 patterns of its own between slashes. A masked text is only
compared and never stored. What was masked stays masked: `text` applied to its own answer changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any

import orjson
import re2

from pipelines.ids import plain_hash

VERSION = 1
"""Raised when a stock mask changes what it matches: masked identities that landing kept count no more then."""

_MONTH = r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
_DAY = r"(?:(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?,? )?"
_CLOCK = r"[0-2]?\d:[0-5]\d(?::[0-6]\d(?:[.,]\d{1,9})?)?(?: ?(?i:[ap]\.?m\b\.?))?(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d)\b)?"
_DATE = "|".join(
    (
        r"\d{4}[-/.][01]?\d[-/.][0-3]?\d",
        r"[0-3]?\d[/.-][0-3]?\d[/.-](?:19|20)\d\d",
        rf"{_DAY}[0-3]?\d(?:st|nd|rd|th)? {_MONTH}\.?,? \d{{4}}",
        rf"{_DAY}{_MONTH}\.? [0-3]?\d(?:st|nd|rd|th)?,? \d{{4}}",
    )
)
_SEGMENT = r"[\w.@+~%=-]+"

STOCK: dict[str, tuple[str, str]] = {
    "uuids": ("uuid", r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"),
    "times": ("time", rf"\b(?:(?:{_DATE})(?:(?:T|, | at | ){_CLOCK})?|{_CLOCK})\b"),
    # two segments and more: `/help` is a command, and `and/or` no path. Not inside an address (`https://…`)
    "paths": (
        "path",
        rf"(?:^|[\s\"'`(\[{{<=:,;|])((?:file://|~|[A-Za-z]:)?(?:[/\\]{_SEGMENT}){{2,}}[/\\]?|~[/\\]{_SEGMENT}[/\\]?|[A-Za-z]:\\{_SEGMENT})",
    ),
    "hex": ("hex", r"\b(?:0x[0-9a-fA-F]+|[0-9a-fA-F]{7,128})\b"),
    "numbers": ("number", r"\d+(?:[.,]\d+)*"),
}
"""Name -> what stands in its place, pattern. Of a pattern with a group the group is masked, else the whole."""

_OWN = "volatile"
_PLACES = (*(place for place, _ in STOCK.values()), _OWN)
_SIGNS = {place: chr(0xFDD0 + number).encode() for number, place in enumerate(_PLACES)}
"""While patterns run, each place is one character that no log holds, so that no pattern matches inside a place."""
_STANDING = re.compile("|".join(f"<{place}>" for place in _PLACES).encode())
_SIGN = re.compile(b"|".join(_SIGNS.values()))
_NAME = {sign: f"<{place}>".encode() for place, sign in _SIGNS.items()}
_TOKEN = re.compile(rb"\[redacted:[a-z0-9_]+:[0-9a-f]{12}\]")

Replace = Callable[[Any], bytes]


class Masks:
    """The masks of a workspace; falsy where it declares nothing volatile. `names` as in [groups] volatile."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = tuple(sorted(set(names)))

    def __bool__(self) -> bool:
        return bool(self.names)

    @cached_property
    def hash(self) -> str:
        """Of everything that decides what is masked."""
        return plain_hash([VERSION, self.names])

    def text(self, text: str) -> str:
        """The text with a word in the place of everything volatile."""
        found = _STANDING.sub(lambda place: _SIGNS[place[0][1:-1].decode()], text.encode("utf-8", "surrogatepass"))
        while True:  # each round leaves less that is no sign; nearly always the second finds nothing
            before = found
            for pattern, replace in self._passes:
                found = pattern.sub(replace, found)
            if found == before:
                return _SIGN.sub(lambda sign: _NAME[sign[0]], found).decode("utf-8", "surrogatepass")

    def turn(self, turn: dict[str, Any]) -> dict[str, Any]:
        """A turn whose text and whose calls' arguments are masked; roles and the names of tools stay."""
        masked = {**turn, "content": self._content(turn.get("content"))}
        if calls := turn.get("tool_calls"):
            masked["tool_calls"] = [self._call(call) for call in calls]
        return masked

    def _content(self, content: Any) -> Any:
        if isinstance(content, str):
            return self.text(content)
        if isinstance(content, list):
            return [self._content(part) for part in content]
        if isinstance(content, dict):  # a part: what it shows (an image's bytes) is compared as it is
            return {name: self._content(part) if name in ("text", "content") else part for name, part in content.items()}
        return content

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        function = call.get("function") or {}
        arguments = function.get("arguments")
        if not isinstance(arguments, str):
            return call
        try:
            masked = orjson.dumps(self._values(orjson.loads(arguments))).decode()
        except orjson.JSONDecodeError:
            masked = self.text(arguments)
        return {**call, "function": {**function, "arguments": masked}}

    def _values(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._values(item) for item in value]
        if isinstance(value, dict):
            return {name: self._values(item) for name, item in value.items()}
        return value

    @cached_property
    def _passes(self) -> list[tuple[Any, Replace]]:
        stock = [(pattern_of(name), _replacing(name, STOCK[name][0])) for name in STOCK if name in self.names]
        return [*stock, *((pattern_of(name), _replacing(name, _OWN)) for name in self.names if name not in STOCK)]


@cache
def pattern_of(name: str) -> Any:
    """The pattern of a mask; ValueError says what is wrong with its name or its pattern."""
    if name in STOCK:
        return re2.compile(STOCK[name][1].encode())
    if not (len(name) > 2 and name.startswith("/") and name.endswith("/")):
        raise ValueError(f"{name!r} is no mask; the masks are {', '.join(STOCK)}, or an RE2 pattern between slashes")
    options = re2.Options()
    options.log_errors = False
    try:
        pattern = re2.compile(name[1:-1].encode(), options)
    except re2.error as problem:
        said = problem.args[0] if problem.args else problem
        said = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
        raise ValueError(f"{name!r} is no RE2 pattern: {said}") from None
    if pattern.groups > 1:
        raise ValueError(f"{name!r} has {pattern.groups} groups; with one, that is masked, with none, the whole")
    if pattern.search(b"") is not None:
        raise ValueError(f"{name!r} matches an empty text")
    return pattern


def holds_token(said: bytes) -> bool:
    """Whether a token of a redaction stands in it."""
    return _TOKEN.search(said) is not None


def _replacing(name: str, place: str) -> Replace:
    sign = _SIGNS[place]
    grouped = pattern_of(name).groups == 1

    def replace(found: Any) -> bytes:
        whole: bytes = found[0]
        if name == "hex" and not _is_hash(whole):
            return whole
        if not grouped:
            return sign
        start, end = found.span(1)
        if start < 0 or start == end:
            return whole
        begins = found.start(0)
        return whole[: start - begins] + sign + whole[end - begins :]

    return replace


def _is_hash(found: bytes) -> bool:
    """Letters and digits both: a word that is spelled a to f is none, and a number is what `numbers` is for."""
    digits = sum(48 <= byte < 58 for byte in found)
    return found[:2] in (b"0x", b"0X") or 0 < digits < len(found)
