"""One ATIF document read into turns; the documents of a record, the outer one first, then those embedded in it."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from pipelines.landing.format import StoredRecord, call_entry, uniform
from pipelines.landing.moments import moment
from pipelines.landing.shapes import count, floats, ints, mapping, number, objects, text, total
from pipelines.landing.stitching import shared_by_all

ROLES = {"user": "user", "agent": "assistant", "system": "system"}


@dataclass(kw_only=True, eq=False)
class Document:
    """What a document says, and where it belongs."""

    value: dict[str, Any]
    record: StoredRecord | None = None
    """None while it is landed."""
    ref: str = ""
    turns: list[dict[str, Any]] = field(default_factory=list)
    turn_is_copied: list[bool] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    times: list[datetime.datetime] = field(default_factory=list)
    tools: list[Any] | None = None
    agent: str | None = None
    model: str | None = None
    num_prompt_tokens: int | None = None
    num_reply_tokens: int | None = None
    cost_usd: float | None = None
    subagents: list[tuple[dict[str, Any], str | None]] = field(default_factory=list)
    """References to subagents, each with the call that started it."""
    is_embedded: bool = False
    is_sub: bool = False
    parent: Document | None = None
    link: str | None = None
    parent_tool_call_id: str | None = None

    @property
    def name(self) -> tuple[str | None, str | None]:
        """What the log calls it; a document that is written again as it grows keeps it."""
        return text(self.value.get("session_id")), text(self.value.get("trajectory_id"))

    @property
    def file(self) -> str | None:
        """Name of the file that it stands in; None where it is embedded in another."""
        return None if self.is_embedded or self.record is None else PurePath(self.record.source).name

    @property
    def continued_in(self) -> str | None:
        """File of the document that goes on from this one."""
        return text(self.value.get("continued_trajectory_ref"))

    def is_named_by(self, reference: dict[str, Any]) -> bool:
        """Whether a reference to a subagent means this document: by its own id, by its file, of old by its session."""
        session, own = self.name
        if (named := text(reference.get("trajectory_id"))) is not None and named == own:
            return True
        if (path := text(reference.get("trajectory_path"))) is not None:
            return PurePath(path).name == self.file
        return named is None and session is not None and reference.get("session_id") == session


def documents_of(value: dict[str, Any], record: StoredRecord | None = None) -> list[Document]:
    """The document and those embedded in it; with the turns of `record` where that is given, which have ids."""
    found: list[Document] = []
    begun: list[tuple[dict[str, Any], Document | None, str]] = [(value, None, "")]
    while begun:
        inner, parent, place = begun.pop()
        document = _read(inner)
        document.record, document.is_embedded = record, parent is not None
        document.ref = f"{record.record_id if record else ''}{place}"
        if parent is not None:
            document.parent, document.link, document.is_sub = parent, "subagent", True
            document.parent_tool_call_id = next(
                (call_id for reference, call_id in parent.subagents if document.is_named_by(reference)), None
            )
        found.append(document)
        embedded = objects(inner.get("subagent_trajectories"))
        begun += [(sub, document, f"{place}/{number_}") for number_, sub in reversed(list(enumerate(embedded)))]
    if record is not None:
        begin = 0
        for document in found:
            spelled = record.spelled.turns[begin : begin + len(document.turns)]
            begin += len(document.turns)
            document.turns = spelled
    return found


def newest(documents: Sequence[Document]) -> tuple[list[Document], dict[str, str]]:
    """Documents without earlier states of the same one, and of each record that is left the ref of what stands for it."""
    outer = [document for document in documents if not document.is_embedded]
    older: dict[str, str] = {}
    for document in outer:
        for other in outer:
            if other is not document and _is_state_of(document, other):
                assert document.record is not None
                older[document.record.record_id] = other.ref
                break
    for record_id, ref in older.items():  # through states in between to the one that stands
        while ref in older:
            ref = older[ref]
        older[record_id] = ref
    return [document for document in documents if document.record and document.record.record_id not in older], older


def _is_state_of(document: Document, later: Document) -> bool:
    if document.name != later.name or document.name == (None, None):
        return False
    if document.turn_is_copied != later.turn_is_copied[: len(document.turns)]:  # a continuation, which copies the other
        return False
    own = [turn["id"] for turn in document.turns]
    after = [turn["id"] for turn in later.turns]
    if own == after:
        return document.ref < later.ref
    return bool(own) and after[: len(own)] == own


def _read(value: dict[str, Any]) -> Document:
    agent = mapping(value.get("agent"))
    steps = value["steps"]
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise TypeError("steps is no list of objects")
    document = Document(value=value, agent=text(agent.get("name")))
    tools = agent.get("tool_definitions")
    document.tools = tools if isinstance(tools, list) and tools else None
    models, metrics = [], []
    for step in steps:
        if (time := moment(step.get("timestamp"))) is not None:
            document.times.append(time)
        copied = step.get("is_copied_context") is True
        role = ROLES.get(step["source"], "user") if isinstance(step["source"], str) else "user"
        sampled = role == "assistant" and not copied and step.get("llm_call_count") != 0
        calls = objects(step.get("tool_calls")) if role == "assistant" else []
        chat = {
            "role": role,
            "content": _content(step.get("message")),
            "reasoning": text(step.get("reasoning_content")),
            "tool_calls": [
                {
                    "id": call.get("tool_call_id"),
                    "function": {"name": call.get("function_name"), "arguments": call.get("arguments")},
                }
                for call in calls
            ],
        }
        made = [uniform(chat, call=len(document.calls) if sampled else None)]
        if sampled:
            measured = mapping(step.get("metrics"))
            ids, logged = measured.get("completion_token_ids"), measured.get("logprobs")
            document.calls.append(tokens_entry(measured.get("prompt_token_ids"), ids, logged))
            models.append(text(step.get("model_name")) or text(agent.get("model_name")))
            metrics.append(measured)
        for result in objects(mapping(step.get("observation")).get("results")):
            call_id = text(result.get("source_call_id"))
            document.subagents += [(ref, call_id) for ref in objects(result.get("subagent_trajectory_ref"))]
            answers = bool(calls) or call_id is not None
            if not answers and result.get("content") is None:
                continue  # it only names a subagent: the model was shown nothing
            answer = {"role": "tool" if answers else "user", "content": _content(result.get("content")), "tool_call_id": call_id}
            made.append(uniform(answer, call=None))
        document.turns += made
        document.turn_is_copied += [copied] * len(made)
    document.model = shared_by_all(models) if models else text(agent.get("model_name"))
    final = mapping(value.get("final_metrics"))
    read = total([count(measured.get("prompt_tokens")) for measured in metrics])
    wrote = total([count(measured.get("completion_tokens")) for measured in metrics])
    cost = total([number(measured.get("cost_usd")) for measured in metrics])
    document.num_prompt_tokens = count(final.get("total_prompt_tokens")) if read is None else read
    document.num_reply_tokens = count(final.get("total_completion_tokens")) if wrote is None else wrote
    document.cost_usd = number(final.get("total_cost_usd")) if cost is None else cost
    return document


def _content(content: Any) -> Any:
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise TypeError("content is neither text nor parts")
    return objects(content)


def tokens_entry(prompt: Any, sampled: Any, logged: Any) -> dict[str, Any]:
    """The entry of a call with these ids and logprobs, as far as they are any and fit each other."""
    ids, logprobs = ints(sampled), floats(logged)
    fits = ids is not None and logprobs is not None and len(ids) == len(logprobs)
    return call_entry(prompt_token_ids=ints(prompt), token_ids=ids, logprobs=logprobs if fits else None)
