"""What a log format is: how files of one kind are recognised, cut into records, and how records become attempts.

Two halves, which meet only in the lake. Landing calls `detect` and `split` and stores each record raw and redacted.
The trajectories stage calls `attempts` with the stored records of one bundle and gets them in uniform words. So a parser
that is mended later reads what was landed before, and a log never has to be delivered twice.

A bundle is the records that must be read together: the lines of one session with its subagents, the calls that begin with
the same request, an attempt and the report on it; where a record names nothing it shares, a bundle by itself. `attempts`
makes one or more attempts of it.

Between the halves stands `spell`: what one record says, turn by turn. Redaction changes text and must not change ids, so
where it changed a record, landing stores the identities of what `spell` read off the record before; stage 2 spells the
redacted record, and each turn finds its identity at its place (spelling.py). `attempts` works on these turns.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import orjson

from pipelines.landing.head import Head
from trainer.contract import REWARD_UNIT

_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
"""How model servers say that an answer was cut off at the limit of tokens."""

GIVES = ("task_id", "outcome", "model", "token_ids", "logprobs", "times")
"""What a format's records may carry; `nightshift formats` shows one column each."""


@dataclass(frozen=True, kw_only=True)
class SourceRecord:
    """One record as it stands in a file, before redaction. Offsets are bytes from the start of the (unpacked) file, end exclusive."""

    line: int
    """Of its first byte, from 1."""
    byte_start: int
    byte_end: int
    value: Any
    """What is stored: the decoded JSON, or what the format made of a file that is no JSON (plain JSON types only)."""
    content: bytes
    """Its normalised bytes: equal for records that differ in white space or escapes only. Ids are taken over these."""
    vendor_id: str | None
    """The record's own id in its log, unique in the format; None: its content and number among equals identify it."""
    bundle_ref: str | None
    """What the records that must be read together share, unique in the format; None: its content, so that records that are
    equal in every byte and name neither id nor time are one attempt with `num_identical`."""
    time: datetime.datetime | None
    """When it was logged, by its own log; None where the log has no times."""
    skip_reason: str | None = None
    """One of reasons.SKIP_REASONS where it belongs to no attempt."""
    text: bytes | None = None
    """The value's JSON as it is stored where nothing in it is redacted; None: the value is written anew."""


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
    digest: bytes | None = None
    """SHA-256 of the whole stretch where `raw` is its beginning only."""


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """The end of a file that is still being written: not acknowledged, read again next time."""

    line: int
    byte_start: int
    at_rest: SourceRecord | BadRecord | None = field(default=None, compare=False)
    """Of a file that is written as a whole (a document, an archive): what this is once nobody writes to the file any more
    (`landing.at_rest_seconds`). None: of one that grows by lines, whose last line waits for its end however long."""


Piece = SourceRecord | BadRecord | Unfinished


@dataclass(kw_only=True)
class Spelled:
    """What one record says by itself, in uniform words: the same function of the same record, whatever stands around it."""

    turns: list[dict[str, Any]] = field(default_factory=list)
    """Every turn that it holds, in its order, made by `uniform`: repeated prompts and answers alike. `attempts` puts these
    very dictionaries (or `dict(turn, …)` of them, or `merged` of several) into its attempts, so that they keep their `id`."""
    tools: list[Any] | None = None
    """Tool schema that it carries."""
    task_id: str | None = None
    snapshot: str | None = None
    """What names the state of the environment; may be as long as it wants, only its identity is used."""


@dataclass(frozen=True, kw_only=True)
class StoredRecord:
    """A record as the lake holds it: what `attempts` is made from."""

    record_id: str
    value: Any
    """The stored JSON, redacted."""
    spelled: Spelled
    """Of `value`; every turn has `id` (who said what: role, text, calls) and `reasoning_id`."""
    source: str = ""
    """Its file, to tell neighbours apart where the log itself gives nothing better."""
    day: str = ""
    byte_start: int = 0
    """Where it begins in its file: the order of lines that were logged at the same time, or without one."""


