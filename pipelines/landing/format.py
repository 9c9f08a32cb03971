"""What a log format is: how files of one kind are recognised, cut into records, and how records become attempts.

Two halves, which meet only in the lake. Landing calls `detect` and `split` and stores each record raw and redacted.
The trajectories stage calls `attempt` with the stored records of one attempt and gets it in uniform words. So a parser
that is mended later reads what was landed before, and a log never has to be delivered twice.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import orjson

from trainer.contract import REWARD_UNIT

GIVES = ("task_id", "outcome", "model", "token_ids", "logprobs", "times")
"""What a format's records may carry; `nightshift formats` shows one column each."""

HEAD_BYTES = 1 << 20
"""How much of a file `detect` gets to see."""


@dataclass(frozen=True, kw_only=True)
class SourceRecord:
    """One record as it stands in a file, before redaction. Offsets are bytes from the file's start, end exclusive."""

    line: int
    """Of its first byte, from 1."""
    byte_start: int
    byte_end: int
    value: Any
    """The decoded JSON."""
    content: bytes
    """Its normalised bytes: equal for records that differ in white space or escapes only. Ids are taken over these."""
    vendor_id: str | None
    """The record's own id in its log, unique in the format; None: its content and number among equals identify it."""
    attempt_ref: str | None
    """What the records of one attempt share, unique in the format; None: this record is an attempt by itself."""
    time: datetime.datetime | None
    """When it was logged, by its own log; None where the log has no times."""
    skip_reason: str | None = None
    """One of reasons.SKIP_REASONS where it belongs to no attempt."""


@dataclass(frozen=True, kw_only=True)
class BadRecord:
    """A stretch of a file that is no record; it goes to quarantine."""

    line: int
    byte_start: int
    byte_end: int
    reason: str
    """One of reasons.QUARANTINE_REASONS."""
    detail: str
    """What the parser said, one line."""
    raw: bytes


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """The end of a file that is still being written: not acknowledged, read again next time."""

    line: int
    byte_start: int


Piece = SourceRecord | BadRecord | Unfinished


@dataclass(frozen=True, kw_only=True)
class StoredRecord:
    """A record as the lake holds it: what `attempt` is made from."""

    record_id: str
    raw: str
    """JSON text, redacted."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt in uniform words; the columns of trajectories/trajectories that a log can tell.

    `turns`: dictionaries with role, content, sampled, call, and where there is one reasoning, tool_calls (arguments always
    a JSON string), tool_call_id, name, finish_reason. `sampled` is true for what the logged policy wrote itself, false for
    prompts, tools, simulated users and demonstrations; `call` is then an index into `calls`.
    `calls`: dictionaries with call_id, prompt_token_ids, token_ids, logprobs, finish_reason, null where not logged.
    """

    record_ids: list[str]
    """Provenance: every record that was given, in the order of the attempt."""
    turns: list[dict[str, Any]]
    calls: list[dict[str, Any]]
    harness: str | None = None
    """The log's own name of its harness; None: the format's name."""
    task_id: str | None = None
    attempt: int | None = None
    """The log's own count."""
    purpose: str = "production"
    policy_version: str | None = None
    """`<policy>@<version>` as logged; None where the log has none or its calls disagree."""
    model: str | None = None
    system: str | None = None
    """Text of the system prompt."""
    tools: list[Any] | None = None
    snapshot: str | None = None
    """Name of the environment's state, for the context (I4)."""
    request: list[Any] = field(default_factory=list)
    """What was asked first: role and content of the messages before the first sampled turn, without the system prompt."""
    outcome: float | None = None
    """The log's own score as logged; None where it has none, or where a harness fault made it meaningless (I11)."""
    outcome_range: tuple[float, float] = (0.0, 1.0)
    """Declared range of `outcome`: worst, best."""
    outcome_source: str | None = None
    fault: str | None = None
    """Name of a harness fault that ended the attempt; such an attempt is no failed attempt."""
    started_at: datetime.datetime | None = None
    ended_at: datetime.datetime | None = None

    @property
    def outcome_units(self) -> int | None:
        """`outcome` scaled from its declared range to [0, 1], in 1e-6."""
        if self.outcome is None:
            return None
        low, high = self.outcome_range
        return round((self.outcome - low) / (high - low) * REWARD_UNIT)

    @property
    def num_sampled_turns(self) -> int:
        """Turns that the logged policy wrote."""
        return sum(1 for turn in self.turns if turn["sampled"])

    @property
    def num_sampled_tokens(self) -> int:
        """Sampled tokens of all calls; 0 where ids were not logged."""
        return sum(len(call["token_ids"] or ()) for call in self.calls)

    @property
    def exact_tokens(self) -> bool:
        """There are calls, and every one has its prompt's ids, its own ids and one logprob for each of these."""
        return bool(self.calls) and all(
            call["prompt_token_ids"]
            and call["token_ids"]
            and call["logprobs"] is not None
            and len(call["logprobs"]) == len(call["token_ids"])
            for call in self.calls
        )


