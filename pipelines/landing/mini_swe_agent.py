"""Format `mini_swe_agent`: the trajectories of mini-swe-agent.

Two layouts: a bare list of chat messages (the first versions, and test fixtures), recognised by the one bash block per
answer that this agent asks for; and {info, messages, trajectory_format}, whose messages carry the provider's response in
`extra`. `exit_status` says how the run ended and never whether it solved anything; where it is empty the run was killed
or is still going. A last message of the role `exit` is the harness's note to itself and no turn. Answers of the Responses
API stand there as whole responses and as single items.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pipelines.landing.decoding import Facts
from pipelines.landing.document import split_document
from pipelines.landing.format import Attempt, Bundle, Piece, Spelled, StoredRecord, call_entry, text_of, uniform
from pipelines.landing.head import Head
from pipelines.landing.moments import moment
from pipelines.landing.response_items import turns_of
from pipelines.landing.roots import root_of
from pipelines.landing.run_states import earlier_states
from pipelines.landing.shapes import check, count, floats, ints, mapping, number, objects, readable, text, total
from pipelines.landing.stitching import shared_by_all

BASH_BLOCKS = ("```bash", "```mswea_bash_command")

OWN_ENDS = (
    "Submitted",
    "LimitsExceeded",
    "TimeExceeded",
    "RepeatedFormatError",
    "ContextWindowExceededError",
    "ContentPolicyViolationError",
)
"""Exit statuses that are the policy's own doing; every other one is the name of an exception."""

MODEL_ERRORS = ("API", "RateLimit", "Authentication", "ServiceUnavailable", "InternalServer", "BadRequest", "NotFound", "OpenAI")


class MiniSweAgent:
    """The format; see LogFormat."""

    name = "mini_swe_agent"
    parser_version = 1
    what = "mini-swe-agent trajectories (.traj.json)"
    gives = frozenset({"task_id", "model", "logprobs", "times"})
    unique_calls = frozenset[str]()

    def detect(self, head: Head) -> bool:
        """An object with info of mini-swe-agent and messages, or a list of messages whose first answer is a bash block."""
        found = head.object
        if found:
            info = mapping(found.get("info"))
            own = str(found.get("trajectory_format", "")).startswith("mini-swe-agent") or "mini_version" in info
            return own or (
                {"exit_status", "submission", "model_stats"} <= info.keys() and isinstance(found.get("messages"), list)
            )
        first = head.items[:3]
        if len(first) < 3 or not all(isinstance(message, dict) and "role" in message for message in first):
            return False
        said = text_of(first[2].get("content")) if isinstance(first[2].get("content"), str | list) else None
        roles = [message["role"] for message in first]
        return roles == ["system", "user", "assistant"] and any(block in (said or "") for block in BASH_BLOCKS)

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """The file as one record."""
        return split_document(path, start, partial(self._facts, path))

    def spell(self, value: Any) -> Spelled:
        """The messages; only the assistant's are the policy's."""
        return Spelled(turns=[turn for turn, _ in _turns(value["messages"])], task_id=text(value.get("instance_id")))

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempts at one task, one for each run; new versions write a run's file again after every step."""
        earlier = earlier_states([(record, _has_ended(record.value)) for record in records])
        runs = sorted((record for record in records if record.record_id not in earlier), key=lambda record: record.record_id)
        left: dict[str, tuple[str | None, str]] = {record_id: (stands, "superseded") for record_id, stands in earlier.items()}
        return Bundle(attempts=[self._attempt(run) for run in runs], left=left)

    def _attempt(self, record: StoredRecord) -> Attempt:
        value, info = record.value, mapping(record.value.get("info"))
        answers = [extra for turn, extra in _turns(value["messages"]) if turn["sampled"]]
        responses = [mapping(extra.get("response")) for extra in answers]
        usages = [mapping(response.get("usage")) for response in responses]
        config = mapping(mapping(info.get("config")).get("model"))
        times = [time for extra in _extras(value["messages"]) if (time := moment(extra.get("timestamp"))) is not None]
        return Attempt(
            record_ids=[record.record_id],
            ref=record.record_id,
            turns=record.spelled.turns,
            calls=[_call(response) for response in responses],
            task_id=record.spelled.task_id,
            model=text(config.get("model_name")) or shared_by_all([text(response.get("model")) for response in responses]),
            fault=_fault(value),
            started_at=min(times, default=None),
            ended_at=max(times, default=None),
            num_prompt_tokens=total([_tokens(usage, "prompt_tokens", "input_tokens") for usage in usages]),
            num_reply_tokens=total([_tokens(usage, "completion_tokens", "output_tokens") for usage in usages]),
            cost_usd=number(mapping(info.get("model_stats")).get("instance_cost")),
        )

    def _facts(self, path: Path, value: Any) -> Facts:
        if isinstance(value, list):
            value = {"messages": value}
        check(isinstance(value, dict) and isinstance(value.get("messages"), list), "messages is no list")
        check(all(isinstance(message, dict) for message in value["messages"]), "a message is no object")
        instance = path.name.removesuffix(".gz").removesuffix(".json").removesuffix(".traj")
        if text(value.get("instance_id")) is None and path.parent.name == instance:
            value = {**value, "instance_id": instance}  # its batch runner: <instance>/<instance>.traj.json
        readable(self.spell, value)
        times = [time for extra in _extras(value["messages"]) if (time := moment(extra.get("timestamp"))) is not None]
        root = root_of([turn for turn, _ in _turns(value["messages"])])
        return Facts(bundle_ref=root, value=value, time=max(times, default=None))


