"""What a chat request may ask for, and what a reply looks like: the names are vLLM's and OpenAI's.

Fields that would change the reply and are not built here are refused by name; unknown ones are ignored, as vLLM does.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trainer.serve.generation import Answer, Sampling
from trainer.serve.grammar import Grammars
from trainer.serve.policy import ServedPolicy

MAX_ANSWERS = 128
DEFAULT_MAX_TOKENS = 1024
"""Where the request names no limit; the context may leave less."""
REFUSED_UNLESS: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0),
    "repetition_penalty": (None, 1),
    "logit_bias": (None, {}),
    "top_k": (None, 0, -1),
    "min_p": (None, 0),
    "top_logprobs": (None, 0),
    "ignore_eos": (None, False),
    "min_tokens": (None, 0),
    "use_beam_search": (None, False),
}
"""Field -> values under which it asks for nothing."""
_TOOL_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)


class RequestRefusedError(Exception):
    """A request that cannot be answered as asked; becomes an HTTP status and an OpenAI-shaped error."""

    def __init__(self, message: str, *, status: int = 400, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param


class Message(BaseModel):
    """One message of the conversation."""

    model_config = ConfigDict(extra="allow")
    role: str
    content: str | list[dict[str, Any]] | None = None

    def plain(self) -> dict[str, Any]:
        """For the chat template: content as one text, which templates can concatenate."""
        content = self.content or ""
        if not isinstance(content, str):
            if wrong := [part.get("type") for part in content if part.get("type") != "text"]:
                raise RequestRefusedError(
                    f"messages: content of type {wrong[0]!r} cannot be read here, only text", param="messages"
                )
            content = "".join(str(part.get("text", "")) for part in content)
        return {**self.model_dump(exclude_none=True), "content": content}


class ResponseFormat(BaseModel):
    """text, json_object or json_schema."""

    model_config = ConfigDict(extra="allow")
    type: Literal["text", "json_object", "json_schema"]
    json_schema: dict[str, Any] | None = None

    def schema_asked(self) -> dict[str, Any] | None:
        """The JSON schema that the reply must have; None: any text."""
        if self.type == "text":
            return None
        if self.type == "json_object":
            return {"type": "object"}
        schema = (self.json_schema or {}).get("schema")
        if not isinstance(schema, dict):
            raise RequestRefusedError("response_format: json_schema.schema is missing", param="response_format")
        return schema


class ChatRequest(BaseModel):
    """Body of POST /v1/chat/completions."""

    model_config = ConfigDict(extra="allow")
    model: str
    messages: list[Message] = Field(min_length=1)
    n: int = Field(default=1, ge=1, le=MAX_ANSWERS)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: float = Field(default=1.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    seed: int | None = None
    stop: str | list[str] | None = None
    tools: list[dict[str, Any]] | None = None
    logprobs: bool = False
    return_token_ids: bool = False
    response_format: ResponseFormat | None = None
    stream: bool = False

    @model_validator(mode="after")
    def _refuse_what_is_not_built(self) -> ChatRequest:
        for name, harmless in REFUSED_UNLESS.items():
            if (self.model_extra or {}).get(name) not in harmless:
                raise ValueError(f"{name} is not supported by the embedded server")
        return self

    def answers(self, policy: ServedPolicy, grammars: Grammars) -> list[Answer]:
        """The answers to sample; RequestRefusedError where prompt or schema do not hold."""
        try:
            prompt = tuple(policy.render([message.plain() for message in self.messages], self.tools))
        except RequestRefusedError:
            raise
        except Exception as problem:  # a chat template may refuse a conversation with any error
            raise RequestRefusedError(f"the model's chat template refuses these messages: {problem}", param="messages") from None
        room = policy.max_context - len(prompt)
        asked = self.max_completion_tokens or self.max_tokens
        if room < (asked or 1):
            raise RequestRefusedError(
                f"this model's maximum context length is {policy.max_context} tokens and {len(prompt)} prompt tokens with "
                f"{asked or 1} new ones were asked for",
                param="messages",
            )
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        sampling = Sampling(self.temperature, self.top_p, asked or min(room, DEFAULT_MAX_TOKENS), tuple(filter(None, stop)))
        schema = self.response_format.schema_asked() if self.response_format else None
        seed = self.seed if self.seed is not None else int.from_bytes(os.urandom(8))
        return [
            Answer(
                prompt,
                sampling,
                random.Random(f"{seed}/{index}"),
                matcher=grammars.matcher(schema) if schema is not None else None,
            )
            for index in range(self.n)
        ]


def text_of(policy: ServedPolicy, answer: Answer) -> str:
    """Text of an answer, cut before the stop text that ended it."""
    text = policy.text_of(answer.token_ids)
    return text if answer.stop_text is None else text[: text.index(answer.stop_text)]


def logprobs_of(policy: ServedPolicy, token_ids: Sequence[int], logprobs: Sequence[float]) -> dict[str, Any]:
    """The `logprobs` object of a choice: one entry per token, the end token included."""
    tokens = [policy.tokenizer.decode([token]) for token in token_ids]
    entries = [
        {"token": token, "logprob": logprob, "bytes": list(token.encode()), "top_logprobs": []}
        for token, logprob in zip(tokens, logprobs, strict=True)
    ]
    return {"content": entries}


def choice_of(policy: ServedPolicy, request: ChatRequest, index: int, answer: Answer) -> dict[str, Any]:
    """One choice of a reply."""
    content, finish_reason = text_of(policy, answer), answer.finish_reason
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if request.tools and (calls := _tool_calls(content)):
        message["tool_calls"] = calls
        message["content"] = _TOOL_CALL.sub("", content).strip() or None
        finish_reason = "tool_calls" if finish_reason == "stop" else finish_reason
    choice: dict[str, Any] = {"index": index, "message": message, "finish_reason": finish_reason, "stop_reason": answer.stop_text}
    choice["logprobs"] = logprobs_of(policy, answer.token_ids, answer.logprobs) if request.logprobs else None
    if request.return_token_ids:
        choice["token_ids"] = answer.token_ids
    return choice


def reply_of(policy: ServedPolicy, request: ChatRequest, reply_id: str, answers: Sequence[Answer]) -> dict[str, Any]:
    """The whole reply of a request that does not stream."""
    reply: dict[str, Any] = {
        "id": reply_id,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": request.model,
        "choices": [choice_of(policy, request, index, answer) for index, answer in enumerate(answers)],
        "usage": usage_of(answers),
    }
    if request.return_token_ids:
        reply["prompt_token_ids"] = list(answers[0].prompt)
    return reply


def usage_of(answers: Sequence[Answer]) -> dict[str, int]:
    """Token counts of a reply."""
    num_prompt, num_sampled = len(answers[0].prompt), sum(len(answer.token_ids) for answer in answers)
    return {"prompt_tokens": num_prompt, "completion_tokens": num_sampled, "total_tokens": num_prompt + num_sampled}


def _tool_calls(content: str) -> list[dict[str, Any]]:
    """Calls in the Hermes form, <tool_call>{"name": …, "arguments": …}</tool_call>; a malformed one stays text."""
    calls = []
    for number, found in enumerate(_TOOL_CALL.finditer(content)):
        try:
            call = json.loads(found[1])
            name, arguments = call["name"], call.get("arguments", {})
        except (ValueError, KeyError, TypeError):
            return []
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        calls.append({"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": text}})
    return calls
