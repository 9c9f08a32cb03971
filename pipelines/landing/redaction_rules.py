"""The rules of redaction: the stock ones of redaction_rules.toml, a workspace's own, which are off, and what is allowed.

A rule set has a hash. It is stored with each record, so that a replay knows which records were landed under other rules;
descriptions and examples are no part of it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import re2

from pipelines.errors import ConfigError
from pipelines.ids import plain_hash
from pipelines.landing.redaction_checks import CHECKS, NUMERIC

if TYPE_CHECKING:  # it brings the lake, which the processes that make rows do without
    from pipelines.workspace import Workspace

STOCK = Path(__file__).with_name("redaction_rules.toml")
WALK = 4
"""Raised when the walk over a record changes what is replaced under the same rules; part of every hash."""

_BEGINNING = b"[redacted:"
_TOKEN = re.compile(rb"\[redacted:[a-z0-9_]+:[0-9a-f]{12}\]")
_ESCAPED = r"\\u00(?:2[bBdDeEfF]|3[0-9aAdD]|4[0-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aA])"
"""An escape, inside a string, of a character that needs none and that secrets are made of. Nobody's encoder writes these,
so a string with one is looked at closely."""
_HIDING = re2.compile(_ESCAPED.encode())
_COUNTED = re.compile(r"\\[xpP]\{[^}]*\}|\\.|\[\^?\]?(?:\[:\w+:\]|\\.|[^\]\\])*\]|\{(\d+)(?:,\d*)?\}", re.DOTALL)
"""A repetition with a count, or what only looks like one: escapes and classes."""
_LITERAL = re.compile(r"\(?[A-Za-z0-9]{2}")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BETWEEN = re.compile(r"[\s.\-/:]+")
_ESCAPABLE = frozenset({b"b", b"f", b"n", b"r", b"t"})
_MAX_NAMES = 100_000


class Rule(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """One rule, as redaction_rules.toml explains; either `pattern` or `key`."""

    name: str
    what: str = ""
    pattern: str | None = None
    key: str | None = None
    spare_key: str | None = None
    value: str | None = None
    check: str | None = None
    personal: bool = False
    match: list[str] = []
    spare: list[str] = []


class _RuleFile(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    rule: list[Rule]  # a file without one is a mistake: whoever writes it means to have something redacted


class _Compiled:
    def __init__(self, rule: Rule) -> None:
        self.rule, self.name, self.personal = rule, rule.name, rule.personal
        self.check = None if rule.check is None else CHECKS[rule.check]
        self.pattern, self.key, self.spare_key, self.value = (
            None if pattern is None else re2.compile(pattern) for pattern in (rule.pattern, rule.key, rule.spare_key, rule.value)
        )
        if rule.pattern is not None:
            self.pattern = re2.compile(rule.pattern.encode())

    def spans(self, text: bytes) -> Iterator[tuple[int, int]]:
        """Where secrets of a text rule stand in a text, in order, none overlapping."""
        assert self.pattern is not None
        position = 0
        while position <= len(text) and (found := self.pattern.search(text, position)) is not None:
            start, end = found.span(1)
            whole = end
            if self.rule.check == "email" and text[start - 1 : start] == b"\\" and text[start : start + 1] in _ESCAPABLE:
                # a literal \n of text inside text is no part of an address; `\n@app.route` holds none at all
                if (found := self.pattern.match(text, start + 1)) is None:
                    position = end
                    continue
                start, whole = found.span(1)
                end = whole
            if self.check is not None:
                secret = text[start:end].decode("utf-8", "replace")
                end = start + len(secret[: self.check(secret)].encode())
            if standing := token_at(text, start):  # a rule may see a secret in the name of a rule and the hash behind it
                position = standing[1]
            elif end > start:
                yield start, end
                position = end
            elif self.rule.check == "email":  # what begins inside it is a piece of the same
                position = max(whole, position + 1)
            else:  # another secret may begin inside what was none
                position = max(start + 1, position + 1)

    def holds(self, text: str) -> bool:
        """Whether a value under the key of a key rule is a secret."""
        if self.value is not None and self.value.fullmatch(text) is None:
            return False
        return bool(text.strip()) and (self.check is None or self.check(text) > 0)


@dataclass(frozen=True)
class Rules:
    """A rule set, ready for use."""

    rules: tuple[Rule, ...]
    allow: tuple[str, ...] = ()
    _names: dict[str, tuple[tuple[_Compiled, ...], bool] | None] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def hash(self) -> str:
        """Of everything that decides what is replaced, and by the token of which rule."""
        told = [[r.name, r.pattern, r.key, r.spare_key, r.value, r.check, r.personal] for r in self.rules]
        return plain_hash([WALK, told, sorted(self.allow)])

    @cached_property
    def texts(self) -> tuple[_Compiled, ...]:
        """Rules that search texts."""
        return tuple(_Compiled(rule) for rule in self.rules if rule.pattern is not None)

    def about(self, name: str) -> tuple[tuple[_Compiled, ...], bool] | None:
        """The rules about the value under a key, and whether the key may hold a secret itself; None where neither.

        The few keys of a log come again and again, so what was found is kept.
        """
        try:
            return self._names[name]
        except KeyError:
            pass
        plain = normalised(name)
        rules = tuple(
            rule
            for rule in self._keys
            if rule.key.fullmatch(plain) and not (rule.spare_key is not None and rule.spare_key.fullmatch(plain))
        )
        itself = self.may_match(encoded(name))
        if len(self._names) > _MAX_NAMES:
            self._names.clear()
        self._names[name] = found = (rules, itself) if rules or itself else None
        return found

    def may_match(self, text: bytes) -> bool:
        """Whether a text rule matches, or an escape hides something, anywhere in the text: one search for nearly all texts."""
        fast, narrow = self._gates
        if not fast.search(text) or not narrow.search(text):
            return False
        return bool(_HIDING.search(text)) or any(next(rule.spans(text), None) is not None for rule in self.texts)

    def first_match(self, text: bytes, position: int) -> int | None:
        """Where behind a position a text rule may match first, or an escape hides something; None where none does."""
        found = self._gates[0].search(text, position)
        return None if found is None else found.start()

    def is_likely(self, text: bytes) -> bool:
        """Whether the narrow gate lets a text through: true wherever a text rule matches, and rarely elsewhere."""
        return self._gates[1].search(text) is not None

    def allowed(self, secret: str) -> bool:
        """Whether the allow list names it."""
        return secret in self._exact or any(pattern.fullmatch(secret) for pattern in self._patterns)

    @cached_property
    def _keys(self) -> tuple[Any, ...]:
        return tuple(_Compiled(rule) for rule in self.rules if rule.key is not None)

    @cached_property
    def _gates(self) -> tuple[Any, Any]:
        """Each matches wherever a text rule does, and a little more: the first much faster, the second much more rarely.

        Counted repetitions are what makes a combined automaton large and slow, most of all behind a beginning that may
        stand anywhere: they are widened, but in rules with a checksum, which would then match every text with digits.
        """
        return self._combined(8, 1), self._combined(12, 12)

    def _combined(self, literal: int, open_: int) -> Any:
        patterns = [
            rule.rule.pattern
            if rule.rule.check in NUMERIC
            else _widened(rule.rule.pattern, literal if _LITERAL.match(rule.rule.pattern) else open_)
            for rule in self.texts
            if rule.rule.pattern is not None
        ]
        options = re2.Options()
        options.max_mem = 64 << 20
        options.never_capture = True
        return re2.compile("|".join(f"(?:{pattern})" for pattern in (_ESCAPED, *patterns)).encode(), options)

    @cached_property
    def _exact(self) -> frozenset[str]:
        return frozenset(text for text in self.allow if not _is_pattern(text))

    @cached_property
    def _patterns(self) -> tuple[Any, ...]:
        return tuple(re2.compile(text[1:-1]) for text in self.allow if _is_pattern(text))


def encoded(text: str) -> bytes:
    """As the rules search it."""
    return text.encode("utf-8", "surrogatepass")


def token_at(text: bytes, place: int) -> tuple[int, int] | None:
    """Start and end of the token of an earlier redaction that stands at a place of a text; None where none does."""
    start = text.rfind(_BEGINNING, max(0, place - 100), place + len(_BEGINNING))
    found = _TOKEN.match(text, start) if start >= 0 else None
    return found.span() if found is not None and found.start() <= place < found.end() else None


def normalised(name: str) -> str:
    """A key as key rules see it: `apiKey`, `API-Key` and `http.api_key` in lower case with underscores."""
    return _BETWEEN.sub("_", _CAMEL.sub("_", name)).lower().strip("_")


@cache
def stock() -> Rules:
    """The stock rules, all on."""
    return Rules(tuple(_read(STOCK)))


def rules_of(workspace: Workspace) -> Rules:
    """The rules of a workspace; ConfigError where its [redaction] section does not hold."""
    config = workspace.config.redaction
    own = () if config.rules is None else tuple(_read(workspace.path(config.rules)))
    by_name = {rule.name: rule for rule in (*stock().rules, *own)}
    if unknown := sorted(set(config.off) - by_name.keys()):
        raise ConfigError(f"[redaction] off: there is no rule {unknown[0]!r}; the rules are {', '.join(by_name)}")
    for text in config.allow:
        if _is_pattern(text):
            _compiles("[redaction] allow", text[1:-1])
    return Rules(tuple(rule for rule in by_name.values() if rule.name not in config.off), config.allow)


def _read(path: Path) -> list[Rule]:
    try:
        rules = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _RuleFile).rule
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as problem:
        raise ConfigError(f"redaction rules {path} cannot be read: {problem}") from None
    for rule in rules:
        where = f"redaction rules {path}: rule {rule.name!r}"
        if not re.fullmatch(r"[a-z][a-z0-9_]*", rule.name):
            raise ConfigError(f"{where}: names are lower case letters, digits and underscores")
        if (rule.pattern is None) == (rule.key is None):
            raise ConfigError(f"{where} needs either a pattern or a key")
        if rule.check is not None and rule.check not in CHECKS:
            raise ConfigError(f"{where}: check is one of {', '.join(CHECKS)}")
        if rule.pattern is not None:
            pattern = _compiles(where, rule.pattern)
            if pattern.groups != 1:
                raise ConfigError(f"{where}: the pattern has {pattern.groups} groups; exactly one, the secret, must be there")
            if pattern.search(""):
                raise ConfigError(f"{where}: the pattern matches an empty text")
        for part in (rule.key, rule.spare_key, rule.value):
            if part is not None:
                _compiles(where, part)
    return rules


def _compiles(where: str, pattern: str) -> Any:
    try:
        options = re2.Options()
        options.log_errors = False
        return re2.compile(pattern, options)
    except re2.error as problem:
        said = problem.args[0] if problem.args else problem
        said = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
        raise ConfigError(f"{where}: {pattern!r} is no RE2 pattern: {said}") from None


def _widened(pattern: str, at_most: int) -> str:
    """A pattern that matches wherever this one does, whose repetitions count no further than `at_most`."""
    if r"\Q" in pattern:
        return pattern
    return _COUNTED.sub(lambda found: found[0] if found[1] is None else f"{{{min(int(found[1]), at_most)},}}", pattern)


def _is_pattern(text: str) -> bool:
    return len(text) > 2 and text.startswith("/") and text.endswith("/")
