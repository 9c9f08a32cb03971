"""Format `pi_agent`: sessions of the pi coding agent, JSONL: a header line `session` and one line per entry.

Old sessions are a row of entries without ids; newer ones are a tree (id, parentId). Traps: the header may be written after
the first messages were spoken, and a session that was forked off another one begins with copies of its entries, which were
answered there and not here (their times lie before the header's); model and provider change inside a session; a call
that was aborted may have said something or nothing; `compaction` puts a summary in the place of the entries before
`firstKeptEntryIndex` (counted over all lines, the header being 0) or `firstKeptEntryId`; commands that the user ran
himself (`bashExecution`) reach the model as the user's text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.landing.content_blocks import tool_turn, turns_of
from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.entries import ROOT, Entry, attempts_of
from pipelines.landing.format import Bundle, Piece, Spelled, StoredRecord, uniform
from pipelines.landing.head import Head
from pipelines.landing.moments import checked_moment
from pipelines.landing.session_lines import Places, in_order, in_place, split_placed
from pipelines.landing.shapes import checked, cost, count, total

_CONTENT = (str, list, type(None))
_ENTRIES = {"message", "model_change", "thinking_level_change", "compaction", "branch_summary", "custom_message"}
_FAULTS = {"aborted": "aborted", "error": "model_error"}
_SUMMARIES = {
    "compaction": "The conversation history before this point was compacted into the following summary:\n\n<summary>\n",
    "branch_summary": "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n",
}
"""The words in which the agent hands a summary to the model."""


class PiAgent:
    """The format; see LogFormat."""

    name = "pi_agent"
    parser_version = 2
    what = "pi coding agent sessions (~/.pi/agent/sessions), one line per entry"
    gives = frozenset({"model", "times"})
    unique_calls = frozenset({"call", "tool_call"})

    def detect(self, head: Head) -> bool:
        """A header with an id and a folder among the first lines, or entries in pi's own words."""
        return any(_is_header(row) or _is_entry(row) for row in head.rows)

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per line."""
        return split_placed(path, start, _Reading(path))

    def spell(self, value: Any) -> Spelled:
        """The turns of one entry."""
        return Spelled(turns=_turns(value["row"]))

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempts of a session: the first branch, the others, and what went on after each compaction."""
        ordered = in_order(records)
        latest = {record.value["row"].get("id") or record.record_id: record for record in ordered}
        kept = [record for record in ordered if latest[record.value["row"].get("id") or record.record_id] is record]
        names = [_name(record.value["row"], record.value) for record in kept]
        attempts = attempts_of([_entry(record, names[:number]) for number, record in enumerate(kept)])
        by_record = {record_id: attempt.ref for attempt in attempts for record_id in attempt.record_ids}
        left: dict[str, tuple[str | None, str]] = {
            record.record_id: (by_record[latest[record.value["row"]["id"]].record_id], "superseded")
            for record in ordered
            if record.record_id not in by_record
        }
        return Bundle(attempts=attempts, left=left)


class _Reading:
    """What is known of a file while its lines are read."""

    def __init__(self, path: Path) -> None:
        self.session = path.stem.rpartition("_")[2]
        self.forked_at: Any = None
        self.places = Places()
        self.rows: list[str | None] = []
        """Name of each line so far: what `firstKeptEntryIndex` counts."""

    def __call__(self, value: Any) -> Facts:
        row = checked(value, type=str, timestamp=(str, int, type(None)), id=(str, type(None)), parentId=(str, type(None)))
        time = checked_moment(row.get("timestamp"))
        if _is_header(row):
            self.session = row["id"]
            self.forked_at = time if row.get("branchedFrom") or row.get("parentSession") else None
            self.rows.append(None)
            return in_place(Facts(time=time, skip_reason="meta"), self.session, {"at": None, "tie": 0}, row)
        _check(row)
        place = self.places.place(time, row)
        told: dict[str, Any] = {}
        if self.forked_at is not None and time is not None and time < self.forked_at:
            told["copied"] = True
        index = row.get("firstKeptEntryIndex")
        if row["type"] == "compaction" and isinstance(index, int) and 0 <= index < len(self.rows):
            told["kept_from"] = self.rows[index]
        self.rows.append(_name(row, place))
        skip = "meta" if row["type"] not in ("message", *_SUMMARIES, "custom_message") and row.get("id") is None else None
        facts = Facts(vendor_id=row.get("id"), time=time, skip_reason=skip)
        return in_place(facts, self.session, place, row, **told)