@dataclass(frozen=True, kw_only=True)
class CallUsage:
    """What one answer cost and which model gave it; None where not logged."""

    model: str | None = None
    num_prompt_tokens: int | None = None
    num_reply_tokens: int | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt in uniform words; the columns of trajectories/trajectories that a log can tell.

    `turns`: dictionaries with role, content, sampled, call, and where there is one reasoning, tool_calls (arguments always
    a JSON string), tool_call_id, name, finish_reason, is_demo. `sampled` is true for what the logged policy wrote itself in
    this attempt, false for prompts, tools, simulated users, demonstrations, copied context, the prefix that a branch shares
    with its parent, and assistant turns that no record answers; `call` is then an index into `calls`.
    `calls`: dictionaries made by `call_entry`, one per answer of the model, null where not logged.
    """

    record_ids: list[str]
    """Provenance: the records that this attempt and no other is made of, in the order of the attempt."""
    ref: str = ""
    """Names the attempt inside its bundle: the same when later records arrive."""
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
    tools: list[Any] | None = None
    snapshot: str | None = None
    """Name of the environment's state, for the context (I4)."""
    outcome: float | None = None
    """The log's own score as logged; None where it has none, or where a harness fault made it meaningless (I11)."""
    outcome_range: tuple[float, float] = (0.0, 1.0)
    """Declared range of `outcome`: worst, best. A source's own `outcome_range` goes before it."""
    outcome_source: str | None = None
    """Where the log keeps it, by the log's own word (`reward`, `report.resolved`, `scores.accuracy`)."""
    fault: str | None = None
    """One of reasons.FAULTS where a harness fault ended the attempt; such an attempt is no failed attempt."""
    started_at: datetime.datetime | None = None
    ended_at: datetime.datetime | None = None
    parent_ref: str | None = None
    """`ref` of the attempt of the same bundle that this one comes from."""
    link: str | None = None
    """How: one of reasons.LINKS; may stand without a parent_ref where the parent was not logged."""
    parent_tool_call_id: str | None = None
    """The parent's tool call that started this one (subagents)."""
    num_shared_turns: int = 0
    """First turns that are the parent's own and not sampled here."""
    num_gaps: int = 0
    """Assistant turns in a prompt that no record answers: not trainable."""
    num_prompt_tokens: int | None = None
    """Usage summed over the attempt's calls, each call once; None where not logged."""
    num_reply_tokens: int | None = None
    cost_usd: float | None = None
    usages: list[CallUsage] = field(default_factory=list)
    """Usage and model of each entry of `calls`; empty where the log does not tell them apart. Needed where another attempt
    owns some of the answers."""

    @property
    def num_sampled_turns(self) -> int:
        """Turns that the logged policy wrote."""
        return sum(1 for turn in self.turns if turn["sampled"])

    @property
    def num_sampled_tokens(self) -> int:
        """Sampled tokens of all calls, without those that stand for a secret; 0 where ids were not logged."""
        return sum(
            len(call["token_ids"] or ()) - sum(end - start for start, end in call.get("redacted_spans") or ())
            for call in self.calls
        )

    @property
    def logged_ids(self) -> bool:
        """There are calls, and every one has its prompt's ids and its own ids, whatever became of their logprobs."""
        return bool(self.calls) and all(call["prompt_token_ids"] and call["token_ids"] for call in self.calls)

    @property
    def truncated(self) -> bool:
        """The last answer was cut off at the limit of tokens."""
        last = next((turn for turn in reversed(self.turns) if turn["sampled"]), None)
        if last is None:
            return False
        reason = last.get("finish_reason")
        if reason is None and last["call"] < len(self.calls):
            reason = self.calls[last["call"]].get("finish_reason")
        return isinstance(reason, str) and reason.lower() in _CUT

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


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """What the records of a bundle are. Every record is in exactly one attempt's provenance or in `left` (I1)."""

    attempts: list[Attempt]
    left: dict[str, tuple[str | None, str]] = field(default_factory=dict)
    """Records that are in no provenance: record_id -> (ref of the attempt that stands for it, None where there is none; one
    of reasons.DUPLICATE_KINDS): an older version of a line that grew (`superseded`), a report on no known attempt (`unmatched`)."""