def _turns(messages: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each turn with the `extra` of its message."""
    found: list[tuple[dict[str, Any], dict[str, Any]]] = []
    num_calls = 0
    for message in messages:
        extra = mapping(message.get("extra"))
        if message.get("role") == "exit":
            continue
        if "role" in message:
            role, content = message["role"], message.get("content")
            if not isinstance(role, str) or not (content is None or isinstance(content, str | list)):
                raise TypeError("a message has no role, or content that is neither text nor parts")
            sampled = role == "assistant"
            made = [uniform({**message, "tool_calls": objects(message.get("tool_calls"))}, call=num_calls if sampled else None)]
        else:
            items = objects(message["output"]) if isinstance(message.get("output"), list) else [message]
            made = turns_of(items, first_call=num_calls)
        num_calls += sum(turn["sampled"] for turn in made)
        found += [(turn, extra) for turn in made]
    return found


def _extras(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [mapping(message.get("extra")) for message in messages]


def _call(response: dict[str, Any]) -> dict[str, Any]:
    choice = (objects(response.get("choices")) or [{}])[0]
    ids = ints(choice.get("token_ids"))
    logged = [entry.get("logprob") for entry in objects(mapping(choice.get("logprobs")).get("content"))]
    logprobs = floats(logged)
    return call_entry(
        call_id=text(response.get("id")),
        prompt_token_ids=ints(response.get("prompt_token_ids")),
        token_ids=ids,
        logprobs=logprobs if ids is not None and logprobs is not None and len(ids) == len(logprobs) else None,
        finish_reason=text(choice.get("finish_reason")),
    )


def _tokens(usage: dict[str, Any], *names: str) -> int | None:
    return next((counted for name in names if (counted := count(usage.get(name))) is not None), None)


def _has_ended(value: dict[str, Any]) -> bool:
    return text(mapping(value.get("info")).get("exit_status")) is not None


def _fault(value: dict[str, Any]) -> str | None:
    if "info" not in value:  # a bare list of messages says nothing about its end
        return None
    status = text(mapping(value["info"]).get("exit_status"))
    if status is None or status in ("UserInterruption", "KeyboardInterrupt"):
        return "aborted"
    if status in OWN_ENDS:
        return None
    if status in ("Timeout", "APITimeoutError") or status.startswith(MODEL_ERRORS):
        return "model_error"
    return "harness_error"
