"""Format `kimi_cli`: the wire log of Kimi's command line (agents/<agent>/wire.jsonl in a session's folder), one event a line.

What the model saw is built from `context.append_message` and `context.append_loop_event`; an answer is the pieces of one
step (`content.part`, `tool.call`). Traps: `turn.prompt` and `turn.steer` repeat messages that are appended besides;
`usage.record` repeats the usage of `step.end`; a request that failed is logged again for every new try; a result may stand before
the end of the step that asked for it; lines name no session: its folder does, and where the file stands in none, the time of
its first line; each subagent has a file of its own.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.landing.content_blocks import tool_call, tool_turn, turns_of
from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.document import split_document
from pipelines.landing.entries import Entry, attempts_of
from pipelines.landing.format import Attempt, Bundle, Piece, Spelled, StoredRecord, merged, uniform
from pipelines.landing.head import Head
from pipelines.landing.moments import checked_moment
from pipelines.landing.session_lines import Places, in_order, in_place, split_placed
from pipelines.landing.shapes import checked, count, total

_MAIN = "main"
_LOOP = "context.append_loop_event"
_OWN = {"context.append_message", _LOOP, "context.apply_compaction", "context.clear", "context.undo", "forked"}
_OWN |= {"llm.request", "llm.tools_snapshot", "turn.cancel", "turn.ended"}
"""Types of lines that an attempt is made of."""
_REPEATS = {"turn.prompt", "turn.steer", "usage.record"}
_INTERFACE = ("permission.", "interaction.", "plugin.")
_ENDED = {"completed": None, "cancelled": "aborted", "canceled": "aborted", "aborted": "aborted", "failed": "harness_error"}


class KimiCli:
    """The format; see LogFormat."""

    name = "kimi_cli"
    parser_version = 2
    what = "Kimi CLI wire logs, one event a line, one file per agent"
    gives = frozenset({"model", "times"})
    unique_calls = frozenset({"call", "tool_call"})

    def detect(self, head: Head) -> bool:
        """The first line of a wire log, or events of its loop; or the state file that stands beside."""
        if any(row.get("type") == "metadata" and "protocol_version" in row for row in head.rows):
            return True
        if any(str(row.get("type")).startswith("context.append_") and ("message" in row or "event" in row) for row in head.rows):
            return True
        return _is_state(head)

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per line; the state file beside the logs is none of them."""
        if _is_state(Head(path)):
            return split_document(path, start, lambda value: Facts(skip_reason="meta"))
        return split_placed(path, start, _Reading(path))

    def spell(self, value: Any) -> Spelled:
        """The turn that one event is a piece of."""
        row = value["row"]
        tools = row.get("tools") if row["type"] == "llm.tools_snapshot" else None
        return Spelled(turns=_turns(row), tools=tools)

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempts of a session: those of its main agent and of its subagents."""
        by_agent: dict[str, list[StoredRecord]] = {}
        for record in in_order(records):
            by_agent.setdefault(record.value["agent"], []).append(record)
        attempts: list[Attempt] = []
        for agent, lines in sorted(by_agent.items(), key=lambda item: (item[0] != _MAIN, item[0])):
            log = _Log()
            for record in lines:
                log.add(record)
            ref = "" if agent == _MAIN else agent
            link = "subagent" if ref or log.triggered else None
            first, *others = attempts_of(log.entries, ref=ref, link=link, tools=log.tools)
            if ref and _MAIN in by_agent:
                first = dataclasses.replace(first, parent_ref="")
            attempts += [first, *others]
        return Bundle(attempts=attempts)


class _Reading:
    """What is known of a file while its lines are read."""

    def __init__(self, path: Path) -> None:
        inside = [part for part in path.parts[:-1] if re.fullmatch(r"session_[\w-]{8,}", part)]
        self.named = bool(inside)
        self.session = inside[-1] if inside else path.stem
        parts = path.parts
        self.agent = parts[-2] if len(parts) > 2 and parts[-3] == "agents" else _MAIN
        self.places = Places()

    def __call__(self, value: Any) -> Facts:
        row = checked(value, type=str, time=(int, float, str, type(None)))
        if row["type"] == "metadata" and not self.named:
            self.session = f"created_at:{row.get('created_at')}"
        _check(row)
        time = checked_moment(_time(row))
        facts = Facts(time=time, skip_reason=_skip_reason(row))
        return in_place(facts, self.session, self.places.place(time, row), row, agent=self.agent)


def _is_state(head: Head) -> bool:
    return isinstance(head.object.get("agents"), dict) and {"createdAt", "workDir"} <= head.object.keys()


def _time(row: dict[str, Any]) -> Any:
    return row.get("created_at") if row["type"] == "metadata" else row.get("time")


def _skip_reason(row: dict[str, Any]) -> str | None:
    if row["type"] in _OWN or isinstance(row.get("systemPrompt"), str):
        return None
    if row["type"] in _REPEATS:
        return "duplicate_view"
    return "interface" if row["type"].startswith(_INTERFACE) else "meta"


def _check(row: dict[str, Any]) -> None:
    if row["type"] == "context.append_message":
        checked(row.get("message"), role=str, content=(str, list, type(None)), toolCalls=(list, type(None)))
    elif row["type"] == _LOOP:
        event = checked(row.get("event"), type=str, usage=(dict, type(None)), part=(dict, type(None)))
        checked(event, stepUuid=(str, type(None)), uuid=(str, type(None)), toolCallId=(str, type(None)))
        checked(event, finishReason=(str, type(None)), messageId=(str, type(None)), name=(str, type(None)))
    elif row["type"] == "context.apply_compaction":
        if _summary(row) is None:
            raise BadPieceError("wrong_shape", "a compaction without its summary")
    elif row["type"] == "llm.tools_snapshot":
        checked(row, tools=list)
    elif row["type"] == "llm.request":
        checked(row, model=(str, type(None)))


def _turns(row: dict[str, Any]) -> list[dict[str, Any]]:
    if row["type"] == "context.append_message":
        message = row["message"]
        if message["role"] == "tool":
            return [tool_turn(message.get("toolCallId"), message.get("content"))]
        turns = turns_of(message["role"], message.get("content"))
        if calls := [_called(call) for call in message.get("toolCalls") or () if isinstance(call, dict)]:
            said = turns[-1] if turns else uniform({"role": message["role"]}, call=None)
            turns = [*turns[:-1], {**said, **uniform({"role": message["role"], "tool_calls": calls}, call=None), **_text(said)}]
        return turns
    if row["type"] == "context.apply_compaction":
        return [uniform({"role": "user", "content": _summary(row)}, call=None)]
    if row["type"] == _LOOP:
        event = row["event"]
        if event["type"] == "content.part" and event.get("part"):
            return turns_of("assistant", [event["part"]])
        if event["type"] == "tool.call":
            return [uniform({"role": "assistant", "tool_calls": [_called(event)]}, call=None)]
        if event["type"] == "tool.result":
            result = event.get("result")
            output = result.get("output") if isinstance(result, dict) else result
            return [tool_turn(event.get("toolCallId") or event.get("parentUuid"), output)]
        return []
    prompt = row.get("systemPrompt")
    return [uniform({"role": "system", "content": prompt}, call=None)] if isinstance(prompt, str) else []


def _text(turn: dict[str, Any]) -> dict[str, Any]:
    return {name: turn[name] for name in ("content", "reasoning") if name in turn}


def _called(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function") if isinstance(call.get("function"), dict) else call
    assert isinstance(function, dict)
    arguments = function.get("args", function.get("arguments"))
    return tool_call(call.get("toolCallId") or call.get("id") or call.get("uuid"), function.get("name"), arguments)


def _summary(row: dict[str, Any]) -> str | None:
    return next((row[name] for name in ("contextSummary", "summary") if isinstance(row.get(name), str)), None)


class _Log:
    """The entries of one agent, line by line, and what the model has before it."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.tools: list[Any] | None = None
        self.triggered = False
        """Another agent spoke the first request."""
        self._context: list[Entry] = []
        self._prompts: list[Entry] = []
        self._steps: dict[str, Entry] = {}
        self._step: str | None = None
        self._model: str | None = None
        self._system: Any = None
        self._parent: str | None = None

    def add(self, record: StoredRecord) -> None:
        """Take in the next line."""
        row, turns = record.value["row"], record.spelled.turns
        kind = row["type"]
        if kind == _LOOP and row["event"]["type"] != "tool.result":
            self._piece(record, row["event"], turns)
            return
        entry = self._new(record)
        if kind == "llm.request":
            self._model = row.get("model") or row.get("modelAlias")
        elif kind == "llm.tools_snapshot":
            self.tools = record.spelled.tools
        elif kind in ("turn.cancel", "turn.ended"):
            entry.fault = "aborted" if kind == "turn.cancel" else _ENDED.get(row.get("reason") or "completed", "harness_error")
        elif kind == "forked":
            for before in self.entries:
                before.copied = True
        elif kind == "context.clear":
            entry.kept, self._context, self._prompts = [], [], []
        elif kind == "context.apply_compaction":
            entry.turns, kept = turns, self._kept(row)
            entry.kept = [str(other.id) for other in kept]
            self._context = [entry, *kept]
        elif kind == "context.undo":
            self._undo(row.get("count"))
        else:
            self._message(row, entry, turns)

    def _message(self, row: dict[str, Any], entry: Entry, turns: list[dict[str, Any]]) -> None:
        if turns and turns[0]["role"] == "system" and row["type"] != "context.append_message":
            if turns[0]["content"] != self._system:
                entry.turns, self._system = turns, turns[0]["content"]
            return
        origin = (row.get("message") or {}).get("origin")
        origin = origin if isinstance(origin, dict) else {}
        if origin.get("kind") == "compaction_summary":
            return  # the compaction itself says it
        if turns and turns[0]["role"] == "user":
            self.triggered |= origin.get("name") == "subagent" and not self._prompts
            self._prompts += [entry] if origin.get("kind", "user") != "injection" else []
        entry.turns = turns
        self._context.append(entry)

    def _piece(self, record: StoredRecord, event: dict[str, Any], turns: list[dict[str, Any]]) -> None:
        name = event.get("stepUuid") or (event.get("uuid") if event["type"].startswith("step.") else None) or self._step
        name = name or f"step before {record.record_id}"
        self._step = name
        step = self._steps.get(name)
        if step is None:
            step = self._steps[name] = self._new(record)
            step.answers, step.model = True, self._model
            self._context.append(step)
        else:
            step.record_ids.append(record.record_id)
        step.model = step.model or self._model
        if turns:
            step.turns = [merged([*step.turns, *turns])]
            step.model = self._model or step.model
        if event["type"] == "step.end":
            usage = event.get("usage") or {}
            prompt = [count(usage.get(name, 0)) for name in ("inputOther", "inputCacheRead", "inputCacheCreation")]
            step.num_prompt_tokens = total(prompt) if "inputOther" in usage else None
            step.num_reply_tokens = count(usage.get("output"))
            step.finish_reason, step.call_id = event.get("finishReason"), event.get("messageId")

    def _new(self, record: StoredRecord) -> Entry:
        row = record.value["row"]
        entry = Entry(
            record_ids=[record.record_id], id=record.record_id, time=checked_moment(row.get("time")), parent=self._parent
        )
        self._parent = None
        self.entries.append(entry)
        return entry

    def _kept(self, row: dict[str, Any]) -> list[Entry]:
        """What stays behind a compaction: some of the user's messages, or all behind those that it counts."""
        said = [entry for entry in self._context if entry.turns]
        last = count(row.get("keptUserMessageCount"))
        if last is None:
            return said[count(row.get("compactedCount")) or len(said) :]
        users = [entry for entry in said if entry.turns[0]["role"] == "user" and entry.kept is None]
        head = min(count(row.get("keptHeadUserMessageCount")) or 0, last)
        tail = last - head
        return users[:head] + (users[max(head, len(users) - tail) :] if tail else [])

    def _undo(self, number: Any) -> None:
        """The next entry goes on from before the user's last so many prompts."""
        undone = self._prompts[-(count(number) or 1) :]
        if not undone:
            return
        place = next(index for index, entry in enumerate(self.entries) if entry is undone[0])
        self._prompts = self._prompts[: -len(undone)]
        self._context = [entry for entry in self._context if entry in self.entries[:place]]
        self._parent = self.entries[place - 1].id if place else ""