class LogFormat(Protocol):
    """One format. Implementations are stateless; registry.py says how to add one."""

    @property
    def name(self) -> str:
        """Word for the command line and the lake."""
        ...

    @property
    def parser_version(self) -> int:
        """Raised when `split`, `spell` or `attempts` change their meaning."""
        ...

    @property
    def what(self) -> str:
        """One line: who writes such files."""
        ...

    @property
    def gives(self) -> frozenset[str]:
        """Those of GIVES that its records carry."""
        ...

    # `names_attempts` (optional): true where every attempt has an id of its own, so that two ids are two attempts whatever they
    # say; task id and attempt number are then no sign that one is the other unfinished (same_attempt.py)

    @property
    def unique_calls(self) -> frozenset[str]:
        """Whose ids tell a copied answer from one that was sampled twice (copied.py): `call`, those in `calls`, which are the
        model server's or random; `tool_call`, those of tool calls, of logs that harnesses themselves write as they run.

        Published results are no such logs: what rewrote their ids may have used one for many calls.
        """
        ...

    def detect(self, head: Head) -> bool:
        """Whether a file is of this format, by its beginning; must refuse files of every other format."""
        ...

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """The file's pieces from byte `start` (which is on line `line`) on, in order, none overlapping.

        `start` is 0 or where an earlier piece of the same file ended. Raises OSError where the file cannot be read.
        """
        ...

    def spell(self, value: Any) -> Spelled:
        """What one stored value says. Raises ValueError, KeyError or TypeError where it is not what `split` lets through."""
        ...

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempts that the records of one bundle are; the same whatever their order.

        Raises ValueError, KeyError or TypeError where stored records do not hold what `split` let through.
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


def call_entry(
    *,
    call_id: str | None = None,
    prompt_token_ids: list[int] | None = None,
    token_ids: list[int] | None = None,
    logprobs: list[float] | None = None,
    finish_reason: str | None = None,
    redacted_spans: list[list[int]] | None = None,
) -> dict[str, Any]:
    """One entry of an attempt's `calls`; `redacted_spans`: [start, end) in `token_ids` that stand for secrets, never sampled."""
    entry: dict[str, Any] = {
        "call_id": call_id,
        "prompt_token_ids": prompt_token_ids,
        "token_ids": token_ids,
        "logprobs": logprobs,
        "finish_reason": finish_reason,
    }
    return {**entry, "redacted_spans": redacted_spans} if redacted_spans else entry


def merged(turns: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several pieces of one message as one turn: texts joined, calls in order, of everything else the last word.

    Identities are joined too, so a message has the same one however many lines it was logged on only where the pieces are
    the same; logs that write one message in pieces write it so every time.
    """
    if len(turns) == 1:
        return turns[0]
    whole = {name: value for turn in turns for name, value in turn.items() if value is not None}
    contents: list[Any] = [turn.get("content") for turn in turns if turn.get("content") not in (None, "")]
    if all(isinstance(content, str) for content in contents):
        whole["content"] = "".join(contents) if contents else None
    else:
        whole["content"] = [
            part
            for content in contents
            for part in (content if isinstance(content, list) else [{"type": "text", "text": content}])
        ]
    if reasonings := [turn["reasoning"] for turn in turns if turn.get("reasoning")]:
        whole["reasoning"] = "".join(reasonings)
    if calls := [call for turn in turns for call in turn.get("tool_calls") or ()]:
        whole["tool_calls"] = calls
    whole["id"] = "+".join(str(turn["id"]) for turn in turns if turn.get("id") and _says(turn)) or next(
        (str(turn["id"]) for turn in turns if turn.get("id")), ""
    )  # nothing but reasoning
    if any(turn.get("masked_id") for turn in turns):
        masked = [turn.get("masked_id") or turn["id"] for turn in turns if turn.get("id") and _says(turn)]
        whole["masked_id"] = "+".join(masked) or whole["id"]
    whole["reasoning_id"] = "+".join(str(turn["reasoning_id"]) for turn in turns if turn.get("reasoning_id")) or None
    whole.setdefault("call", None)
    return whole


def _says(turn: dict[str, Any]) -> bool:
    return bool(turn.get("content") or turn.get("tool_calls"))


def asked(turns: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """System prompt and first request of an attempt: the turns before the first sampled one."""
    system: list[dict[str, Any]] = []
    request: list[dict[str, Any]] = []
    for turn in turns:
        if turn["sampled"]:
            break
        (system if turn["role"] in ("system", "developer") and not request else request).append(turn)
    return system, request


def units(outcome: float | None, outcome_range: tuple[float, float]) -> int | None:
    """An outcome scaled from its declared range to [0, 1], in 1e-6; None where there is none or it lies outside."""
    low, high = outcome_range
    if outcome is None or not low <= outcome <= high:
        return None
    return round((outcome - low) / (high - low) * REWARD_UNIT)


def _tool_call(tool_call: dict[str, Any]) -> dict[str, Any]:
    function = tool_call.get("function") or {}
    arguments = function.get("arguments")
    if not isinstance(arguments, str):  # some log a dictionary: the same meaning must be the same text
        arguments = orjson.dumps(arguments if arguments is not None else {}).decode()
    return {"id": tool_call.get("id"), "type": "function", "function": {"name": function.get("name"), "arguments": arguments}}
