"""Secrets are replaced before anything is stored (I12), in text and in token ids.

The rules (redaction_rules.toml) search decoded strings, since JSON escapes hide secrets, and the names of keys; rules about
keys replace the whole value under a telling one, also in {"name": …, "value": …} pairs and header lists. A string that
holds JSON (a tool call's arguments) is decoded, redacted and written again, so that it stays JSON. What matches becomes
`[redacted:<rule>:<12 hex>]`, a keyed HMAC of the secret: equal secrets get equal tokens, so that duplicates and groups stay
what they are, and nobody without the key can try secrets out. Ids are taken before (spelling.py): neither a rule nor this
key, which may be rotated, moves one.

- A call's token ids and logprobs spell the same text. Where anything in a record was replaced, every list of ids and
  logprobs in it is set to null; such a call keeps its text, but the grpo lane cannot train from it.
- KEPT fields are free of rules about people; a credential is replaced there too.

Out of scope: secrets that are encoded once more (base64 but for basic authentication and JWT, percent-encoding, gzip), and
secrets that a log spreads over several strings, such as the deltas of a stream that is stored chunk by chunk.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from pipelines.landing.redaction_rules import Rules, encoded, stock, token_at

KEPT = frozenset({"call_id", "harness", "policy_version"})
"""Keys whose strings name things that other records and settings name too: rules about people leave them alone."""

TOKEN_KEYS = frozenset(
    {
        "prompt_token_ids",
        "token_ids",
        "input_token_ids",
        "completion_token_ids",
        "generation_token_ids",
        "response_token_ids",
        "output_token_ids",
        "input_ids",
        "output_ids",
        "prompt_ids",
        "completion_ids",
        "response_ids",
        "logprobs",
        "log_probs",
        "token_logprobs",
        "top_logprobs",
        "prompt_logprobs",
        "completion_logprobs",
        "generation_log_probs",
        "response_logprobs",
        "rollout_log_probs",
        "output_token_logprobs",
        "input_token_logprobs",
        "output_top_logprobs",
        "input_top_logprobs",
        "logprobsResult",
        "logprobs_result",
        "redacted_spans",  # of redacted_tokens.py: nothing without the ids that they count
    }
)
"""Keys under which logs spell text a second time, as lists of ids or as logprobs with the token's text."""

_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "api-key", "x-auth-token"})
"""Names that make a list of two strings a header."""
_HOLDERS = (
    "stringValue",
    "string_value",
    "intValue",
    "arrayValue",
    "array_value",
    "values",
    "value",
    "default",
    "const",
    "enum",
    "example",
    "examples",
)
_TOKENS = re.compile(r"\[redacted:([a-z0-9_]+):[0-9a-f]{12}\]")
_NUMBERS = {int, float, type(None)}
_MANY = 16
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_HIDING = re.compile(r"\\u00[2-7][0-9a-fA-F]")
_PLAIN = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


