"""What names tasks and runs, read off one record: JSONPaths of the workspace, and turns with their volatile parts masked.

Both rest on text, and text is redacted. So of a record that redaction changes, landing keeps what they gave before, beside
the other identities (spelling.py), for the JSONPaths and masks that are configured then. Where one is configured later, what
holds the token of a redaction names nothing and is not masked: its token would move with the redaction key, and two secrets
could become one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import orjson

from pipelines.ids import Identity, canonical_json
from pipelines.landing.masks import Masks, holds_token

if TYPE_CHECKING:  # it brings all settings, which the processes that make rows do without
    from pipelines.config import Config


@dataclass(frozen=True)
class Name:
    """What a rule found."""

    text: str | None
    """As it is stored; None where only its identity is known."""
    name_id: str | None
    """Its identity; None: redaction took it, so it names nothing."""


@dataclass(frozen=True)
class Naming:
    """The masks and JSONPaths that are configured."""

    masks: Masks = field(default_factory=Masks)
    paths: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: Config) -> Naming:
        """Those of a workspace."""
        rules = (config.groups.task, config.groups.run, *(source.task for source in config.sources))
        return cls(Masks(config.groups.volatile), tuple(sorted({rule for rule in rules if rule is not None and is_path(rule)})))

    def __bool__(self) -> bool:
        return bool(self.masks or self.paths)

    def kept(self, identity: Identity, turns: Sequence[dict[str, Any]], ids: Sequence[str], value: Any) -> dict[str, Any]:
        """What is kept of a record that redaction is about to change: `masked` and `named`, each where it is configured.

        `ids`: the identities of its turns.
        """
        told: dict[str, Any] = {}
        if self.masks:
            told["masked"] = {self.masks.hash: self._masked(identity, turns, ids)}
        if self.paths:
            found = {path: name_in(value, path) for path in self.paths}
            told["named"] = {path: None if name is None else _name_id(identity, name) for path, name in found.items()}
        return told

    def completed(
        self, identity: Identity, turns: Sequence[dict[str, Any]], stored: dict[str, Any], value: Any
    ) -> dict[str, Any]:
        """The identities of a record that are kept already, with what was configured since they were taken."""
        if not self or len(stored["turns"]) != len(turns):
            return stored
        now = self.kept(identity, turns, [said for said, _ in stored["turns"]], value)
        return stored | {name: {**found, **stored.get(name, {})} for name, found in now.items()}

    def masked_ids(
        self, identity: Identity, turns: Sequence[dict[str, Any]], ids: Sequence[str], stored: Mapping[str, Any] | None
    ) -> list[str] | None:
        """The identities of a record's turns without what is volatile; None where nothing is.

        A turn that says nothing volatile has its own.
        """
        if not self.masks:
            return None
        known = (stored or {}).get("masked", {}).get(self.masks.hash)
        return known if known is not None and len(known) == len(turns) else self._masked(identity, turns, ids)

    def name(self, identity: Identity, path: str, value: Any, stored: Mapping[str, Any] | None) -> Name | None:
        """What a path names in a stored value, None where it finds nothing there; `stored`: the identities kept with it."""
        text, named = name_in(value, path), (stored or {}).get("named", {})
        if path in named:
            return None if named[path] is None and (text is None or not holds_token(text.encode())) else Name(text, named[path])
        return None if text is None else Name(text, _name_id(identity, text))

    def _masked(self, identity: Identity, turns: Sequence[dict[str, Any]], ids: Sequence[str]) -> list[str]:
        return [masked_id(identity, self.masks, turn, turn_id) for turn, turn_id in zip(turns, ids, strict=True)]


NOTHING = Naming()
"""Nothing is volatile, and nothing but the log names tasks."""


def masked_id(identity: Identity, masks: Masks, turn: dict[str, Any], turn_id: str) -> str:
    """Who said what, without what is volatile; the turn's own id where nothing is, or where a redaction took some of it."""
    from pipelines.landing.spelling import spoken

    said = spoken(turn)
    if holds_token(said):
        return turn_id
    masked = spoken(masks.turn(turn))
    return turn_id if masked == said else identity.of("turn", masked)


def is_path(rule: str) -> bool:
    """Whether a rule is a JSONPath, and no Python entry."""
    return rule.startswith("$")


def name_in(value: Any, path: str) -> str | None:
    """The first text or number that a JSONPath finds in a JSON value; None where there is none."""
    for found in _compiled(path).finditer(value):
        name = found.obj
        if isinstance(name, str) and name:
            return name
        if isinstance(name, int | float) and not isinstance(name, bool) and math.isfinite(name):
            return orjson.dumps(name).decode() if abs(name) < 1 << 63 else str(name)
    return None


def checked_path(path: str) -> None:
    """Raises ValueError where a text is no JSONPath (RFC 9535)."""
    _compiled(path)


@cache
def _compiled(path: str) -> Any:
    import jsonpath  # a tenth of a second, which workspaces without such a rule do not pay

    try:
        return jsonpath.JSONPathEnvironment(strict=True).compile(path)
    except jsonpath.JSONPathError as problem:
        said = str(problem).splitlines()[0]
        raise ValueError(f"{path!r} is no JSONPath (RFC 9535): {said}") from None


def _name_id(identity: Identity, name: str) -> str | None:
    return None if holds_token(canonical_json(name)) else identity.name_id(name)
