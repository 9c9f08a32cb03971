"""Format `atif`: the Agent Trajectory Interchange Format (ATIF 1.0 to 1.7), with Harbor's result.json.

A document holds one agent's steps; an agent's step is its message, its calls, and what came of them (`observation`).
Documents stand alone in a file or one a line. A record is a document with the subagents embedded in it (1.7), or a trial's
result. Harbor writes `<trial>/agent/trajectory.json` beside `<trial>/result.json`: the trial's name, which the document
does not hold, becomes part of its record, and both are read together; elsewhere documents of one session are.

- Steps with `is_copied_context` repeat another document's; steps without a call to a model (`llm_call_count` 0) were made
  by the harness. Neither is sampled.
- An observation without `source_call_id` answers no call: behind a step with calls it is a tool's message that names none,
  behind one without (agents that write their calls as text) the user's.
- Subagents and continuations are attempts of their own, linked: by id, or by the name of the file they are said to be in.
- No document holds a reward. A trial's belongs to the last document of its only attempt. Where Harbor's exception is the
  agent's own timeout the tests ran all the same; a verifier's is no failed attempt, and neither is any other.
- A result may hold the sampler's tokens of each call (`agent_result.rollout_details`, the main agent's first): they are
  taken where the document has none and they are as many as its calls.
- Documents by agentpile say task and outcome in `extra`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import orjson

from pipelines.landing.atif_documents import Document, documents_of, newest, tokens_entry
from pipelines.landing.decoding import Facts
from pipelines.landing.document import split_document
from pipelines.landing.format import GIVES, Attempt, Bundle, Piece, Spelled, StoredRecord
from pipelines.landing.head import Head
from pipelines.landing.jsonl import split_lines
from pipelines.landing.moments import moment
from pipelines.landing.shapes import check, mapping, number, objects, readable, text

OWN_EXCEPTIONS = ("AgentTimeoutError",)
"""Of a trial, that are the policy's own doing."""

RESULT_KEYS = {"verifier_result", "exception_info", "agent_info", "trial_uri"}
"""Of which a trial's result has some; ids of tokens may stand between them, so that the beginning of a file shows not all."""

TIMEOUTS = ("EnvironmentStartTimeoutError", "AgentSetupTimeoutError", "EnvironmentBuildTimeoutError")
TOKENS = ("prompt_token_ids", "token_ids", "logprobs")
VERIFIER = ("Verifier", "Reward")
"""What the names of a verifier's exceptions begin with."""


class Atif:
    """The format; see LogFormat."""

    name = "atif"
    parser_version = 1
    what = "ATIF trajectories, and Harbor's result.json files about them"
    gives = frozenset(GIVES)
    unique_calls = frozenset[str]()

    def detect(self, head: Head) -> bool:
        """A document that names its schema, or a trial's result."""
        return _is_document(head.object) or _is_result(head.object) or any(_is_document(row) for row in head.rows)

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per document."""
        facts = partial(self._facts, path)
        first = Head(path).text.split(b"\n", 1)[0]
        try:
            orjson.loads(first)
        except orjson.JSONDecodeError:
            return split_document(path, start, facts)
        return split_lines(path, start, line, facts)

    def spell(self, value: Any) -> Spelled:
        """Every document's turns, the outer one's first; of a result nothing but its task."""
        if _is_result(value):
            return Spelled(task_id=text(value.get("task_name")))
        found = documents_of(value)
        task = mapping(mapping(mapping(value.get("extra")).get("agentpile")).get("task"))
        return Spelled(
            turns=[turn for document in found for turn in document.turns], tools=found[0].tools, task_id=text(task.get("id"))
        )

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """One attempt per document; continuations and subagents linked, a trial's result with the end of its attempt."""
        results = sorted((record for record in records if _is_result(record.value)), key=_result_order)
        left: dict[str, tuple[str | None, str]] = {}
        found: list[Document] = []
        for record in records:
            if not _is_result(record.value):
                found += documents_of(record.value, record)
        kept, older = newest(sorted(found, key=lambda document: document.ref))
        _link(kept)
        left.update({record_id: (ref, "superseded") for record_id, ref in older.items()})
        ends = [
            document for document in kept if not document.is_sub and not any(other.parent is document for other in _goes_on(kept))
        ]
        with_result = ends[0] if len(ends) == 1 and results else None
        for result in results[:-1] if with_result else results:
            left[result.record_id] = (with_result.ref, "superseded") if with_result else (None, "unmatched")
        attempts = [_attempt(document, results[-1] if document is with_result else None, results) for document in kept]
        return Bundle(attempts=attempts, left=left)

    def _facts(self, path: Path, value: Any) -> Facts:
        check(isinstance(value, dict), "no object")
        if _is_result(value):
            time = moment(value.get("finished_at")) or moment(value.get("started_at"))
            return Facts(bundle_ref=text(value["trial_name"]), time=time)
        check(_is_document(value), "schema_version names no ATIF")
        kept = value
        if path.parent.name == "agent" and path.parent.parent.name:
            kept = {**value, "trial": path.parent.parent.name}
        readable(self.spell, kept)
        times = [time for document in documents_of(kept) for time in document.times]
        ref = text(kept.get("trial")) or _run_named_by(text(value.get("session_id"))) or text(value.get("trajectory_id"))
        return Facts(bundle_ref=ref, time=max(times, default=None), value=kept)