class LogFormat(Protocol):
    """One format. Implementations are stateless; registry.py says how to add one."""

    @property
    def name(self) -> str:
        """Word for the command line and the lake."""
        ...

    @property
    def parser_version(self) -> int:
        """Raised when `split` or `attempt` change their meaning."""
        ...

    @property
    def what(self) -> str:
        """One line: who writes such files."""
        ...

    @property
    def gives(self) -> frozenset[str]:
        """Those of GIVES that its records carry."""
        ...

    def detect(self, head: bytes, path: Path) -> bool:
        """Whether a file is of this format, by its first HEAD_BYTES; must refuse files of every other format."""
        ...

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """The file's pieces from byte `start` (which is on line `line`) on, in order, none overlapping.

        `start` is 0 or where an earlier piece of the same file ended. Raises OSError where the file cannot be read.
        """
        ...

    def attempt(self, records: Sequence[StoredRecord]) -> Attempt:
        """The attempt that these records, all with one attempt key, are; the same whatever their order.

        Raises ValueError where stored records do not hold what `split` let through (a damaged lake).
        """
        ...


def text_of(content: Any) -> str | None:
    """Plain text of a message's content: a string, or the text parts of a list joined; None where there is none."""
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
    return None


def uniform(message: dict[str, Any], *, call: int | None, finish_reason: str | None = None) -> dict[str, Any]:
    """An OpenAI chat message as a turn; `call` is the call that sampled it, None where none did."""
    content = message.get("content")
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        content = text_of(content)
    turn: dict[str, Any] = {"role": message["role"], "content": content, "sampled": call is not None, "call": call}
    if reasoning := message.get("reasoning_content") or message.get("reasoning"):
        turn["reasoning"] = reasoning
    if calls := message.get("tool_calls"):
        turn["tool_calls"] = [_tool_call(tool_call) for tool_call in calls]
    for name in ("tool_call_id", "name"):
        if message.get(name) is not None:
            turn[name] = message[name]
    if finish_reason is not None:
        turn["finish_reason"] = finish_reason
    return turn


def asked(turns: Sequence[dict[str, Any]]) -> tuple[str | None, list[Any]]:
    """System prompt and first request of an attempt: what stands before the first sampled turn."""
    system, request = [], []
    for turn in turns:
        if turn["sampled"]:
            break
        if turn["role"] in ("system", "developer") and not request:
            system.append(text_of(turn["content"]) or "")
        else:
            request.append([turn["role"], turn["content"]])
    return ("\n".join(system) if system else None), request


def _tool_call(tool_call: dict[str, Any]) -> dict[str, Any]:
    function = tool_call.get("function") or {}
    arguments = function.get("arguments")
    if not isinstance(arguments, str):  # some log a dictionary: the same meaning must be the same text
        arguments = orjson.dumps(arguments if arguments is not None else {}).decode()
    return {"id": tool_call.get("id"), "type": "function", "function": {"name": function.get("name"), "arguments": arguments}}
