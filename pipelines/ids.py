"""Identities: keyed hashes of normalised bytes, taken before redaction.

An id is `<kind>_` and 128 bits of HMAC-SHA256 under the workspace's identity key, over the kind and its parts with
their lengths, so that no two lists of parts share bytes. The key is made once at `nightshift init`, is never rotated,
and lies outside the lake; its fingerprint stands in the lake (see `Workspace.open`), since ids under another key would
silently double every row. Redaction uses a second key that may rotate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import orjson

KINDS = {
    "file": "fil",
    "record": "rec",
    "content": "con",
    "task": "tsk",
    "context": "ctx",
    "attempt": "att",
    "bundle": "bun",
    "turn": "trn",
    "name": "nam",
    "told": "tld",
    "trajectory": "trj",
    "group": "grp",
    "row": "row",
    "judgement": "jdg",
    "run": "run",
    "subject": "sub",
    "tombstone": "tmb",
    "split": "spl",
    "order": "ord",
}
"""Kind of thing -> prefix of its ids. A batch's id is the root of its row hashes (trainer/contract.py)."""

_BLOCK = 64
"""Bytes that SHA-256 takes in at once, to which HMAC pads its key."""

_SHORT = 256
"""Bytes of a part that are copied to the others rather than hashed by themselves."""


def canonical_json(value: Any) -> bytes:
    """The one serialisation that hashes are taken over: sorted keys, no spaces, UTF-8. Refuses NaN and infinities."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def plain_hash(value: Any) -> str:
    """Unkeyed SHA-256 of the canonical JSON: for things without personal content (rubrics, configs, requests to a judge)."""
    return hashlib.sha256(value if isinstance(value, bytes) else canonical_json(value)).hexdigest()[:32]


class Identity:
    """Makes ids under one identity key."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        padded = (hashlib.sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
        # HMAC by hand: both its states are made once and copied, which for short parts is most of the work
        self._inner, self._outer = (hashlib.sha256(bytes(byte ^ pad for byte in padded)) for pad in (0x36, 0x5C))

    def __reduce__(self) -> tuple[type[Identity], tuple[bytes]]:
        return Identity, (self._key,)  # to the processes that make rows, over a pipe

    @property
    def fingerprint(self) -> str:
        """What the lake stores to recognise the key: a hash that does not reveal it."""
        return hashlib.sha256(b"nightshift identity key\0" + self._key).hexdigest()[:32]

    def of(self, kind: str, *parts: bytes | str) -> str:
        """The id of one thing; `kind` is a key of KINDS, `parts` what makes it this one and no other."""
        told = kind.encode()
        inner, outer = self._inner.copy(), self._outer.copy()
        for part in parts:
            encoded = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
            told += len(encoded).to_bytes(8, "big")
            if len(encoded) < _SHORT:
                told += encoded
            else:
                inner.update(told)
                inner.update(encoded)
                told = b""
        inner.update(told)
        outer.update(inner.digest())
        return f"{KINDS[kind]}_{outer.hexdigest()[:32]}"

    def name_id(self, name: str) -> str:
        """Of a task id, or of what names an environment's state."""
        return self.of("name", name)

    def tools_id(self, tools: Sequence[Any]) -> str:
        """Of a tool schema."""
        return self.of("content", "tools", canonical_json(tools))

    def task_key(self, harness: str, task_id: str) -> str:
        """What was asked, where the harness names its tasks."""
        return self.named_task_key(harness, self.name_id(task_id))

    def named_task_key(self, harness: str, name_id: str) -> str:
        """The same from the identity of the name, which outlives its redaction."""
        return self.of("task", "name", harness, name_id)

    def request_task_key(self, harness: str, request: Sequence[str]) -> str:
        """What was asked, where only the first request tells: the ids of its turns (landing/spelling.py)."""
        return self.of("task", "request", harness, *request)

    def context_key(self, system: Sequence[str] = (), tools_id: str | None = None, snapshot_id: str | None = None) -> str:
        """Under what it was asked: ids of the system prompt's turns, of the tool schema, of the environment snapshot (I4)."""
        return self.of("context", canonical_json([list(system), tools_id, snapshot_id]))

    def run_key(self, harness: str, name_id: str) -> str:
        """The run that attempts belong to, from the identity of its name, where the workspace keeps runs apart."""
        return self.of("name", "run", harness, name_id)

    def group_id(
        self, task_key: str, context_key: str, trajectory_ids: Sequence[str], *, run_key: str | None = None, times: int = 0
    ) -> str:
        """A group is its task, its context, its run where runs stay apart, and its sorted members; `times`: how often these
        became stale as a group before.
        """
        told = [*([f"run {run_key}"] if run_key is not None else []), *([f"times {times}"] if times else [])]
        return self.of("group", task_key, context_key, *sorted(trajectory_ids), *told)

    def share(self, kind: str, key: str) -> float:
        """A stable pseudo-random number in [0, 1) for a key: draws splits without knowing the other keys."""
        return int(self.of(kind, key).rsplit("_", 1)[1][:13], 16) / 16**13