def _is_document(value: dict[str, Any]) -> bool:
    return str(value.get("schema_version", "")).startswith("ATIF")


def _is_result(value: dict[str, Any]) -> bool:
    return {"trial_name", "task_name"} <= value.keys() and bool(RESULT_KEYS & value.keys())


def _run_named_by(session: str | None) -> str | None:
    """Of the session that a continuation or a summary belongs to: some harnesses write their number behind its id."""
    if session is None:
        return None
    return session.split("-cont-", 1)[0].split("-summarization-", 1)[0] or session


def _result_order(record: StoredRecord) -> tuple[str, str]:
    return str(record.value.get("finished_at")), record.record_id


def _link(documents: Sequence[Document]) -> None:
    """Give each document the one that it comes from."""
    for document in documents:
        for other in documents:
            if other is document:
                continue
            for reference, call_id in document.subagents:
                if other.parent is None and other.is_named_by(reference):
                    other.parent, other.link, other.parent_tool_call_id, other.is_sub = document, "subagent", call_id, True
            after = document.continued_in
            if after is not None and other.parent is None and other.file == PurePath(after).name:
                other.parent, other.link = document, "continuation"
    for document in documents:  # a circle is no descent
        seen, above = {document.ref}, document.parent
        while above is not None:
            if above.ref in seen:
                document.parent = document.link = document.parent_tool_call_id = None
                break
            seen.add(above.ref)
            above = above.parent


def _goes_on(documents: Sequence[Document]) -> list[Document]:
    return [document for document in documents if document.link == "continuation"]


def _attempt(document: Document, result: StoredRecord | None, results: Sequence[StoredRecord]) -> Attempt:
    assert document.record is not None
    value = {} if result is None else result.value
    fault = _fault(value)
    source, outcome = _reward(value) if result is not None else _said_outcome(document.value)
    if fault is not None:
        outcome = None
    tasks = {text(other.value.get("task_name")) for other in results}
    task_id = document.record.spelled.task_id or (tasks.pop() if len(tasks) == 1 and not document.is_sub else None)
    copied = 0
    while copied < len(document.turns) and document.turn_is_copied[copied]:
        copied += 1
    return Attempt(
        record_ids=[document.record.record_id] if result is None else [document.record.record_id, result.record_id],
        ref=document.ref,
        turns=document.turns,
        calls=_with_tokens(document.calls, value),
        harness=document.agent,
        task_id=task_id if not document.is_sub else None,
        model=document.model,
        tools=document.tools,
        outcome=outcome,
        outcome_source=None if outcome is None else source,
        fault=fault,
        started_at=min(document.times, default=None) or moment(value.get("started_at")),
        ended_at=max(document.times, default=None) or moment(value.get("finished_at")),
        parent_ref=None if document.parent is None else document.parent.ref,
        link=document.link or ("continuation" if copied else None),
        parent_tool_call_id=document.parent_tool_call_id,
        num_shared_turns=copied if document.parent is not None else 0,
        num_prompt_tokens=document.num_prompt_tokens,
        num_reply_tokens=document.num_reply_tokens,
        cost_usd=document.cost_usd,
    )


def _reward(result: dict[str, Any]) -> tuple[str | None, float | None]:
    rewards = mapping(mapping(result.get("verifier_result")).get("rewards"))
    name = "reward" if "reward" in rewards else next(iter(rewards)) if len(rewards) == 1 else None
    return (None, None) if name is None else (f"verifier_result.rewards.{name}", number(rewards[name]))


def _with_tokens(calls: list[dict[str, Any]], result: dict[str, Any]) -> list[dict[str, Any]]:
    details = objects(mapping(result.get("agent_result")).get("rollout_details"))
    if not details or any(call["token_ids"] for call in calls):
        return calls
    logged = [details[0].get(name) for name in ("prompt_token_ids", "completion_token_ids", "logprobs")]
    if not isinstance(logged[1], list) or len(logged[1]) != len(calls):
        return calls
    # of a list that is shorter nobody knows which calls it leaves out
    columns = [kept if isinstance(kept, list) and len(kept) == len(calls) else [None] * len(calls) for kept in logged]
    made = [tokens_entry(prompt, ids, logprobs) for prompt, ids, logprobs in zip(*columns, strict=True)]
    return [{**call, **{name: entry[name] for name in TOKENS}} for call, entry in zip(calls, made, strict=True)]


def _said_outcome(value: dict[str, Any]) -> tuple[str, float | None]:
    outcome = mapping(mapping(mapping(value.get("extra")).get("agentpile")).get("outcome"))
    return "extra.agentpile.outcome.score", number(outcome.get("score"))


def _fault(result: dict[str, Any]) -> str | None:
    exception = result.get("exception_info")
    if not isinstance(exception, dict):
        return None
    kind = text(exception.get("exception_type")) or ""
    if kind in OWN_EXCEPTIONS:
        return None
    if kind.startswith(VERIFIER):
        return "evaluation_failed"
    if kind in TIMEOUTS:
        return "timeout"
    return "aborted" if kind in ("CancelledError", "KeyboardInterrupt") else "harness_error"
