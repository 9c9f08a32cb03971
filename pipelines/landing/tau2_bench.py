"""Format `tau2_bench`: simulations of tau2-bench, in one results file or one file each.

A results file holds {info, tasks, simulations[]}; newer ones keep info and tasks, and each simulation is a file beside them.
A simulation's id is its own. The same one may be written again with a later reward: the fullest version counts.

- The user is played by a model, and in some domains calls tools itself (`requestor: "user"`). What it called and got back
  never reaches the agent, so it is no turn of the agent's conversation; what it said is, and is never sampled.
- The first greeting is a fixed text. It shows no sign of generation (raw_data, usage) where the agent's own messages do.
- Arguments of calls are objects. The system prompt is not among the messages: the domain's policy stands in its place.
- Task ids count from 0 in every domain, so the domain is part of the task's name wherever the file says it.
- Reasons of an end that are the policy's doing: user_stop, agent_stop, judge_stop, max_steps, too_many_errors, and
  agent_error where the agent's message was malformed. The simulated user's errors, timeouts and the infrastructure's are
  faults, and so is an agent_error of a simulation that was skipped. A missing reward is no fault: it may never have been asked for.
- Voice runs are ticks of audio. What text they hold becomes turns; none is sampled, since no text was. One that holds none
  has no turn, not even its policy, and so makes no trajectory (`no_turns`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.landing.decoding import BadPieceError, Facts, decode
from pipelines.landing.document import split_document, split_items
from pipelines.landing.format import Attempt, Bundle, Piece, Spelled, StoredRecord, call_entry, uniform
from pipelines.landing.head import BOM, Head
from pipelines.landing.moments import moment
from pipelines.landing.opening import read_log
from pipelines.landing.shapes import check, count, mapping, named, number, objects, readable, text, total
from pipelines.landing.stitching import shared_by_all

FAULTY_ENDS = {
    "user_error": "harness_error",
    "infrastructure_error": "harness_error",
    "unexpected_error": "harness_error",
    "timeout": "timeout",
}
"""termination_reason -> fault."""

SIMULATION = {"task_id", "termination_reason"}


class Tau2Bench:
    """The format; see LogFormat."""

    name = "tau2_bench"
    parser_version = 2
    what = "tau2-bench results and simulations"
    gives = frozenset({"task_id", "outcome", "model", "times"})
    unique_calls = frozenset[str]()

    def detect(self, head: Head) -> bool:
        """A simulation, or an object with the info that a run of simulations has."""
        found = head.object
        if found.keys() >= SIMULATION:
            return "id" in found
        info = mapping(found.get("info"))
        return {"agent_info", "user_info"} <= info.keys() or ("simulations" in found and "tasks" in found)

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per simulation; a results file without its simulations is one that belongs to no attempt."""
        try:
            value, _ = decode(read_log(path).removeprefix(BOM))
        except BadPieceError:
            value = {}
        if isinstance(value, dict) and isinstance(value.get("simulations"), list):
            return split_items(path, start, "simulations", self._facts)
        return split_document(path, start, self._whole)

    def spell(self, value: Any) -> Spelled:
        """The policy, and what the agent saw and said."""
        run = mapping(value.get("run"))
        environment = mapping(mapping(run.get("info")).get("environment_info"))
        policy = text(value.get("policy")) or text(environment.get("policy"))
        turns = [] if policy is None else [uniform({"role": "system", "content": policy}, call=None)]
        turns += [turn for turn, _ in _turns(value)]
        tools = environment.get("tool_defs")
        domain, task = text(environment.get("domain_name")), named(value["task_id"])
        return Spelled(
            turns=turns,
            tools=[tools[name] for name in sorted(tools)] if isinstance(tools, dict) and tools else None,
            task_id=f"{domain}/{task}" if domain and task else task,
        )

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempt of one simulation, by its fullest version."""
        fullest = max(records, key=_fullness)
        left: dict[str, tuple[str | None, str]] = {
            record.record_id: ("", "superseded") for record in records if record is not fullest
        }
        value, spelled = fullest.value, fullest.spelled
        conversation = _turns(value)
        said = [message for turn, message in conversation if turn["sampled"]]
        usages = [mapping(message.get("usage")) for message in said]
        info = mapping(mapping(value.get("run")).get("info"))
        models = [text(mapping(message.get("raw_data")).get("model")) for message in said]
        fault = _fault(value)
        reward = number(mapping(value.get("reward_info")).get("reward")) if fault is None else None
        attempt = Attempt(
            record_ids=[fullest.record_id],
            turns=spelled.turns if conversation else [],
            calls=[call_entry(call_id=text(mapping(message.get("raw_data")).get("id"))) for message in said],
            task_id=spelled.task_id,
            attempt=count(value.get("trial")),
            model=text(mapping(info.get("agent_info")).get("llm")) or shared_by_all(models),
            tools=spelled.tools,
            outcome=reward,
            outcome_source=None if reward is None else "reward_info.reward",
            fault=fault,
            started_at=moment(value.get("start_time")),
            ended_at=moment(value.get("end_time")) or moment(value.get("timestamp")),
            num_prompt_tokens=total([count(usage.get("prompt_tokens")) for usage in usages]),
            num_reply_tokens=total([count(usage.get("completion_tokens")) for usage in usages]),
            cost_usd=number(value.get("agent_cost")),
        )
        return Bundle(attempts=[attempt], left=left)

    def _whole(self, value: Any) -> Facts:
        if isinstance(value, dict) and not value.keys() >= SIMULATION and "info" in value:
            return Facts(skip_reason="meta")
        return self._facts(value, {})

    def _facts(self, value: Any, around: dict[str, Any]) -> Facts:
        check(isinstance(value, dict), "no object")
        check(named(value.get("task_id")) is not None, "task_id names nothing")
        check(isinstance(value.get("messages"), list) or isinstance(value.get("ticks"), list), "neither messages nor ticks")
        kept = value
        if around:
            task = next((task for task in objects(around.get("tasks")) if task.get("id") == value["task_id"]), None)
            kept = {**value, "run": {"info": around.get("info"), "task": task}}
        readable(self.spell, kept)
        own = text(value.get("id"))
        time = moment(value.get("end_time")) or moment(value.get("timestamp"))
        return Facts(vendor_id=own, bundle_ref=own, time=time, value=kept)


def _turns(value: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The turns of the agent's conversation, each with its message."""
    messages: list[dict[str, Any]] = []
    for message in value.get("messages") or ():
        messages += objects(message["tool_messages"]) if isinstance(message.get("tool_messages"), list) else [message]
    if not messages:
        return [(turn, {}) for turn in _spoken(objects(value.get("ticks")))]
    some_show_generation = any(_is_generated(message) for message in messages if message["role"] == "assistant")
    found: list[tuple[dict[str, Any], dict[str, Any]]] = []
    num_calls = 0
    for number_, message in enumerate(messages):
        role, content = message["role"], message.get("content")
        calls = [call for call in objects(message.get("tool_calls")) if call.get("requestor") != "user"]
        if (role == "tool" and message.get("requestor") == "user") or (role == "user" and not content):
            continue
        sampled = role == "assistant" and (_is_generated(message) if some_show_generation else number_ > 0)
        chat: dict[str, Any] = {"role": role, "content": content, "reasoning": text(message.get("reasoning"))}
        if not isinstance(role, str) or not (content is None or isinstance(content, str | list)):
            raise TypeError("a message has no role, or content that is neither text nor parts")
        if role == "assistant":
            chat["tool_calls"] = [{"id": call.get("id"), "function": call} for call in calls]
        if role == "tool":
            chat["tool_call_id"] = text(message.get("id"))
        found.append((uniform(chat, call=num_calls if sampled else None), message))
        num_calls += sampled
    return found


