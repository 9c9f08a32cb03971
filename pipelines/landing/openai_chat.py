"""Format `openai_chat`: request and response of single chat completions, however a gateway or script wrapped them.

Read are `{request, response}` and its like (`input`/`output`, `body`, `kwargs`), `{messages, …, response}`, completion
objects alone with or without their messages (stored completions, also as the pages of the list endpoint), and request
bodies alone. Traps: a bare completion says nothing of what was asked, so it can be nobody's continuation; `n` choices are
attempts side by side; logprobs come with token text and not with ids, except from vLLM; a response may be an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.landing.anthropic_messages import speaks_anthropic
from pipelines.landing.calls import (
    Answer,
    Call,
    bundle_of,
    chat_message,
    conversation_of,
    has_messages,
    own_facts,
    request_and_response,
    spelled,
    with_row,
)
from pipelines.landing.chat_chunks import assembled, is_chunk
from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.document import split_items
from pipelines.landing.format import Bundle, Piece, Spelled, StoredRecord
from pipelines.landing.head import Head
from pipelines.landing.moments import moment
from pipelines.landing.shapes import careful, cost, count
from pipelines.landing.sse import events_of
from pipelines.landing.wrappings import split_wrapped

_OTHERS = ("recorder", "call_type", "latency_sec", "fncall_messages", "instance_id", "trajectory", "traj", "reward", "type")
"""Keys of rows that are calls too, but other formats'."""
_SETTINGS = ("temperature", "max_tokens", "max_completion_tokens", "top_p", "stream", "tool_choice", "n", "stop", "seed")


class OpenAIChat:
    """The format; see LogFormat."""

    name = "openai_chat"
    parser_version = 2
    what = "OpenAI-compatible chat completions, one request with its response per record"
    gives = frozenset({"model", "token_ids", "logprobs", "times"})
    unique_calls = frozenset({"call"})

    def detect(self, head: Head) -> bool:
        """A line, the document or the array's first item is a request, a completion, or both in one of their wrappings."""
        return is_row(head.item) or _is_page(head.object) or is_row(head.object) or any(is_row(row) for row in head.rows)

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per call."""
        head = Head(path)
        if _is_page(head.object):
            return split_items(path, start, "data", lambda item, _: _facts(item))
        return split_wrapped(head, start, line, is_row, _facts)

    def spell(self, value: Any) -> Spelled:
        """The request's messages, then the choices."""
        return spelled(_call(value))

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempts that these calls are."""
        return bundle_of([(record, _call(record.value)) for record in records])


def is_row(value: Any) -> bool:
    """Whether an object is a chat completion call of this format."""
    if not isinstance(value, dict) or any(key in value for key in _OTHERS):
        return False
    if is_completion(value):
        return True
    request, response = _parts(value)
    if not has_messages(request):
        return is_completion(response)
    if speaks_anthropic(request):
        return False
    if response is None:
        return isinstance(request.get("model"), str) and any(key in request for key in _SETTINGS)
    return is_completion(response) or _is_error(response) or _streamed(response) is not None


def is_completion(value: Any) -> bool:
    """Whether an object is a chat completion (of a proxy, perhaps without `object`)."""
    if not isinstance(value, dict) or value.get("object") not in (None, "chat.completion"):
        return False
    choices = value.get("choices")
    return isinstance(choices, list) and bool(choices) and isinstance(choices[0], dict) and "message" in choices[0]


def call_of(request: dict[str, Any], response: Any) -> Call:
    """A chat completion request and its response (None where it was not logged) as a Call; BadPieceError where they are none."""
    messages = request.get("messages")
    call = Call(
        messages=[chat_message(message) for message in messages] if isinstance(messages, list) else [],
        tools=tools_of(request),
        model=request["model"] if isinstance(request.get("model"), str) else None,
    )
    response = _streamed(response) or response
    if not isinstance(response, dict):
        return call
    if _is_error(response):
        call.fault = "model_error"
        return call
    choices = response.get("choices")
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise BadPieceError("wrong_shape", "a response without choices")
    choices = [choice for choice in choices if choice.get("message") is not None]
    choices.sort(key=lambda choice: choice["index"] if isinstance(choice.get("index"), int) else 0)
    call.answers = [_answer(choice, response) for choice in choices]
    if isinstance(response.get("model"), str) and response["model"]:
        call.model = response["model"]
    if isinstance(response.get("id"), str) and response["id"]:
        call.call_id = response["id"]
    call.ended_at = moment(response.get("created"))
    usage = response.get("usage")
    if isinstance(usage, dict):
        call.num_prompt_tokens, call.num_reply_tokens = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
        call.cost_usd = cost(usage.get("cost"))
    return call


def tools_of(request: dict[str, Any]) -> list[Any] | None:
    """The tool schema of a request, also by its old name `functions`."""
    tools = request.get("tools")
    if isinstance(tools, list) and tools:
        return tools
    functions = request.get("functions")
    if isinstance(functions, list) and functions:
        return [{"type": "function", "function": function} for function in functions]
    return None


@careful
def _facts(value: Any) -> Facts:
    return own_facts(value, _call)


def _call(value: dict[str, Any]) -> Call:
    request, response = _parts(value)
    call = call_of(request, response)
    call.conversation = conversation_of(value, request, response)
    return with_row(call, value)


def _parts(value: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Request and response, in whatever wrapping."""
    if is_completion(value):
        asked = value.get("messages") or value.get("input_messages") or value.get("input") or value.get("request")
        if isinstance(asked, dict):
            return asked, value
        return {"messages": asked, "tools": value.get("tools")}, value
    return request_and_response(value)


