"""Format `nemo_gym`: rollouts of NeMo Gym, one JSON line per attempt.

{responses_create_params, response, reward, …}: the request and the output of the Responses API, in which items of the
environment (outputs of calls, the simulated user's messages) stand among those of the model. Assistant items of the
request were said earlier, by whoever: they are never sampled here. Without an input the request is the problem statement
in its metadata.

A task is named by its instance id, else by `_ng_task_index`, an index into a data set: rows of one index may ask different
things, so the request itself is part of their context, and only `groups.context = "task_id"` makes them siblings. Rows of
older files have neither, and the request names their task. `agent_ref.name` is the harness.

Rewards are any number: a source whose rewards go beyond [0, 1] declares its `outcome_range`. A row with `mask_sample` was
taken out by its own harness; errors and timeouts are faults, and the reward that such a row shows is nobody's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.ids import canonical_json
from pipelines.landing.decoding import Facts
from pipelines.landing.format import GIVES, Attempt, Bundle, Piece, Spelled, StoredRecord, call_entry
from pipelines.landing.head import Head
from pipelines.landing.jsonl import split_lines
from pipelines.landing.moments import moment
from pipelines.landing.response_items import answers, turns_of
from pipelines.landing.shapes import check, count, floats, ints, mapping, named, number, objects, readable, text


class NemoGym:
    """The format; see LogFormat."""

    name = "nemo_gym"
    parser_version = 1
    what = "NeMo Gym rollouts, one line per attempt"
    gives = frozenset(GIVES)
    unique_calls = frozenset[str]()

    def detect(self, head: Head) -> bool:
        """A line among the first has the request and its response."""
        rows = head.rows or [head.object]
        if any({"responses_create_params", "response"} <= row.keys() for row in rows):
            return True
        return not head.rows and isinstance(head.object.get("responses_create_params"), dict)

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per line."""
        return split_lines(path, start, line, self._facts)

    def spell(self, value: Any) -> Spelled:
        """The request's items, which nobody sampled here, and the output's."""
        asked = _asked(value)
        turns = [*asked, *turns_of(_output(value), first_call=0)]
        task_id, by_index = _task(value)
        tools = value["responses_create_params"].get("tools")
        return Spelled(
            turns=turns,
            tools=tools if isinstance(tools, list) and tools else None,
            task_id=task_id,
            snapshot=canonical_json(asked).decode() if by_index else None,
        )

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempt of one row."""
        if len(records) != 1:
            raise ValueError(f"a nemo_gym attempt is one record, not {len(records)}")
        (record,) = records
        value, spelled = record.value, record.spelled
        response = mapping(value.get("response"))
        usage = mapping(response.get("usage"))
        read, wrote = count(usage.get("input_tokens")), count(usage.get("output_tokens"))
        counted = bool(read or wrote)  # zeros stand where nobody counted
        fault = _fault(value)
        reward = number(value.get("reward")) if fault is None else None
        attempt = Attempt(
            record_ids=[record.record_id],
            turns=spelled.turns,
            calls=[_call(items) for items in answers(_output(value)) if _is_answer(items)],
            harness=text(mapping(value.get("agent_ref")).get("name")),
            task_id=spelled.task_id,
            attempt=count(value.get("_ng_rollout_index")),
            model=text(response.get("model")) or text(value["responses_create_params"].get("model")),
            tools=spelled.tools,
            snapshot=spelled.snapshot,
            outcome=reward,
            outcome_source=None if reward is None else "reward",
            fault=fault,
            ended_at=moment(response.get("created_at")),
            num_prompt_tokens=read if counted else None,
            num_reply_tokens=wrote if counted else None,
        )
        return Bundle(attempts=[attempt])

    def _facts(self, value: Any) -> Facts:
        check(isinstance(value, dict), "no object")
        check(isinstance(value.get("responses_create_params"), dict), "responses_create_params is no object")
        response = value.get("response")
        check(response is None or isinstance(response, dict), "response is no object")
        output = mapping(response).get("output")
        check(output is None or isinstance(output, list), "response.output is no list")
        check(value.get("reward") is None or number(value["reward"]) is not None, "reward is no number")
        readable(self.spell, value)
        # the ids of responses are not unique: some harnesses write the task's name there
        return Facts(
            time=moment(mapping(response).get("created_at")), skip_reason="masked" if value.get("mask_sample") is True else None
        )


def _asked(value: dict[str, Any]) -> list[dict[str, Any]]:
    params = value["responses_create_params"]
    given = params.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) and given else objects(given)
    if not items and (problem := text(mapping(params.get("metadata")).get("problem_statement"))) is not None:
        items = [{"role": "user", "content": problem}]
    if (instructions := text(params.get("instructions"))) is not None:
        items = [{"role": "system", "content": instructions}, *items]
    return turns_of(items, first_call=None)


def _output(value: dict[str, Any]) -> list[dict[str, Any]]:
    return objects(mapping(value.get("response")).get("output"))


def _task(value: dict[str, Any]) -> tuple[str | None, bool]:
    """The task's name, and whether it is an index into a data set."""
    params = value["responses_create_params"]
    instance = named(value.get("instance_id")) or named(mapping(params.get("metadata")).get("instance_id"))
    if instance is not None:
        return instance, False
    index = named(value.get("_ng_task_index"))
    return index, index is not None


def _is_answer(items: list[dict[str, Any]]) -> bool:
    return turns_of(items, first_call=0)[0]["sampled"]


def _call(items: list[dict[str, Any]]) -> dict[str, Any]:
    for item in reversed(items):
        ids, logprobs = ints(item.get("generation_token_ids")), floats(item.get("generation_log_probs"))
        if ids is not None:
            fits = logprobs is not None and len(logprobs) == len(ids)
            prompt = ints(item.get("prompt_token_ids"))
            return call_entry(prompt_token_ids=prompt, token_ids=ids, logprobs=logprobs if fits else None)
    return call_entry()


def _fault(value: dict[str, Any]) -> str | None:
    kind = text(value.get("error_kind"))
    if kind is not None:
        if "timeout" in kind.lower() or "timed_out" in kind.lower():
            return "timeout"
        return "model_error" if kind.lower().startswith(("model", "llm", "api")) else "harness_error"
    if value.get("agent_timed_out") is True:
        return "timeout"
    if value.get("eval_timed_out") is True or value.get("evaluation_completed") is False:
        return "evaluation_failed"
    return None