def _is_header(row: dict[str, Any]) -> bool:
    return row.get("type") == "session" and isinstance(row.get("id"), str) and "cwd" in row and "timestamp" in row


def _is_entry(row: dict[str, Any]) -> bool:
    message = row.get("message")
    if row.get("type") != "message" or not isinstance(message, dict) or "timestamp" not in row:
        return False
    return message.get("role") in ("toolResult", "bashExecution") or {"api", "provider", "stopReason"} <= message.keys()


def _check(row: dict[str, Any]) -> None:
    if row["type"] == "message":
        message = checked(row.get("message"), role=str, content=_CONTENT)
        checked(message.get("usage") or {}, cost=(dict, int, float, type(None)))
        for name in ("model", "stopReason", "toolCallId", "toolName", "command", "output", "summary"):
            if not isinstance(message.get(name), str | None):
                raise BadPieceError("wrong_shape", f"message.{name} is {type(message[name]).__name__}")
    elif row["type"] in _SUMMARIES:
        checked(row, summary=str, firstKeptEntryId=(str, type(None)))
    elif row["type"] == "custom_message":
        checked(row, content=_CONTENT)


def _turns(row: dict[str, Any]) -> list[dict[str, Any]]:
    if row["type"] in _SUMMARIES:
        return [_said(_SUMMARIES[row["type"]] + row["summary"] + "\n</summary>")]
    message = row if row["type"] == "custom_message" else row.get("message") or {}
    role, content = message.get("role", "user"), message.get("content")
    if row["type"] not in ("message", "custom_message"):
        return []
    if role == "toolResult":
        return [tool_turn(message.get("toolCallId"), content, name=message.get("toolName"))]
    if role == "bashExecution":
        return [] if message.get("excludeFromContext") else [_said(_ran(message))]
    if role in ("compactionSummary", "branchSummary"):
        return [_said(_SUMMARIES["compaction"] + (message.get("summary") or "") + "\n</summary>")]
    return turns_of("assistant" if role == "assistant" else "user", content)


def _said(text: str) -> dict[str, Any]:
    return uniform({"role": "user", "content": text}, call=None)


def _ran(message: dict[str, Any]) -> str:
    """A command of the user's own, as the model gets to see it."""
    output = f"```\n{message['output']}\n```" if message.get("output") else "(no output)"
    text = f"Ran `{message.get('command')}`\n{output}"
    if message.get("cancelled"):
        return text + "\n\n(command cancelled)"
    return text + (f"\n\nCommand exited with code {message['exitCode']}" if message.get("exitCode") else "")


def _name(row: dict[str, Any], place: dict[str, Any]) -> str:
    return row.get("id") or f"{place['at']}#{place['tie']}"


def _entry(record: StoredRecord, before: Sequence[str]) -> Entry:
    row, value = record.value["row"], record.value
    entry = Entry(
        record_ids=[record.record_id],
        turns=record.spelled.turns,
        id=_name(row, value),
        parent=(row["parentId"] or ROOT) if "parentId" in row and row.get("id") else None,
        copied=bool(value.get("copied")),
        time=checked_moment(row.get("timestamp")),
    )
    if row["type"] == "compaction":
        first = row.get("firstKeptEntryId") or value.get("kept_from")
        entry.kept = before[before.index(first) :] if first in before else []
    message = row.get("message") or {}
    if row["type"] == "message" and message.get("role") == "assistant":
        usage = message.get("usage") or {}
        price = usage.get("cost")
        entry.answers = True
        entry.model = message.get("model")
        entry.finish_reason = message.get("stopReason")
        entry.fault = _FAULTS.get(message.get("stopReason") or "")
        prompt = [count(usage.get(name, 0)) for name in ("input", "cacheRead", "cacheWrite")]
        entry.num_prompt_tokens = total(prompt) if "input" in usage else None
        entry.num_reply_tokens = count(usage.get("output"))
        entry.cost_usd = cost(price.get("total") if isinstance(price, dict) else price)
    return entry