def _answer(choice: dict[str, Any], response: dict[str, Any]) -> Answer:
    message = choice["message"]
    if not isinstance(message, dict):
        raise BadPieceError("wrong_shape", "a choice whose message is no object")
    finish_reason = choice.get("finish_reason")
    token_ids, logprobs = _sampled(choice)
    prompt_token_ids = choice.get("prompt_token_ids") or response.get("prompt_token_ids")
    return Answer(
        message=chat_message({**message, "role": message.get("role") or "assistant"}),
        finish_reason=finish_reason if isinstance(finish_reason, str) else None,
        prompt_token_ids=prompt_token_ids if _are(int, prompt_token_ids) else None,
        token_ids=token_ids,
        logprobs=logprobs,
    )


def _sampled(choice: dict[str, Any]) -> tuple[list[int] | None, list[float] | None]:
    """Ids and logprobs of the sampled tokens; OpenAI logs no ids, vLLM does if it was asked (`token_ids`, or as text
    `token_id:5` in the place of each token)."""
    ids = choice["token_ids"] if _are(int, choice.get("token_ids")) else None
    logged = choice.get("logprobs")
    content = logged.get("content") if isinstance(logged, dict) else None
    if not isinstance(content, list) or not all(isinstance(token, dict) for token in content):
        return ids, None
    logprobs = [token.get("logprob") for token in content]
    names = [token.get("token") for token in content]
    if ids is None and names and all(isinstance(name, str) and name.removeprefix("token_id:").isdecimal() for name in names):
        spelled_as_ids = all(name.startswith("token_id:") for name in names)
        ids = [int(name.removeprefix("token_id:")) for name in names] if spelled_as_ids else None
    if not _are((int, float), logprobs) or (ids is not None and len(ids) != len(logprobs)):
        return ids, None
    return ids, [float(logprob) for logprob in logprobs]


def _are(kind: Any, values: Any) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(one, kind) for one in values)


def _streamed(response: Any) -> dict[str, Any] | None:
    """The completion that a response body of SSE text, or a list of chunks, is."""
    chunks = events_of(response) if isinstance(response, str) and "data:" in response else response
    if not isinstance(chunks, list):
        return None
    chunks = [chunk for chunk in chunks if is_chunk(chunk)]
    return assembled(chunks) if chunks else None


def _is_error(value: Any) -> bool:
    return isinstance(value, dict) and bool(value.get("error")) and not value.get("choices")


def _is_page(value: dict[str, Any]) -> bool:
    data = value.get("data")
    return value.get("object") == "list" and isinstance(data, list) and bool(data) and is_completion(data[0])
