"""The door for chat calls of a harness: sends them to the policy server and records what went over the wire.

What a rollout sees is `RecordingClient.chat`. Each call becomes one recorder line with the exact sampled token ids and
their log-probabilities. The lines of one attempt are appended in one write when it ends, so that an attempt is in the log
whole or not at all, also when the process is killed: its id is known beforehand, and an attempt that is absent is simply
made again.
"""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import orjson

from pipelines.errors import EngineError, HarnessError

if TYPE_CHECKING:
    import httpx

DEFAULT_MAX_TOKENS = 512
CONNECT_SECONDS = 10.0
KEPT_SECONDS = 2.0
"""How long an idle connection is used again. Servers (uvicorn, so vLLM too) close theirs after 5 s, which is also what httpx keeps
them for: a request that is sent at that moment breaks, and with it the night."""

Clock = Callable[[], datetime.datetime]


class CallRefusedError(EngineError):
    """The server answered one call with an error, or with something that is no chat completion."""


class ChatDoor:
    """One server, asked concurrently; use as an async context manager."""

    def __init__(self, url: str, *, concurrency: int, api_key: str | None = None) -> None:
        self.url = url
        self.gone: EngineError | None = None
        """Set once the server could not be reached: no further call makes sense."""
        self._concurrency = concurrency
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client: Any = None

    async def __aenter__(self) -> ChatDoor:
        """Open the connections."""
        import httpx

        self._client = httpx.AsyncClient(
            # how long an answer may take is the rollout's limit, not the connection's
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
            limits=httpx.Limits(
                max_connections=self._concurrency, max_keepalive_connections=self._concurrency, keepalive_expiry=KEPT_SECONDS
            ),
            headers=self._headers,
            trust_env=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """One chat completion. EngineError where the server is gone, CallRefusedError where it refuses or answers nonsense."""
        import httpx

        if self.gone is not None:
            raise self.gone
        try:
            reply = await self._post(body)
        except httpx.HTTPError as problem:
            self.gone = EngineError(
                f"the policy server at {self.url} does not answer ({str(problem) or type(problem).__name__}); nothing of the attempts "
                "in flight was recorded, so the same command goes on from there"
            )
            raise self.gone from problem
        try:
            content = reply.json()
            if reply.status_code == 200 and content["choices"][0]["message"]["role"] == "assistant":
                return content
            said = content["error"]["message"]
        except (ValueError, KeyError, TypeError, IndexError):
            said = reply.text[:400]
        raise CallRefusedError(f"the policy server answered {reply.status_code}: {said}")

    async def _post(self, body: dict[str, Any]) -> httpx.Response:
        """The reply; sent once more where the connection broke before there was one, since a call leaves nothing behind."""
        import httpx

        url = f"{self.url}/chat/completions"
        try:
            return await self._client.post(url, json=body)
        except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
            return await self._client.post(url, json=body)


class RecorderLog:
    """A file of recorder lines, appended to whole attempts at a time; fsync on close."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            torn = path.exists() and path.stat().st_size > 0 and not _ends_whole(path)
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as problem:
            raise HarnessError(f"the log {path} cannot be opened: {problem.strerror}") from problem
        if torn:  # a full disk cut the last line: what follows must not continue it
            self._write(b"\n")

    def append(self, lines: Sequence[dict[str, Any]]) -> None:
        """Append lines in one write; HarnessError where they do not fit."""
        self._write(b"".join(orjson.dumps(line) + b"\n" for line in lines))

    def close(self) -> None:
        """Make durable and close."""
        os.fsync(self._descriptor)
        os.close(self._descriptor)

    def _write(self, content: bytes) -> None:
        try:
            written = os.write(self._descriptor, content)
        except OSError as problem:
            raise HarnessError(f"the log {self.path} cannot be written: {problem.strerror}") from problem
        if written != len(content):
            raise HarnessError(f"the log {self.path} cannot be written: the disk is full")


@dataclass
class RecordingClient:
    """What a rollout calls; one per attempt."""

    door: ChatDoor
    model: str
    """Name that is requested: the base model or an adapter."""
    temperature: float
    seed: str
    """What the seeds of this attempt's calls are drawn from."""
    clock: Clock
    identity: dict[str, Any]
    """attempt_id, harness, task_id, attempt, purpose, policy_version: what every line of the attempt says."""
    lines: list[dict[str, Any]] = field(default_factory=list)
    """Recorder lines so far."""

    async def chat(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        tools: Sequence[dict[str, Any]] | None = None,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        stop: Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """Send the conversation and return the assistant's message ({role, content, tool_calls where there are any}).

        EngineError where no answer came; the attempt then counts as a fault, not as a failed attempt.
        """
        sampling: dict[str, Any] = {"temperature": self.temperature, "max_tokens": max_tokens, "seed": self._seed()}
        if stop:
            sampling["stop"] = list(stop)
        # as it is now: a harness appends to its own list afterwards
        request = orjson.loads(
            orjson.dumps({"messages": list(messages), "tools": list(tools) if tools else None, "sampling": sampling})
        )
        line = self._line(request)
        asked = {"model": self.model, "messages": request["messages"], **sampling, "logprobs": True, "return_token_ids": True}
        if request["tools"]:
            asked["tools"] = request["tools"]
        try:
            content = await self.door.complete(asked)
        except asyncio.CancelledError:
            self._keep(line, fault="timeout")
            raise
        except EngineError:
            self._keep(line, fault="engine_error")
            raise
        choice = content["choices"][0]
        message = {
            "role": "assistant",
            "content": choice["message"].get("content"),
            "tool_calls": choice["message"].get("tool_calls"),
        }
        line["response"] = {"message": message, "finish_reason": choice.get("finish_reason")}
        token_ids, logprobs = choice.get("token_ids"), _logprobs(choice)
        line["prompt_token_ids"] = content.get("prompt_token_ids")
        line["token_ids"] = token_ids
        line["logprobs"] = (
            logprobs if token_ids is not None and logprobs is not None and len(logprobs) == len(token_ids) else None
        )
        line["usage"] = {key: (content.get("usage") or {}).get(key) for key in ("prompt_tokens", "completion_tokens")}
        self._keep(line, fault=None)
        return {key: value for key, value in message.items() if key != "tool_calls" or value}

    def mark_fault(self, fault: str) -> None:
        """Say that the attempt ended in a fault, on a line of its own unless its last call already says so."""
        if self.lines and self.lines[-1]["fault"]:
            self.lines[-1]["fault"] = fault
            return
        request = self.lines[-1]["request"] if self.lines else {"messages": [], "tools": None, "sampling": {}}
        self._keep(self._line(request), fault=fault)

    def _seed(self) -> int:
        digest = hashlib.sha256(f"{self.seed}/{len(self.lines)}".encode()).digest()
        return int.from_bytes(digest[:4]) >> 1  # non-negative in 32 bits, which every server takes

    def _line(self, request: dict[str, Any]) -> dict[str, Any]:
        return {
            "recorder": 1,
            "kind": "call",
            "call_id": f"{self.identity['attempt_id']}/{len(self.lines)}",
            **self.identity,
            "model": self.model,
            "request": request,
            "response": None,
            "prompt_token_ids": None,
            "token_ids": None,
            "logprobs": None,
            "usage": None,
            "started_at": _text_of(self.clock()),
            "ended_at": None,
            "outcome": None,
            "fault": None,
        }

    def _keep(self, line: dict[str, Any], fault: str | None) -> None:
        line["ended_at"], line["fault"] = _text_of(self.clock()), fault
        self.lines.append(line)


def _logprobs(choice: dict[str, Any]) -> list[float] | None:
    content = (choice.get("logprobs") or {}).get("content")
    return None if content is None else [entry["logprob"] for entry in content]


def _text_of(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read(1) == b"\n"
