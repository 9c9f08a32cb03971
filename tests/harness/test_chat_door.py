"""The door outlives a connection that the server closes under it, and names what broke."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from pipelines.doors.chat import ChatDoor
from pipelines.errors import EngineError

ANSWER = json.dumps({"choices": [{"message": {"role": "assistant", "content": "4"}}]}).encode()


async def serving(num_broken: int, ask: Callable[[str], Awaitable[None]]) -> int:
    """Runs `ask` against a server that closes the first connections instead of answering; how many requests came."""
    num_requests = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal num_requests
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        await reader.readexactly(length)
        num_requests += 1
        if num_requests > num_broken:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(ANSWER) + ANSWER)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        await ask(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
    return num_requests


def test_a_connection_that_broke_before_an_answer_is_made_once_more() -> None:
    async def ask(url: str) -> None:
        async with ChatDoor(url, concurrency=1) as door:
            reply = await door.complete({"model": "m", "messages": []})
            assert reply["choices"][0]["message"]["content"] == "4" and door.gone is None

    assert asyncio.run(serving(1, ask)) == 2


def test_a_server_that_breaks_every_connection_is_gone_and_why_is_said() -> None:
    async def ask(url: str) -> None:
        async with ChatDoor(url, concurrency=1) as door:
            with pytest.raises(EngineError, match=r"does not answer \(.+\)"):
                await door.complete({"model": "m", "messages": []})
            assert door.gone is not None

    assert asyncio.run(serving(99, ask)) == 2
