"""Secrets are replaced before anything is stored (I12), in text and in token ids.

Rules run over decoded strings, since JSON escapes hide secrets, and over the keys of objects. What matches becomes
`[redacted:<rule>:<12 hex>]`, a keyed HMAC of the secret: equal secrets get equal tokens, so that duplicates and groups
stay what they are, and nobody without the key can try secrets out. Ids are taken before, so they do not depend on this
key, which may be rotated. Three consequences:

- A call's token ids and logprobs spell the same text. Where anything in a record was replaced, every list of ids and
  logprobs in it is set to null; such a call keeps its text, but the grpo lane cannot train from it.
- Fields that name things (KEPT) are free of the e-mail rule, because a task or an attempt may be named after an address;
  a credential is replaced there too.
- No rule asks for a word boundary on its left: nested JSON leaves a literal `\\n` before a secret, which would end one.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import orjson
import re2

RULES: dict[str, str] = {
    # one group each: the secret, replaced alone. The order matters: the wider rule first.
    "private_key": r"(-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z))",
    "connection_string": r"[A-Za-z][A-Za-z0-9+.\-]{1,30}:(?:\\*/){2}[^\s:@/\"'<>]*:([^\s@/\"'<>]{1,256})@",
    "account_key": r"(?i:(?:AccountKey|SharedAccessKey)\s*=\s*)([A-Za-z0-9+/]{20,}={0,2})",
    "jwt": r"(eyJ[A-Za-z0-9_\-]{8,}\.eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]*)",
    "bearer": r"(?i:bearer\s+)([A-Za-z0-9._~+/\-]{16,}=*)",
    "basic": r"(?i:authorization[\\\"']*\s*:\s*[\\\"']*basic\s+)([A-Za-z0-9+/]{8,}={0,2})",
    "anthropic_key": r"(sk-ant-[A-Za-z0-9_\-]{16,})",
    "openai_key": r"(sk-(?:proj|svcacct|admin|or|lf)-[A-Za-z0-9_\-]{16,}|sk-[A-Za-z0-9]{20,})",
    "aws_key": r"((?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16})",
    "aws_secret": r"(?i:aws_?secret_?(?:access_?)?key[\\\"']*\s*[:=]\s*[\\\"']*)([A-Za-z0-9/+]{40})",
    "google_key": r"(AIza[0-9A-Za-z_\-]{35}|ya29\.[0-9A-Za-z_\-]{20,}|GOCSPX-[0-9A-Za-z_\-]{20,})",
    "github_token": r"(gh[opsur]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{40,255})",
    "gitlab_token": r"(gl(?:pat|ptt|rt|dt)-[A-Za-z0-9_\-]{20,})",
    "slack_token": r"(xox[abeprs]-[A-Za-z0-9\-]{10,}|hooks\.slack\.com/services/[A-Za-z0-9/]{20,})",
    "hugging_face_token": r"(hf_[A-Za-z0-9]{30,})",
    "model_vendor_key": r"(gsk_[A-Za-z0-9]{40,}|xai-[A-Za-z0-9]{40,}|r8_[A-Za-z0-9]{37}|pplx-[A-Za-z0-9]{40,}|nvapi-[A-Za-z0-9_\-]{40,})",
    "stripe_key": r"((?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9]{24,})",
    "package_token": r"(npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_\-]{50,})",
    "service_token": r"(SG\.[A-Za-z0-9_\-]{22}\.[A-Za-z0-9_\-]{43}|dapi[0-9a-f]{32}|dop_v1_[0-9a-f]{64}|hv[bs]\.[A-Za-z0-9_\-]{24,})",
    "named_key": r"(?i:(?:api|access|secret|auth|private)[_\- ]?(?:key|token)[\\\"']*\s*[:=]\s*[\\\"']*)([A-Za-z0-9+/\-]{20,}={0,2})",
    "email": r"([A-Za-z0-9._%+\-]+@[A-Za-z0-9\-]+(?:\.[A-Za-z0-9\-]+)*\.[A-Za-z]{2,})",
}
"""Rule -> RE2 pattern."""

PERSONAL = frozenset({"email"})
"""Rules about people rather than credentials."""

KEPT = frozenset({"call_id", "attempt_id", "task_id", "harness", "policy_version"})
"""Keys whose strings name things: only the rules outside PERSONAL apply."""

TOKEN_KEYS = frozenset(
    {
        "prompt_token_ids",
        "token_ids",
        "completion_token_ids",
        "generation_token_ids",
        "logprobs",
        "prompt_logprobs",
        "completion_logprobs",
        "generation_log_probs",
        "output_token_logprobs",
        "input_token_logprobs",
    }
)
"""Keys under which logs spell text a second time, as ids or as logprobs with the token's text."""

