from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.groups import assign_splits, seal, want
from pipelines.landing.land import land
from pipelines.trajectories import build
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.deliver import call
from tests.landing.lines import write_lines
from tests.policy_double import PolicyDouble, policy_double

LAST_NIGHT, NIGHT = "2026-11-20", "2026-11-21"
HARNESS = """
async def rollout(task, client):
    answer = await client.chat(task["messages"], tools=task["tools"])
    return float(answer["content"] == "4") if answer["content"] in ("4", "5") else None
"""


def evening() -> datetime.datetime:
    return datetime.datetime(2026, 11, 21, 23, tzinfo=datetime.UTC)


def other(attempt: str, **changes: Any) -> dict[str, Any]:
    """A logged call of another team's model, without ids."""
    return call(attempt, policy_version=None, model="gpt", prompt_token_ids=None, token_ids=None, logprobs=None, **changes)


def taken_in(workspace: Workspace, lines: list[dict[str, Any]] | None = None, *, night: str = LAST_NIGHT) -> None:
    """What a night does with some lines before it ends with its list; None: with what its sources hold."""
    if lines is None:
        land(workspace)
    else:
        land(workspace, [write_lines(workspace.folder / f"given-{night}.jsonl", lines)])
    build(workspace)
    assign_splits(workspace, night)
    seal(workspace, night, judged=True)
    want(workspace, night)


@pytest.fixture
def server() -> Iterator[PolicyDouble]:
    with policy_double() as double:
        yield double


Opened = Callable[..., Workspace]


@pytest.fixture
def opened(tmp_path: Path, server: PolicyDouble) -> Opened:
    """Makes the workspace, without a single source; again with other settings where it is there."""

    def make(groups: str = "top_up = 64", top_up: str = "", more: str = "", *, code: str = HARNESS) -> Workspace:
        folder = tmp_path / "workspace"
        folder.mkdir(exist_ok=True)
        (folder / "harness.py").write_text(code, encoding="utf-8")
        settings = (
            f'[policy]\nname = "nightshift-agent"\nbase_url = "{server.url}"\n[harness]\nname = "sums"\nentry = "harness.py:rollout"\n'
            f"[evaluation]\nheld_out_share = 0.0\n[groups]\n{groups}\n[top_up]\n{top_up}\n"
            '[[rewards.verifiers]]\nname = "logged"\nkind = "logged_outcome"\n[judge]\ngroups_per_night = 0\n'
        )
        return make_workspace(folder, settings + more)

    return make
