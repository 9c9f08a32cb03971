"""Format `openhands_sdk`: events of OpenHands's SDK (V1), one a line, or one a file (conversations/<id>/events/event-*.json).

Traps: events name no conversation: their folder does, or the first event of a file; one answer of the model with n calls is n
`ActionEvent`s that share `llm_response_id`, the text on the first; usage and model stand only in the running sums of
`ConversationStateUpdateEvent`, whose full state may also hold settings that nobody should see; a `Condensation` takes
events out of the context; a result may answer a call that was not logged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from pipelines.landing.content_blocks import text_part, tool_call, tool_turn, turns_of
from pipelines.landing.decoding import Facts
from pipelines.landing.document import split_document
from pipelines.landing.entries import Entry, attempts_of
from pipelines.landing.format import Bundle, Piece, Spelled, StoredRecord, merged, uniform
from pipelines.landing.head import Head
from pipelines.landing.moments import checked_moment
from pipelines.landing.session_lines import Places, in_order, in_place, split_placed
from pipelines.landing.shapes import checked, cost, count

_FILE = re.compile(r"event-(\d+)(?:-.*)?\.json(?:\.gz)?")
_SPOKEN = {"SystemPromptEvent", "MessageEvent", "ActionEvent", "ObservationEvent", "AgentErrorEvent", "UserRejectObservation"}
_OWN = {*_SPOKEN, "Condensation", "ConversationErrorEvent", "PauseEvent", "InterruptEvent", "TokenEvent"}
_STATES = {"stats", "full_state", "execution_status", "agent"}
_SKIPPED = {
    "LLMCompletionLogEvent": "duplicate_view",
    "StreamingDeltaEvent": "interface",
    "CondensationSummaryEvent": "duplicate_view",
}
_LIMITS = ("MaxIterations", "Stuck")
_OPTIONAL = (dict, type(None))
_LIST = (list, type(None))
_TEXT = (str, type(None))


class OpenHandsSdk:
    """The format; see LogFormat."""

    name = "openhands_sdk"
    parser_version = 2
    what = "OpenHands SDK (V1) events, as lines or as files"
    gives = frozenset({"model", "token_ids", "times"})
    unique_calls = frozenset({"call", "tool_call"})

    def detect(self, head: Head) -> bool:
        """Events with id, source and kind."""
        return any(_is_event(row) for row in head.rows) or _is_event(head.object)

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per event."""
        folder = path.parent
        named = folder.parent.name if folder.name == "events" else None
        found, head = _FILE.fullmatch(path.name), Head(path)
        if found or (_is_event(head.object) and not any(_is_event(row) for row in head.rows)):
            place = int(found.group(1)) if found else None
            return split_document(path, start, lambda value: _facts(value, named or folder.name, Places(), place))
        first: list[str] = [named] if named else []
        places = Places()

        def facts(value: Any) -> Facts:
            first.append(checked(value, id=str)["id"])
            return _facts(value, first[0], places, None)

        return split_placed(path, start, facts)

    def spell(self, value: Any) -> Spelled:
        """The turn that one event is a piece of."""
        row = value["row"]
        tools = row.get("tools") if row["kind"] == "SystemPromptEvent" else None
        return Spelled(turns=_turns(row), tools=tools or None)

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempts of a conversation: up to each condensation, and on from there."""
        ordered = in_order(records)
        latest = {record.value["row"]["id"]: record for record in ordered}
        log = _Log()
        for record in ordered:
            if latest[record.value["row"]["id"]] is record:
                log.add(record)
        log.close()
        tools = next((record.spelled.tools for record in ordered if record.spelled.tools), None)
        attempts = attempts_of(log.entries, tools=tools, harness="openhands", **log.sums)
        places = {record_id: attempt.ref for attempt in attempts for record_id in attempt.record_ids}
        left: dict[str, tuple[str | None, str]] = {
            record.record_id: (places[latest[record.value["row"]["id"]].record_id], "superseded")
            for record in ordered
            if record.record_id not in places
        }
        return Bundle(attempts=attempts, left=left)


def _is_event(row: dict[str, Any]) -> bool:
    kind = row.get("kind")
    if not isinstance(kind, str) or not {"id", "source", "timestamp"} <= row.keys():
        return False
    return kind in _OWN or kind in _SKIPPED or kind.endswith("Event")


def _facts(value: Any, conversation: str, places: Places, number: int | None) -> Facts:
    row = checked(value, id=str, kind=str, timestamp=_TEXT, source=_TEXT, tool_call_id=_TEXT, llm_response_id=_TEXT)
    if row["kind"] in _SPOKEN:
        checked(row, llm_message=_OPTIONAL, tool_call=_OPTIONAL, action=_OPTIONAL, thought=(list, str, type(None)))
        checked(row, reasoning_content=_TEXT, system_prompt=(dict, str, type(None)), tools=_LIST)
        checked(row.get("llm_message") or {}, role=_TEXT, content=(list, str, type(None)), tool_calls=_LIST)
    elif row["kind"] == "Condensation":
        checked(row, forgotten_event_ids=_LIST, summary=_TEXT)
    elif row["kind"] == "TokenEvent":
        checked(row, prompt_token_ids=_LIST, response_token_ids=_LIST)
    time = checked_moment(row.get("timestamp"))
    skip = None
    if row["kind"] not in _OWN and not (row["kind"] == "ConversationStateUpdateEvent" and str(row.get("key")) in _STATES):
        skip = _SKIPPED.get(row["kind"], "meta")
    place = places.place(time, row)
    place = place if number is None else {**place, "tie": number}
    return in_place(Facts(vendor_id=row["id"], time=time, skip_reason=skip), conversation, place, row)


def _turns(row: dict[str, Any]) -> list[dict[str, Any]]:
    kind = row["kind"]
    if kind == "SystemPromptEvent":
        prompt = row.get("system_prompt")
        return turns_of("system", prompt.get("text") if isinstance(prompt, dict) else prompt)
    if kind == "MessageEvent":
        message = row.get("llm_message") or {}
        role = message.get("role") or ("assistant" if row.get("source") == "agent" else "user")
        turns = turns_of(role, message.get("content"))
        if message.get("reasoning_content") and turns:
            turns[0]["reasoning"] = message["reasoning_content"]
        return turns
    if kind == "ActionEvent":
        return [_action(row)]
    if kind == "ObservationEvent":
        return [tool_turn(row.get("tool_call_id"), _observed(row.get("observation")), name=row.get("tool_name"))]
    if kind in ("AgentErrorEvent", "UserRejectObservation"):
        return [tool_turn(row.get("tool_call_id"), row.get("error") or row.get("rejection_reason"), name=row.get("tool_name"))]
    return turns_of("user", row["summary"]) if kind == "Condensation" and row.get("summary") else []


def _action(row: dict[str, Any]) -> dict[str, Any]:
    call = row.get("tool_call") or {}
    function = call["function"] if isinstance(call.get("function"), dict) else call
    arguments = function.get("arguments", row.get("action"))
    called = tool_call(call.get("id") or row.get("tool_call_id"), function.get("name") or row.get("tool_name"), arguments)
    thought = row.get("thought")
    parts = [text_part(part) for part in thought if isinstance(part, dict)] if isinstance(thought, list) else thought
    message = {"role": "assistant", "content": parts or None, "reasoning": row.get("reasoning_content"), "tool_calls": [called]}
    return uniform(message, call=None)


def _observed(observation: Any) -> Any:
    """What the model saw of a result; older tools keep it under names of their own."""
    if not isinstance(observation, dict):
        return observation
    for name in ("content", "output", "error"):
        if isinstance(observation.get(name), list | str) and observation[name]:
            return observation[name]
    return orjson.dumps({name: value for name, value in observation.items() if name != "kind"}).decode()


class _Log:
    """The entries of a conversation, event by event."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.sums: dict[str, Any] = {}
        """Usage of the whole conversation."""
        self._answers: dict[str, Entry] = {}
        self._last: Entry | None = None
        self._open: Entry | None = None
        """The answer to which a result may belong: usage is told anew with each answer."""
        self._model: str | None = None
        self._called: set[Any] = set()
        self._num_gaps = 0

    def add(self, record: StoredRecord) -> None:
        """Take in the next event."""
        row, turns = record.value["row"], record.spelled.turns
        kind = row["kind"]
        if kind == "ConversationStateUpdateEvent" and row.get("key") == "stats":
            self._open = None
        answer = self._answers.get(row.get("llm_response_id") or "") if kind == "ActionEvent" else None
        if answer is not None:
            answer.turns = [merged([*answer.turns, *turns])]
            answer.record_ids.append(record.record_id)
        else:
            entry = Entry(record_ids=[record.record_id], turns=turns, id=row["id"], time=checked_moment(row.get("timestamp")))
            self.entries.append(entry)
            if kind in ("ActionEvent", "MessageEvent") and row.get("source") == "agent" and turns:
                entry.answers, entry.call_id, self._last = turns[0]["role"] == "assistant", row.get("llm_response_id"), entry
                self._answers[row.get("llm_response_id") or row["id"]] = self._open = entry
            self._other(row, entry)
        for turn in turns:
            self._called |= {call["id"] for call in turn.get("tool_calls") or ()}
            if turn["role"] == "tool" and turn.get("tool_call_id") not in self._called:
                self._num_gaps += 1
                if self._open is not None and any(said.get("tool_calls") for said in self._open.turns):
                    self._open.answers = False  # the call may be one of its parallel ones: nobody knows all that it said

    def close(self) -> None:
        """What only the end of the conversation tells."""
        for entry in self.entries:
            entry.model = self._model if entry.answers else None
        if any(entry.kept is not None for entry in self.entries):
            self.sums = {}  # of all attempts together, so of none
        elif self._num_gaps:
            self.sums["num_gaps"] = self._num_gaps

    def _other(self, row: dict[str, Any], entry: Entry) -> None:
        kind = row["kind"]
        if kind == "Condensation":
            forgotten = set(row.get("forgotten_event_ids") or ())
            entry.kept = [str(other.id) for other in self.entries[:-1] if other.id not in forgotten]
            num_system = sum(1 for other in self.entries if other.turns and other.turns[0]["role"] == "system")
            entry.num_kept_first = max(0, (count(row.get("summary_offset")) or 0) - num_system)
        elif kind == "ConversationErrorEvent":
            entry.fault = None if any(limit in str(row.get("code")) for limit in _LIMITS) else "harness_error"
        elif kind in ("PauseEvent", "InterruptEvent"):
            entry.fault = "aborted"
        elif kind == "TokenEvent" and self._last is not None:
            self._last.prompt_token_ids, self._last.token_ids = row.get("prompt_token_ids"), row.get("response_token_ids")
        elif kind == "ConversationStateUpdateEvent":
            self._state(row, entry)

    def _state(self, row: dict[str, Any], entry: Entry) -> None:
        value = row.get("value")
        if row.get("key") == "execution_status" and value == "error":
            entry.fault = "harness_error"
        if not isinstance(value, dict):
            return
        agent = value.get("agent") if row.get("key") == "full_state" else value
        llm = agent.get("llm") if isinstance(agent, dict) else None
        if isinstance(llm, dict) and isinstance(llm.get("model"), str):
            self._model = llm["model"]
        stats = value.get("stats") if row.get("key") == "full_state" else value
        metrics = stats.get("usage_to_metrics") if isinstance(stats, dict) else None
        of_agent = (metrics.get("default") or metrics.get("agent")) if isinstance(metrics, dict) else None
        if not isinstance(of_agent, dict):
            return
        self._model = of_agent["model_name"] if isinstance(of_agent.get("model_name"), str) else self._model
        usage = of_agent.get("accumulated_token_usage")
        usage = usage if isinstance(usage, dict) else {}
        self.sums = {
            "num_prompt_tokens": count(usage.get("prompt_tokens")),
            "num_reply_tokens": count(usage.get("completion_tokens")),
            "cost_usd": cost(of_agent.get("accumulated_cost")),
        }