_NUMBERS = {int, float, type(None)}
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_PLAIN = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


@dataclass
class Redactor:
    """Replaces secrets under one key and counts them by rule."""

    key: bytes
    counts: Counter[str] = field(default_factory=Counter)

    def may_match(self, text: bytes) -> bool:
        """Whether any rule may find something in a text that holds all strings of a record (screening.py)."""
        return bool(_any().search(text))

    def text(self, text: str, *, personal: bool = True) -> str:
        """The text without its secrets; `personal` False leaves e-mail addresses."""
        if not _any().search(text.encode("utf-8", "replace")):
            return text
        for rule, pattern in _patterns().items():
            if personal or rule not in PERSONAL:
                text = pattern.sub(lambda found, rule=rule: self._replaced(rule, found), text)
        return text

    def value(self, value: Any) -> Any:
        """A decoded JSON value without its secrets; the same object where there are none."""
        strings: list[str] = []
        _collect(value, strings)
        # one search over all strings: nearly every record has nothing to hide, and is through here at once
        if not _any().search("\n\0".join(strings).encode("utf-8", "replace")):
            return value
        before = self.counts.total()
        redacted = self._walk(value, None)
        return _without_token_ids(redacted) if self.counts.total() > before else value

    def bad_text(self, raw: bytes, limit: int) -> str:
        """Bytes that are no JSON, as text without secrets, cut to `limit` characters.

        Such text was never decoded: where its escapes hide something, the text with the escapes resolved is kept.
        """
        text = raw[: 2 * limit].decode("utf-8", "replace").replace("\0", "�")
        plain, trial = _ESCAPE.sub(_unescaped, text), Redactor(self.key)
        as_is, resolved = Redactor(self.key), trial.text(plain)
        kept = as_is.text(text)
        if trial.counts.total() > as_is.counts.total():
            kept, as_is = resolved, trial
        self.counts.update(as_is.counts)
        return kept[:limit]

    def _walk(self, value: Any, key: str | None) -> Any:
        if isinstance(value, str):
            return self.text(value, personal=key not in KEPT)
        if isinstance(value, list):
            return [self._walk(item, key) for item in value]
        if isinstance(value, dict):
            return {self.text(name): self._walk(item, name) for name, item in value.items()}
        return value

    def _replaced(self, rule: str, found: Any) -> str:
        secret, whole = found.group(1), found.group(0)
        if secret.startswith("[redacted:"):  # a log that was redacted before
            return whole
        self.counts[rule] += 1
        before = found.start(1) - found.start(0)
        return whole[:before] + token(self.key, rule, secret) + whole[before + len(secret) :]


def token(key: bytes, rule: str, secret: str) -> str:
    """What stands where a secret stood."""
    mac = hmac.new(key, rule.encode() + b"\0" + secret.encode("utf-8", "replace"), hashlib.sha256)
    return f"[redacted:{rule}:{mac.hexdigest()[:12]}]"


def dumped(value: Any) -> str:
    """A decoded value as the JSON text that is stored."""
    return orjson.dumps(value).decode()


@cache
def _patterns() -> dict[str, Any]:
    return {rule: re2.compile(pattern) for rule, pattern in RULES.items()}


@cache
def _any() -> Any:
    return re2.compile("|".join(RULES.values()).encode())


def _collect(value: Any, strings: list[str]) -> None:
    if isinstance(value, str):
        strings.append(value)
    elif isinstance(value, list):
        if set(map(type, value)) <= _NUMBERS:  # token ids and logprobs: the longest lists there are
            return
        for item in value:
            _collect(item, strings)
    elif isinstance(value, dict):
        for name, item in value.items():
            strings.append(name)
            _collect(item, strings)


def _without_token_ids(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_token_ids(item) for item in value]
    if isinstance(value, dict):
        return {name: None if name in TOKEN_KEYS else _without_token_ids(item) for name, item in value.items()}
    return value


def _unescaped(found: re.Match[str]) -> str:
    if found[1]:
        character = chr(int(found[1], 16))
        return "�" if character == "\0" or "\ud800" <= character <= "\udfff" else character
    return _PLAIN.get(found[2], found[2])
