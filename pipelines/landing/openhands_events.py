"""Events of OpenHands (before its SDK) -> entries: what the agent's model said and what the environment answered.

An event is an action or an observation. One answer of the model with n calls becomes n actions that share `model_response.id`,
each with the whole answer; an observation names its call, or only the action that caused it. State changes, recalls and
empty observations are the program's own. Actions whose answer was not logged (agents that write their calls as text) are
told by their arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipelines.landing.content_blocks import tool_call, tool_turn, turns_of
from pipelines.landing.entries import Entry
from pipelines.landing.format import uniform
from pipelines.landing.moments import checked_moment
from pipelines.landing.shapes import checked, count

_NOISE = {"null", "agent_state_changed", "recall", "condense", "loop_detection", "success"}
"""Observations that no model sees."""
_SILENT = {"change_agent_state", "null", "recall", "condensation_request", "pause", "resume", "stop", "loop_recovery"}
"""Actions that are not the model's."""
_OWN_LIMITS = ("stuckinloop", "stuck in a loop", "maximum iteration", "maximum budget", "max iterations")
"""Errors that are how the attempt ended, and not a fault of the harness."""
_OPTIONAL = (dict, type(None))
_TEXT = (str, type(None))


def is_event(value: Any) -> bool:
    """An object with a source and an action or observation."""
    return isinstance(value, dict) and "source" in value and ("action" in value or "observation" in value)


def flat(history: Sequence[Any]) -> Iterator[Any]:
    """The events of a history; old ones hold pairs of an action and what it led to."""
    for item in history:
        if isinstance(item, list):
            yield from flat(item)
        else:
            yield item


def check(history: Sequence[Any]) -> None:
    """BadPieceError where `entries_of` could not read it."""
    for event in flat(history):
        checked(event, source=_TEXT, action=_TEXT, observation=_TEXT, args=_OPTIONAL, extras=_OPTIONAL)
        checked(event, tool_call_metadata=_OPTIONAL, timestamp=_TEXT, llm_metrics=_OPTIONAL)
        checked_moment(event.get("timestamp"))
        called = event.get("tool_call_metadata") or {}
        checked(called, model_response=_OPTIONAL, tool_call_id=_TEXT, function_name=_TEXT)
        response = called.get("model_response") or {}
        checked(response, id=_TEXT, model=_TEXT, choices=(list, type(None)), usage=_OPTIONAL)
        for choice in response.get("choices") or ():
            message = checked(
                checked(choice).get("message") or {}, tool_calls=(list, type(None)), content=(str, list, type(None))
            )
            for call in message.get("tool_calls") or ():
                checked(call, function=dict)


def fault_of(error: Any) -> str | None:
    """The fault that an error is; None where the agent only reached a limit of its own."""
    if not error:
        return None
    return None if any(limit in str(error).lower() for limit in _OWN_LIMITS) else "harness_error"


def tools_of(history: Sequence[Any]) -> list[Any] | None:
    """The tool schema that the agent began with."""
    for event in flat(history):
        if event.get("action") == "system" and isinstance(tools := (event.get("args") or {}).get("tools"), list):
            return tools or None
    return None


def entries_of(history: Sequence[Any], record_id: str, *, model: str | None = None) -> list[Entry]:
    """The entries of a history in its order; `model` is what the log says of the agent's model as a whole."""
    log = _Log(record_id, model)
    for number, event in enumerate(flat(history)):
        log.add(str(event.get("id", number)), event)
    return log.entries


