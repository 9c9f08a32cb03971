"""The messages and parts of an OpenCode session -> its attempts; opencode.py reads the files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pipelines.ids import canonical_json
from pipelines.landing.entries import Entry, attempts_of
from pipelines.landing.format import Bundle, merged
from pipelines.landing.moments import checked_moment
from pipelines.landing.shapes import cost, count, total

_SORTABLE = re.compile(r"prt_[0-9a-f]{12}")
"""Ids that begin with the time."""
_STATES = {"pending": 0, "running": 1}
_FAULTS = {"MessageAbortedError": "aborted", "MessageOutputLengthError": None, "ContextOverflowError": None}
_MODEL_ERRORS = ("Provider", "API")


@dataclass(kw_only=True)
class Part:
    """One part, as one version of its file says."""

    row: dict[str, Any]
    record_id: str
    turns: list[dict[str, Any]]

    @property
    def version(self) -> tuple[Any, ...]:
        """Greater for what was written later."""
        state = self.row.get("state") or {}
        return _STATES.get(str(state.get("status")), 2), len(canonical_json(self.row)), self.record_id


@dataclass(kw_only=True)
class Message:
    """One message, as one version of its file says."""

    row: dict[str, Any]
    record_id: str
    turns: list[dict[str, Any]]
    """Its system prompt, where it has one of its own."""

    @property
    def version(self) -> tuple[Any, ...]:
        """Greater for what was written later."""
        completed = (self.row.get("time") or {}).get("completed")
        return completed is not None, len(canonical_json(self.row)), self.record_id

    @property
    def order(self) -> tuple[Any, ...]:
        """Its place among messages."""
        created = checked_moment((self.row.get("time") or {}).get("created"))
        return (0.0 if created is None else created.timestamp()), self.row["id"]


class Conversation:
    """What the files of a session say together."""

    def __init__(self) -> None:
        self._infos: list[tuple[tuple[Any, ...], dict[str, Any], str]] = []
        self._messages: dict[str, Message] = {}
        self._parts: dict[str, dict[str, Part]] = {}

    def add_header(self, row: dict[str, Any], record_id: str) -> None:
        """A version of the session's own file."""
        updated = checked_moment((row.get("time") or {}).get("updated"))
        self._infos.append(((0.0 if updated is None else updated.timestamp(), record_id), row, record_id))

    def add_message(self, message: Message) -> None:
        """A version of a message; the latest stands."""
        held = self._messages.get(message.row["id"])
        if held is None or message.version > held.version:
            self._messages[message.row["id"]] = message

    def add_part(self, part: Part, message: str) -> None:
        """A version of a part; the latest stands."""
        parts = self._parts.setdefault(message, {})
        held = parts.get(part.row["id"])
        if held is None or part.version > held.version:
            parts[part.row["id"]] = part

    def bundle(self, record_ids: set[str]) -> Bundle:
        """The attempts, and what is in none of them."""
        ordered = sorted(self._messages.values(), key=lambda message: message.order)
        if not ordered:
            return Bundle(attempts=[], left={record_id: (None, "unmatched") for record_id in record_ids})
        _, info, info_record = max(self._infos, key=lambda version: version[0], default=((), {}, None))
        begun = checked_moment((info.get("time") or {}).get("created"))
        entries: list[Entry] = []
        for message in ordered:
            new = self._entries(message)
            for entry in new:
                entry.copied = begun is not None and entry.time is not None and entry.time < begun
            if message.row.get("summary") is True:
                new[0].kept = self._tail(entries)
            entries += new
        if info_record is not None:
            entries[0].record_ids.append(info_record)
        link = "subagent" if info.get("parentID") else None
        attempts = attempts_of(entries, link=link)
        placed = {record_id for attempt in attempts for record_id in attempt.record_ids}
        orphans = {part.record_id for name, parts in self._parts.items() if name not in self._messages for part in parts.values()}
        left: dict[str, tuple[str | None, str]] = {
            record_id: (None, "unmatched") if record_id in orphans else ("", "superseded") for record_id in record_ids - placed
        }
        return Bundle(attempts=attempts, left=left)

    def _entries(self, message: Message) -> list[Entry]:
        row, parts = message.row, _in_order(list(self._parts.get(message.row["id"], {}).values()))
        time = checked_moment((row.get("time") or {}).get("created"))
        if row["role"] == "user":
            own = [turn for part in parts for turn in part.turns if turn["role"] == "user" and not part.row.get("ignored")]
            turns = [*message.turns, *([merged(own)] if own else [])]
            records = [message.record_id, *(part.record_id for part in parts)]
            return [Entry(record_ids=records, turns=turns, id=row["id"], time=time)]
        steps = _steps(parts)
        entries = []
        for number, step in enumerate(steps):
            said = [turn for part in step for turn in part.turns if turn["role"] == "assistant" and not part.row.get("synthetic")]
            results = [turn for part in step for turn in part.turns if turn["role"] == "tool"]
            entry = Entry(
                record_ids=[part.record_id for part in step],
                turns=[merged(said), *results] if said else [],
                id=row["id"] if number == 0 else f"{row['id']}#{number}",
                answers=row.get("summary") is not True,
                time=time,
                model=row.get("modelID") or _model(row),
                call_id=row["id"],
            )
            finish = next((part.row for part in step if part.row["type"] == "step-finish"), row if len(steps) == 1 else {})
            entry.num_prompt_tokens, entry.num_reply_tokens = _tokens(finish.get("tokens") or {})
            entry.cost_usd = _cost(finish.get("cost"))
            entry.finish_reason = finish.get("reason") or finish.get("finish")
            entries.append(entry)
        entries[0].record_ids.insert(0, message.record_id)
        entries[-1].fault = _fault(row.get("error"))
        return entries

    def _tail(self, entries: list[Entry]) -> list[str]:
        """The entries that a compaction keeps, by the request for it."""
        starts = [
            part.row.get("tail_start_id")
            for entry in entries[-1:]
            for part in self._parts.get(str(entry.id), {}).values()
            if part.row["type"] == "compaction"
        ]
        names = [str(entry.id) for entry in entries[:-1]]
        return names[names.index(starts[0]) :] if starts and starts[0] in names else []