@dataclass
class Redactor:
    """Replaces secrets under one key and counts them by rule."""

    key: bytes
    rules: Rules = field(default_factory=stock)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def under(self) -> str:
        """What a row was redacted under: the hash of the rules and the fingerprint of the key, which does not reveal it."""
        return under(self.rules, self.key)

    def text(self, text: str, *, personal: bool = True) -> str:
        """The text without its secrets; `personal` False leaves what is about people."""
        if (inner := _nested(text)) is None:
            return self._text(text, personal) if self.rules.may_match(encoded(text)) else text
        strings = [text]
        if self._collect(inner, strings) or self.rules.may_match(_joined(strings)):
            return self._text(text, personal)
        return text

    def value(self, value: Any) -> Any:
        """A decoded JSON value without its secrets; the same object where there are none."""
        strings: list[str] = []
        # one search over all strings: nearly every record has nothing to hide, and is through here at once
        if not self._collect(value, strings) and not self.rules.may_match(_joined(strings)):
            return value
        before = self.counts.total()
        redacted = self._walk(value, None)
        return without_token_ids(redacted) if self.counts.total() > before else value

    def bad_text(self, raw: bytes, limit: int) -> str:
        """Bytes that are no record, as text without secrets, cut to `limit` characters.

        Where such text could not be decoded, its escapes may hide something: then the text with them resolved is kept.
        """
        text = raw[: 2 * limit].decode("utf-8", "replace").replace("\0", "�")
        return (self.text(text) if _nested(text) is not None else self._better(text, personal=True))[:limit]

    def _text(self, text: str, personal: bool) -> str:
        inner = _loads(text)
        if inner is None:
            return self._better(text, personal) if _HIDING.search(text) else self._searched(text, personal)
        trial = Redactor(self.key, self.rules)
        try:
            redacted = without_token_ids(trial._walk(inner, None))
            if trial.counts.total():
                text = _dumps(redacted, like=text)
                self.counts.update(trial.counts)
        except RecursionError:  # deeper than anybody nests on purpose: searched as a text
            pass
        return self._searched(text, personal)  # of two equal keys, decoding saw the last

    def _better(self, text: str, personal: bool) -> str:
        """Of a text and the same with its escapes resolved, that in which more was found."""
        as_is, trial = Redactor(self.key, self.rules), Redactor(self.key, self.rules)
        kept, resolved = as_is._searched(text, personal), trial._searched(_ESCAPE.sub(_unescaped, text), personal)
        if trial.counts.total() > as_is.counts.total():
            kept, as_is = resolved, trial
        self.counts.update(as_is.counts)
        return kept

    def _searched(self, text: str, personal: bool) -> str:
        searched = encoded(text)
        for rule in self.rules.texts:
            if rule.personal and not personal:
                continue
            pieces: list[bytes] = []
            end_before = 0
            for start, end in rule.spans(searched):
                secret = searched[start:end].decode("utf-8", "surrogatepass")
                if not self.rules.allowed(secret):
                    pieces += searched[end_before:start], self._token(rule.name, secret).encode()
                    end_before = end
            if pieces:
                searched = b"".join(pieces) + searched[end_before:]
        return searched.decode("utf-8", "surrogatepass")

    def _walk(self, value: Any, key: str | None) -> Any:
        if isinstance(value, str):
            return self.text(value, personal=key not in KEPT)
        if isinstance(value, list):
            if (header := _header(value)) is not None:
                return [value[0], self._under(header, value[1])]
            return self._listed(value, key)
        if isinstance(value, dict):
            named, key, about = _named(value), _value_key(value), self.rules.about
            return {
                name if about(name) is None else self.text(name): self._under(
                    named if named is not None and name == key else name, item
                )
                for name, item in value.items()
            }
        return value

    def _listed(self, value: list[Any], key: str | None) -> list[Any]:
        """A list; what follows an option in a list of arguments is read as it is in a command."""
        walked = [self._walk(item, key) for item in value]
        for place in _options(value):
            option, item = value[place], walked[place + 1]
            told = self._searched(f"{option} {item}", True)
            if told.startswith(f"{option} "):
                walked[place + 1] = told[len(option) + 1 :]
        return walked

    def _under(self, name: str, item: Any) -> Any:
        """What stands under a key."""
        if (found := self.rules.about(name)) is not None and (rules := found[0]):
            if type(item) is list:
                return [self._under(name, one) for one in item]
            if type(item) is dict and (held := _holders(item)):
                return {key: self._under(name, one) if key in held else self._walk(one, key) for key, one in item.items()}
            if (rule := _holding(rules, item)) is not None and not self.rules.allowed(str(item)):
                return self._token(rule.name, str(item))
        return self._walk(item, name)

    def _collect(self, value: Any, strings: list[str]) -> bool:
        """Gather all strings; true where a key needs looking at: a secret itself, or telling and with a secret under it."""
        about, telling = self.rules.about, False
        stack = [value]
        while stack:
            value = stack.pop()
            kind = type(value)
            if kind is str:
                strings.append(value)
                if value[:1] in _OPENING and (inner := _nested(value)) is not None:
                    stack.append(inner)
            elif kind is list:
                if len(value) > _MANY and set(map(type, value)) <= _NUMBERS:  # ids and logprobs: the longest lists there are
                    continue
                if len(value) == 2 and (header := _header(value)) is not None:
                    telling |= self._telling(header, value[1])
                if not telling:
                    telling = any(self.rules.may_match(encoded(f"{value[at]} {value[at + 1]}")) for at in _options(value))
                stack += value
            elif kind is dict:
                stack += value.values()
                for name in value:
                    if (found := about(name)) is not None:
                        telling |= found[1] or self._telling(name, value[name])
                if (key := _value_key(value)) is not None and (named := _named(value)) is not None:
                    telling |= self._telling(named, value[key])
        return telling

    def _telling(self, name: str, item: Any) -> bool:
        if (found := self.rules.about(name)) is None or not (rules := found[0]):
            return False
        if type(item) is list:
            return any(self._telling(name, one) for one in item)
        if type(item) is dict:
            return any(self._telling(name, item[key]) for key in _holders(item))
        return _holding(rules, item) is not None

    def _token(self, rule: str, secret: str) -> str:
        self.counts[rule] += 1
        return token(self.key, rule, secret)


