"""Format `swe_agent`: SWE-agent's .traj files, and the report.json that SWE-bench's evaluation writes about them.

Neither names its task: the instance is the file's name (`<instance>.traj`) or the folder's (`<instance>/report.json`), so it
becomes part of the record. An attempt says "submitted" whether it solved anything or not; only a report (`resolved`) does.
A report belongs to the attempt that shares the deepest folder with it and with no other; else nobody's outcome is known.

`history` is what the model saw and wrote. Old files have no tool calls, and a demonstration as one user message; new ones
have parts, role `tool` and a list of tool_call_ids. Files of a demonstration hold a history alone. A replayed run and one
driven by a person name the model `replay` or `human`, or count no tokens: nothing in them was sampled. A run without an
exit status was killed; those that ended by a limit on cost, context, format or time are the policy's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import orjson

from pipelines.landing.decoding import Facts
from pipelines.landing.document import split_document
from pipelines.landing.format import Attempt, Bundle, Piece, Spelled, StoredRecord, call_entry, uniform
from pipelines.landing.head import Head
from pipelines.landing.run_states import earlier_states
from pipelines.landing.shapes import check, count, mapping, number, objects, readable, text

NO_POLICIES = ("replay", "human", "human_thought", "instant_empty_submit")
"""Names of models that are none."""

FAULTY_EXITS = {
    "exit_error": "harness_error",
    "exit_environment_error": "harness_error",
    "exit_api": "model_error",
    "early_exit": "aborted",
    "exit_command": "aborted",
}
"""Exit status -> fault; also as `submitted (<status>)`, where what was there was submitted for the policy."""

REPORT_KEYS = {"patch_is_None", "patch_successfully_applied", "tests_status"}
"""One of which stands beside `resolved` in every report, and in nobody else's rows."""


class SweAgent:
    """The format; see LogFormat."""

    name = "swe_agent"
    parser_version = 1
    what = "SWE-agent .traj files and SWE-bench report.json files about them"
    gives = frozenset({"task_id", "outcome", "model"})
    unique_calls = frozenset[str]()

    def detect(self, head: Head) -> bool:
        """An object with steps of an action and its observation, or with a history of agents' messages, or a report."""
        found = head.object
        steps, history = found.get("trajectory"), found.get("history")
        if isinstance(steps, list) and steps:
            return isinstance(steps[0], dict) and {"action", "observation"} <= steps[0].keys()
        if isinstance(history, list) and history and isinstance(history[0], dict):
            return {"role", "agent"} <= history[0].keys()
        return _is_report(found) or _only(found) is not None

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """The file as one record."""
        return split_document(path, start, partial(self._facts, path))

    def spell(self, value: Any) -> Spelled:
        """The history; of a report nothing but its instance."""
        task_id = value["instance_id"]
        if "report" in value:
            return Spelled(task_id=task_id)
        nobody = "trajectory" not in value or _nobody_sampled(value)
        turns: list[dict[str, Any]] = []
        num_calls = 0
        for message in value["history"]:
            is_demo = bool(message.get("is_demo")) or "trajectory" not in value
            sampled = message["role"] == "assistant" and not is_demo and not nobody
            turn = uniform(_chat(message), call=num_calls if sampled else None)
            num_calls += sampled
            if is_demo:
                turn["is_demo"] = True
            turns.append(turn)
        return Spelled(turns=turns, task_id=task_id)

    def placed(self, value: Any) -> Facts:
        """Where a stored value belongs, which is not as it was logged (placed_anew.py)."""
        readable(self.spell, value)
        return Facts(bundle_ref=value["instance_id"])

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """One attempt per run (its file is written again after every step); those with whose report nobody can be mistaken have its outcome."""
        runs = sorted((record for record in records if "report" not in record.value), key=lambda record: record.record_id)
        reports = sorted((record for record in records if "report" in record.value), key=lambda record: record.record_id)
        earlier = earlier_states([(run, _has_ended(run.value)) for run in runs])
        runs = [run for run in runs if run.record_id not in earlier]
        report_of = {run.record_id: report for run, report in _pairs(runs, reports)}
        taken = {report.record_id for report in report_of.values()}
        left: dict[str, tuple[str | None, str]] = {
            report.record_id: (None, "unmatched") for report in reports if report.record_id not in taken
        }
        left.update({record_id: (stands, "superseded") for record_id, stands in earlier.items()})
        return Bundle(attempts=[_attempt(run, report_of.get(run.record_id)) for run in runs], left=left)

    def _facts(self, path: Path, value: Any) -> Facts:
        check(isinstance(value, dict), "no object")
        if (instance := _only(value)) is not None:
            named = {"instance_id": instance, "report": value[instance]}
        elif _is_report(value):
            named = {"instance_id": _instance_of_report(path), "report": value}
        else:
            history = value.get("history")
            check(isinstance(history, list), "history is no list")
            check(value.get("trajectory") is None or isinstance(value["trajectory"], list), "trajectory is no list")
            named = {"instance_id": _instance_of_run(path), **value}
        if named.get("trajectory", 0) is None:
            named.pop("trajectory")
        readable(self.spell, named)
        return Facts(bundle_ref=named["instance_id"], value=named)


