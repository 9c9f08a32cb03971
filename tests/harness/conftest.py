from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.serving import listening

HARNESS = """
import asyncio

async def rollout(task, client):
    messages = [{"role": "user", "content": task["text"]}]
    kind = task.get("kind")
    if kind == "silent":
        return
    if kind == "endless":
        await asyncio.Event().wait()
    answer = await client.chat(messages, max_tokens=task.get("max_tokens", 5))
    if kind == "second":
        messages += [answer, {"role": "user", "content": "and now?"}]
        await client.chat(messages, max_tokens=4, stop=["zzz"])
    if kind == "broken":
        raise ValueError("agent")
    if kind == "own timeout":
        raise TimeoutError
"""


@pytest.fixture(scope="module")
def served(toy_model: Path) -> Iterator[tuple[str, Any]]:
    with listening(toy_model) as pair:
        yield pair


@pytest.fixture
def agent(tmp_path: Path) -> Workspace:
    folder = tmp_path / "workspace"
    settings = '[harness]\nname = "desk"\nentry = "harness.py:rollout"\nconcurrency = 8\n[policy]\nname = "p"\n'
    workspace = make_workspace(folder, settings)
    (folder / "harness.py").write_text(HARNESS)
    return workspace