def under(rules: Rules, key: bytes) -> str:
    """Names a rule set and a redaction key; stands with every row that was redacted under them."""
    return f"{rules.hash}.{fingerprint(key)}"


def fingerprint(key: bytes) -> str:
    """Of a redaction key: a hash that does not reveal it."""
    return hashlib.sha256(b"nightshift redaction key\0" + key).hexdigest()[:16]


def keyed_anew(text: str, key: bytes, stood_under: str | None) -> str:
    """A text with its tokens under another key, if they stand under one that is gone. Nobody has the secrets any more, so each
    becomes the token of the old token: equal ones stay equal, and whoever has the old key can try nothing out on them."""
    old = (stood_under or "").partition(".")[2]
    if old in ("", fingerprint(key)):  # rows from before keys had fingerprints: no key was ever known to change
        return text
    return _TOKENS.sub(lambda found: token(key, found[1], found[0]), text)


def token(key: bytes, rule: str, secret: str) -> str:
    """What stands where a secret stood."""
    mac = hmac.new(key, rule.encode() + b"\0" + secret.encode("utf-8", "replace"), hashlib.sha256)
    return f"[redacted:{rule}:{mac.hexdigest()[:12]}]"


def dumped(value: Any) -> str:
    """A decoded value as the JSON text that is stored."""
    return orjson.dumps(value).decode()


_OPENING = frozenset("{[ \n\t\r")


def _joined(strings: Sequence[str]) -> bytes:
    return encoded("\n\0".join(strings))


def _holding(rules: Sequence[Any], item: Any) -> Any:
    """The rule about a key whose value this is; None where it is no secret, or holds a token already."""
    if type(item) not in (str, int):
        return None
    text = str(item)
    if "[redacted:" in text and token_at(encoded(text), text.find("[redacted:")) is not None:
        return None
    return next((rule for rule in rules if rule.holds(text)), None)


def _value_key(value: dict[str, Any]) -> str | None:
    return "value" if "value" in value else "Value" if "Value" in value else None


def _named(value: dict[str, Any]) -> str | None:
    """The name in {"name": …, "value": …}, as environments, headers and span attributes are logged."""
    if _value_key(value) is None:
        return None
    return next((value[key] for key in ("name", "key", "header", "Name", "Key") if type(value.get(key)) is str), None)


def _holders(value: dict[str, Any]) -> list[str]:
    """The keys of what a telling key stands for: {"stringValue": …}, as OTLP logs it, or a schema's {"default": …}."""
    return [key for key in _HOLDERS if key in value]


def _header(value: list[Any]) -> str | None:
    """The name in ["authorization", "…"]."""
    if len(value) == 2 and type(value[0]) is str and type(value[1]) is str and value[0].lower() in _HEADERS:
        return value[0]
    return None


def _options(value: list[Any]) -> list[int]:
    """Where options stand in a list, each with a text behind it."""
    return [
        place
        for place, item in enumerate(value[:-1])
        if type(item) is str and item[:2] == "--" and " " not in item and type(value[place + 1]) is str
    ]


def _looks_nested(text: str) -> bool:
    if text[:1] not in _OPENING:
        return False
    stripped = text.strip()
    return len(stripped) > 2 and stripped[0] + stripped[-1] in ("{}", "[]")


def _nested(text: str) -> Any:
    """What JSON inside a string holds; None where it holds none."""
    if not _looks_nested(text):
        return None
    try:
        return orjson.loads(text)
    except ValueError:
        return _loads(text)


def _loads(text: str) -> Any:
    if not _looks_nested(text):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _dumps(value: Any, *, like: str) -> str:
    """JSON text, as wide as it was."""
    separators = (", ", ": ") if '": ' in like else (",", ":")
    text = json.dumps(value, ensure_ascii=False, separators=separators)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return json.dumps(value, separators=separators)
    return text


def without_token_ids(value: Any) -> Any:
    """A value whose lists of ids and logprobs are null: they spell what its text does not say any more."""
    if isinstance(value, list):
        return [without_token_ids(item) for item in value]
    if isinstance(value, dict):
        return {
            name: None if name in TOKEN_KEYS and isinstance(item, list | dict) else without_token_ids(item)
            for name, item in value.items()
        }
    if isinstance(value, str) and ("token_ids" in value or "ogprob" in value) and (inner := _loads(value)) is not None:
        without = without_token_ids(inner)
        return value if without == inner else _dumps(without, like=value)
    return value


def _unescaped(found: re.Match[str]) -> str:
    if found[1]:
        character = chr(int(found[1], 16))
        return "�" if character == "\0" or "\ud800" <= character <= "\udfff" else character
    return _PLAIN.get(found[2], found[2])