def _in_order(parts: list[Part]) -> list[Part]:
    if all(_SORTABLE.match(part.row["id"]) for part in parts):
        return sorted(parts, key=lambda part: part.row["id"])

    def order(part: Part) -> tuple[Any, ...]:
        row = part.row
        times = (row.get("state") or {}).get("time") if row["type"] == "tool" else row.get("time")
        start = checked_moment((times or {}).get("start"))
        place = {"step-start": 0, "step-finish": 2}.get(row["type"], 1)
        return place, 0.0 if start is None else start.timestamp(), row["id"]

    return sorted(parts, key=order)


def _steps(parts: list[Part]) -> list[list[Part]]:
    """The parts of each answer: a step begins where it says so, or where no step does, with what comes behind a result."""
    marked = any(part.row["type"] == "step-start" for part in parts)
    steps: list[list[Part]] = [[]]
    for part in parts:
        begins = part.row["type"] == "step-start"
        if not marked and part.row["type"] in ("text", "reasoning"):
            begins = any(before.row["type"] == "tool" for before in steps[-1])
        if begins and any(before.turns for before in steps[-1]):
            steps.append([])
        steps[-1].append(part)
    return steps


def _tokens(tokens: dict[str, Any]) -> tuple[int | None, int | None]:
    cache = tokens.get("cache") or {}
    prompt = total([count(tokens.get("input")), count(cache.get("read", 0)), count(cache.get("write", 0))])
    whole, reply = count(tokens.get("total")), count(tokens.get("output"))
    if whole is not None and prompt is not None:  # with the reasoning, which some versions count into the output and some not
        return prompt, whole - prompt
    return prompt, reply


def _cost(price: Any) -> float | None:
    return cost(price.get("usd") if isinstance(price, dict) else price)


def _model(row: dict[str, Any]) -> str | None:
    model = row.get("model")
    return model.get("modelID") if isinstance(model, dict) else None


def _fault(error: Any) -> str | None:
    if not error:
        return None
    name = str(error.get("name"))
    if name in _FAULTS:
        return _FAULTS[name]
    return "model_error" if name.startswith(_MODEL_ERRORS) else "harness_error"
