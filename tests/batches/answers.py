"""Attempts whose every answer has token ids of its own, landed and taken through whole nights: what trained is read off batches."""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pipelines import groups, trajectories
from pipelines.batches import freeze
from pipelines.landing.land import land
from pipelines.reports import Frozen
from pipelines.rewards.score import score
from pipelines.schemas import CONSUMED
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.deliver import call
from tests.landing.lines import write_lines
from tests.sealed import CONFIG, fake_model

MORE = """
[[rewards.verifiers]]
name = "last"
kind = "python"
entry = "verify.py:last_is_good"
[evaluation]
held_out_share = 0.0
audit_share = 0.0
[groups]
size = {size}
"""
VERIFY = "def last_is_good(task_id, turns):\n    return float(str(turns[-1]['content']).startswith('good'))\n"


def prepare(folder: Path, *, size: int = 8) -> Workspace:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "verify.py").write_text(VERIFY)
    return make_workspace(folder, CONFIG.format(model=fake_model(folder / "toy-model")) + MORE.format(size=size))


def tokens(name: str) -> list[int]:
    """What the sampler logged of an answer."""
    return [zlib.crc32(name.encode()) >> 1, 5]


def said(attempt: str, name: str, text: str = "bad", *, after: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A call of an attempt: `name` is the answer's and unique in the world, `after` the call that it goes on from."""
    call_id = hashlib.md5(name.encode()).hexdigest()
    line = call(attempt, text=text, **{"policy_version": "agent@0", "token_ids": tokens(name), "call_id": call_id, **changes})
    if after is not None:
        messages = [*after["request"]["messages"], after["response"]["message"], {"role": "user", "content": "And now?"}]
        line["request"] = {**line["request"], "messages": messages}
    return line


def aside(line: dict[str, Any]) -> dict[str, Any]:
    """The same call under a request that nothing before it answers."""
    first, *_ = line["request"]["messages"]
    return {**line, "request": {**line["request"], "messages": [first, {"role": "user", "content": "once more, otherwise"}]}}


def deliver(workspace: Workspace, lines: Sequence[dict[str, Any]], name: str) -> None:
    land(workspace, [write_lines(workspace.folder / "logs" / f"{name}.jsonl", list(lines))])
    trajectories.build(workspace)


def night(workspace: Workspace, day: str, *, again: bool = False) -> Frozen:
    groups.seal(workspace, day, judged=True)
    score(workspace, day)
    return freeze(workspace, day, again=again)


def trained(workspace: Workspace, *, again: bool = False) -> Counter[tuple[int, ...]]:
    """How often each answer stands in the batches, by its token ids; `again`: also in those that were frozen again."""
    rows = workspace.lake.read(CONSUMED.name).to_pylist()
    found: Counter[tuple[int, ...]] = Counter()
    for batch_id in sorted({row["batch_id"] for row in rows if again or not row["again"]}):
        for row in pq.read_table(workspace.batches / batch_id / "rows.parquet").to_pylist():
            found[tuple(token for token, own in zip(row["token_ids"], row["sampled"], strict=True) if own)] += 1
    return found


def once(*names: str) -> Counter[tuple[int, ...]]:
    return Counter({tuple(tokens(name)): 1 for name in names})
