"""Format `openhands_completions`: the completion log of OpenHands, one JSON file per call to the model.

`{messages, tools, kwargs, response, cost, timestamp, latency_sec, context_window}`; the calls of one attempt name nothing
that they share and are stitched by what their prompts repeat. Where the model has no function calling, OpenHands writes
the tools into the text as XML: then `messages` and `raw_response` (in older files `response`) are what the model saw and
wrote, and `raw_messages`, or `fncall_messages` and `fncall_response`, are the harness's own reading of it.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.landing.calls import Call, bundle_of, conversation_of, facts_of, spelled
from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.document import split_document
from pipelines.landing.format import Bundle, Piece, Spelled, StoredRecord
from pipelines.landing.head import Head
from pipelines.landing.jsonl import split_lines
from pipelines.landing.moments import moment
from pipelines.landing.openai_chat import call_of, is_completion
from pipelines.landing.shapes import careful, cost


class OpenHandsCompletions:
    """The format; see LogFormat."""

    name = "openhands_completions"
    parser_version = 2
    what = "OpenHands completion log, one JSON file per call"
    gives = frozenset({"model", "logprobs", "times"})
    unique_calls = frozenset({"call"})

    def detect(self, head: Head) -> bool:
        """An object with messages, a timestamp, and the call's latency, arguments or price."""
        return _is_call(head.object) or any(_is_call(row) for row in head.rows)

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """The file is one piece; files that were put together, one call a line, are read too."""
        if any(_is_call(row) for row in Head(path).rows):
            return split_lines(path, start, line, _facts)
        return split_document(path, start, _facts)

    def spell(self, value: Any) -> Spelled:
        """The prompt as the model saw it, then its answer."""
        return spelled(_call(value))

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempts that these calls are."""
        return bundle_of([(record, _call(record.value)) for record in records], harness="openhands")


def _is_call(value: dict[str, Any]) -> bool:
    keys = value.keys()
    return {"messages", "timestamp"} <= keys and bool({"kwargs", "latency_sec"} & keys) and "recorder" not in keys


@careful
def _facts(value: Any) -> Facts:
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        raise BadPieceError("wrong_shape", "no messages")
    call = _call(value)
    return facts_of(call, vendor_id=call.call_id)


def _call(value: dict[str, Any]) -> Call:
    kwargs = value["kwargs"] if isinstance(value.get("kwargs"), dict) else {}
    response, messages, tools = value.get("response"), value["messages"], value.get("tools")
    if is_completion(value.get("raw_response")):
        response, tools = value["raw_response"], None  # the tools stand in the text of the prompt
    elif isinstance(value.get("raw_messages"), list):
        messages = value["raw_messages"]
    call = call_of({"messages": messages, "tools": tools or kwargs.get("tools"), "model": kwargs.get("model")}, response)
    call.cost_usd = cost(value.get("cost")) if value.get("cost") is not None else call.cost_usd
    call.ended_at = moment(value.get("timestamp")) or call.ended_at
    latency = value.get("latency_sec")
    if call.ended_at is not None and isinstance(latency, int | float) and 0 <= latency < 1e6:
        call.started_at = call.ended_at - datetime.timedelta(seconds=latency)
    extra = kwargs.get("extra_body")
    call.conversation = conversation_of(kwargs, extra)
    if call.fault is None and not call.answers and value.get("error"):
        call.fault = "model_error"
    return call
