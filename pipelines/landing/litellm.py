"""Format `litellm`: what LiteLLM's proxy logs of a call: rows of its SpendLogs table, and its StandardLoggingPayload.

Traps: in a spend row messages, response, metadata and the proxy's request are JSON strings, and all are "{}" where storing
prompts is off: of such a call only that it happened is known, and it is refused. `cache_hit` is the text "None". The proxy
makes up a session's id for every call that names none, so one that looks made up (a UUID) binds nothing together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.landing import anthropic_messages, openai_chat, openai_responses
from pipelines.landing.calls import Call, bundle_of, conversation_of, facts_of, spelled
from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.format import Bundle, Piece, Spelled, StoredRecord
from pipelines.landing.head import Head
from pipelines.landing.moments import moment
from pipelines.landing.shapes import careful, cost, count, unpacked
from pipelines.landing.wrappings import split_wrapped

_MADE_UP = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


class LiteLLM:
    """The format; see LogFormat."""

    name = "litellm"
    parser_version = 2
    what = "LiteLLM proxy: SpendLogs rows and StandardLoggingPayload, one per call"
    gives = frozenset({"model", "logprobs", "times"})
    unique_calls = frozenset({"call"})

    def detect(self, head: Head) -> bool:
        """A line, the document or the array's first item has a call type, LiteLLM's start time, messages and a response."""
        return _is_row(head.item) or _is_row(head.object) or any(_is_row(row) for row in head.rows)

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per call."""
        return split_wrapped(Head(path), start, line, _is_row, _facts)

    def spell(self, value: Any) -> Spelled:
        """Messages and choices."""
        return spelled(_call(value))

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempts that these calls are."""
        return bundle_of([(record, _call(record.value)) for record in records])


def _is_row(value: Any) -> bool:
    return isinstance(value, dict) and {"call_type", "startTime", "messages", "response"} <= value.keys()


@careful
def _facts(value: Any) -> Facts:
    if not isinstance(value, dict):
        raise BadPieceError("wrong_shape", "no object")
    call = _call(value)
    if not call.messages and not call.answers:
        raise BadPieceError("wrong_shape", "neither prompt nor answer is stored: set store_prompts_in_spend_logs in LiteLLM")
    identity = value.get("request_id") or value.get("id")
    return facts_of(call, vendor_id=identity if isinstance(identity, str) and identity else None)


def _call(value: dict[str, Any]) -> Call:
    metadata, response = unpacked(value.get("metadata")), unpacked(value.get("response"))
    call = _spoken(_request(value), response or None)
    call.model = call.model or (value["model"] if isinstance(value.get("model"), str) and value["model"] else None)
    call.call_id = call.call_id or value.get("request_id") or value.get("id")
    call.started_at, call.ended_at = moment(value.get("startTime")), moment(value.get("endTime"))
    if call.num_prompt_tokens is None:
        call.num_prompt_tokens = count(value.get("prompt_tokens"))
        call.num_reply_tokens = count(value.get("completion_tokens"))
    price = value.get("response_cost") if value.get("response_cost") is not None else value.get("spend")
    call.cost_usd = cost(price)
    if value.get("status") == "failure" and not call.answers:
        call.fault = "model_error"
    call.conversation = _conversation(value, metadata)
    return call


def _request(value: dict[str, Any]) -> dict[str, Any]:
    """Messages and tools, from the row or from the request that the proxy got."""
    proxied = unpacked(value.get("proxy_server_request"))
    proxied = proxied if isinstance(proxied, dict) else {}
    proxied = proxied["body"] if isinstance(proxied.get("body"), dict) else proxied
    parameters = unpacked(value.get("model_parameters"))
    parameters = parameters if isinstance(parameters, dict) else {}
    messages = unpacked(value.get("messages"))
    if isinstance(messages, str) and messages:
        messages = [{"role": "user", "content": messages}]
    tools = parameters.get("tools") or proxied.get("tools")
    asked = {**proxied, "tools": tools}
    if isinstance(messages, list) and messages:
        asked["messages"] = messages
    return asked


def _spoken(request: dict[str, Any], response: Any) -> Call:
    """The proxy passes calls through in each vendor's own words."""
    if anthropic_messages.is_message(response) or (response is None and anthropic_messages.speaks_anthropic(request)):
        return anthropic_messages.call_of(request, response)
    if openai_responses.is_response(response):
        asked = {"input": request.get("messages"), **request}
        return openai_responses.call_of(asked, response)
    is_text = isinstance(response, dict) and not response.get("choices")  # embeddings, images and the like
    return openai_chat.call_of(request, None if is_text else response)


def _conversation(value: dict[str, Any], metadata: Any) -> str | None:
    """What the caller named: in the metadata, or in the row's own field where it is none of the proxy's making."""
    held = metadata if isinstance(metadata, dict) else {}
    requester = held.get("requester_metadata")
    named = conversation_of(held, requester, held.get("spend_logs_metadata"))
    for name in ("session_id", "trace_id"):
        found = value.get(name)
        if named is None and isinstance(found, str) and found and not _MADE_UP.fullmatch(found.lower()):
            named = found
    return named