class _Log:
    def __init__(self, record_id: str, model: str | None) -> None:
        self.entries: list[Entry] = []
        self._record_id = record_id
        self._model = model
        self._answers: dict[str, Entry] = {}
        self._calls: set[str] = set()

    def add(self, name: str, event: Mapping[str, Any]) -> None:
        """Take in the next event."""
        if event.get("observation") is not None:
            self._observed(name, event)
        elif event.get("action") is not None and event["action"] not in _SILENT:
            self._acted(name, event)

    def _acted(self, name: str, event: Mapping[str, Any]) -> None:
        action, args = event["action"], event.get("args") or {}
        if action == "system":
            self._entry(name, event, turns_of("system", args.get("content")))
        elif action in ("condensation",):
            self._condensed(name, event, args)
        elif event.get("source") != "agent":
            text = args.get("content") if action == "message" else None
            text = f"I ran: {args['command']}" if action == "run" and isinstance(args.get("command"), str) else text
            self._entry(name, event, _message("user", text, args.get("image_urls")))
        elif ((event.get("tool_call_metadata") or {}).get("model_response") or {}).get("choices"):
            self._answered(name, event, event["tool_call_metadata"])
        elif action == "message":
            self._entry(name, event, _message("assistant", args.get("content"), None), answers=True)
        else:
            self._told(name, event, args)

    def _answered(self, name: str, event: Mapping[str, Any], called: Mapping[str, Any]) -> None:
        """An answer that is logged as a whole: one entry, however many actions it became."""
        response = called["model_response"]
        key = response.get("id") or f"event {name}"
        if key in self._answers:
            return
        message = (response["choices"][0] or {}).get("message") or {}
        calls = message.get("tool_calls") or []
        self._calls |= {str(call.get("id")) for call in calls}
        turn = uniform({**message, "role": "assistant"}, call=None)
        entry = self._answers[key] = self._entry(name, event, [turn], answers=True)
        usage = response.get("usage") or {}
        entry.model, entry.call_id = response.get("model") or self._model, response.get("id")
        reason = response["choices"][0].get("finish_reason")
        entry.finish_reason = reason if isinstance(reason, str) else None
        entry.num_prompt_tokens, entry.num_reply_tokens = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))

    def _told(self, name: str, event: Mapping[str, Any], args: Mapping[str, Any]) -> None:
        """An action by its arguments: the words in which the model asked for it were not logged."""
        called = event.get("tool_call_metadata") or {}
        call_id = called.get("tool_call_id") or f"event-{name}"
        asked = {key: value for key, value in args.items() if key != "thought"}
        call = tool_call(call_id, called.get("function_name") or event["action"], asked)
        thought = args.get("thought")
        message = {
            "role": "assistant",
            "content": thought if isinstance(thought, str) and thought else None,
            "tool_calls": [call],
        }
        self._calls.add(call_id)
        self._entry(name, event, [uniform(message, call=None)], answers=True)

    def _observed(self, name: str, event: Mapping[str, Any]) -> None:
        extras = event.get("extras") or {}
        if event["observation"] in _NOISE:
            state = extras.get("agent_state") if event["observation"] == "agent_state_changed" else None
            if state == "error":
                self._entry(name, event, []).fault = fault_of(extras.get("reason") or "error")
            elif state == "stopped":
                self._entry(name, event, []).fault = "aborted"
            return
        called = event.get("tool_call_metadata") or {}
        call_id = called.get("tool_call_id") or f"event-{event.get('cause')}"
        content = _seen(event.get("content"), extras)
        if call_id in self._calls:
            self._entry(name, event, [tool_turn(call_id, content, name=called.get("function_name"))])
        else:
            self._entry(name, event, _message("user", content, None))

    def _condensed(self, name: str, event: Mapping[str, Any], args: Mapping[str, Any]) -> None:
        """Some events are forgotten; a summary may stand in their place."""
        forgotten = {str(number) for number in _list(args.get("forgotten_event_ids") or args.get("pruned_event_ids"))}
        first, last = args.get("forgotten_events_start_id"), args.get("forgotten_events_end_id")
        if isinstance(first, int) and isinstance(last, int):
            forgotten |= {
                entry.id for entry in self.entries if (entry.id or "").isdigit() and first <= int(entry.id or 0) <= last
            }
        summary = args.get("summary")
        entry = self._entry(name, event, turns_of("user", summary) if isinstance(summary, str) and summary else [])
        entry.kept = [str(other.id) for other in self.entries[:-1] if other.id not in forgotten]
        num_system = sum(1 for other in self.entries[:-1] if other.turns and other.turns[0]["role"] == "system")
        entry.num_kept_first = max(0, (count(args.get("summary_offset")) or 0) - num_system)

    def _entry(self, name: str, event: Mapping[str, Any], turns: list[dict[str, Any]], *, answers: bool = False) -> Entry:
        time, model = checked_moment(event.get("timestamp")), self._model if answers else None
        entry = Entry(record_ids=[self._record_id], turns=turns, id=name, answers=answers and bool(turns), time=time, model=model)
        self.entries.append(entry)
        return entry


def _seen(content: Any, extras: Mapping[str, Any]) -> Any:
    """What the model saw of an observation, where that is more than its content."""
    if extras.get("impl_source") == "oh_aci" and isinstance(extras.get("formatted_output_and_error"), str):
        return extras["formatted_output_and_error"]
    around = extras.get("metadata")
    if isinstance(around, dict) and isinstance(content, str):
        before, behind = (around[name] if isinstance(around.get(name), str) else "" for name in ("prefix", "suffix"))
        return before + content + behind
    return content


def _message(role: str, text: Any, images: Any) -> list[dict[str, Any]]:
    if not isinstance(text, str):
        return []
    shown = [{"type": "image_url", "image_url": {"url": url}} for url in _list(images)]
    return turns_of(role, [{"type": "text", "text": text}, *shown] if shown else text)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
