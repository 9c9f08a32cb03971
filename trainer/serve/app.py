"""The routes of the embedded server: chat completions, models, health, and the adapters' admin endpoints.

The admin endpoints read a path of this machine, so they answer to loopback alone, and only to JSON bodies, which a web
page cannot send across origins without asking first.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pydantic
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from trainer.contract import NightshiftError
from trainer.serve.batching import Batcher, Waiting
from trainer.serve.generation import Answer
from trainer.serve.grammar import Grammars
from trainer.serve.policy import Adapter, ServedPolicy
from trainer.serve.requests import ChatRequest, RequestRefusedError, logprobs_of, reply_of, text_of, usage_of

LOOPBACK = ("127.0.0.1", "::1", "localhost")
GONE_AFTER_SECONDS = 1.0
"""How often a waiting request looks whether its client is still there."""


class Server:
    """The routes over one policy and its batcher."""

    def __init__(self, policy: ServedPolicy, batcher: Batcher) -> None:
        self.policy = policy
        self.batcher = batcher
        self.grammars = Grammars(policy.tokenizer, policy.model.config.vocab_size)
        self.started = int(time.time())

    def app(self) -> Starlette:
        """The ASGI application."""
        return Starlette(
            routes=[
                Route("/health", self.health),
                Route("/v1/models", self.models),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
                Route("/v1/load_lora_adapter", self.load_adapter, methods=["POST"]),
                Route("/v1/unload_lora_adapter", self.unload_adapter, methods=["POST"]),
            ],
            exception_handlers={
                RequestRefusedError: _refused,
                NightshiftError: _refused,
                pydantic.ValidationError: _invalid,
                404: _no_such_route,
                405: _no_such_route,
                Exception: _broken,
            },
        )

    async def health(self, request: Request) -> Response:
        """200 as long as the generating thread lives."""
        return JSONResponse({"status": "ok"}) if self.batcher.is_alive() else JSONResponse({"status": "dead"}, status_code=503)

    async def models(self, request: Request) -> Response:
        """The base model and the loaded adapters."""
        common = {
            "object": "model",
            "created": self.started,
            "owned_by": "nightshift",
            "max_model_len": self.policy.max_context,
            "base_model": self.policy.name,
            "tokenizer_hash": self.policy.tokenizer_hash,
        }
        listed = [{**common, "id": self.policy.name, "root": str(self.policy.folder), "parent": None}]
        for name, adapter in sorted(self.policy.adapters.items()):
            listed.append({**common, "id": name, "root": str(adapter.folder), "parent": self.policy.name})
        return JSONResponse({"object": "list", "data": listed})

    async def load_adapter(self, request: Request) -> Response:
        """Load an adapter under a name that it keeps: {lora_name, lora_path}."""
        body = await _admin_body(request)
        name, folder = _text(body, "lora_name"), Path(_text(body, "lora_path"))
        await run_in_threadpool(self.policy.load, name, folder)
        return PlainTextResponse(f"Success: LoRA adapter '{name}' added successfully.")

    async def unload_adapter(self, request: Request) -> Response:
        """Forget an adapter: {lora_name}."""
        name = _text(await _admin_body(request), "lora_name")
        if not self.policy.unload(name):
            raise RequestRefusedError(f"the adapter {name} is not loaded", status=404, param="lora_name")
        return PlainTextResponse(f"Success: LoRA adapter '{name}' removed successfully.")

    async def chat(self, request: Request) -> Response:
        """One chat completion with n answers."""
        asked = ChatRequest.model_validate(await _json(request))
        adapter = self._adapter(asked.model)
        answers = asked.answers(self.policy, self.grammars)
        reply_id = f"chatcmpl-{secrets.token_hex(16)}"
        if asked.stream:
            return StreamingResponse(self._stream(asked, adapter, answers, reply_id), media_type="text/event-stream")
        waiting = self.batcher.submit(adapter, answers)
        future = asyncio.ensure_future(asyncio.wrap_future(waiting.finished))
        while not (await asyncio.wait({future}, timeout=GONE_AFTER_SECONDS))[0]:
            if await request.is_disconnected():
                waiting.cancel()
                return Response(status_code=499)
        await future
        return JSONResponse(reply_of(self.policy, asked, reply_id, answers))

    def _adapter(self, model: str) -> Adapter | None:
        if model == self.policy.name:
            return None
        try:
            return self.policy.adapters[model]
        except KeyError:
            raise RequestRefusedError(f"The model `{model}` does not exist.", status=404, param="model") from None

    async def _stream(
        self, asked: ChatRequest, adapter: Adapter | None, answers: list[Answer], reply_id: str
    ) -> AsyncIterator[str]:
        """Server-sent events, one per token of each answer.

        An answer with stop texts or tools comes in one piece when it is finished, since what it says is known only then.
        """
        loop, arrived = asyncio.get_running_loop(), asyncio.Queue[tuple[int, int, str | None]]()

        def tell(index: int, answer: Answer) -> None:
            event = (index, len(answer.logprobs), answer.finish_reason)
            loop.call_soon_threadsafe(arrived.put_nowait, event)

        for index, answer in enumerate(answers):
            answer.on_tokens = lambda answer, index=index: tell(index, answer)
        waiting = self.batcher.submit(adapter, answers)
        waiting.finished.add_done_callback(lambda _: loop.call_soon_threadsafe(arrived.put_nowait, (-1, 0, None)))
        try:
            async for event in self._events(asked, answers, waiting, arrived):
                shown = {"id": reply_id, "object": "chat.completion.chunk", "created": int(time.time()), "model": asked.model}
                yield f"data: {json.dumps({**shown, **event})}\n\n"
            yield "data: [DONE]\n\n"
        finally:
            waiting.cancel()

    async def _events(
        self, asked: ChatRequest, answers: list[Answer], waiting: Waiting, arrived: asyncio.Queue[tuple[int, int, str | None]]
    ) -> AsyncIterator[dict[str, Any]]:
        sent = [(0, "") for _ in answers]
        in_one_piece = bool(asked.stop or asked.tools)
        opening: dict[str, Any] = {"prompt_token_ids": list(answers[0].prompt)} if asked.return_token_ids else {}
        role = {"role": "assistant", "content": ""}
        yield {**opening, "choices": [{"index": index, "delta": role, "finish_reason": None} for index in range(len(answers))]}
        while True:
            index, num_known, finish_reason = await arrived.get()
            if index < 0:
                break
            answer, (num_sent, text_sent) = answers[index], sent[index]
            if finish_reason is None and (in_one_piece or num_known == num_sent):
                continue
            text = text_of(self.policy, answer) if finish_reason else self.policy.text_of(answer.token_ids[:num_known])
            if finish_reason is None:
                text = text.rstrip("\ufffd")  # bytes of a character that is not whole yet
            choice: dict[str, Any] = {"index": index, "finish_reason": finish_reason}
            choice["delta"] = {"content": text[len(text_sent) :]}
            token_ids, logprobs = answer.token_ids[num_sent:num_known], answer.logprobs[num_sent:num_known]
            if asked.logprobs:
                choice["logprobs"] = logprobs_of(self.policy, token_ids, logprobs)
            if asked.return_token_ids:
                choice["token_ids"] = token_ids
            if asked.tools and finish_reason:
                whole = reply_of(self.policy, asked, "", [answer])["choices"][0]
                choice["finish_reason"] = whole["finish_reason"]
                choice["delta"] = {key: value for key, value in whole["message"].items() if key != "role"}
            sent[index] = (num_known, text)
            yield {"choices": [choice]}
        try:
            waiting.finished.result(timeout=0)
        except Exception as problem:  # the stream has begun: the error can only be told inside it
            yield _error(str(problem), 500, None)
            return
        yield {"choices": [], "usage": usage_of(answers)}


async def _json(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.body())
    except ValueError as problem:
        raise RequestRefusedError(f"the body is no JSON: {problem}") from None
    if not isinstance(body, dict):
        raise RequestRefusedError("the body is no JSON object")
    return body


async def _admin_body(request: Request) -> dict[str, Any]:
    if request.client is None or request.client.host not in LOOPBACK:
        raise RequestRefusedError("adapters are loaded from this machine only", status=403)
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise RequestRefusedError("the body must be application/json", status=415)
    return await _json(request)


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise RequestRefusedError(f"{name} is missing", param=name)
    return value


def _error(message: str, status: int, param: str | None) -> dict[str, Any]:
    kind = {404: "NotFoundError", 500: "InternalServerError"}.get(status, "BadRequestError")
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


async def _refused(request: Request, problem: Exception) -> Response:
    status = problem.status if isinstance(problem, RequestRefusedError) else 400
    param = problem.param if isinstance(problem, RequestRefusedError) else None
    return JSONResponse(_error(str(problem), status, param), status_code=status)


async def _invalid(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, pydantic.ValidationError)
    first = problem.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    message = f"{where}: {first['msg']}" if where else first["msg"]
    return JSONResponse(_error(message, 400, where or None), status_code=400)


async def _no_such_route(request: Request, problem: Exception) -> Response:
    status = getattr(problem, "status_code", 404)
    return JSONResponse(_error(f"{request.method} {request.url.path} is not served here", status, None), status_code=status)


async def _broken(request: Request, problem: Exception) -> Response:
    return JSONResponse(_error(f"{type(problem).__name__}: {problem}", 500, None), status_code=500)