def _is_report(value: dict[str, Any]) -> bool:
    return "resolved" in value and bool(REPORT_KEYS & value.keys())


def _only(value: dict[str, Any]) -> str | None:
    """The instance of a report that stands under its instance's name."""
    if len(value) != 1:
        return None
    ((name, report),) = value.items()
    return name if isinstance(report, dict) and _is_report(report) else None


def _instance_of_run(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".json").removesuffix(".traj")


def _instance_of_report(path: Path) -> str:
    name = path.name.removesuffix(".gz")
    if name == "report.json" and path.parent.name:
        return path.parent.name
    return name.removesuffix(".json").removesuffix("report").rstrip("._-") or name


def _chat(message: dict[str, Any]) -> dict[str, Any]:
    """A message of the history as an OpenAI one."""
    chat = {name: message[name] for name in ("role", "content", "tool_calls") if name in message}
    if not isinstance(chat["role"], str):
        raise TypeError("role is no string")
    content = chat.get("content")
    if not (content is None or isinstance(content, str | list)):
        raise TypeError("content is neither text nor parts")
    chat["tool_calls"] = objects(message.get("tool_calls"))
    ids = message.get("tool_call_ids")
    if isinstance(ids, list) and ids:  # one observation answers all calls of a step
        chat["tool_call_id"] = ids[0]
    thoughts = [text(block.get("thinking")) for block in objects(message.get("thinking_blocks"))]
    if spoken := [thought for thought in thoughts if thought is not None]:
        chat["reasoning"] = "\n".join(spoken)
    elif text(message.get("reasoning_content")):
        chat["reasoning"] = message["reasoning_content"]
    return chat


def _model(value: dict[str, Any]) -> str | None:
    config = value.get("replay_config")
    if isinstance(config, str):
        try:
            config = orjson.loads(config)
        except orjson.JSONDecodeError:
            return None
    return text(mapping(mapping(mapping(config).get("agent")).get("model")).get("name"))


def _nobody_sampled(value: dict[str, Any]) -> bool:
    """It was replayed, or a person acted."""
    if _model(value) in NO_POLICIES:
        return True
    stats = mapping(value.get("info")).get("model_stats")
    return isinstance(stats, dict) and stats.get("tokens_sent") == 0 and stats.get("tokens_received") == 0


def _has_ended(value: dict[str, Any]) -> bool:
    return "trajectory" not in value or text(mapping(value.get("info")).get("exit_status")) is not None


def _fault(value: dict[str, Any]) -> str | None:
    if "trajectory" not in value:  # a demonstration: nobody ran it
        return None
    status = text(mapping(value.get("info")).get("exit_status"))
    if status is None:
        return "aborted"
    return FAULTY_EXITS.get(status.removeprefix("submitted (").removesuffix(")"))


def _attempt(run: StoredRecord, report: StoredRecord | None) -> Attempt:
    value, turns = run.value, run.spelled.turns
    fault = _fault(value)
    resolved = None if report is None else report.value["report"].get("resolved")
    if report is not None and not isinstance(resolved, bool):
        fault = fault or "evaluation_failed"
    outcome = float(resolved) if isinstance(resolved, bool) and fault is None else None
    sampled = any(turn["sampled"] for turn in turns)
    stats = mapping(mapping(value.get("info")).get("model_stats")) if sampled else {}
    model = _model(value)
    return Attempt(
        record_ids=[run.record_id] if report is None else [run.record_id, report.record_id],
        ref=run.record_id,
        turns=turns,
        calls=[call_entry() for turn in turns if turn["sampled"]],
        task_id=run.spelled.task_id,
        model=None if model in NO_POLICIES else model,
        outcome=outcome,
        outcome_source=None if outcome is None else "report.resolved",
        fault=fault,
        num_prompt_tokens=count(stats.get("tokens_sent")),
        num_reply_tokens=count(stats.get("tokens_received")),
        cost_usd=number(stats.get("instance_cost")),
    )


def _pairs(runs: Sequence[StoredRecord], reports: Sequence[StoredRecord]) -> list[tuple[StoredRecord, StoredRecord]]:
    """Runs with their reports: the only ones, or each the other's only nearest neighbour in the tree of folders."""
    if len(runs) == 1 and len(reports) == 1:
        return [(runs[0], reports[0])]
    found = []
    for report in reports:
        run = _nearest(report, runs)
        if run is not None and _nearest(run, reports) is report:
            found.append((run, report))
    return found


def _nearest(record: StoredRecord, others: Sequence[StoredRecord]) -> StoredRecord | None:
    """The one that shares most folders with a record; None where several do."""
    shared = [(_num_shared(record.source, other.source), other) for other in others]
    most = max((num for num, _ in shared), default=0)
    nearest = [other for num, other in shared if num == most]
    return nearest[0] if len(nearest) == 1 else None


def _num_shared(one: str, other: str) -> int:
    num = 0
    for left, right in zip(PurePath(one).parent.parts, PurePath(other).parent.parts, strict=False):
        if left != right:
            break
        num += 1
    return num
