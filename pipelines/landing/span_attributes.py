"""What the attributes of an OpenTelemetry span say about a call of a model, in the words of five conventions.

GenAI semantic conventions (`gen_ai.input.messages` with parts; older ones as span events or as a list in `events`),
OpenInference (`llm.input_messages.0.message.role`), OpenLLMetry (`gen_ai.prompt.0.content`), the Vercel AI SDK
(`ai.prompt.messages`), and values whole (`input.value`, Langfuse's own). One exporter often writes several; the first that
has content counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pipelines.landing.decoding import BadPieceError
from pipelines.landing.message_parts import call_of
from pipelines.landing.moments import checked_moment
from pipelines.landing.provider_messages import UnreadableMessagesError, answers_of, messages_of
from pipelines.landing.provider_tools import tool_list, tools_of
from pipelines.landing.shapes import counted, first, text, unpacked
from pipelines.landing.spans import Kind, Span, fault_of

Attributes = dict[str, Any]
Chat = tuple[list[dict[str, Any]], list[dict[str, Any]]]

_KINDS: dict[str, Kind] = {
    "llm": "call",
    "generation": "call",
    "chat": "call",
    "completion": "call",
    "text_completion": "call",
    "generate_content": "call",
    "agent": "agent",
    "invoke_agent": "agent",
    "tool": "tool",
    "execute_tool": "tool",
}
_KIND_KEYS = (
    "openinference.span.kind",
    "langfuse.observation.type",
    "gen_ai.operation.name",
    "llm.request.type",
    "traceloop.span.kind",
)
_WHOLE = (
    ("langfuse.observation.input", "langfuse.observation.output"),
    ("gcp.vertex.agent.llm_request", "gcp.vertex.agent.llm_response"),
    ("input.value", "output.value"),
    ("traceloop.entity.input", "traceloop.entity.output"),
    ("gen_ai.prompt", "gen_ai.completion"),
)
_EVENT_ROLES = {"gen_ai.system.message": "system", "gen_ai.user.message": "user", "gen_ai.assistant.message": "assistant"}


def span_of(
    *,
    span_id: str,
    trace_id: str,
    parent_id: str | None,
    name: str,
    attributes: Attributes,
    events: Sequence[Any] = (),
    started_at: Any = None,
    ended_at: Any = None,
    error: str | None = None,
    harness: str | None = None,
) -> Span:
    """A span by its attributes. Raises BadPieceError where a call's messages have no known shape.

    `error`: what its status says where that is an error, else None.
    """
    said = flat(attributes)
    held = [(str(event.get("name") or ""), flat(event.get("attributes") or {})) for event in events if isinstance(event, dict)]
    kind = kind_of(said, name)
    request, answers = _chat(said, held) if kind == "call" else ([], [])
    reasons = unpacked(first(said, "gen_ai.response.finish_reasons", "llm.response.finish_reason"))
    reasons = [reasons] if isinstance(reasons, str) else reasons if isinstance(reasons, list) else []
    if len(reasons) == len(answers):
        answers = [{"finish_reason": reason, **answer} for reason, answer in zip(reasons, answers, strict=True)]
    failed = error is not None
    if failed and not error:
        error = str(next((said_by["exception.type"] for _, said_by in held if said_by.get("exception.type")), ""))
    return Span(
        span_id=span_id,
        trace_id=trace_id,
        parent_id=parent_id or None,
        name=text(first(said, "gen_ai.agent.name", "agent.name", "agent_name")) or name if kind == "agent" else name,
        kind=kind,
        started_at=checked_moment(started_at),
        ended_at=checked_moment(ended_at),
        request=request,
        answers=answers,
        tools=tools_said(said) if kind == "call" else None,
        model=text(
            first(said, "gen_ai.response.model", "ai.response.model", "gen_ai.request.model", "llm.model_name", "ai.model.id")
        ),
        num_prompt_tokens=counted(
            first(
                said,
                "gen_ai.usage.input_tokens",
                "llm.token_count.prompt",
                "gen_ai.usage.prompt_tokens",
                "ai.usage.promptTokens",
                "ai.usage.inputTokens",
            )
        ),
        num_reply_tokens=counted(
            first(
                said,
                "gen_ai.usage.output_tokens",
                "llm.token_count.completion",
                "gen_ai.usage.completion_tokens",
                "ai.usage.completionTokens",
                "ai.usage.outputTokens",
            )
        ),
        cost_usd=_cost(said),
        fault=fault_of(error, kind) if failed else None,
        tool_name=text(first(said, "gen_ai.tool.name", "tool.name", "ai.toolCall.name")),
        tool_call_id=text(first(said, "gen_ai.tool.call.id", "tool_call.id", "ai.toolCall.id", "tool.id")),
        tool_arguments=unpacked(first(said, "gen_ai.tool.call.arguments", "ai.toolCall.args", "input.value", "tool_arguments"))
        if kind == "tool"
        else None,
        harness=harness,
    )


def flat(attributes: Any) -> Attributes:
    """Attributes under dotted keys; some exporters nest them. A list or object also stays whole under its own key."""
    if not isinstance(attributes, dict):
        return {}
    found: Attributes = {}

    def add(name: str, value: Any) -> None:
        found.setdefault(name, value)
        if isinstance(value, dict):
            for key, inner in value.items():
                add(f"{name}.{key}", inner)
        elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
            for number, inner in enumerate(value):
                add(f"{name}.{number}", inner)

    for key, value in attributes.items():
        add(str(key), value)
    return found


def kind_of(said: Attributes, name: str) -> Kind:
    """What a span is."""
    operation = str(said.get("ai.operationId") or "")
    if operation:
        if operation.endswith((".doGenerate", ".doStream")):
            return "call"
        return "tool" if operation == "ai.toolCall" else "other" if "embed" in operation else "agent"
    for key in _KIND_KEYS:
        if isinstance(said.get(key), str):
            return _KINDS.get(said[key].lower(), "other")
    if any(key in said for key in ("gen_ai.input.messages", "llm.input_messages.0.message.role", "gen_ai.prompt.0.role")):
        return "call"
    if "gen_ai.request.model" in said and ("gen_ai.system" in said or "gen_ai.provider.name" in said):
        return "call"
    return "agent" if name.startswith("invoke_agent") else "tool" if name.startswith("execute_tool") else "other"


def nested(said: Attributes, prefix: str) -> Any:
    """The tree that stands under a prefix of dotted keys; numbers become places of a list."""
    tree: dict[str, Any] = {}
    for key in sorted(said):
        if not key.startswith(f"{prefix}."):
            continue
        steps = key[len(prefix) + 1 :].split(".")
        here = tree
        for step in steps[:-1]:
            inner = here.setdefault(step, {})
            if not isinstance(inner, dict):
                break
            here = inner
        else:
            if not isinstance(said[key], (dict, list)) and not isinstance(here.get(steps[-1]), dict):
                here[steps[-1]] = said[key]
    return _listed(tree)


def _listed(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    if tree and all(key.isdigit() for key in tree):
        return [_listed(tree[key]) for key in sorted(tree, key=int)]
    return {key: _listed(inner) for key, inner in tree.items()}


def _chat(said: Attributes, events: Sequence[tuple[str, Attributes]]) -> Chat:
    """Request and answers of a call by the first convention that has any."""
    readers: tuple[Callable[[], Chat], ...] = (
        lambda: _semantic(said),
        lambda: next((chat for _, inner in events if any(chat := _semantic(inner))), ([], [])),
        lambda: _open_inference(said),
        lambda: _vercel(said),
        lambda: _numbered(said),
        lambda: _evented(said, events),
        lambda: _whole(said),
    )
    request: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    problem = ""
    for read in readers:
        try:
            asked, answered = read()
        except UnreadableMessagesError as unreadable:
            problem = str(unreadable)
            continue
        request, answers = request or asked, answers or answered
        if request and answers:
            break
    if problem and not request and not answers:
        raise BadPieceError("wrong_shape", f"its messages are of no known shape: {problem}")
    return request, answers


def _semantic(said: Attributes) -> Chat:
    request = messages_of(said.get("gen_ai.input.messages"))
    system = messages_of(said.get("gen_ai.system_instructions"), "system")
    if request and not any(message["role"] == "system" for message in request[:1]):
        request = [*({**message, "role": "system"} for message in system), *request]
    return request, answers_of(said.get("gen_ai.output.messages"))


def _open_inference(said: Attributes) -> Chat:
    def read(prefix: str) -> list[dict[str, Any]]:
        found = nested(said, prefix)
        return (
            [
                _open_inference_message(item["message"])
                for item in found
                if isinstance(item, dict) and isinstance(item.get("message"), dict)
            ]
            if isinstance(found, list)
            else []
        )

    request = messages_of(read("llm.input_messages"))
    prompts = nested(said, "llm.prompts")
    if not request and isinstance(prompts, list):
        request = messages_of(
            [first(prompt, "prompt.text", "text") if isinstance(prompt, dict) else prompt for prompt in prompts]
        )
    return request, answers_of(read("llm.output_messages"))


def _open_inference_message(message: dict[str, Any]) -> dict[str, Any]:
    """Each part and each call stands in an object of its own."""
    plain = {key: kept for key, kept in message.items() if key not in ("contents", "tool_calls")}
    plain.setdefault("role", "user")
    parts = message.get("contents")
    if isinstance(parts, list) and not plain.get("content"):
        plain["content"] = [part.get("message_content", part) if isinstance(part, dict) else part for part in parts]
    plain.setdefault("content", None)
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        held = [call.get("tool_call", call) for call in calls if isinstance(call, dict)]
        plain["tool_calls"] = [call_of(call) for call in held if isinstance(call, dict)]
    if name := message.get("function_call_name"):
        plain["function_call"] = {"name": name, "arguments": message.get("function_call_arguments_json")}
    return plain


def _vercel(said: Attributes) -> Chat:
    request = messages_of(first(said, "ai.prompt.messages", "ai.prompt"))
    written = first(said, "ai.response.text", "ai.result.text", "ai.response.object", "ai.result.object")
    calls = unpacked(first(said, "ai.response.toolCalls", "ai.result.toolCalls"))
    reasoning = said.get("ai.response.reasoning")
    if written is None and not calls and reasoning is None:
        return request, []
    answer: dict[str, Any] = {"role": "assistant", "content": written}
    if isinstance(calls, list):
        answer["tool_calls"] = [call_of(call) for call in calls if isinstance(call, dict)]
    if isinstance(reasoning, str) and reasoning:
        answer["reasoning"] = reasoning
    reason = first(said, "ai.response.finishReason", "ai.finishReason")
    return request, [{**answer, "finish_reason": reason} if isinstance(reason, str) else answer]


def _numbered(said: Attributes) -> Chat:
    """OpenLLMetry: `gen_ai.prompt.0.role`, `llm.prompts` of its first versions, tool calls numbered below."""
    request = nested(said, "gen_ai.prompt")
    answers = nested(said, "gen_ai.completion")

    def messages(found: Any, role: str) -> list[dict[str, Any]]:
        items = (
            [{"role": role, "content": None, **item} for item in found if isinstance(item, dict)]
            if isinstance(found, list)
            else []
        )
        return [item if item["role"] != "unknown" else {**item, "role": role} for item in items]

    return messages_of(messages(request, "user")), answers_of(messages(answers, "assistant"))


def _evented(said: Attributes, events: Sequence[tuple[str, Attributes]]) -> Chat:
    """Messages as events of the span, or as a list of events in one attribute."""
    listed = unpacked(first(said, "events", "all_messages_events"))
    for inner in listed if isinstance(listed, list) else ():
        if isinstance(inner, dict):
            events = [
                *events,
                (str(inner.get("event.name") or inner.get("name") or ""), {key: kept for key, kept in inner.items()}),
            ]
    request: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    for name, inner in events:
        body = unpacked(first(inner, "body", "gen_ai.event.content"))
        body = {**inner, **body} if isinstance(body, dict) else inner
        if name == "gen_ai.choice":
            message = unpacked(body.get("message"))
            whole = {**body, "message": message} if isinstance(message, dict) else {**body, "role": "assistant"}
            answers += answers_of([whole])
        elif name in _EVENT_ROLES:
            request += messages_of([{"role": _EVENT_ROLES[name], "content": None, **_known(body)}])
        elif name == "gen_ai.tool.message":
            request += messages_of([{"content": None, "tool_call_id": body.get("id"), **_known(body), "role": "tool"}])
        elif name == "gen_ai.content.prompt":
            request += messages_of(inner.get("gen_ai.prompt"))
        elif name == "gen_ai.content.completion":
            answers += answers_of(inner.get("gen_ai.completion"))
    return request, answers


def _known(body: Attributes) -> Attributes:
    kept = {key: body[key] for key in ("role", "content", "name", "tool_call_id", "parts") if body.get(key) is not None}
    calls = unpacked(body.get("tool_calls"))
    return {**kept, "tool_calls": calls} if isinstance(calls, list) else kept


def _whole(said: Attributes) -> Chat:
    for asked, answered in _WHOLE:
        if said.get(asked) is not None or said.get(answered) is not None:
            return messages_of(said.get(asked)), answers_of(said.get(answered))
    return [], []


def tools_said(said: Attributes) -> list[Any] | None:
    """Tool schemas that flat attributes carry; None where there are none."""
    held = first(said, "gen_ai.tool.definitions", "ai.prompt.tools", "llm.request.functions", "gen_ai.request.tools")
    if held is not None:
        return tool_list(held)
    listed = nested(said, "llm.tools")
    if isinstance(listed, list):
        return tool_list(
            [
                item.get("tool", item).get("json_schema", item.get("tool", item))
                for item in listed
                if isinstance(item, dict) and isinstance(item.get("tool", item), dict)
            ]
        )
    numbered = nested(said, "llm.request.functions")
    if isinstance(numbered, list):
        return tool_list(numbered)
    for key in ("llm.invocation_parameters", "model_request_parameters", "input.value", "gcp.vertex.agent.llm_request"):
        held = unpacked(said.get(key))
        if isinstance(held, dict) and (tools := tools_of(held) or tool_list(held.get("function_tools"))) is not None:
            return tools
    return None


def _cost(said: Attributes) -> float | None:
    value = first(said, "llm.cost.total", "gen_ai.usage.cost", "operation.cost")
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
