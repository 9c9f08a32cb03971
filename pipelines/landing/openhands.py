"""Format `openhands`: OpenHands before its SDK: evaluation rows, resolver rows, saved trajectories, dumps of messages.

- `output.jsonl` of an evaluation: one attempt a line. Whether it succeeded is not in it, unless a report was merged into it; a
  row without a history is only a report.
- `output.jsonl` of the resolver: the same for an issue, with `success`.
- a saved trajectory: a list of events, alone or under one key of an object; the longest version of one stands.
- `*fncall-llm-message.json`: the messages of one conversation.

Traps: an `error` is a fault of the harness, but for an agent that went round in circles or reached its limit; the settings of
the model may hold its key, so nothing but the model's name is taken from them; `metrics` are sums over the attempt.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.ids import canonical_json
from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.document import split_document
from pipelines.landing.entries import Entry, attempts_of
from pipelines.landing.format import Attempt, Bundle, Piece, Spelled, StoredRecord, uniform
from pipelines.landing.head import Head
from pipelines.landing.jsonl import split_lines
from pipelines.landing.moments import checked_moment
from pipelines.landing.openhands_events import check, entries_of, fault_of, flat, is_event, tools_of
from pipelines.landing.shapes import checked, cost, count

_LISTS = ("trajectory", "entries", "events")
"""Keys under which an exported trajectory has its events."""
_DUMP = "fncall-llm-message.json"
_OPTIONAL = (dict, type(None))
_TEXT = (str, type(None))
_ROLES = ("system", "user", "assistant", "tool")


class OpenHands:
    """The format; see LogFormat."""

    name = "openhands"
    parser_version = 1
    what = "OpenHands evaluation and resolver output.jsonl, saved trajectories"
    gives = frozenset({"task_id", "outcome", "model", "times"})
    unique_calls = frozenset[str]()

    def detect(self, head: Head) -> bool:
        """A row of an evaluation or of the resolver, a list of events, or a dump of messages by its name."""
        return _is_row(head.object) or any(_is_row(row) for row in head.rows) or _is_document(head)

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per line of rows; a trajectory is one."""
        if _is_document(Head(path)):
            return split_document(path, start, _document_facts)
        return split_lines(path, start, line, _row_facts)

    def spell(self, value: Any) -> Spelled:
        """The turns of the whole attempt."""
        history = _history(value)
        turns = [turn for entry in _entries(value, "") for turn in entry.turns]
        return Spelled(turns=turns, tools=tools_of(history), task_id=_task_id(value), snapshot=_snapshot(value))

    def placed(self, value: Any) -> Facts:
        """Where a stored value belongs, which is not as it was logged (placed_anew.py)."""
        return _document_facts(value.get("messages", value))

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempt of a row or trajectory, and what went on after each condensation; of a trajectory the longest version."""
        *older, last = sorted(records, key=lambda record: (len(_history(record.value)), record.record_id))
        left: dict[str, tuple[str | None, str]] = {record.record_id: ("", "superseded") for record in older}
        value, turns = last.value, list(last.spelled.turns)
        entries = _entries(value, last.record_id)
        if not entries and not value.get("error"):
            return Bundle(attempts=[], left={record.record_id: (None, "unmatched") for record in records})
        for entry in entries:
            number = len(entry.turns)
            entry.turns, turns = turns[:number], turns[number:]
        entries = entries or [Entry(record_ids=[last.record_id])]
        attempts = attempts_of(entries, tools=last.spelled.tools, harness="openhands", task_id=last.spelled.task_id)
        attempts = [dataclasses.replace(attempt, snapshot=last.spelled.snapshot) for attempt in attempts]
        # what the row says of the whole is said of the attempt that ends last
        attempts[-1] = _ended(attempts[-1], value, alone=len(attempts) == 1)
        return Bundle(attempts=attempts, left=left)


def _is_row(row: dict[str, Any]) -> bool:
    if "instance_id" in row and ("history" in row or {"instruction", "metadata"} <= row.keys()):
        return isinstance(row.get("history", []), list | None)
    return {"issue", "history"} <= row.keys() or ({"instance_id", "test_result", "metadata"} <= row.keys())


def _is_document(head: Head) -> bool:
    if isinstance(head.document, list):
        item = head.item
        if head.path.name.endswith(_DUMP) and item.get("role") in _ROLES and "content" in item:
            return True
        return is_event(item) and "id" in item and "timestamp" in item
    found = next((head.object[key] for key in _LISTS if isinstance(head.object.get(key), list)), [])
    return bool(found) and is_event(found[0]) and "timestamp" in found[0]


def _history(value: Any) -> list[Any]:
    return next((value[key] for key in ("history", "messages", *_LISTS) if isinstance(value.get(key), list)), [])


def _document_facts(value: Any) -> Facts:
    if isinstance(value, dict):
        value = {"trajectory": _history(value)}
    elif isinstance(value, list) and value and isinstance(value[0], dict) and "role" in value[0]:
        for message in value:
            checked(message, role=str, content=(str, list, type(None)), tool_calls=(list, type(None)))
            for call in message.get("tool_calls") or ():
                checked(call, function=dict)
        return Facts(value={"messages": value})
    else:
        value = {"trajectory": value}
    events = list(flat(checked(value, trajectory=list)["trajectory"]))
    if not events:
        raise BadPieceError("wrong_shape", "no events")
    check(events)
    times = [time for time in (checked_moment(event.get("timestamp")) for event in events) if time is not None]
    # its first event names a trajectory: when it happened, to the microsecond, and what it was
    return Facts(bundle_ref=canonical_json(events[0]).decode("utf-8", "replace"), time=max(times, default=None), value=value)


def _row_facts(value: Any) -> Facts:
    row = checked(value, history=(list, type(None)), metadata=_OPTIONAL, metrics=_OPTIONAL, instance=_OPTIONAL)
    if not _is_row(row):
        raise BadPieceError("wrong_shape", "no row of an evaluation or of the resolver")
    checked(row, issue=_OPTIONAL, success=(bool, type(None)), instruction=_TEXT, report=_OPTIONAL)
    if not isinstance(row.get("instance_id"), str | int | None):
        raise BadPieceError("wrong_shape", "instance_id is no name")
    history = row.get("history") or []
    check(history)
    times = [time for time in (checked_moment(event.get("timestamp")) for event in flat(history)) if time is not None]
    return Facts(time=max(times, default=None))


def _entries(value: dict[str, Any], record_id: str) -> list[Entry]:
    if "messages" in value:
        return [
            Entry(record_ids=[record_id], turns=[uniform(message, call=None)], answers=message["role"] == "assistant")
            for message in value["messages"]
        ]
    config = (value.get("metadata") or {}).get("llm_config")
    model = config.get("model") if isinstance(config, dict) else None
    entries = entries_of(_history(value), record_id, model=model if isinstance(model, str) else None)
    asked = value.get("instruction")
    if isinstance(asked, str) and asked and entries and not any(t["role"] == "user" for e in entries for t in e.turns):
        place = 1 if entries[0].turns and entries[0].turns[0]["role"] == "system" else 0
        entries.insert(
            place, Entry(record_ids=[record_id], turns=[uniform({"role": "user", "content": asked}, call=None)], id="asked")
        )
    return entries


def _task_id(value: dict[str, Any]) -> str | None:
    if value.get("instance_id") is not None:
        return str(value["instance_id"])
    issue = value.get("issue")
    if isinstance(issue, dict) and issue.get("number") is not None:
        return f"{issue.get('owner')}/{issue.get('repo')}#{issue['number']}"
    return None


def _snapshot(value: dict[str, Any]) -> str | None:
    commit = value.get("base_commit") or (value.get("instance") or {}).get("base_commit")
    return commit if isinstance(commit, str) else None


def _ended(attempt: Attempt, value: dict[str, Any], *, alone: bool) -> Attempt:
    """The attempt with what its row says of outcome, fault and price."""
    outcome, source, fault = _outcome(value)
    fault = fault_of(value.get("error")) or fault or attempt.fault
    metrics = value.get("metrics") or {}
    told: dict[str, Any] = {"fault": fault}
    if alone:
        usage = metrics.get("accumulated_token_usage")
        usage = usage if isinstance(usage, dict) else {}
        told["cost_usd"] = cost(metrics.get("accumulated_cost"))
        if attempt.num_prompt_tokens is None:
            told["num_prompt_tokens"] = count(usage.get("prompt_tokens"))
            told["num_reply_tokens"] = count(usage.get("completion_tokens"))
    if fault is None and outcome is not None:
        told |= {"outcome": outcome, "outcome_source": source}
    return dataclasses.replace(attempt, **told)


def _outcome(value: dict[str, Any]) -> tuple[float | None, str | None, str | None]:
    """Score, where it stands, and the fault where the evaluation could not be done."""
    if "success" in value and "issue" in value:
        success = value["success"]
        return (None, None, "evaluation_failed") if success is None else (float(success), "success", None)
    result = value.get("test_result")
    places = {"report": value.get("report"), "test_result.report": result.get("report") if isinstance(result, dict) else None}
    for source, report in places.items():
        if not isinstance(report, dict):
            continue
        if report.get("error_eval") is True or report.get("test_timeout") is True:
            return None, None, "evaluation_failed"
        if isinstance(report.get("resolved"), bool):
            return float(report["resolved"]), f"{source}.resolved", None
    return None, None, None