def _is_generated(message: dict[str, Any]) -> bool:
    return any(message.get(sign) is not None for sign in ("raw_data", "usage", "generation_time_seconds"))


def _spoken(ticks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What text a voice run holds: chunks in a row of one speaker are one turn."""
    found: list[dict[str, Any]] = []
    for tick in ticks:
        for chunk, calls, results in (
            (tick.get("agent_chunk"), tick.get("agent_tool_calls"), tick.get("agent_tool_results")),
            (tick.get("user_chunk"), None, None),
        ):
            said = mapping(chunk)
            role, words = said.get("role"), text(said.get("content"))
            made = [{"id": call.get("id"), "function": call} for call in [*objects(calls), *objects(said.get("tool_calls"))]]
            if role == "user":
                made = []
            if isinstance(role, str) and (words or made):
                if found and found[-1]["role"] == role and not made and "tool_calls" not in found[-1]:
                    found[-1]["content"] = (found[-1]["content"] or "") + (words or "")
                else:
                    found.append(uniform({"role": role, "content": words, "tool_calls": made}, call=None))
            for result in objects(results):
                answer = {"role": "tool", "content": text(result.get("content")), "tool_call_id": text(result.get("id"))}
                found.append(uniform(answer, call=None))
    return found


def _fullness(record: StoredRecord) -> tuple[Any, ...]:
    value = record.value
    scored = number(mapping(value.get("reward_info")).get("reward")) is not None
    return scored, "run" in value, len(record.spelled.turns), str(value.get("timestamp")), record.record_id


def _fault(value: dict[str, Any]) -> str | None:
    reason = value.get("termination_reason")
    if reason == "agent_error":
        return "harness_error" if value.get("skipped") is True or not _turns(value) else None
    return FAULTY_ENDS.get(reason) if isinstance(reason, str) else "aborted"
